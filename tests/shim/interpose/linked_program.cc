// A program that links the driver: its references must bind to the library's symbols, and reach the driver.
#include "tests/shim/interpose/program.h"

using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::in_grape;

extern "C" {
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects)                 \
  int linked_##symbol(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, \
                      std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, \
                      std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) __asm__(#symbol);
#include "shim/driver/hooks.def"
#undef GRAPE_HOOK
FakeState* fake_state();
}

int main() {
  FakeState& state = *fake_state();
  std::uint32_t row = 0;
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects)  \
  if (std::strcmp(#base, "cuGetProcAddress") != 0) {                                             \
    EXPECT(linked_##symbol(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 0, #symbol);       \
    EXPECT(state.counts[row] == 1, #symbol);                                                     \
    std::printf("calls %s %llu\n", #symbol, static_cast<unsigned long long>(state.counts[row])); \
  }                                                                                              \
  ++row;
#include "shim/driver/hooks.def"
#undef GRAPE_HOOK
  // A search of the program's own scope finds what the program links.
  void* found = dlsym(RTLD_DEFAULT, "cuInit");
  EXPECT((std::getenv("INTERPOSE_EXPECT_OFF") != nullptr) != in_grape(found), "cuInit by RTLD_DEFAULT");
  return finish();
}
