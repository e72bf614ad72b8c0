// A driver that is older than the version asked for gives the function that it has: its own signature must be wrapped.
#include "shim/driver/driver_api.h"
#include "tests/shim/interpose/program.h"

using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::in_grape;
using grape::interpose::test::open_driver;

int main() {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  state.newest = 12040;
  auto ask = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(driver, "cuGetProcAddress_v2"));
  void* function = nullptr;
  EXPECT(ask("cuCtxSynchronize", &function, 13000, 0, nullptr) == CUDA_SUCCESS, "cuCtxSynchronize");
  EXPECT(in_grape(function), "cuCtxSynchronize");
  reinterpret_cast<PFN_cuCtxSynchronize_v2000>(function)();
  EXPECT(state.counts[grape::interpose::kRow_cuCtxSynchronize] == 1, "cuCtxSynchronize");
  std::printf("calls cuCtxSynchronize 1\ncalls cuCtxSynchronize_v2 0\n");
  return finish();
}
