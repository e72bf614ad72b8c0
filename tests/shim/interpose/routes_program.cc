// Every row by every door: dlsym, dlvsym, and cuGetProcAddress in both signatures. The door must give a function of
// the library, and a call of that must reach the driver's function once and bring back its result and errno. Called
// with null pointers (and a driver that succeeds), then with bad ones (and a driver that fails).
// Prints "calls SYMBOL N", to be compared with the trace.
#include <errno.h>

#include "shim/driver/driver_api.h"
#include "tests/shim/interpose/program.h"

using grape::interpose::kRowCount;
using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::in_grape;
using grape::interpose::test::kListed;
using grape::interpose::test::ListedRow;
using grape::interpose::test::open_driver;

namespace {

using Any = int (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t);

int call(void* function, std::uint64_t x) {
  return reinterpret_cast<Any>(function)(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x);
}

bool is_door(const ListedRow& row) { return std::strcmp(row.base, "cuGetProcAddress") == 0; }

void check(FakeState& state, std::uint32_t index, void* function, const char* door) {
  const ListedRow& row = kListed[index];
  const std::string which = std::string(row.symbol) + " by " + door;
  EXPECT(in_grape(function), which);
  if (function == nullptr || is_door(row)) return;
  for (int result : {0, 1, 719}) {
    *state.result = result;
    const std::uint64_t before = state.counts[index];
    errno = 1234;
    const int returned = call(function, result == 0 ? 0 : 1);
    EXPECT(errno == 1234, which);
    EXPECT(returned == result, which);
    EXPECT(state.counts[index] == before + 1, which);
  }
  *state.result = 0;
}

}  // namespace

int main() {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  auto ask = reinterpret_cast<PFN_cuGetProcAddress_v11030>(dlsym(driver, "cuGetProcAddress"));
  auto ask_v2 = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(driver, "cuGetProcAddress_v2"));
  for (std::uint32_t i = 0; i < kRowCount; ++i) {
    const ListedRow& row = kListed[i];
    check(state, i, dlsym(driver, row.symbol), "dlsym");
    check(state, i, dlvsym(driver, row.symbol, "FAKE_1"), "dlvsym");
    const cuuint64_t flags = row.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    void* function = nullptr;
    EXPECT(ask(row.base, &function, row.version, flags) == CUDA_SUCCESS, row.symbol);
    check(state, i, function, "cuGetProcAddress");
    function = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    EXPECT(ask_v2(row.base, &function, row.version, flags, &status) == CUDA_SUCCESS, row.symbol);
    EXPECT(status == CU_GET_PROC_ADDRESS_SUCCESS, row.symbol);
    check(state, i, function, "cuGetProcAddress_v2");
    if (!is_door(row)) {
      std::printf("calls %s %llu\n", row.symbol, static_cast<unsigned long long>(state.counts[i]));
    }
  }
  return finish();
}
