// The driver calls wrapped functions from within a call, and is unloaded and loaded again.
#include <errno.h>

#include "tests/interpose/program.h"

using namespace grape::interpose::test;

namespace {

int (*g_synchronize)() = nullptr;

void call_back(void*) { g_synchronize(); }

void reentry(void* driver, FakeState& state) {
  g_synchronize = reinterpret_cast<int (*)()>(dlsym(driver, "cuCtxSynchronize"));
  auto* host_function = reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(dlsym(driver, "cuLaunchHostFunc"));
  EXPECT(host_function(nullptr, call_back, nullptr) == 0, "cuLaunchHostFunc");
  EXPECT(state.counts[grape::interpose::kRow_cuCtxSynchronize] == 1, "the inner call reaches the driver once");
  g_synchronize();
  EXPECT(state.counts[grape::interpose::kRow_cuCtxSynchronize] == 2, "and so does one after it");
}

void reload(void* driver) {
  dlclose(driver);
  // Something else in its place, so that it comes back elsewhere.
  void* other = dlopen("libinterpose_rpath.so", RTLD_NOW);
  void* again = open_driver();
  FakeState& state = fake_state_of(again);
  auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(again, "cuInit"));
  EXPECT(in_grape(reinterpret_cast<void*>(init)), "cuInit of the driver that came back");
  EXPECT(init(0) == 0 && state.counts[grape::interpose::kRow_cuInit] == 1, "cuInit of the driver that came back");
  FakeFunction function{"after_reload", false, 1, {{0, 8}}};
  std::uint64_t value = 5;
  void* parameters[] = {&value};
  auto* launch = reinterpret_cast<int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                          void*, void**, void**)>(dlsym(again, "cuLaunchKernel"));
  EXPECT(launch(&function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == 0, "cuLaunchKernel");
  EXPECT(state.names_asked == 1, "the kernel's name is asked of the driver that came back");
  if (other != nullptr) dlclose(other);
}

}  // namespace

int main() {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  reentry(driver, state);
  reload(driver);
  return finish();
}
