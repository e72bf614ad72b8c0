// Walks everything that can be reached from some objects without running any Python code, and writes it down in one
// canonical form: equal bytes mean that code which only reads this state cannot tell the two apart. With the GIL.
//
//   by value     None, bool, int, float, complex, str, bytes, range, slice, Ellipsis, torch.Size, torch.device, dtype,
//                layout, memory_format; tuple, list, dict (in order), set, frozenset, OrderedDict, defaultdict, deque;
//                instances of Python classes whose base in C is object, one of these containers, or torch.nn.Module
//                (attributes in __dict__ and in __slots__, then the container's content); functools.partial;
//                bound methods; Python functions of the user's (code object by identity, defaults, closure cells)
//   by identity  classes, enum members, modules, builtin functions, Python functions of installed libraries
//   tensors      CUDA: type, sizes, strides, offset, device, requires_grad, alignment (address modulo 512), which
//   storage
//                of the walk it shares; CPU: the same and, up to 64 KiB, the content
//   refused      everything else: reason() names the type and the path to it
//
// An object met a second time is a reference back, so aliasing is part of the form; cycles are fine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/cpython.h"
#include "python_hooks/state/torch_api.h"

namespace grape::python::state {

struct WalkedTensor {
  TensorView view;  // borrowed
  std::uint32_t extent =
      0;  // CUDA: number of its storage among the distinct ones of the walk, in order; CPU: kNoExtent
};
constexpr std::uint32_t kNoExtent = ~0u;

struct StorageExtent {
  std::uint64_t address = 0, bytes = 0;
};

class Walk {
 public:
  // `keep_addresses`: tensor addresses are part of the form (weights), else only their alignment (arguments).
  explicit Walk(bool keep_addresses) : keep_addresses_(keep_addresses) {}

  // False: refused, see reason(). May be called for several roots; `name` opens the path in reasons ("args[0]").
  bool add(Object* root, const char* name) noexcept;
  void add_bytes(const void* data, std::size_t size) noexcept;

  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  const std::vector<WalkedTensor>& tensors() const { return tensors_; }
  const std::vector<StorageExtent>& extents() const { return extents_; }
  // Every object walked that is not an immutable value, tensors too, in the order met; borrowed. Two walks with equal
  // bytes have the same number of them, and they correspond one to one.
  const std::vector<Object*>& objects() const { return objects_; }
  const std::string& reason() const { return reason_; }
  void clear() noexcept;  // keeps memory: for the hot path
                          // ... private parts are the implementer's
 private:
  bool keep_addresses_;
  std::vector<std::uint8_t> bytes_;
  std::vector<WalkedTensor> tensors_;
  std::vector<StorageExtent> extents_;
  std::vector<Object*> objects_;
  std::string reason_;
};

}  // namespace grape::python::state
