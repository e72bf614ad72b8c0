// The driver calls wrapped functions from within a call, and is unloaded and loaded again.
#include <sys/mman.h>

#include "tests/shim/interpose/program.h"

using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeFunction;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::in_grape;
using grape::interpose::test::open_driver;

namespace {

int (*g_synchronize)() = nullptr;

void call_back(void*) { g_synchronize(); }

void launch(const char* name, void* driver) {
  static FakeFunction function;
  function = {name, false, 1, {{0, 8}}};
  std::uint64_t value = 5;
  void* parameters[] = {&value};
  auto* launch_kernel = reinterpret_cast<int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                 unsigned, void*, void**, void**)>(dlsym(driver, "cuLaunchKernel"));
  EXPECT(launch_kernel(&function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == 0, name);
}

void reentry(void* driver, FakeState& state) {
  g_synchronize = reinterpret_cast<int (*)()>(dlsym(driver, "cuCtxSynchronize"));
  auto* host_function = reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(dlsym(driver, "cuLaunchHostFunc"));
  EXPECT(host_function(nullptr, call_back, nullptr) == 0, "cuLaunchHostFunc");
  EXPECT(state.counts[grape::interpose::kRow_cuCtxSynchronize] == 1, "the inner call reaches the driver once");
  g_synchronize();
  EXPECT(state.counts[grape::interpose::kRow_cuCtxSynchronize] == 2, "and so does one after it");
  launch("before_reload", driver);
}

void reload(void* driver, FakeState* before) {
  dlclose(driver);
  // Something else in its place, so that it comes back elsewhere.
  void* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(before) & ~std::uintptr_t{4095});
  EXPECT(mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page,
         "the driver is gone");
  void* again = open_driver();
  FakeState& state = fake_state_of(again);
  EXPECT(&state != before, "the driver came back elsewhere");
  auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(again, "cuInit"));
  EXPECT(in_grape(reinterpret_cast<void*>(init)), "cuInit of the driver that came back");
  EXPECT(init(0) == 0 && state.counts[grape::interpose::kRow_cuInit] == 1, "cuInit of the driver that came back");
  launch("after_reload", again);
  EXPECT(state.names_asked == 1, "the kernel's name is asked of the driver that came back");
}

}  // namespace

int main() {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  reentry(driver, state);
  reload(driver, &state);
  return finish();
}
