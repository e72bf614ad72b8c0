#include "python_hooks/proof/predicted.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "python_hooks/proof/cached_evidence.h"
#include "python_hooks/replay/signature.h"
#include "python_hooks/walk/portable.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::proof {
namespace {

using families::Slot;

constexpr std::int64_t kSpecial[] = {-1, -2};  // in place of 0 and 1
constexpr std::size_t kMostFamilies = 64;      // of one region
constexpr std::size_t kMostNumbers = 4096;  // of one signature; the caches of a decoder of 12 layers are some hundreds

// Calls that a program alone does not describe are in no family.
bool is_plain(const replay::Observation& observation) {
  const auto casts = [](const replay::OutputRecipe& recipe) { return recipe.cast >= 0 || recipe.saved_bytes != 0; };
  return observation.nodes_made == 0 && observation.border == nullptr && observation.numbers.numbers.empty() &&
         observation.draws.empty() && observation.host_words.empty() && observation.writes_known &&
         observation.writes.empty() && observation.differentiated.empty() && !observation.runs_pass &&
         observation.program.random_increment == 0 &&
         std::none_of(observation.recipes.begin(), observation.recipes.end(), casts);
}

// What members have in common beside their programs; `beside`: what they have not.
std::uint64_t outside_of(const replay::Observation& observation, std::vector<std::int64_t>& beside) {
  std::vector<std::uint64_t> facts;
  const cache::Digest outcome = observation.outcome->digest_without(beside);
  facts.push_back(XXH3_64bits(&outcome, sizeof outcome));
  facts.push_back(observation.module_epoch);
  facts.push_back(observation.current_stream);
  facts.push_back(observation.others.size());
  for (const replay::OutputRecipe& recipe : observation.recipes) {
    facts.push_back(recipe.made.size());
    facts.insert(facts.end(), recipe.made.begin(), recipe.made.end());
    facts.insert(facts.end(), {recipe.block, recipe.has_block ? 1U : 0U, recipe.whole});
  }
  facts.push_back(observation.shared.size());
  facts.insert(facts.end(), observation.shared.begin(), observation.shared.end());
  facts.push_back(observation.shared_addresses.size());
  return XXH3_64bits(facts.data(), facts.size() * sizeof facts.front());
}

bool is_padding(const program::Program& program, const Slot& slot) {
  constexpr std::uint8_t kLower = 0x0f, kUpper = 0xf0, kAll = 0xff;
  program::NoiseWord noise;
  if (slot.kind == Slot::Kind::kLane) {
    noise = {slot.index / 2, (slot.index & 1U) == 0 ? kLower : kUpper};
  } else if (slot.kind == Slot::Kind::kWord) {
    noise = {slot.index, kAll};
  } else {
    return false;
  }
  return program::node_of(program, noise.word).kind == program::NodeKind::kKernel &&
         padding().unknown(program, {noise}).empty();
}

// What a family proved has to come twice, as other calls have.
void take_back(replay::Region& region) {
  for (const auto& [hash, signature] : region.evidence.signatures) {
    if (!signature->foretold) continue;
    signature->foretold = false;
    signature->proven = nullptr;
    signature->observation = nullptr;
    signature->stage = replay::Stage::kSeen;
  }
}

}  // namespace

MemberCall find_family(replay::Region& region, const replay::Call& call) {
  MemberCall member;
  const bool fits = region.kind == replay::RegionKind::kModule || region.kind == replay::RegionKind::kFunction;
  if (!config().families || !fits || !call.numbers.empty() || !region.evidence.cast_weights.empty() ||
      replay::may_return_gradients(call.dispatch)) {
    return member;
  }
  walk::Walk walk(false);
  walk.note_numbers();
  if (!replay::write_call(call, walk)) return member;
  replay::write_sharing(region, walk);
  std::vector<std::uint8_t> rest = walk.without_numbers(member.numbers);
  // PyTorch does other things with sizes of 0 and 1, and gives other strides.
  for (std::size_t i = 0; i < member.numbers.size(); ++i) {
    if (member.numbers[i] == 0 || member.numbers[i] == 1) {
      std::memcpy(rest.data() + walk.number_places()[i], &kSpecial[member.numbers[i]], sizeof kSpecial[0]);
    }
  }
  const cache::Digest key = walk::digest_of(rest);
  for (const walk::StorageExtent& extent : walk.extents())
    member.numbers.push_back(static_cast<std::int64_t>(extent.bytes));
  auto& known = region.evidence.families;
  if (member.numbers.empty() || member.numbers.size() > kMostNumbers) return member;
  if (known.size() >= kMostFamilies && known.count(key) == 0) return member;
  std::shared_ptr<families::Family>& family = known[key];
  if (family == nullptr) family = std::make_shared<families::Family>(kernel_identity);
  member.family = family;
  member.call = region.calls;
  return member;
}

bool note_member(replay::Region& region, const replay::Observation& observation, ObservedCall& observed) {
  const MemberCall& member = observed.member;
  if (member.family == nullptr || observation.loaded || observation.set_up) return false;
  const bool was_lost = member.family->is_lost();
  if (!is_plain(observation)) {
    member.family->end_right();
    if (!was_lost) take_back(region);
    return false;
  }
  std::vector<std::int64_t> beside;
  const std::uint64_t outside = outside_of(observation, beside);
  padding().set_module_epoch(observation.module_epoch);
  const families::Family::Answer answer =
      member.family->observe({observation.program, beside, outside}, member.numbers, member.call, is_padding);
  log_line(LogLevel::kDebug, "%s: in its family, of %zu lists of kernels: %s%s, %zu differences", region.name.c_str(),
           member.family->regime_count(),
           answer.repeats    ? "again"
           : answer.foretold ? "foretold"
                             : "not foretold",
           answer.proves ? ", which proves it" : "", answer.differences.size());
  if (member.family->is_lost() && !was_lost) take_back(region);
  return answer.proves;
}

std::unique_ptr<replay::Proven> prove_by_family(replay::Region& region, const replay::Call& call,
                                                replay::Observation& observation,
                                                std::unique_ptr<replay::PaddingTrial>& trial, ObservedCall& observed) {
  if (const char* const against = why_not_alone(observation, observed)) {
    log_line(LogLevel::kDebug, "%s: not proven by its family: %s", region.name.c_str(), against);
    return nullptr;
  }
  observed.refusal = {};
  trial = std::make_unique<replay::PaddingTrial>();
  return prove(region, call, *trial, observation, observed);
}

}  // namespace grape::python::proof
