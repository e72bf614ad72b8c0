// Beside another preloaded library, and with libraries loaded in unusual ways.
#include <unistd.h>

#include "tests/shim/interpose/program.h"

using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::open_driver;

extern "C" int linked_init(unsigned) __asm__("cuInit");
extern "C" FakeState* fake_state();

int main(int, char** arguments) {
  EXPECT(getppid() > 0, "getppid through the other library");
  FakeState& state = *fake_state();
  EXPECT(linked_init(0) == 0, "cuInit");
  EXPECT(state.counts[grape::interpose::kRow_cuInit] == 1, "cuInit reaches the driver once");
  auto by_handle = reinterpret_cast<int (*)(unsigned)>(dlsym(open_driver(), "cuInit"));
  EXPECT(by_handle(0) == 0, "cuInit by handle");
  EXPECT(state.counts[grape::interpose::kRow_cuInit] == 2, "cuInit by handle reaches the driver once");
  // Bound to the driver before anything preloaded: nothing is seen, nothing breaks.
  void* deep = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
  EXPECT(deep != nullptr, arguments[1]);
  if (deep != nullptr) {
    auto* call = reinterpret_cast<int (*)()>(dlsym(deep, "call_init"));
    EXPECT(call() == 0, "cuInit of a deeply bound library");
  }
  EXPECT(state.counts[grape::interpose::kRow_cuInit] == 3, "cuInit of a deeply bound library");
  // Found through this program's own search path.
  EXPECT(dlopen("libinterpose_rpath.so", RTLD_NOW) != nullptr, "a library on the program's RUNPATH");
  return finish();
}
