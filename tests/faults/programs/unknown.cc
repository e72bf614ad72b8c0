// Calls driver functions that no CUDA header knows, found in every way, with integers and floating-point numbers in
// registers and on the stack.
#include <dlfcn.h>

#include "client.h"
#include "simcuda.h"

namespace {

using Unknown = decltype(&cuSimUnknown);

void call(const char* how, Unknown function) {
  if (function == nullptr) {
    std::printf("%s: not found\n", how);
    return;
  }
  for (int round = 0; round < 3; ++round) {
    double result = 0;
    const int status = function(&result, 1 + round, 2.5, 3, 4.25F, 5, 6.125, 7, 8.0625, 9, 10.03125, "text");
    std::printf("%s %d %.6f\n", how, status, result);
  }
}

template <class F>
F through_driver(const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  if (cuGetProcAddress(name, &found, version, 0, &status) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<F>(found);
}

}  // namespace

int main() {
  client::open_context();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  call("linked", &cuSimUnknown);
  call("dlsym", reinterpret_cast<Unknown>(dlsym(driver, "cuSimUnknown")));
  call("again", reinterpret_cast<Unknown>(dlsym(driver, "cuSimUnknown")));
  call("dlvsym", reinterpret_cast<Unknown>(dlvsym(driver, "cuSimUnknown", "none")));
  call("cuGetProcAddress", through_driver<Unknown>("cuSimUnknown", 12000));
  for (const int version : {11000, 11080, 12000, 13000}) {
    auto* versioned = through_driver<int (*)(int*)>("cuSimVersioned", version);
    int number = 0;
    if (versioned != nullptr) versioned(&number);
    std::printf("version %d: %d\n", version, number);
  }
  auto* count = through_driver<int (*)()>("cuSimUnknownCount", 12000);
  std::printf("count %d\n", count != nullptr ? count() : -1);
  std::printf("missing %d\n", through_driver<void*>("cuSimNoSuch", 12000) == nullptr ? 1 : 0);
  client::Chain chain;
  chain.run(5);
  std::printf("%llu\n", static_cast<unsigned long long>(chain.result()));
  return 0;
}
