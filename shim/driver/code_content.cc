#include "shim/driver/code_content.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "shim/driver/code_bytes.h"
#include "shim/driver/function_info.h"
#include "shim/driver/kernel_content.h"
#include "shim/driver/real_driver.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"

namespace grape::driver {

GRAPE_HOT std::atomic<bool> g_follows_code{false};

namespace {

std::atomic<std::uint64_t> g_code_loads{0};

// By handle: modules and libraries have a content, functions of kernels are a library's.
struct Known {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, cache::Digest> content;
  std::unordered_map<std::uint64_t, std::uint64_t> library_of;
};

Known& known() {
  static auto& all = *new Known;
  return all;
}

// Kernels of which it is known that a function is theirs, by a hash of that: libraries ask for the function of the same
// kernel at each launch.
class Obtained {
 public:
  bool has(std::uint64_t function, std::uint64_t kernel) noexcept {
    const Place& place = place_of(function);
    return place.kernel.load(std::memory_order_acquire) == kernel &&
           place.function.load(std::memory_order_acquire) == function &&
           place.kernel.load(std::memory_order_relaxed) == kernel;  // and was not exchanged meanwhile
  }

  // These two with Known's lock held.
  void add(std::uint64_t function, std::uint64_t kernel) noexcept {
    Place& place = place_of(function);
    place.kernel.store(0, std::memory_order_release);
    place.function.store(function, std::memory_order_release);
    place.kernel.store(kernel, std::memory_order_release);
  }
  void clear() noexcept {
    for (Place& place : places_) place.kernel.store(0, std::memory_order_release);
  }

 private:
  struct Place {
    std::atomic<std::uint64_t> function{0}, kernel{0};  // 0: none
  };
  static constexpr int kBits = 10;
  Place& place_of(std::uint64_t function) noexcept {
    return places_[(function * 0x9E3779B97F4A7C15ull) >> (64 - kBits)];
  }

  Place places_[std::size_t{1} << kBits];
};
Obtained g_obtained;

template <typename Handle>
std::uint64_t number(Handle handle) noexcept {
  return reinterpret_cast<std::uint64_t>(handle);
}

// Those that say where messages go, and how long it took.
bool leaves_code_alone(CUjit_option option) noexcept {
  switch (option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_CACHE_MODE:
      return true;
    default:
      return false;
  }
}

// Without a cache, what libraries make while the program runs is all that has to be told apart, a kernel for each
// shape; libraries' own images, loaded once, are larger.
constexpr std::uint64_t kMostBytesAlone = 1 << 20;
std::uint64_t g_most_bytes = 0;

__attribute__((constructor(102))) void choose() {
  if (config().mode == Mode::kReplay) follow_code(config().cache[0] != '\0' ? ~std::uint64_t{0} : kMostBytesAlone);
}

void loaded(std::uint64_t owner, const void* image, unsigned count, const CUjit_option* options) noexcept {
  g_code_loads.fetch_add(1, std::memory_order_relaxed);
  if (owner == 0 || image == nullptr || (count != 0 && options == nullptr)) return;
  if (!std::all_of(options, options + count, leaves_code_alone)) return;
  const std::uint64_t bytes = code_bytes(image);
  if (bytes == 0 || bytes > g_most_bytes) return;
  const XXH128_hash_t hash = XXH3_128bits(image, bytes);
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    all.content[owner] = {hash.low64, hash.high64};
  } catch (const std::bad_alloc&) {
  }
}

void unloaded(std::uint64_t owner) noexcept {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.content.erase(owner);
  g_obtained.clear();
  for (auto at = all.library_of.begin(); at != all.library_of.end();) {
    at = at->second == owner ? all.library_of.erase(at) : std::next(at);
  }
}

}  // namespace

void follow_code(std::uint64_t most_bytes) noexcept {
  g_most_bytes = most_bytes;
  g_follows_code.store(true, std::memory_order_relaxed);
}

void code_loaded(CUmodule* module, const void* image, unsigned count, const CUjit_option* options, void**) noexcept {
  loaded(number(*module), image, count, options);
}

void code_loaded(CUlibrary* library, const void* image, const CUjit_option* options, void**, unsigned count,
                 CUlibraryOption*, void**, unsigned) noexcept {
  loaded(number(*library), image, count, options);
}

void code_unloaded(CUmodule module) noexcept { unloaded(number(module)); }
void code_unloaded(CUlibrary library) noexcept { unloaded(number(library)); }

void code_obtained(CUmodule* module, CUlibrary library) noexcept {
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.content.find(number(library));
  if (found == all.content.end()) return;
  try {
    all.content.emplace(number(*module), cache::Digest(found->second));
  } catch (const std::bad_alloc&) {
  }
}

void code_obtained(CUfunction* function, CUkernel kernel) noexcept {
  if (g_obtained.has(number(*function), number(kernel))) return;
  CUlibrary library = nullptr;
  if (real::call_cuKernelGetLibrary(&library, kernel) != CUDA_SUCCESS) return;
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    all.library_of[number(*function)] = number(library);
    g_obtained.add(number(*function), number(kernel));
  } catch (const std::bad_alloc&) {
  }
}

bool kernel_content(std::uint64_t handle, cache::Digest& digest) noexcept {
  const FunctionInfo info = function_info(reinterpret_cast<CUfunction>(handle));
  if (info.name == nullptr) return false;
  Known& all = known();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.content.find(info.owner);
  if (found == all.content.end() && !info.kernel) {
    const auto library = all.library_of.find(handle);
    if (library != all.library_of.end()) found = all.content.find(library->second);
  }
  if (found == all.content.end()) return false;
  XXH3_state_t* state = XXH3_createState();
  if (state == nullptr) return false;
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, &found->second, sizeof found->second);
  XXH3_128bits_update(state, info.name, std::strlen(info.name));
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  digest = {hash.low64, hash.high64};
  return true;
}

std::uint64_t code_loads() noexcept { return g_code_loads.load(std::memory_order_relaxed); }

std::string machine() {
  std::string text;
  char line[320];
  int count = 0, version = 0;
  if (real::call_cuDriverGetVersion(&version) == CUDA_SUCCESS) text = "driver=" + std::to_string(version) + '\n';
  auto* count_of = real::get_cuDeviceGetCount();
  auto* name_of = real::get_cuDeviceGetName();
  auto* attribute = real::get_cuDeviceGetAttribute();
  if (count_of == nullptr || name_of == nullptr || attribute == nullptr || count_of(&count) != CUDA_SUCCESS)
    return text;
  for (CUdevice device = 0; device < count; ++device) {
    char name[256] = "";
    int major = 0, minor = 0, processors = 0;
    name_of(name, sizeof name - 1, device);
    attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    std::snprintf(line, sizeof line, "device=%s, compute capability %d.%d, %d processors\n", name, major, minor,
                  processors);
    text += line;
  }
  return text;
}

}  // namespace grape::driver
