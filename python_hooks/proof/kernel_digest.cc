#include "python_hooks/proof/kernel_digest.h"

#include <unordered_map>

#include "shim/driver/kernel_content.h"
#include "shim/record/thread_log.h"

namespace grape::python::replay {

bool kernel_digest(const program::FunctionInfo& function, cache::Digest& digest) {
  static auto& known = *new std::unordered_map<std::uint64_t, cache::Digest>;  // zeros: not known
  static std::uint32_t known_epoch = 0;
  const std::uint32_t epoch = record::g_module_epoch.load(std::memory_order_acquire);
  if (epoch != known_epoch) known.clear();
  known_epoch = epoch;
  const auto [place, added] = known.try_emplace(function.handle);
  if (added && !driver::kernel_content(function.handle, place->second)) place->second = {};
  digest = place->second;
  return digest != cache::Digest();
}

}  // namespace grape::python::replay
