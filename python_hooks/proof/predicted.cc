#include "python_hooks/proof/predicted.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "python_hooks/proof/cached_evidence.h"
#include "python_hooks/replay/signature.h"
#include "python_hooks/walk/portable.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::proof {
namespace {

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

// What the arguments share with globals, with numbers in the order of coming: another walk of the globals may number
// what it meets in another way (AliasRelation::relate()). Pairs for objects, and behind all ones triples for memory.
std::vector<std::uint64_t> renumbered(const std::vector<std::uint64_t>& shared) {
  std::vector<std::uint64_t> result = shared;
  std::unordered_map<std::uint64_t, std::uint64_t> numbers;
  const auto renumber = [&numbers](std::uint64_t& number) {
    number = numbers.try_emplace(number, numbers.size()).first->second;
  };
  std::size_t i = 0;
  for (; i + 1 < result.size() && result[i] != ~std::uint64_t{0}; i += 2) renumber(result[i + 1]);
  numbers.clear();
  for (++i; i + 2 < result.size(); i += 3) renumber(result[i + 1]);
  return result;
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
  const std::vector<std::uint64_t> shared = renumbered(observation.shared);
  facts.push_back(shared.size());
  facts.insert(facts.end(), shared.begin(), shared.end());
  facts.push_back(observation.shared_addresses.size());
  return XXH3_64bits(facts.data(), facts.size() * sizeof facts.front());
}

std::vector<program::NoiseWord> unknown_of(const program::Program& program,
                                           const std::vector<program::NoiseWord>& noise) {
  return padding().unknown(program, noise);
}

// The first thing that was not foretold.
void log_first(const replay::Region& region, const program::Program& program, const families::Family::Answer& answer) {
  if (config().log != LogLevel::kDebug) return;
  if (!answer.differences.empty()) {
    const families::Slot& slot = answer.differences.front();
    log_line(LogLevel::kDebug, "%s: slot of kind %d, index %u, of operation %u was not foretold", region.name.c_str(),
             static_cast<int>(slot.kind), slot.index, slot.node);
  } else if (!answer.unknown.empty()) {
    log_line(LogLevel::kDebug, "%s: not foretold, and not known to be padding: %s", region.name.c_str(),
             program::describe(program, answer.unknown.front()).c_str());
  }
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
      replay::may_train(call.dispatch)) {
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
  if (member.family == nullptr || observation.set_up) return false;
  const bool was_lost = member.family->is_lost();
  if (!is_plain(observation)) {
    if (observation.loaded) return false;
    member.family->end_right();
    if (!was_lost) take_back(region);
    return false;
  }
  std::vector<std::int64_t> beside;
  const std::uint64_t outside = outside_of(observation, beside);
  padding().set_module_epoch(observation.module_epoch);
  const families::Family::Answer answer = member.family->observe({observation.program, beside, outside}, member.numbers,
                                                                 member.call, unknown_of, observation.loaded);
  log_line(LogLevel::kDebug,
           "%s: in its family, of %zu lists of kernels: %s%s%s, %zu differences, %zu words unknown, %zu steady",
           region.name.c_str(), member.family->regime_count(),
           answer.repeats    ? "again"
           : answer.foretold ? "foretold"
                             : "not foretold",
           answer.proves ? ", which proves it" : "", observation.loaded ? ", with code loaded" : "",
           answer.differences.size(), answer.unknown.size(), answer.steady);
  log_first(region, observation.program, answer);
  if (answer.takes_back || (member.family->is_lost() && !was_lost)) take_back(region);
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
