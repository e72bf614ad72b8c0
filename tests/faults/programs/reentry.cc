// Enters the loader and the driver from where it is delicate: from host functions on the driver's threads, from a
// constructor, from a thread's end, and with names that are only nearly the driver's.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "client.h"

namespace {

std::atomic<int> g_callbacks{0};
std::atomic<int> g_wrong{0};
int g_early_version = 0;

// Before main, and before most libraries' own constructors have run.
__attribute__((constructor)) void early() {
  using GetVersion = CUresult (*)(int*);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* version = reinterpret_cast<GetVersion>(dlsym(driver, "cuDriverGetVersion"));
  if (version != nullptr) (void)version(&g_early_version);
}

void CUDA_CB callback(void* data) {
  g_wrong += dlsym(RTLD_DEFAULT, "malloc") == nullptr;
  g_wrong += dlsym(RTLD_DEFAULT, "cuLaunchKernel") == nullptr;
  g_wrong += dlsym(RTLD_NEXT, "dlsym") == nullptr;
  g_wrong += dlsym(RTLD_DEFAULT, "cudnnCreate") != nullptr;  // not the driver's, and not there
  g_wrong += dlerror() == nullptr;
  const char* name = nullptr;
  g_wrong += cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name) != CUDA_SUCCESS || name == nullptr;
  void* resolved = nullptr;
  CUdriverProcAddressQueryResult status;
  g_wrong += cuGetProcAddress("cuStreamSynchronize", &resolved, 12000, 0, &status) != CUDA_SUCCESS;
  std::free(std::malloc(100));
  static_cast<std::atomic<int>*>(data)->fetch_add(1);
}

// Calls the driver while the thread's variables are being taken down.
void last_call(void*) { g_wrong += cuCtxSynchronize() != CUDA_SUCCESS; }

}  // namespace

int main() {
  CUcontext context = client::open_context();
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  client::Chain chain(stream);
  for (int i = 0; i < 20; ++i) {
    chain.run(5);
    CHECK(cuLaunchHostFunc(stream, callback, &g_callbacks));
  }
  const std::uint64_t result = chain.result();
  pthread_key_t key;
  pthread_key_create(&key, last_call);
  for (int i = 0; i < 8; ++i) {
    std::thread([&] {
      pthread_setspecific(key, &key);
      CHECK(cuCtxSetCurrent(context));
      CHECK(chain.step(1));
    }).join();
  }
  std::printf("early %d callbacks %d wrong %d result %llu then %llu\n", g_early_version, g_callbacks.load(),
              g_wrong.load(), static_cast<unsigned long long>(result), static_cast<unsigned long long>(chain.result()));
  return g_wrong.load() == 0 ? 0 : 1;
}
