// What a call did, in terms that hold in other processes.
#include "python_hooks/effects/call_outcome_state.h"
#include "python_hooks/walk/portable.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::effects {
namespace {

class Digester {
 public:
  explicit Digester(const CallOutcomeState& state) : state_(state) {}

  cache::Digest run() {
    write();
    return walk::digest_of(walk_.bytes());
  }
  cache::Digest run_without(std::vector<std::int64_t>& numbers) {
    walk_.note_numbers();
    write();
    return walk::digest_of(walk_.without_numbers(numbers));
  }

 private:
  void write() {
    put(state_.effects.size(), state_.nodes.size(), state_.result, state_.made.size(), state_.writes.size());
    for (const Write& write : state_.writes) {
      put(write.module_tensor != nullptr, write.place, write.times, write.as_first);
    }
    for (const Effect& effect : state_.effects) {
      put(effect.action, effect.of, effect.place, effect.at, effect.node);
      name(effect.type.get());
      value(effect.key.get());
    }
    for (const Node& node : state_.nodes) add(node);
    for (const Link& link : state_.links) {
      put(link.place, link.node, link.at);
      value(link.key.get());
    }
    for (const View& view : state_.views) add(view);
    for (const Face& face : state_.faces) put(face.place, face.as_version, face.as_root);
    for (const MadeTensor& made : state_.made) add(made);
  }

  template <typename... T>
  void put(const T&... numbers) {
    (walk_.add_bytes(&numbers, sizeof numbers), ...);
  }
  void put(const TensorForm& form) {
    walk_.add_numbers(&form.offset, 1);
    put(form.type);
    for (const auto* list : {&form.sizes, &form.strides}) {
      put(list->size());
      walk_.add_numbers(list->data(), list->size());
    }
  }
  void name(Object* object) { put(object != nullptr ? walk::portable_name(object) : std::uint64_t{0}); }
  // What cannot be walked counts by what it is.
  void value(Object* object) {
    if (object == nullptr || !walk_.add(object, "a value")) name(object);
  }

  void add(const Node& node) {
    put(node.kind, node.shape.kind, node.shape.exact, node.index, node.links.first, node.links.count, node.items);
    if (node.kind == ValueKind::kPlain) {
      value(node.held.get());
    } else {
      name(node.held.get());
    }
    name(node.object != nullptr ? type_of(node.object) : nullptr);
    value(node.limit.get());
  }

  void add(const View& view) {
    put(view.module_tensor != nullptr, view.place, view.end, view.is_view, view.view_of, view.own_version, view.version,
        view.as_first);
    put(static_cast<const TensorForm&>(view));
  }

  void add(const MadeTensor& made) {
    const auto bytes = static_cast<std::int64_t>(made.storage_bytes);
    walk_.add_numbers(&bytes, 1);
    put(made.device_type, made.item_bytes, made.group, made.version, made.as_first, made.view_of);
    put(static_cast<const TensorForm&>(made));
  }

  const CallOutcomeState& state_;
  walk::Walk walk_ = walk::Walk::portable(true);
};

}  // namespace

cache::Digest CallOutcome::digest() const { return Digester(*state_).run(); }

cache::Digest CallOutcome::digest_without(std::vector<std::int64_t>& numbers) const {
  return Digester(*state_).run_without(numbers);
}

}  // namespace grape::python::effects
