// How far the proof of one signature's calls has come: what was observed, what runs in the shadow, what may stand in
// for the call. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/cache/cache.h"
#include "compressor/program/padding.h"
#include "compressor/program/plan.h"
#include "compressor/program/program.h"
#include "compressor/program/prove.h"
#include "compressor/store/kept_program.h"
#include "python_hooks/effects/call_outcome.h"
#include "python_hooks/guards/globals_guard.h"
#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/observation/executed_code.h"
#include "python_hooks/replay/backward.h"
#include "python_hooks/replay/prefetch.h"
#include "python_hooks/report/statistics.h"
#include "python_hooks/walk/walk.h"
#include "shim/memory/block_references.h"
#include "shim/replay/program_run.h"

namespace grape::python::replay {

// How the tensors of one storage that a call made are made anew.
struct OutputRecipe {
  std::vector<std::uint32_t> made;  // indices into CallOutcome::made()
  std::uint32_t block = 0;          // index into Program::outputs
  bool has_block = false;           // false: no bytes
  static constexpr std::uint32_t kNone = ~0U;
  std::uint32_t whole = kNone;  // one of them that is as long as the storage, and no view
  // None of the outcome's tensors, but what autocast keeps of this weight (index into ProvenState::cast_weights); -1:
  // not so.
  std::int32_t cast = -1;
  std::uint64_t cast_bytes = 0;
  std::int32_t cast_device = 0;
  // No tensor is in it, but the backward pass needs it: so many bytes, and their place in the pieces of what is saved.
  std::uint64_t saved_bytes = 0, saved_at = 0;
};

inline std::uint64_t bytes_of(const OutputRecipe& recipe, const effects::CallOutcome& outcome) noexcept {
  if (recipe.saved_bytes != 0) return recipe.saved_bytes;
  return recipe.cast >= 0 ? recipe.cast_bytes : outcome.made()[recipe.made.front()].storage_bytes;
}

// The pieces of what is saved: how many bytes each has.
inline std::vector<std::uint64_t> bytes_of_pieces(const std::vector<OutputRecipe>& recipes) {
  std::vector<std::uint64_t> pieces;
  for (const OutputRecipe& recipe : recipes) {
    if (recipe.saved_bytes != 0) program::reach(pieces, recipe.saved_at, recipe.saved_bytes);
  }
  return pieces;
}

// What an observed call was besides its program: its proof stands on this, and a replay does the same for Python.
struct CallFacts {
  std::unique_ptr<effects::CallOutcome> outcome;
  std::vector<OutputRecipe> recipes;
  std::unique_ptr<guards::GlobalsGuard> globals;  // of the code that ran, as it was after the call
  std::vector<std::uint64_t> shared;              // what the arguments share with the globals
  std::vector<std::uint64_t> shared_addresses;    // the same by addresses
  std::vector<walk::GlobalWrite> writes;          // to tensors of the globals
  host_draws::HostDraws draws;                    // random numbers of the host, as far as anybody looks
  std::vector<CUstream> others;                   // streams besides the current one that work was put on
  std::uint64_t nodes_made = 0;                   // of autograd's graph; without a border, all of them end in the call
  std::vector<program::HostWord> host_words;      // that kernels are handed
  std::shared_ptr<Border> border;                 // null: nothing of the call requires grad
  std::uint32_t module_epoch = 0;                 // record::g_module_epoch as it was before the call
  bool runs_pass = false;                         // a backward pass is a part of the call
  program::NumberEvidence numbers;                // that the signature leaves out
  std::vector<std::uint32_t> differentiated;      // by that: the walk's tensors, arguments without hooks
};

// A program that may stand in for the call.
struct Proven : CallFacts, std::enable_shared_from_this<Proven> {
  store::KeptProgram program;
  program::ArenaPlan plan;
  bool is_one_launch = false;        // the host neither waits nor reads a value
  graphs::ExecPool* pool = nullptr;  // the region's
  grape::replay::ProgramRun steps;
  memory::BlockReferences references;  // to what the program needs alive, once it may be replayed
  program::Bindings bindings;          // of the last run; reused
  Object* host_data = nullptr;         // owned tensor: Program::host_data on the device; null: there is none
  std::size_t host_bytes = 0;          // of that
  std::uint32_t block_epoch = 0;       // LiveBlocks::epoch() when its statics were last seen alive
  Successor successor;
  std::shared_ptr<Passes> passes;  // null: nothing of the call requires grad
  std::vector<bool> used_numbers;  // per number: it is in a word of the program
  std::uint32_t numbered = 0;      // calls that came with numbers since it was proven
  std::string read_place;          // where the host reads a value, if it reads one; "": nowhere, or not known

  Proven() = default;
  ~Proven();
  Proven(const Proven&) = delete;
  Proven& operator=(const Proven&) = delete;
};

// Runs of a program whose padding has to be tried in another shadow replay.
struct PaddingTrial {
  std::vector<program::Program> runs;  // observed before the last one; their bytes are tried
  std::vector<program::NoiseWord> noise;
  program::ForeignNoise foreign;      // to the run of an earlier process, where that stands for one
  std::unique_ptr<Proven> candidate;  // what ran in the shadow last; its execs are the next one's
  std::uint32_t shadows = 0;          // that were equal
};

// One observed call, symbolised.
struct Observation : CallFacts {
  program::Program program;
  store::KeptProgram waiting;                      // the same, while it waits for the next observed call
  std::vector<std::uint32_t> lows;                 // of the program, meanwhile
  std::vector<std::uint64_t> output_addresses;     // per Program::outputs, of this call
  bool writes_known = false;                       // it is known how all that it writes to was before the call
  std::uint32_t current_stream = program::kNever;  // its number in the program
  bool loaded = false;                             // kernels were loaded: what else it did may come once only
  bool set_up = false;  // memory of the driver or streams were made: the same, and not so in the call that proves
  std::unique_ptr<PaddingTrial> trial;  // null: nothing of it ran in a shadow
};

// A backward pass that was observed, and waits for another one like it. It has no outcome of its own.
struct ObservedPass : Observation {
  PassKey key;
  std::vector<MadeContribution> contributions;
};

// kAwaitsBackward: the call is proven, its backward pass is not.
enum class Stage : std::uint8_t { kSeen, kObserved, kAwaitsBackward, kProven, kGivenUp };

struct Signature {
  std::vector<std::uint8_t> bytes;
  Stage stage = Stage::kSeen;
  std::uint32_t calls = 0;
  std::uint32_t failures = 0;   // observations in a row that were of no use
  std::uint32_t postponed = 0;  // observations that were of no use for what may not come again
  bool foretold = false;        // proven by its family, and not by two calls
  bool set_up = false;          // one counted though things were made in it that stay: no other one does
  std::unique_ptr<Observation> observation;
  std::shared_ptr<Proven> proven;
  std::shared_ptr<Passes> passes;  // of its calls' backward passes; null: nothing required grad so far
  refusal::Refusal given_up_for;
  bool named = false;
  cache::Digest name;  // once named: what other processes may know it by; zeros: nothing
  CallTimes times;
  Rhythm rhythm;
};

}  // namespace grape::python::replay
