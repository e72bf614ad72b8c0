// Did two calls do the same?
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "python_hooks/effects/call_outcome_state.h"

namespace grape::python::effects {
namespace {

class Comparison {
 public:
  Comparison(const CallOutcomeState& a, const CallOutcomeState& b) : a_(a), b_(b) {}

  refusal::Refusal run() {
    if (a_.effects.size() != b_.effects.size()) {
      const bool more = a_.effects.size() > b_.effects.size();
      const auto& effects = (more ? a_ : b_).effects;
      return refusal::make(refusal::changed_in_one_run, effects[(more ? b_ : a_).effects.size()].path);
    }
    for (std::size_t i = 0; i < a_.effects.size(); ++i) {
      if (!same_effect(a_.effects[i], b_.effects[i])) return difference_;
    }
    if (!same_writes()) return difference_;
    path_ = "result";
    if (!same_value(a_.result, b_.result) || !same_tensors() || !same_faces()) return difference_;
    return {};
  }

 private:
  template <std::size_t count, typename... Parts>
  bool differ(refusal::Form<count> form, const Parts&... parts) {
    difference_ = refusal::make(form, path_, parts...);
    return false;
  }

  bool same_writes() {
    if (a_.counted != b_.counted) return differ(refusal::written_otherwise);
    if (a_.made_to_require_grad != b_.made_to_require_grad) return differ(refusal::other_requires_grad);
    for (std::size_t i = 0; i < a_.writes.size() || i < b_.writes.size(); ++i) {
      if (i < a_.writes.size() && i < b_.writes.size() && same_write(a_.writes[i], b_.writes[i])) continue;
      path_ = (i < a_.writes.size() ? a_ : b_).writes[i].path;
      return differ(refusal::written_otherwise);
    }
    return true;
  }

  static bool same_write(const Write& a, const Write& b) {
    return a.module_tensor == b.module_tensor && a.place == b.place && a.times == b.times && a.as_first == b.as_first;
  }

  bool same_effect(const Effect& a, const Effect& b) {
    path_ = a.path;
    const bool one_deletes = a.key.get() != nullptr && (a.node == kNoNode) != (b.node == kNoNode);
    if (a.action != b.action || a.of != b.of || a.place != b.place || a.at != b.at || one_deletes ||
        !same_key(a.key, b.key)) {
      return differ(refusal::changed_elsewhere, b.path);
    }
    return same_value(a.node, b.node);
  }

  static bool same_key(const Strong& a, const Strong& b) {
    if (a.get() == b.get()) return true;
    return a.get() != nullptr && b.get() != nullptr && walk::same_plain_value(a.get(), b.get());
  }

  bool same_value(std::uint32_t a, std::uint32_t b) {
    if (a == kNoNode || b == kNoNode) return a == b || differ(refusal::set_in_one_run);
    const Node& left = a_.nodes[a];
    const Node& right = b_.nodes[b];
    if (left.kind != right.kind) return differ(refusal::value_of_other_kind);
    // The same object here must be the same object there. Values of a kind that may be shared or not are left out.
    if (left.kind != ValueKind::kPlain && left.kind != ValueKind::kForm) {
      const auto partner = partners_.emplace(a, b);
      const auto back = partners_back_.emplace(b, a);
      if (partner.first->second != b || back.first->second != a) return differ(refusal::shared_otherwise);
      if (!partner.second) return true;
    }
    switch (left.kind) {
      case ValueKind::kPlain:
        return walk::same_plain_value(left.held.get(), right.held.get()) || differ(refusal::other_value);
      case ValueKind::kIdentity:
        return left.held.get() == right.held.get() || differ(refusal::other_object);
      case ValueKind::kForm:
        return a_.forms[left.index] == b_.forms[right.index] || differ(refusal::other_value);
      case ValueKind::kArgument:
        return left.index == right.index || differ(refusal::other_object_of_arguments);
      case ValueKind::kModule:
        return left.object == right.object || differ(refusal::other_object_of_module);
      case ValueKind::kMade:
        return (left.index == right.index || differ(refusal::shared_otherwise)) &&
               same_tensor(a_.made[left.index], b_.made[right.index]) && same_links(left.links, right.links);
      case ValueKind::kView:
        return same_view(a_.views[left.index], b_.views[right.index]) && same_links(left.links, right.links);
      case ValueKind::kBuilt:
        return (left.held.get() == right.held.get() || differ(refusal::other_class)) &&
               (same_key(left.limit, right.limit) || differ(refusal::other_greatest_length)) &&
               same_links(left.links, right.links);
    }
    return false;
  }

  bool same_faces() {
    const auto same = [](const Face& a, const Face& b) {
      return a.place == b.place && a.as_version == b.as_version && a.as_root == b.as_root;
    };
    return std::equal(a_.faces.begin(), a_.faces.end(), b_.faces.begin(), b_.faces.end(), same) ||
           differ(refusal::other_sharing_of_arguments);
  }

  // Also those that no value is: what views are of.
  bool same_tensors() {
    if (a_.made.size() != b_.made.size()) return differ(refusal::other_number_of_tensors);
    for (std::size_t i = 0; i < a_.made.size(); ++i) {
      if (!same_tensor(a_.made[i], b_.made[i])) return false;
    }
    return true;
  }

  bool same_tensor(const MadeTensor& a, const MadeTensor& b) {
    return (a.type == b.type || differ(refusal::other_tensor_type)) &&
           (same_form(a, b) || differ(refusal::other_tensor_shape)) &&
           ((a.device_type == b.device_type && a.device_index == b.device_index) ||
            differ(refusal::other_tensor_device)) &&
           ((a.group == b.group && a.storage_bytes == b.storage_bytes) || differ(refusal::other_tensor_storage)) &&
           (a.requires_grad == b.requires_grad || differ(refusal::other_requires_grad)) &&
           (a.view_of == b.view_of || differ(refusal::view_of_other_tensor)) &&
           ((a.version == b.version && a.as_first == b.as_first) || differ(refusal::other_tensor_version));
  }

  static bool same_form(const TensorForm& a, const TensorForm& b) {
    return a.type == b.type && a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
  }

  bool same_view(const View& a, const View& b) {
    const bool same = a.module_tensor == b.module_tensor && a.place == b.place && same_form(a, b) &&
                      a.is_view == b.is_view && a.view_of == b.view_of && a.own_version == b.own_version &&
                      a.version == b.version && a.as_first == b.as_first;
    if (!same) return differ(refusal::other_view);
    return a.view_of < 0 ||
           same_view(a_.views[static_cast<std::size_t>(a.view_of)], b_.views[static_cast<std::size_t>(b.view_of)]);
  }

  bool same_links(const Range& a, const Range& b) {
    for (std::uint32_t i = 0; i < a.count || i < b.count; ++i) {
      const Link* const left = i < a.count ? &a_.links[a.first + i] : nullptr;
      const Link* const right = i < b.count ? &b_.links[b.first + i] : nullptr;
      if (left == nullptr || right == nullptr || left->place != right->place) {
        const auto no_other = [](const Link* link) { return link == nullptr || link->place == Link::Place::kItem; };
        const bool items = no_other(left) && no_other(right);
        return differ(items ? refusal::other_number_of_items : refusal::other_number_of_attributes);
      }
      const std::size_t length = path_.size();
      path_ += left->label();
      if (left->at != right->at || !same_key(left->key, right->key)) return differ(refusal::not_in_other_run);
      if (!same_value(left->node, right->node)) return false;
      path_.resize(length);
    }
    return true;
  }

  const CallOutcomeState& a_;
  const CallOutcomeState& b_;
  std::string path_;
  refusal::Refusal difference_;
  std::unordered_map<std::uint32_t, std::uint32_t> partners_, partners_back_;
};

}  // namespace

refusal::Refusal outcome_difference(const CallOutcomeState& a, const CallOutcomeState& b) {
  return Comparison(a, b).run();
}

}  // namespace grape::python::effects
