// Walks everything that can be reached from some objects without running any Python code, and writes it down in one
// canonical form: equal bytes mean that code which only reads this state cannot tell the two apart. With the GIL.
//
//   by value     None, bool, int, float, complex, str, bytes, range, slice, Ellipsis, list[int], int | str, torch.Size,
//                torch.device, dtype, layout, memory_format; tuple, list, dict (in order), set, frozenset, OrderedDict,
//                defaultdict, deque; types.MappingProxyType and the views of a dictionary, by the dictionary
//                instances of Python classes whose base in C is object, a number, str, bytes or one of these containers
//                (attributes in __dict__ and in __slots__, then the base's content); functools.partial; bound methods;
//                cells, weak references without a callback, staticmethod, classmethod, property; Python functions of
//                the user's (code object by identity, defaults, closure cells, attributes), and of libraries where they
//                have a closure
//                functools.cached_property, types.SimpleNamespace, numbers of NumPy's; the user's functions with
//                functools.lru_cache by the results that they hold
//   by identity  classes, with a digest of what they and their bases define: of the user's classes functions, classes
//                and mutable attributes by value, of libraries' by identity; enum members by class and name; the
//                generators of random numbers behind `random` and numpy.random (a call that draws is not replayed);
//                modules of libraries, builtin functions, loggers, other Python functions of installed libraries
//   tensors      on the device: type, sizes, strides, offset, device, requires_grad, alignment (address modulo 512),
//                which storage of the walk it shares, Python attributes; CPU: the same and the content, up to 64 KiB
//                A module's forward hooks are dictionaries like any others: of functions, bound methods, partials and
//                objects that can be called, by their ids
//   left out     of modules: the hooks of state_dict and load_state_dict, and _non_persistent_buffers_set, which a call
//                does not look at; of tensors: grad and backward hooks
//   refused      everything else, and: a backward hook on a module, larger tensors on the CPU, tensors that are not
//                dense (sparse, conjugate, ...), Python modules of the user's, more than a million objects, more than
//                200 levels; refusal() names it and the path to it
//
// An object met a second time is a reference back, so aliasing is part of the form; cycles are fine. An object's
// __dict__ that is another one's as well, or is met as a value, is told apart from an equal one. Tuples, bound methods
// and other immutable values have no identity of their own. Sets are in the order in which they are iterated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/seen_table.h"

namespace grape::python::walk {

struct WalkedTensor {
  torch::TensorView view;    // borrowed
  std::uint32_t extent = 0;  // device: number of its storage among the distinct ones of the walk, in order;
                             // CPU: kNoExtent
};
constexpr std::uint32_t kNoExtent = ~0u;

// On which of CUDA's devices tensors are.
class DeviceSet {
 public:
  void add(std::int32_t device) noexcept { only_ = only_ == kNone || only_ == device ? device : kSeveral; }
  void add(const DeviceSet& other) noexcept {
    if (other.only_ != kNone) add(other.only_);
  }
  void clear() noexcept { only_ = kNone; }
  // The only one; `otherwise` where there is none, or there are several.
  std::int32_t only_or(std::int32_t otherwise) const noexcept { return only_ >= 0 ? only_ : otherwise; }

 private:
  static constexpr std::int32_t kNone = -1, kSeveral = -2;
  std::int32_t only_ = kNone;
};

struct StorageExtent {
  std::uint64_t address = 0, bytes = 0;
};

// A dictionary that is an object's __dict__ and may be met elsewhere, too.
struct AttributeDict {
  Object* dict = nullptr;    // borrowed
  std::uint32_t object = 0;  // index of whose it is, the first one met
};

class Watch;
class WalkMemo;

class Walk {
 public:
  static constexpr std::size_t kMostAhead = 512;  // places asked for ahead: they are to fit into the nearest cache
  // `keep_addresses`: tensor addresses are part of the form (weights), else only their alignment (arguments).
  // Walks of arguments come with every call: they have the memory of the one before, and ask ahead for what that read.
  explicit Walk(bool keep_addresses) noexcept;
  // The form in terms that hold in other processes, for GRAPE_CACHE: names in place of identities (portable.h), no
  // addresses, sets and dictionaries in any order, of what libraries keep only what it is; with `keep_addresses` no
  // large ints, which may be hashes or addresses. Less sharp; equal forms prove nothing.
  static Walk portable(bool keep_addresses) noexcept;
  ~Walk();
  Walk(Walk&&) = default;
  Walk& operator=(Walk&&) = default;
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // False: refused, see refusal(). May be called for several roots; `name` opens the path in reasons ("args[0]").
  bool add(Object* root, const char* name) noexcept { return add(root, name, false); }
  // Not what it refers to by value, but which objects: of a container or an instance that is a library's, the items and
  // attributes, two levels deep; of a library's function what its closure holds. Never refused for what it holds.
  bool add_shallow(Object* root, const char* name) noexcept;
  // As add(), but for what tensors on the CPU hold: the caller knows it.
  bool add_without_contents(Object* root, const char* name) noexcept;
  void add_bytes(const void* data, std::size_t size) noexcept;  // without memory the next add() is false
  // From now on the places of plain numbers are noted: sizes, strides and offsets of tensors, ints of up to 64 bits.
  // For walks without a memo; clear() ends it.
  void note_numbers() noexcept { notes_numbers_ = true; }
  // Each of them is eight bytes of bytes(), which begin there. Ascending.
  const std::vector<std::size_t>& number_places() const { return number_places_; }
  void add_numbers(const std::int64_t* numbers, std::size_t count) noexcept;  // as add_bytes()
  // The bytes with zeros in these places; adds the numbers to `numbers`. Throws std::bad_alloc.
  std::vector<std::uint8_t> without_numbers(std::vector<std::int64_t>& numbers) const;

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  const std::vector<WalkedTensor>& tensors() const { return tensors_; }
  const std::vector<StorageExtent>& extents() const { return extents_; }
  const DeviceSet& devices() const { return devices_; }
  // Every object walked that is not an immutable value, tensors and classes too, in the order met; borrowed. Two walks
  // with equal bytes have the same number of them, and they correspond one to one.
  const std::vector<Object*>& objects() const { return objects_; }
  // Of walks with addresses all of them, of others those that somebody else refers to. Which ones these are does not
  // show in the bytes; that two places have the same one does.
  const std::vector<AttributeDict>& attribute_dicts() const { return attribute_dicts_; }
  // Does no storage on a device reach into another one's memory (DLPack)? False: refused. Throws std::bad_alloc.
  bool extents_are_apart();
  // The next walk of arguments is likely to come to these, which were made just now: tensors, or null. Borrowed for the
  // time of the call alone.
  static void expect(const std::vector<Object*>& tensors) noexcept;
  // The argument that took most of the walk so far, and how many values it has; null: none yet. Borrowed.
  Object* largest_root() const noexcept { return largest_root_; }
  std::uint32_t largest_values() const noexcept { return largest_values_; }
  const refusal::Refusal& refusal() const { return refusal_; }
  void clear() noexcept;  // keeps memory: for the hot path

  // For ModuleGuard. Everything walked is told to `watch`, a container before what it holds. Null: nobody.
  void set_watch(Watch* watch) { watch_ = watch; }
  // Reuses the memo's walk of an argument if the argument is unchanged. Null: walks everything.
  void recall(WalkMemo* memo) { memo_ = memo; }
  // For reports: while walking, compares with these bytes; the first place that differs is then in difference().
  void compare_with(const std::vector<std::uint8_t>* expected) { expected_ = expected; }
  const std::string& difference() const { return difference_; }

 private:
  friend class Walker;
  friend class WalkMemo;
  void note_device(const torch::TensorView& view) noexcept {
    if (view.device_type == torch::kCudaDevice) devices_.add(view.device_index);
  }
  static Walk unkept() noexcept;  // of arguments, with memory of its own
  void note_root(Object* root, std::uint32_t values) noexcept;
  bool add(Object* root, const char* name, bool shallow) noexcept;
  void exchange_memory(Walk& other) noexcept;

  bool keep_addresses_, portable_ = false;
  std::vector<std::uint8_t> bytes_;
  std::vector<WalkedTensor> tensors_;
  std::vector<StorageExtent> extents_, ascending_;
  DeviceSet devices_;  // of tensors_
  std::vector<Object*> objects_;
  refusal::Refusal refusal_;

  SeenTable seen_;      // objects, by address: their number is their index in objects_
  SeenTable storages_;  // of tensors, by address
  SeenTable dicts_;     // attribute_dicts_, by address
  std::vector<AttributeDict> attribute_dicts_;
  std::vector<std::uint32_t> storage_extents_;
  std::vector<const void*> touched_, touched_before_;  // memory that is read: by this walk, by the one before
  std::uint64_t number_ = 0;                           // another one for each walk of arguments
  std::uint32_t values_ = 0;                           // walked so far
  std::uint32_t largest_values_ = 0;
  Object* largest_root_ = nullptr;
  WalkMemo* memo_ = nullptr;  // null: none
  bool incomplete_ = false;   // there was no memory: refused from then on
  bool contents_ = true;      // are contents of tensors on the CPU written?
  bool notes_numbers_ = false;
  std::vector<std::size_t> number_places_;
  Watch* watch_ = nullptr;
  const std::vector<std::uint8_t>* expected_ = nullptr;
  std::size_t compared_ = 0;
  std::string difference_;
};

// Of two walks with equal bytes, which differ in their objects: what to say of it.
std::string other_object(const Walk& before, const Walk& now);

}  // namespace grape::python::walk
