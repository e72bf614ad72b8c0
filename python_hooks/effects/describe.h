// Describes values that a call left behind, so that they can be made again. Internal to python_hooks/effects.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python_hooks/effects/call_outcome_state.h"

namespace grape::python::effects {

class Describer {
 public:
  Describer(const ArgumentSnapshotState& before, const std::vector<Object*>& module_objects, CallOutcomeState& out,
            refusal::Refusal& refusal);

  // Describes `object` and counts one known reference to it: two calls for one object count two. `path` is its name for
  // people. kNoNode: refused.
  std::uint32_t describe(Object* object, std::string path);
  // After all values: do only the described values refer to the objects that a replay makes anew?
  bool held_by_nobody_else();
  // After all values: finds out which tensors are views of which. Describes bases, too, that are seen only as a view's
  // `_base`. False: refused.
  bool relate_views();
  // After all values: is none of their numbers the address of a tensor or an object? Addresses are no part of a call's
  // signature, so the next call would give another number.
  bool tells_no_addresses();

 private:
  // Memory that was there before the call.
  struct Memory {
    std::uint64_t address = 0, bytes = 0, keys = 0;
    const torch::VersionCounter* counter = nullptr;
    Object* module_tensor = nullptr;
    std::uint32_t place = 0;
  };
  // What is to be compared with the object's references at the end.
  struct Made {
    Object* object = nullptr;
    std::uint32_t references = 0;
    std::string path;
  };

  // A tensor that autograd knows as a view of one that is neither the arguments' nor the module's.
  struct Based {
    Object* tensor = nullptr;
    const void* base = nullptr;
    std::size_t index = 0;  // in `made` or `views`
    bool made = false;
    std::string path;
  };

  std::uint32_t describe_at_path(Object* object);
  std::uint32_t describe_new(Object* object);
  std::uint32_t describe_tensor(Object* tensor);
  bool may_require_grad(Object* tensor);
  bool note_gradients(Object* tensor, std::uint32_t node, bool hidden);
  bool describe_tensor_attributes(Object* tensor, std::uint32_t node);
  std::uint32_t describe_in_memory(const torch::TensorView& view);
  std::uint32_t describe_made(const torch::TensorView& view);
  std::uint32_t describe_view(const torch::TensorView& view, const Memory& memory);
  bool describe_base(const torch::TensorView& view, View& made);
  bool is_in_memory_of_base(Object* tensor) const;
  bool describe_hidden(const Based& view);
  bool is_hidden(Object* base, const void* identity, bool by_node);
  bool share_own_versions();
  void note_faces();
  void append_faces(const std::vector<const Memory*>& faces);
  std::uint32_t describe_instance(Object* object, const walk::Shape& shape,
                                  const std::vector<walk::TypeInfo::Slot>& slots);
  std::uint32_t describe_other(Object* object, walk::Kind kind);
  bool describe_attributes(Object* object, std::vector<Link>& links);
  bool describe_slots(Object* object, const std::vector<walk::TypeInfo::Slot>& slots, std::vector<Link>& links);
  bool describe_items(Object* object, walk::Kind kind, std::vector<Link>& links);
  bool describe_part(Link link, Object* value, std::vector<Link>& links);
  bool good_key(Object* key);
  Range append(std::vector<Link>& links);

  void note_number(Object* value);
  bool is_address(std::uint64_t number) const;
  bool find_memory(const torch::TensorView& view, const void* base, const Memory*& found);
  int nearness(const Memory& memory, const torch::VersionCounter* counter, const void* base) const;
  bool is_version_of_memory(const torch::VersionCounter* counter) const;
  std::uint32_t add(ValueKind kind, Object* held, std::uint32_t index);
  void expect(std::uint32_t node, Object* object);
  bool has_made_parts(const Node& node) const;
  struct Refused {
    // NOLINTBEGIN(google-explicit-constructor): to be returned
    operator std::uint32_t() const noexcept { return kNoNode; }
    operator bool() const noexcept { return false; }
    // NOLINTEND(google-explicit-constructor)
  };
  // With the path and `parts`; the first refusal is kept.
  template <std::size_t count, typename... Parts>
  Refused refuse(refusal::Form<count> form, const Parts&... parts) {
    if (!refusal_) refusal_ = refusal::make(form, path_, parts...);
    return {};
  }

  const ArgumentSnapshotState& before_;
  CallOutcomeState& out_;
  refusal::Refusal& refusal_;
  std::string path_;
  int depth_ = 0;
  std::vector<Memory> memory_;
  std::unordered_map<const Object*, std::uint32_t> known_;  // objects described, each its node
  std::unordered_map<std::uint32_t, Made> made_;            // by node
  std::unordered_map<const Object*, bool> of_module_;
  std::vector<std::pair<std::uint64_t, std::string>> large_numbers_;  // and their paths
  std::vector<const void*> made_tensors_, view_tensors_;              // which tensors `made` and `views` are
  std::vector<const torch::VersionCounter*> view_counters_;           // of `views`
  std::vector<Based> based_;
  std::unordered_map<std::uint64_t, std::uint32_t> groups_;                   // storages made
  std::unordered_map<const torch::VersionCounter*, std::uint32_t> versions_;  // of tensors made: the first one's index
};

}  // namespace grape::python::effects
