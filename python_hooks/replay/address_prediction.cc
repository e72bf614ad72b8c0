#include "python_hooks/replay/address_prediction.h"

#include <algorithm>

namespace grape::python::replay {
namespace {

constexpr std::size_t kMostRecent = 16;  // regions that inputs are looked for in
// Addresses of theirs that an input is compared with, in one replay, for all inputs. The inputs that
// none were left for come first in a later one.
constexpr std::size_t kMostCompared = 4096;
// So many wrong predictions since the last good one, and an origin is looked for anew. A single one says little: a call
// may have run as always in between.
constexpr std::uint8_t kDoubted = 2;

struct Recent {
  const RunAddresses* key = nullptr;  // nobody else's, as long as it is referred to
  std::weak_ptr<const RunAddresses> region;
};

// The latest first. Never destroyed.
std::vector<Recent>& recent() {
  static auto* all = new std::vector<Recent>;
  return *all;
}

bool find_in(const std::vector<std::uint64_t>& in, std::uint64_t address, Origin::Kind kind, Origin& origin) {
  const auto at = std::find(in.begin(), in.end(), address);
  if (at == in.end()) return false;
  origin.kind = kind;
  origin.index = static_cast<std::uint32_t>(at - in.begin());
  return true;
}

std::uint64_t at(const std::vector<std::uint64_t>& addresses, std::uint32_t index) {
  return index < addresses.size() ? addresses[index] : 0;
}

}  // namespace

void note_replay(const std::shared_ptr<RunAddresses>& addresses) {
  static std::uint64_t replays = 0;
  addresses->ran_before = addresses->ran;
  addresses->ran = ++replays;
  std::vector<Recent>& all = recent();
  auto found = std::find_if(all.begin(), all.end(), [&](const Recent& one) { return one.key == addresses.get(); });
  if (found == all.end()) {
    if (all.size() < kMostRecent) all.emplace_back();
    found = all.end() - 1;
  }
  std::rotate(all.begin(), found, found + 1);
  if (all.front().key != addresses.get()) all.front() = {addresses.get(), addresses};
}

bool AddressPrediction::number_of(const std::shared_ptr<const RunAddresses>& region, std::uint16_t& number) {
  auto place = regions_.end();
  for (auto one = regions_.begin(); one != regions_.end(); ++one) {
    const std::shared_ptr<const RunAddresses> known = one->lock();
    if (known == region) {
      number = static_cast<std::uint16_t>(one - regions_.begin());
      return true;
    }
    if (known == nullptr) place = one;
  }
  if (place == regions_.end()) {
    if (regions_.size() >= 2 * kMostRecent) return false;
    place = regions_.emplace(place);
  }
  *place = region;
  number = static_cast<std::uint16_t>(place - regions_.begin());
  return true;
}

// `coming`: among the outputs of regions that were replayed once since the last replay of this one, so that at that
// time they are made, or not known. Else among those of the ones before. The latest are looked at first: memory that
// was freed may have become theirs.
bool AddressPrediction::find_elsewhere(std::uint64_t address, const RunAddresses& own, bool coming, std::size_t& budget,
                                       Origin& origin) {
  for (const Recent& one : recent()) {
    const std::shared_ptr<const RunAddresses> region = one.region.lock();
    if (region == nullptr || region.get() == &own || (region->ran > own.ran) != coming) continue;
    if (coming && region->ran_before > own.ran) continue;
    budget -= std::min(budget, region->outputs.size());
    if (budget == 0) return false;
    const auto kind = coming ? Origin::Kind::kComingOutput : Origin::Kind::kOtherOutput;
    Origin found;
    if (find_in(region->outputs, address, kind, found) && number_of(region, found.region)) {
      origin = found;
      return true;
    }
  }
  return false;
}

Origin AddressPrediction::find(std::uint64_t address, const RunAddresses& own, std::size_t& budget) {
  Origin origin;
  if (address == 0 || find_elsewhere(address, own, true, budget, origin) ||
      find_in(own.outputs, address, Origin::Kind::kOutput, origin) ||
      find_in(own.inputs, address, Origin::Kind::kInput, origin)) {
    return origin;
  }
  find_elsewhere(address, own, false, budget, origin);
  return origin;
}

void AddressPrediction::learn(const std::vector<std::uint64_t>& inputs, const std::vector<std::uint64_t>& predicted,
                              const RunAddresses& own) {
  const bool was_predicted = predicted.size() == inputs.size();
  if (!was_predicted && inputs_.size() == inputs.size()) return;  // what is known was not tried
  inputs_.resize(inputs.size());
  std::size_t budget = kMostCompared, next = first_ % std::max<std::size_t>(inputs.size(), 1);
  for (std::size_t left = inputs.size(); left != 0; --left) {
    const std::size_t i = next;
    next = i + 1 == inputs.size() ? 0 : i + 1;
    Origin& origin = inputs_[i];
    if (was_predicted && predicted[i] == inputs[i]) {
      origin.wrong = 0;
      continue;
    }
    if (was_predicted) {
      if (origin.wrong < kDoubted) ++origin.wrong;
      if (origin.wrong < kDoubted) continue;
    }
    const std::uint8_t wrong = origin.wrong;
    origin = find(inputs[i], own, budget);
    origin.wrong = wrong;
    if (budget != 0) first_ = next;
  }
}

// 0: not known.
std::uint64_t AddressPrediction::address_of(const Origin& origin, const RunAddresses& own) const {
  switch (origin.kind) {
    case Origin::Kind::kElsewhere:
      return 0;
    case Origin::Kind::kOutput:
      return at(own.outputs, origin.index);
    case Origin::Kind::kInput:
      return at(own.inputs, origin.index);
    case Origin::Kind::kOtherOutput:
    case Origin::Kind::kComingOutput:
      break;
  }
  const std::shared_ptr<const RunAddresses> region = regions_[origin.region].lock();
  if (region == nullptr) return 0;
  return at(origin.kind == Origin::Kind::kComingOutput ? region->ready : region->outputs, origin.index);
}

void AddressPrediction::predict(const RunAddresses& own, std::vector<std::uint64_t>& inputs) const {
  for (std::size_t i = 0; i < inputs.size() && i < inputs_.size(); ++i) {
    const std::uint64_t address = address_of(inputs_[i], own);
    if (address != 0) inputs[i] = address;
  }
}

}  // namespace grape::python::replay
