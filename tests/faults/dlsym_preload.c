// Another preloaded library that interposes dlsym, as profilers and other CUDA shims do: it counts, and forwards to
// the next dlsym, which it finds by dlvsym.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int g_calls;

__attribute__((visibility("default"))) void* dlsym(void* handle, const char* symbol) {
  static void* (*next)(void*, const char*);
  static __thread int t_asking __attribute__((tls_model("initial-exec")));
  if (next == NULL) {
    if (t_asking) return NULL;
    t_asking = 1;
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (found == NULL) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    t_asking = 0;
    next = (void* (*)(void*, const char*))found;
    if (next == NULL) return NULL;
  }
  __atomic_fetch_add(&g_calls, 1, __ATOMIC_RELAXED);
  return next(handle, symbol);
}

// The number of calls shows the test that this library was in the way.
__attribute__((destructor)) static void say(void) {
  if (getenv("DLSYM_PRELOAD_SAYS") == NULL) return;
  char line[64];
  const int bytes = snprintf(line, sizeof line, "dlsym_preload: %s\n", g_calls > 0 ? "called" : "not called");
  if (write(2, line, (size_t)bytes) < 0) return;
}
