// Names and versions at the doors: what must not be touched, what must be told apart, what is not known.
#include <errno.h>

#include "shim/driver/driver_api.h"
#include "tests/shim/interpose/program.h"

using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::in_grape;
using grape::interpose::test::kListed;
using grape::interpose::test::open_driver;

namespace {

void without_driver() {
  dlerror();
  EXPECT(dlsym(RTLD_DEFAULT, "cuInit") == nullptr, "cuInit without a driver");
  EXPECT(dlerror() != nullptr, "dlerror of cuInit without a driver");
  EXPECT(dlsym(RTLD_DEFAULT, "cuQuiteUnknown") == nullptr, "an unknown name without a driver");
  const char* message = dlerror();
  EXPECT(message != nullptr && std::strstr(message, "libgrape") == nullptr, "dlerror names the caller's object");
  void* self = dlopen(nullptr, RTLD_NOW);
  EXPECT(dlsym(self, "cuLaunchKernel") == nullptr, "cuLaunchKernel of the program without a driver");
  EXPECT(dlvsym(RTLD_DEFAULT, "cuInit", "FAKE_1") == nullptr, "cuInit by dlvsym without a driver");
  EXPECT(dlvsym(RTLD_DEFAULT, "puts", "GLIBC_2.2.5") != nullptr, "puts by dlvsym");
}

void next_of_program() {
  // The program itself asks: what comes after it is the library, which stands for libc here.
  void* puts_next = dlsym(RTLD_NEXT, "puts");
  EXPECT(puts_next != nullptr && !in_grape(puts_next), "puts by RTLD_NEXT");
  EXPECT(in_grape(dlsym(RTLD_NEXT, "dlsym")), "dlsym by RTLD_NEXT: the library comes next");
}

void other_prefixes(void* traps) {
  for (const char* name : {"cudnnCreate", "cublasCreate", "cudaMalloc", "cufftPlan1d", "curandCreate", "cu", "c", ""}) {
    void* function = dlsym(traps, name);
    EXPECT(!in_grape(function), name);
    if (std::strlen(name) > 2) EXPECT(function != nullptr, name);
  }
  // Driver-like names in another library are that library's.
  void* function = dlsym(traps, "cuLaunchKernel");
  EXPECT(function != nullptr && !in_grape(function), "another library's cuLaunchKernel");
  if (function == nullptr) return;
  EXPECT(reinterpret_cast<int (*)()>(function)() == 77, "another library's cuLaunchKernel");
}

void versions(FakeState& state, PFN_cuGetProcAddress_v12000 ask) {
  const auto get = [&](const char* name, int version, cuuint64_t flags) {
    void* function = nullptr;
    ask(name, &function, version, flags, nullptr);
    return function;
  };
  const auto row_of = [&](void* function) {
    std::uint64_t before[grape::interpose::kRowCount];
    std::memcpy(before, state.counts, sizeof(before));
    reinterpret_cast<int (*)(void*, void*, void*, void*)>(function)(nullptr, nullptr, nullptr, nullptr);
    for (std::uint32_t row = 0; row < grape::interpose::kRowCount; ++row) {
      if (state.counts[row] != before[row]) return std::string(kListed[row].symbol);
    }
    return std::string();
  };
  EXPECT(row_of(get("cuCtxSynchronize", 2000, 0)) == "cuCtxSynchronize", "2000");
  EXPECT(row_of(get("cuCtxSynchronize", 12000, 0)) == "cuCtxSynchronize", "12000");
  EXPECT(row_of(get("cuCtxSynchronize", 13000, 0)) == "cuCtxSynchronize_v2", "13000");
  EXPECT(row_of(get("cuStreamBeginCapture", 12000, 0)) == "cuStreamBeginCapture_v2", "capture");
  EXPECT(row_of(get("cuMemcpyHtoD", 12000, 2)) == "cuMemcpyHtoD_v2_ptds", "per-thread copy");
  EXPECT(row_of(get("cuStreamSynchronize", 12000, 2)) == "cuStreamSynchronize_ptsz", "per-thread");
  EXPECT(row_of(get("cuStreamSynchronize", 12000, 1)) == "cuStreamSynchronize", "legacy");
  EXPECT(row_of(get("cuMemAlloc", 12000, 2)) == "cuMemAlloc_v2", "no per-thread variant");
  // A signature that Grape does not know: the driver's own, counted, never one of our wrappers.
  void* newer = get("cuCtxSynchronize", 14000, 0);
  const std::uint64_t before = state.newer_calls;
  EXPECT(row_of(newer).empty(), "a newer version");
  EXPECT(state.newer_calls == before + 1, "a newer version");
  // The same address for the same question.
  EXPECT(get("cuCtxSynchronize", 13000, 0) == get("cuCtxSynchronize", 13000, 0), "the same answer");
  void* unknown = get("cuQuiteUnknown", 12000, 0);
  for (int i = 0; i < 5; ++i) reinterpret_cast<int (*)(int)>(unknown)(i);
  EXPECT(state.unknown_calls == 5, "unknown calls");
  EXPECT(!in_grape(get("cuCtxGetCurrent", 12000, 0)), "queries are left alone");
  // Null-safe, and what fails stays as it is.
  void* function = reinterpret_cast<void*>(0x5a5a);
  EXPECT(ask(nullptr, &function, 12000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE, "no name");
  EXPECT(function == reinterpret_cast<void*>(0x5a5a), "no name");
  EXPECT(ask("cuInit", nullptr, 12000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE, "no place for the answer");
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT(ask("cuNoSuchThing", &function, 12000, 0, &status) == CUDA_ERROR_NOT_FOUND, "not there");
  EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && function == nullptr, "not there");
  // The door behind the door.
  auto again = reinterpret_cast<PFN_cuGetProcAddress_v12000>(get("cuGetProcAddress", 12000, 0));
  EXPECT(in_grape(reinterpret_cast<void*>(again)), "cuGetProcAddress");
  EXPECT(again("cuInit", &function, 12000, 0, nullptr) == CUDA_SUCCESS && in_grape(function), "cuInit by it");
}

}  // namespace

int main(int, char** arguments) {
  without_driver();
  next_of_program();
  void* traps = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  EXPECT(traps != nullptr, arguments[1]);
  if (traps == nullptr) return finish();
  other_prefixes(traps);
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  auto ask = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(driver, "cuGetProcAddress_v2"));
  versions(state, ask);
  auto unknown = reinterpret_cast<int (*)(int)>(dlsym(driver, "cuQuiteUnknown"));
  EXPECT(unknown(1) == 0, "cuQuiteUnknown by dlsym");
  EXPECT(dlsym(RTLD_DEFAULT, "cuNeverHeardOf") == nullptr, "a name that nobody has");
  return finish();
}
