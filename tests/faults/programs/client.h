// What the client programs share: an ordinary user of the CUDA driver API, linked against libcuda.so.1. Nothing here
// knows that a library may be preloaded. Results are computed on the device, so that a wrong call shows in the output.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace client {

constexpr char kAxpy[] = "_Z4axpyPfPKffi";
constexpr char kFill[] = "_Z4fillPffi";
constexpr char kMix[] = "_Z3mixPmmm";
constexpr char kAtomicAdd[] = "_Z10atomic_addPmm";
constexpr char kDelay[] = "_Z5delayj";
constexpr char kNothing[] = "_Z7nothingv";

inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}
#define CHECK(call) ::client::check(call, #call)

// A module's image for the simulated driver: the named kernels, each either a built-in or "name = built-in".
inline std::string image(const std::vector<std::string>& kernels) {
  std::string text = "SIMCUDA MODULE 1\n";
  for (const std::string& kernel : kernels) text += kernel + "\n";
  return text;
}

inline std::string standard_image() { return image({kAxpy, kFill, kMix, kAtomicAdd, kDelay, kNothing}); }

inline CUcontext open_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  return context;
}

inline CUmodule load(const std::string& text) {
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, text.c_str()));
  return module;
}

inline CUfunction function(CUmodule module, const char* name) {
  CUfunction found = nullptr;
  CHECK(cuModuleGetFunction(&found, module, name));
  return found;
}

// One block of one thread: the simulated kernels take their sizes as parameters.
template <class... A>
CUresult launch(CUfunction kernel, CUstream stream, A... arguments) {
  void* parameters[] = {&arguments..., nullptr};
  return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

inline std::uint64_t read_word(CUdeviceptr address) {
  std::uint64_t value = 0;
  CHECK(cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

inline CUdeviceptr new_word(std::uint64_t value = 0) {
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc(&address, sizeof value));
  CHECK(cuMemcpyHtoD(address, &value, sizeof value));
  return address;
}

inline long number(int argc, char** argv, int index, long otherwise) {
  return argc > index ? std::strtol(argv[index], nullptr, 10) : otherwise;
}

// What a short computation gives: `steps` kernels whose order matters. Needs a current context.
class Chain {
 public:
  explicit Chain(CUstream stream = nullptr) : module_(load(standard_image())), mix_(function(module_, kMix)) {
    word_ = new_word(1);
    stream_ = stream;
  }
  CUresult step(std::uint64_t value) { return launch(mix_, stream_, word_, std::uint64_t{31}, value); }
  void run(int steps) {
    for (int i = 0; i < steps; ++i) CHECK(step(static_cast<std::uint64_t>(i)));
  }
  std::uint64_t result() {
    CHECK(cuStreamSynchronize(stream_));
    return read_word(word_);
  }

 private:
  CUmodule module_;
  CUfunction mix_;
  CUdeviceptr word_ = 0;
  CUstream stream_ = nullptr;
};

}  // namespace client
