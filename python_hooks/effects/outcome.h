// What a call did for Python: the object that it returned, and the attributes and items of its arguments that it
// replaced. Learned from observed calls, repeated at each replay with fresh tensors. With the GIL.
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

namespace grape::python::state {

struct BeforeState;
struct OutcomeState;

// The arguments' mutable objects before the call: shallow copies of their attributes and items. Holds what is in them,
// but no tensor, nor what ends with a finalizer or is weakly referred to: these are watched by weak references, so that
// they end when they would without Grape. Of tensors the memory is held: what the call makes is not to come to lie
// there, where a proof finds its input. And the versions of all tensors, the module's too.
class Before {
 public:
  // `arguments`: the walk of the call's arguments, just taken. `module` holds. `lasting`: one of them that does not end
  // before the call does, whoever would see that (the module that it is a call of); null: none is known to.
  static std::unique_ptr<Before> take(const Walk& arguments, const ModuleGuard& module, Object* lasting,
                                      refusal::Refusal& refusal) noexcept;
  ~Before();

  // Is it the version of a tensor of the arguments or the module?
  bool knows(const VersionCounter* counter) const noexcept;

 private:
  friend class Outcome;
  Before();
  std::unique_ptr<BeforeState> state_;
};

struct TensorForm {
  std::int64_t offset = 0;  // elements
  std::vector<std::int64_t> sizes, strides;
  std::int32_t type = 0;
};

// A tensor that the call made: where its memory lies, and its shape. Whether the storage was allocated during the call
// is for the caller to ask: also a global one, or the memory of an argument's tensor that the call dropped, comes here.
struct MadeTensor : TensorForm {
  std::uint64_t storage = 0, storage_bytes = 0;  // as observed; an empty one is shared with nobody
  std::int32_t device_type = 0, device_index = 0;
  std::uint32_t item_bytes = 0;
  std::uint32_t group = 0;         // tensors with the same number share one storage; numbered in order
  std::uint32_t version = 0;       // how often it was written to
  std::uint32_t as_first = 0;      // index of the first one that it shares its version with, maybe its own
  std::int32_t view_of = kNoView;  // what autograd knows it as a view of: that index
  static constexpr std::int32_t kNoView = -1;
};

class Outcome {
 public:
  // After the call returned `result`, to which the caller holds the one reference that a call returns. Compares
  // arguments with `before`. Null: refused; `refusal` says what the call did that cannot be repeated, and where
  // ("result.logits: a tensor that requires grad"); no refusal: no memory.
  //
  // The result: tensors made, with attributes of plain values; objects of the arguments and of the module; views of the
  // tensors of either; tuple, list, dict, OrderedDict, defaultdict, deque and instances of classes over these or over
  // object (dataclasses, named tuples, ModelOutput), made without calling any of their code; tuples of C's whose items
  // have names (torch.return_types); immutable values, classes, functions. A tuple has no identity: one of the
  // arguments' comes back as an equal one.
  //
  // Effects: attributes (in __dict__ and __slots__), items of lists and entries of dictionaries of the arguments that
  // were replaced, added or taken out; versions of tensors of the arguments and the module (versions.h).
  //
  // Refused: to let go of an object whose end would be seen (it has a finalizer, or weak references); what is also
  // referred to from elsewhere, since repeating would make a second one; whatever else changed.
  //
  // `autograd`, if not null: it was refused since autograd is at work, and may not be under torch.no_grad().
  static std::unique_ptr<Outcome> learn(Object* result, const Before& before, ModuleGuard& module,
                                        refusal::Refusal& refusal, bool* autograd = nullptr) noexcept;
  ~Outcome();

  // Two observed calls of one signature must have done the same: structure, places, shapes, plain values. False
  // without a difference: no memory.
  bool same_as(const Outcome& other, refusal::Refusal& difference) const noexcept;

  // The same of calls in different processes (portable.h). Throws std::bad_alloc.
  cache::Digest digest() const;

  // Tensors made, each once, in the order met (effects first, then the result); at the end what is only seen as the
  // `_base` of others.
  const std::vector<MadeTensor>& made() const noexcept;

  // The storages of the tensors of the arguments and the module that the observed call wrote to, as their versions say.
  const std::vector<StorageExtent>& written() const noexcept;

  // Did the call let go of objects of the arguments to which there can be weak references? In a replay they end later.
  bool lets_go() const noexcept;
  // Is any of these weakly referred to in this call, so that its end would be seen? `arguments` as in repeat().
  bool end_is_seen(const Walk& arguments) const noexcept;

  // Is everything in place that repeat() puts to use? Asked before the work is launched, since then there is no way
  // back. `arguments` as in repeat().
  bool fits(const Walk& arguments) const noexcept;

  // Has what repeat() reads fetched ahead: each signature has its own, which was last read calls ago.
  void fetch() const noexcept;

  // Repeats, while the module's guard holds: `tensors[i]` stands for made()[i] (references are not stolen); `arguments`
  // is a walk of this call's arguments with bytes equal to the learned one's. First builds everything, then applies the
  // replaced attributes and items. Returns the result, a new reference; null: no memory, or !fits(); nothing was
  // changed. Runs no Python code: what was replaced is in `replaced`, which was empty, and the end of such an object
  // may run some.
  Object* repeat(Object* const* tensors, const Walk& arguments, References& replaced) const noexcept;

 private:
  Outcome();
  std::unique_ptr<OutcomeState> state_;
};

}  // namespace grape::python::state
