// For the programs that run under the library: expectations that say where they failed, and the fake driver.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/shim/interpose/fake_driver.h"

namespace grape::interpose::test {

inline int g_failures = 0;

inline void expect(bool holds, const char* what, const std::string& which, int line) {
  if (holds) return;
  std::printf("line %d: %s: not %s\n", line, which.c_str(), what);
  ++g_failures;
}
#define EXPECT(condition, which) ::grape::interpose::test::expect((condition), #condition, (which), __LINE__)

// Is the address in the library under test?
inline bool in_grape(void* address) {
  Dl_info info;
  return address != nullptr && dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libgrape.so") != nullptr;
}

inline void* open_driver() {
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::printf("%s\n", dlerror());
    std::exit(2);
  }
  return handle;
}

inline FakeState& fake_state_of(void* driver) {
  auto* function = reinterpret_cast<FakeStateFunction>(dlsym(driver, "fake_state"));
  if (function == nullptr) std::exit(2);
  return *function();
}

// A function of the driver, which must be there.
template <class T>
T get(void* driver, const char* symbol) {
  auto function = reinterpret_cast<T>(dlsym(driver, symbol));
  if (function == nullptr) std::exit(2);
  return function;
}

struct ListedRow {
  const char* base;
  const char* symbol;
  int version;
  bool per_thread;
};
inline const ListedRow kListed[] = {
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects) \
  {#base, #symbol, version, per_thread != 0},
#include "shim/driver/hooks.def"
#undef GRAPE_HOOK
};

inline int finish() {
  std::fflush(stdout);
  return g_failures == 0 ? 0 : 1;
}

}  // namespace grape::interpose::test
