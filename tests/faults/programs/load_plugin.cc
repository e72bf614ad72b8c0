// Loads a CUDA-using library, uses it, unloads it, again and again. Uses no CUDA itself and does not link it.
//   load_plugin local|global|deepbind PLUGIN
//   load_plugin driver: the driver itself is loaded, used and unloaded
//   load_plugin late PLUGIN LIBRARY: LIBRARY is loaded in the middle of it
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

int fail() {
  const char* message = dlerror();
  std::printf("failed: %s\n", message != nullptr ? message : "no message");
  return 1;
}

int use_plugin(const char* path, int flags) {
  using Compute = std::uint64_t (*)(int);
  void* plugin = dlopen(path, RTLD_NOW | flags);
  if (plugin == nullptr) return fail();
  auto* compute = reinterpret_cast<Compute>(dlsym(plugin, "plugin_compute"));
  if (compute == nullptr) return fail();
  std::printf("%llu\n", static_cast<unsigned long long>(compute(10)));
  return dlclose(plugin) == 0 ? 0 : fail();
}

int use_driver() {
  using Init = int (*)(unsigned);
  using GetVersion = int (*)(int*);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return fail();
  auto* init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  auto* get_version = reinterpret_cast<GetVersion>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  if (init == nullptr || get_version == nullptr || init(0) != 0 || get_version(&version) != 0) return fail();
  std::printf("version %d\n", version);
  return dlclose(driver) == 0 ? 0 : fail();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int flags = mode == "global" ? RTLD_GLOBAL : mode == "deepbind" ? RTLD_LOCAL | RTLD_DEEPBIND : RTLD_LOCAL;
  for (int round = 0; round < 5; ++round) {
    if (mode == "late" && round == 2) {
      void* library = argc > 3 ? dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL) : nullptr;
      if (library == nullptr) return fail();
      if (dlclose(library) != 0) return fail();
      if (dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL) == nullptr) return fail();
    }
    const int status = mode == "driver" ? use_driver() : argc > 2 ? use_plugin(argv[2], flags) : 2;
    if (status != 0) return status;
  }
  return 0;
}
