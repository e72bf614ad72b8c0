// Tells which objects and which memory of a call's arguments belong to another walked state (of the module, of the
// globals) as well. Two calls whose arguments look alike are different ones if the argument of one is what the module
// holds ("x is self.last", an argument in a weight's memory). Borrows everything. With the GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::guards {

class AliasRelation {
 public:
  // Throws std::bad_alloc. Addresses are compared and never followed: take it again when the state was walked again.
  void clear() noexcept;
  void add(const walk::Walk& state);

  // Equal words: the arguments share the same with the state. Appends. `by_address`: to compare with another walk of
  // the state, which may number what it meets in another way.
  void relate(const walk::Walk& arguments, std::vector<std::uint64_t>& out, bool by_address = false) const;

 private:
  void write_dicts(const walk::Walk& arguments, bool by_address, std::vector<std::uint64_t>& out) const;
  void write_objects(const std::vector<Object*>& objects, bool by_address, std::vector<std::uint64_t>& out) const;
  void write_extents(const std::vector<walk::StorageExtent>& extents, bool by_address,
                     std::vector<std::uint64_t>& out) const;

  FlatMap<AddressKey, std::uint32_t> objects_;  // and dictionaries of attributes
  FlatMap<AddressKey, const Object*> owners_;   // whose attributes these are
  std::uint32_t object_count_ = 0;
  struct Extent {
    std::uint64_t begin, end, number;
  };
  std::vector<Extent> extents_;         // ascending
  std::vector<std::uint64_t> reaches_;  // of each: the farthest end so far
};

}  // namespace grape::python::guards
