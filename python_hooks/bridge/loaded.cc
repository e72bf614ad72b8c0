#include "python_hooks/bridge/loaded.h"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "shim/lifecycle/log.h"

namespace grape::python::bridge {
namespace {

// "2.11" of "2.11.0+cu130"; "": not known.
std::string version_of_torch() {
  Object* const version = torch::version_text();
  const char* text = version != nullptr ? g_api.PyUnicode_AsUTF8AndSize(version, nullptr) : nullptr;
  if (text == nullptr) {
    g_api.PyErr_Clear();
    return {};
  }
  const char* end = std::strchr(text, '.');
  end = end != nullptr ? std::strchr(end + 1, '.') : nullptr;
  return end != nullptr ? std::string(text, end) : std::string();
}

// Beside libgrape.so.
std::string folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&loaded), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash != std::string::npos ? path.substr(0, slash + 1) : "./";
}

const Bridge* load() {
  const std::string version = version_of_torch();
  const std::string path = folder() + "libgrape-torch" + version + ".so";
  if (version.empty()) return nullptr;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    log_line(LogLevel::kInfo, "calls under autograd run as always: %s", dlerror());
    return nullptr;
  }
  auto* const entry = reinterpret_cast<Entry>(dlsym(library, kEntry));
  const Bridge* const bridge = entry != nullptr ? entry(kVersion) : nullptr;
  if (bridge != nullptr && version == bridge->torch) return bridge;
  log_line(LogLevel::kWarning, "calls under autograd run as always: %s is of another version of Grape, or of PyTorch",
           path.c_str());
  return nullptr;
}

const Bridge* g_bridge = nullptr;

}  // namespace

const Bridge* loaded() noexcept {
  static const Bridge* const bridge = []() -> const Bridge* {
    try {
      return load();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }();
  return g_bridge = bridge;
}

const Bridge* loaded_before() noexcept { return g_bridge; }

}  // namespace grape::python::bridge
