#include "python_hooks/proof/look_room.h"

#include <algorithm>
#include <array>

#include "python_hooks/torch/memory_state.h"
#include "shim/device/copy_memory.h"

namespace grape::python::proof {
namespace {

constexpr double kOfAll = 0.9;  // the rest is for what lies in pieces
constexpr std::size_t kMostDevices = 128;

// Per device, bytes.
std::array<std::uint64_t, kMostDevices> g_claimed{};
std::array<std::uint64_t, kMostDevices> g_peaks{};  // of the program without looks; 0: not known yet

// Bytes that the allocator may have in all; 0: not known.
std::uint64_t most_of(const torch::MemoryState& state) noexcept {
  std::uint64_t free = 0, total = 0;
  if (!device::device_memory(free, total)) return 0;
  return std::min(static_cast<std::uint64_t>(state.fraction * static_cast<double>(total)), state.reserved + free);
}

// Before the first look the allocator's own peak; later ones may be of looks.
std::uint64_t peak_of(std::size_t device, const torch::MemoryState& state) noexcept {
  std::uint64_t& peak = g_peaks[device];
  const std::uint64_t without_looks = state.allocated - std::min(state.allocated, g_claimed[device]);
  peak = peak == 0 ? state.peak : std::max(peak, without_looks);
  return peak;
}

}  // namespace

bool LookRoom::claim(const replay::WorkPlace& work, std::uint64_t held, std::uint64_t gradients) noexcept {
  torch::MemoryState state;
  const auto device = static_cast<std::size_t>(work.device);
  if (device >= kMostDevices || !torch::memory_state(work.device, state)) return true;
  const std::uint64_t most = most_of(state), peak = peak_of(device, state);
  if (most == 0) return true;
  const std::uint64_t growth = std::max(gradients, peak - std::min(peak, state.allocated));
  const std::uint64_t wanted = held + gradients;
  const std::uint64_t all = state.allocated + g_claimed[device] + growth + wanted;
  if (static_cast<double>(all) > kOfAll * static_cast<double>(most)) return false;
  give_back();
  device_ = device;
  bytes_ = wanted;
  g_claimed[device] += wanted;
  return true;
}

void LookRoom::give_back() noexcept { g_claimed[device_] -= std::exchange(bytes_, 0); }

}  // namespace grape::python::proof
