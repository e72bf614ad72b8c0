// Contexts, the device, and which context is current on a thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api.h"

namespace simcuda {

class Stream;

constexpr int kMostDevices = 8;  // SIMCUDA_DEVICES says how many there are
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

struct Context {
  CUcontext handle = nullptr;
  CUdevice device = 0;
  std::atomic<unsigned> flags{0};
  bool primary = false;
  std::uint64_t id = 0;
  std::atomic<int> sticky{0};  // CUresult of an asynchronous failure: every later call returns it
  std::atomic<bool> destroyed{false};
  std::atomic<std::size_t> limits[16] = {};
  std::atomic<int> cache_config{0};
  std::atomic<int> shared_config{0};

  std::mutex streams_mutex;
  std::shared_ptr<Stream> legacy_stream;                        // made with the context
  std::vector<std::shared_ptr<Stream>> streams;                 // all others; CUstream and per-thread ones
  std::map<std::uint64_t, std::shared_ptr<Stream>> per_thread;  // by thread number
};

// The context that is current, initialised and unharmed; else the error to return.
CUresult current_context(Context** context);
// The handle's context (or the current one for null), current_context's errors otherwise.
CUresult context_of(CUcontext handle, Context** context);
CUresult check_device(CUdevice device);  // also CUDA_ERROR_NOT_INITIALIZED
bool initialized();

void for_each_context(const std::function<void(Context&)>& visit);  // the live ones

// Ends all that belongs to the context and its handle. Waits for its work first.
void destroy_context(Context& context);

// The sticky error of work that failed on a worker.
void fail_context(Context& context, CUresult error);
void forget_sticky_errors();

// Waits for all streams; returns the sticky error, if any.
CUresult synchronize(Context& context, bool blocking_only = false);

}  // namespace simcuda
