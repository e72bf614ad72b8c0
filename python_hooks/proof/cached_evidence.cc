#include "python_hooks/proof/cached_evidence.h"

#include <utility>

#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/replay/proof_guards.h"
#include "shim/lifecycle/log.h"

namespace grape::python::proof {
namespace {

// Was all that the program and its code can reach copied before the call? What the user's globals hold, as such: what
// is taken for memory of a library's own may be changed before the host reads a value. Of a block, what a tensor can
// have of it: PyTorch's allocator rounds up.
bool copied(const replay::Observation& observation, const grape::replay::Shadow& shadow) {
  constexpr std::uint64_t kRounding = 512;
  const auto is_copied = [&shadow](std::uint64_t address, std::uint64_t bytes, bool visible) {
    const std::uint64_t rounding = visible ? 0 : kRounding - 1;
    for (std::size_t i = 0; i < shadow.watched().size(); ++i) {
      const auto& range = shadow.watched()[i];
      const std::uint64_t end = range.address + range.bytes + rounding;
      const bool inside = address >= range.address && address < range.address + range.bytes && address + bytes <= end;
      if (inside && !(visible && shadow.hidden(i))) return true;
    }
    return bytes == 0;
  };
  for (const program::StaticBlock& block : observation.program.statics) {
    if (!is_copied(block.address, block.bytes, false)) return false;
  }
  for (const walk::StorageExtent& extent : observation.globals->extents()) {
    if (!is_copied(extent.address, extent.bytes, true)) return false;
  }
  return true;
}

// Is it the program that an earlier process proved for this call? Then `noise` is what differs nevertheless, and the
// call counts for what is known of it. False: `why`.
bool same_as_earlier(const cache::Call& name, replay::Observation& observation, program::ForeignNoise& noise,
                     std::string& why) {
  program::Program& own = observation.program;
  const auto earlier = CachedProofs::in_use()->find(name, observation.outcome->digest(), own, why);
  if (earlier == nullptr) return false;
  const program::Comparison comparison = program::compare_and_settle(own, *earlier);
  if (comparison.difference != program::Difference::kNone) {
    why = program::describe(comparison, own, *earlier, readable).text;
    return false;
  }
  noise = program::foreign_noise(own, *earlier, comparison.noise, host_places());
  padding().set_module_epoch(observation.module_epoch);
  padding().note_call(own, noise);
  return true;
}

}  // namespace

const char* why_not_alone(const replay::Observation& observation, const ObservedCall& observed) {
  if (!observed.shadowed) return "memory could not be copied before it";
  if (!observation.writes_known) return "its code names a tensor that it did not name before";
  if (!observation.draws.empty()) return "it draws random numbers on the host";
  // They may have been at work as memory was copied.
  if (!observation.others.empty() || !joins(observation)) return "it works on several streams";
  return copied(observation, observed.shadow) ? nullptr : "it reaches memory that was not known before it";
}

bool known_in_cache(const replay::Region& region, const replay::Signature& signature) {
  const CachedProofs* proofs = CachedProofs::in_use();
  return proofs != nullptr && proofs->knows(region, signature.name);
}

const cache::Call& name_of(const replay::Region& region, const replay::Signature& signature,
                           const replay::Observation& observation, ObservedCall& observed) {
  if (!observed.name.region.empty()) return observed.name;
  observed.name.region = region.name;
  observed.name.code = replay::identify(observed.code.digest(), observation);
  if (observed.name.code != cache::Digest()) observed.name.signature = signature.name;  // without one it is no call
  return observed.name;
}

std::unique_ptr<replay::Proven> prove_by_cache(replay::Region& region, const replay::Signature& signature,
                                               const replay::Call& call, replay::Observation& observation,
                                               std::unique_ptr<replay::PaddingTrial>& trial, ObservedCall& observed) {
  if (!known_in_cache(region, signature)) return nullptr;
  std::string why;
  program::ForeignNoise noise;
  const bool same = same_as_earlier(name_of(region, signature, observation, observed), observation, noise, why);
  const char* const against = same ? why_not_alone(observation, observed) : why.c_str();
  if (against != nullptr) {
    log_line(LogLevel::kDebug, "%s: not as in an earlier process: %s", region.name.c_str(), against);
    return nullptr;
  }
  observed.refusal = {};
  trial = std::make_unique<replay::PaddingTrial>();
  trial->noise = noise.replaced;
  trial->foreign = std::move(noise);
  auto proven = prove(region, call, *trial, observation, observed);
  if (observed.differed) CachedProofs::in_use()->refute(observed.name);
  if (proven != nullptr) CachedProofs::in_use()->note_use(observed.name);
  return proven;
}

void note_cached(const replay::Region& region, const replay::Signature& signature, replay::Observation& observation,
                 ObservedCall& observed) {
  if (!known_in_cache(region, signature)) return;
  program::ForeignNoise noise;
  std::string ignored;
  same_as_earlier(name_of(region, signature, observation, observed), observation, noise, ignored);
}

bool proven_in_cache(const replay::Region& region, replay::Signature& signature, const replay::Call& call) {
  CachedProofs* proofs = CachedProofs::instance();
  if (proofs != nullptr && !signature.named) signature.name = proofs->name(region, call);
  signature.named = true;
  return known_in_cache(region, signature);
}

}  // namespace grape::python::proof
