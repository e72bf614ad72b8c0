// The outcome of a call: the object that it returned, and the attributes and items of its arguments that it replaced.
// It is learned from observed calls, and each replay repeats it with fresh tensors. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/cache/cache.h"
#include "python_hooks/effects/references.h"
#include "python_hooks/guards/module_guard.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::effects {

struct ArgumentSnapshotState;
struct CallOutcomeState;

// The arguments' mutable objects as they were before the call: shallow copies of their attributes and items. It keeps
// their contents alive, with two exceptions. Weak references watch tensors, and objects whose end a program can see
// (finalizable.h), so that they end when they would without Grape. A tensor's memory is kept alive, so that no new
// tensor of the call lies where a proof looks for the call's input. It knows the versions of all these tensors, and of
// the module's.
class ArgumentSnapshot {
 public:
  // `arguments` is the walk of the call's arguments, just taken. The guard `module` holds. `lasting` is an argument
  // that outlives the call (the module whose call it is); null: no such argument is known. `counts`: floats on the CPU
  // may have one more behind the call, which is an effect.
  static std::unique_ptr<ArgumentSnapshot> take(const walk::Walk& arguments, const guards::ModuleGuard& module,
                                                Object* lasting, refusal::Refusal& refusal,
                                                bool counts = false) noexcept;
  ~ArgumentSnapshot();

  // Does the counter belong to a tensor of the arguments or of the module?
  bool knows(const torch::VersionCounter* counter) const noexcept;

 private:
  friend class CallOutcome;
  ArgumentSnapshot();
  std::unique_ptr<ArgumentSnapshotState> state_;
};

struct TensorForm {
  std::int64_t offset = 0;  // elements
  std::vector<std::int64_t> sizes, strides;
  std::int32_t type = 0;
};

// A tensor that the call made: its memory and its shape. The caller asks whether its storage was allocated during the
// call. It may be a global's, or that of an argument's tensor that the call dropped.
struct MadeTensor : TensorForm {
  std::uint64_t storage = 0, storage_bytes = 0;  // as observed; an empty one is shared with nobody
  std::int32_t device_type = 0, device_index = 0;
  std::uint32_t item_bytes = 0;
  std::uint32_t group = 0;     // tensors with the same number share one storage; numbered in order
  std::uint32_t version = 0;   // how often it was written to
  std::uint32_t as_first = 0;  // index of the first one that it shares its version with, maybe its own
  bool requires_grad = false;
  std::int32_t view_of = kNoView;  // what autograd knows it as a view of: that index
  static constexpr std::int32_t kNoView = -1;
};

// A tensor that an observed call made and that requires grad, as long as the call's results are there. Borrowed.
struct GradientResult {
  std::uint32_t made = 0;  // index into CallOutcome::made()
  Object* tensor = nullptr;
  bool hidden = false;  // nobody has it, but as the base of others; these come last
};

class CallOutcome {
 public:
  // Learns the outcome of a call that has just returned `result`; the caller holds the one reference to it. Compares
  // the arguments with `before`. Null: the outcome cannot be repeated, and `refusal` names the effect and its place
  // ("result.logits: a tensor that requires grad"); or, without a refusal, there is no memory.
  //
  // A result consists of these:
  // - tensors that the call made, with plain values as attributes;
  // - objects of the arguments and of the module, and views of their tensors;
  // - tuple, list, dict, OrderedDict, defaultdict, deque, and C's tuples with named items (torch.return_types);
  // - instances of classes over these or over object (dataclasses, ModelOutput), made without running their code;
  // - immutable values, classes and functions.
  // Tuples have no identity: a tuple of the arguments may come back as an equal one.
  //
  // Effects are: attributes of the arguments (in __dict__ and __slots__), items of their lists and entries of their
  // dictionaries that were replaced, added or removed; versions of the tensors of arguments and module (versions.h);
  // one more in tensors of one float on the CPU, where the snapshot says so.
  //
  // Refused are: the end of an object that a program can see (it has a finalizer, or weak references); a new object
  // that others refer to as well, since a replay would make a second one; all other changes.
  //
  // `autograd`, if not null, becomes true if autograd is the reason: the call may not be refused under torch.no_grad().
  // `gradients`: gets the tensors made that require grad; null: these are refused.
  static std::unique_ptr<CallOutcome> learn(Object* result, const ArgumentSnapshot& before, guards::ModuleGuard& module,
                                            refusal::Refusal& refusal, bool* autograd = nullptr,
                                            std::vector<GradientResult>* gradients = nullptr) noexcept;
  ~CallOutcome();

  // Did two observed calls of one signature do the same: structure, places, shapes, plain values? False without a
  // difference: no memory.
  bool same_as(const CallOutcome& other, refusal::Refusal& difference) const noexcept;

  // The same of calls in different processes (portable.h). Throws std::bad_alloc.
  cache::Digest digest() const;
  // The same without its numbers, which are added to `numbers`: sizes, strides and offsets of tensors, bytes of their
  // storages, ints.
  cache::Digest digest_without(std::vector<std::int64_t>& numbers) const;

  // The tensors that the call made, each once: those of effects, then those of the result, then tensors that are seen
  // only as the `_base` of others.
  const std::vector<MadeTensor>& made() const noexcept;

  // The storages of the arguments' and the module's tensors that the observed call wrote to, by their versions.
  const std::vector<walk::StorageExtent>& written() const noexcept;

  // Tensors of the arguments that require grad since the call (requires_grad_()), by their places; leaves.
  const std::vector<std::uint32_t>& made_to_require_grad() const noexcept;

  // Did it change its arguments, but for what tensors hold?
  bool has_effects() const noexcept;

  // Did the call let go of objects of the arguments that can have weak references? In a replay they end later.
  bool lets_go() const noexcept;
  // Has one of these objects weak references in this call, so that a program can see its end? `arguments` as in
  // repeat().
  bool end_is_seen(const walk::Walk& arguments) const noexcept;

  // Are all objects in place that repeat() uses? Ask before the work is launched: afterwards there is no way back.
  // `arguments` as in repeat().
  bool fits(const walk::Walk& arguments) const noexcept;

  // Prefetches the data that repeat() reads: each signature has its own, and the last read was calls ago.
  void fetch() const noexcept;

  // Repeats the outcome while the module's guard holds. `tensors[i]` stands for made()[i]; its reference is not stolen.
  // `arguments` is a walk of this call's arguments; its bytes equal those of the learned call. Builds all objects
  // first, then replaces attributes and items. Returns the result, a new reference. Null: no memory, or !fits();
  // nothing was changed. Runs no Python code. Replaced objects move to `replaced`, which was empty: their ends may run
  // code.
  Object* repeat(Object* const* tensors, const walk::Walk& arguments, References& replaced) const noexcept;

 private:
  CallOutcome();
  std::unique_ptr<CallOutcomeState> state_;
};

}  // namespace grape::python::effects
