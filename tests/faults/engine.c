// What tests/python_hooks/probes/fake_torch takes its autograd engine's method from. The programs here run no backward
// pass.
#include <stdlib.h>

__attribute__((visibility("default"))) void* probe_run_backward(void* self, void* arguments, void* keywords) {
  (void)self;
  (void)arguments;
  (void)keywords;
  abort();
}
