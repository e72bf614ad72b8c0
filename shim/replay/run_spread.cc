#include "shim/replay/run_spread.h"

#include <algorithm>
#include <cmath>

namespace grape::replay {
namespace {

constexpr double kTimes = 4;           // that eager may be as far as the farthest of the runs
constexpr double kLittle = 1.0 / 256;  // of the sum of all squares: a sixteenth of the length

}  // namespace

RunSpread::~RunSpread() { device::CopyMemory::instance().give(copies_); }

bool RunSpread::begin(CUstream stream, const std::vector<Range>& outputs, refusal::Refusal& error) {
  std::uint64_t bytes = 0;
  for (const Range& output : outputs) bytes += device::copy_bytes(output.bytes);
  if (bytes == 0 || !device::CopyMemory::instance().take(bytes, copies_, error)) return false;
  std::uint64_t to = copies_.address;
  for (const Range& output : outputs) {
    if (output.bytes != 0 && !device::copy_on_device(stream, to, output.address, output.bytes)) return false;
    first_.push_back(to);
    to += device::copy_bytes(output.bytes);
  }
  farthest_.assign(outputs.size(), {});
  return true;
}

bool RunSpread::measure(CUstream stream, const std::vector<Range>& outputs, std::vector<device::Distance>& distances,
                        refusal::Refusal& error) const {
  std::vector<device::Pair> pairs;
  pairs.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    pairs.push_back({elements_[i], first_[i], outputs[i].address, outputs[i].bytes});
  return device::measure(stream, pairs, distances, error);
}

bool RunSpread::add(CUstream stream, const std::vector<Range>& outputs, refusal::Refusal& error) {
  std::vector<device::Distance> distances;
  if (!measure(stream, outputs, distances, error)) return false;
  for (std::size_t i = 0; i < distances.size(); ++i) {
    device::Distance& farthest = farthest_[i];
    farthest.most = std::max(farthest.most, distances[i].most);
    farthest.squares = std::max(farthest.squares, distances[i].squares);
  }
  return true;
}

bool RunSpread::holds(CUstream stream, const std::vector<Range>& outputs, bool& within, refusal::Refusal& error) {
  std::vector<device::Distance> distances;
  if (!measure(stream, outputs, distances, error)) return false;
  double varies = 0, all = 0;
  within = true;
  for (std::size_t i = 0; i < distances.size(); ++i) {
    const device::Distance &distance = distances[i], &farthest = farthest_[i];
    within =
        within && distance.most <= kTimes * farthest.most && distance.squares <= kTimes * kTimes * farthest.squares;
    varies += std::max(distance.squares, farthest.squares);
    all += distance.all;
  }
  within = within && std::isfinite(varies) && std::isfinite(all) && varies <= kLittle * all;
  return true;
}

}  // namespace grape::replay
