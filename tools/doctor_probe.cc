// What runs in the doctor's children, under the library.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/commands.h"
#include "tools/text/table.h"

namespace grape::tools {
namespace {

// As in cuda.h; the tool is built without it.
using Result = int;
using Device = int;
constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, MINOR

template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

Json device_json(void* driver, Device device) {
  char name[256] = "";
  std::size_t bytes = 0;
  int major = 0, minor = 0;
  if (auto* get = symbol<Result (*)(char*, int, Device)>(driver, "cuDeviceGetName")) get(name, sizeof name, device);
  if (auto* get = symbol<Result (*)(std::size_t*, Device)>(driver, "cuDeviceTotalMem_v2")) get(&bytes, device);
  if (auto* get = symbol<Result (*)(int*, int, Device)>(driver, "cuDeviceGetAttribute")) {
    get(&major, kComputeMajor, device);
    get(&minor, kComputeMinor, device);
  }
  return {{"name", text_value(name)}, {"bytes", bytes}, {"compute", fmt::format("{}.{}", major, minor)}};
}

// A context, an allocation, a memset, a wait: enough for a trace.
std::string use_device(void* driver) {
  auto* retain = symbol<Result (*)(void**, Device)>(driver, "cuDevicePrimaryCtxRetain");
  auto* set_current = symbol<Result (*)(void*)>(driver, "cuCtxSetCurrent");
  auto* alloc = symbol<Result (*)(std::uint64_t*, std::size_t)>(driver, "cuMemAlloc_v2");
  auto* memset = symbol<Result (*)(std::uint64_t, unsigned char, std::size_t)>(driver, "cuMemsetD8_v2");
  auto* free = symbol<Result (*)(std::uint64_t)>(driver, "cuMemFree_v2");
  auto* release = symbol<Result (*)(Device)>(driver, "cuDevicePrimaryCtxRelease_v2");
  if (retain == nullptr || set_current == nullptr || alloc == nullptr || memset == nullptr || free == nullptr ||
      release == nullptr) {
    return "the driver lacks a basic function";
  }
  void* context = nullptr;
  std::uint64_t memory = 0;
  const auto fail = [](const char* what, Result result) { return fmt::format("{} gave {}", what, result); };
  if (const Result result = retain(&context, 0)) return fail("cuDevicePrimaryCtxRetain", result);
  std::string why;
  if (const Result set = set_current(context)) {
    why = fail("cuCtxSetCurrent", set);
  } else if (const Result got = alloc(&memory, 4096)) {
    why = fail("cuMemAlloc", got);
  } else if (const Result cleared = memset(memory, 0, 4096)) {
    why = fail("cuMemsetD8", cleared);
  } else if (const Result freed = free(memory)) {
    why = fail("cuMemFree", freed);
  }
  release(0);
  return why;
}

Json probe() {
  Json json;
  json["driver"] = false;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) {
    const char* why = dlerror();
    json["why"] = text_value(why != nullptr ? why : "libcuda.so.1 cannot be loaded");
    return json;
  }
  json["driver"] = true;
  int version = 0, count = 0;
  auto* init = symbol<Result (*)(unsigned)>(driver, "cuInit");
  auto* get_version = symbol<Result (*)(int*)>(driver, "cuDriverGetVersion");
  auto* get_count = symbol<Result (*)(int*)>(driver, "cuDeviceGetCount");
  if (get_version != nullptr) get_version(&version);
  json["version"] = version;
  const Result started = init != nullptr ? init(0) : -1;
  if (started != 0) {
    json["why"] = fmt::format("cuInit gave {}", started);
    return json;
  }
  if (get_count != nullptr) get_count(&count);
  json["devices"] = Json::array();
  for (Device device = 0; device < count && device < 64; ++device) {
    json["devices"].push_back(device_json(driver, device));
  }
  if (count > 0) json["why"] = use_device(driver);
  return json;
}

}  // namespace

int probe_driver() {
  std::puts(dump_json(probe()).c_str());
  return 0;
}

int is_loaded(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.size() > path.size() && line.compare(line.size() - path.size(), path.size(), path) == 0) return 0;
  }
  return 1;
}

}  // namespace grape::tools
