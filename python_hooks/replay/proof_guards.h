// The guards of a proof: conditions under which a replay does what the call itself would do. A call with the proof's
// signature asks them while its module's guard holds: before a replay, before a checked call (GRAPE_VALIDATE), and
// after each pause of a replay. A new guard is a function and a row in proof_guards.cc. With the GIL.
#pragma once

#include "python_hooks/replay/call.h"
#include "shim/memory/live_blocks.h"

namespace grape::python::replay {

struct Guard {
  enum class Failure : std::uint8_t {
    kStale,  // the proof is void
    kOther,  // the proof is of other calls than this one
  };

  bool (*holds)(Proven& proven, const Call& call) noexcept;  // false as well without memory to know
  Failure failure;
  // What is not as it was; after holds() gave false. Throws std::bad_alloc.
  refusal::Refusal (*explain)(const Proven& proven);
  // What an observed call tells other processes of the guard (GRAPE_CACHE). All zeros: they cannot know it. Null: they
  // need not. Throws std::bad_alloc.
  cache::Digest (*identify)(const CallFacts& facts);
};

// The first guard that does not hold; null: all hold. Runs no Python code, and allocates nothing while all hold.
const Guard* broken_guard(Proven& proven, const Call& call) noexcept;

// `code`, that the call ran, and all that the guards tell other processes. All zeros: the call has no name there.
// Throws std::bad_alloc.
cache::Digest identify(const cache::Digest& code, const CallFacts& facts);

// Is no kernel gone since record::g_module_epoch was this?
bool kernels_are_loaded(std::uint32_t module_epoch) noexcept;
// Are the program's statics, events and streams alive, to which somebody refers? `block_epoch`: LiveBlocks::epoch()
// when they were last seen.
bool memory_is_alive(const program::Program& program, std::uint32_t& block_epoch) noexcept;
// Both, and libraries' own words are as they were: of a Proven, for any call, or of a ProvenPass.
template <class Proof>
bool is_usable(Proof& proof) noexcept {
  return kernels_are_loaded(proof.module_epoch) && memory_is_alive(proof.program.head(), proof.block_epoch) &&
         memory::LiveBlocks::instance().hold(proof.host_words);
}

}  // namespace grape::python::replay
