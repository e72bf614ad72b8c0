// Finds what a call changed in its arguments. Internal to python_hooks/effects.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "python_hooks/effects/call_outcome_state.h"
#include "python_hooks/effects/describe.h"

namespace grape::python::effects {

class EffectFinder {
 public:
  EffectFinder(const ArgumentSnapshotState& before, Describer& describer, CallOutcomeState& out,
               refusal::Refusal& refusal)
      : before_(before), describer_(describer), out_(out), refusal_(refusal) {}

  // Compares every object of the arguments with what it was. False: something changed that cannot be repeated.
  bool find();
  // After all values were described.
  void note_dropped();

 private:
  bool find_in_object();
  bool find_writes();
  void note_write(Object* module_tensor, const torch::VersionCounter* counter, std::uint32_t times, std::string path);
  bool find_in_tensor();
  bool find_in_autograd(Object* tensor);  // null: it is gone
  bool find_in_memory();                  // of a tensor that is there or gone
  bool has_counted(const torch::TensorView& now, std::uint64_t content) const;
  bool find_in_attributes();
  void note_parts(std::uint32_t place);
  bool let_go(const Entry& entry, const std::string& label);
  bool replaced_dict(const Object* dict) const;
  bool find_in_slots();
  bool find_in_items();
  bool find_in_list(const std::vector<walk::Item>& items);
  bool find_in_dictionary(const std::vector<Entry>& entries, const std::vector<walk::Item>& items, walk::Kind of);
  bool match_keys(const std::vector<Entry>& entries, const std::vector<walk::Item>& items, bool attributes,
                  std::vector<std::size_t>& was);
  bool good_keys(const std::vector<walk::Item>& items, const std::vector<Object*>& named, bool attributes);
  bool good_key(Object* key, bool attribute);
  bool refuse_key(Object* key);
  bool unchanged(const std::vector<walk::Item>& items) const;
  // What only takes away needs no memory: it comes last, when nothing can fail any more.
  enum class Order : std::uint8_t { kNow, kLast };
  bool add(Action action, walk::Kind of, Object* key, std::size_t at, const std::string& label, Object* value,
           Order order = Order::kNow);
  // With the object's path and `parts`; the first refusal is kept. Gives false.
  template <std::size_t count, typename... Parts>
  bool refuse(refusal::Form<count> form, const Parts&... parts) {
    if (!refusal_) refusal_ = refusal::make(form, before_.path(place_), parts...);
    return false;
  }

  static constexpr std::size_t kNew = ~std::size_t{0};  // an item that was no entry before

  const ObjectSnapshot& known() const { return before_.objects[place_]; }

  const ArgumentSnapshotState& before_;
  Describer& describer_;
  CallOutcomeState& out_;
  refusal::Refusal& refusal_;
  std::uint32_t place_ = 0;
  std::unordered_set<const Object*> dicts_;  // looked at: some are two objects' attributes
  std::vector<Effect> last_;
  std::vector<Object*> dropped_;  // what was replaced or taken out; maybe gone
  std::unordered_map<const torch::VersionCounter*, std::uint32_t> written_;  // index in `writes`
};

}  // namespace grape::python::effects
