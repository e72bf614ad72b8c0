#include "python_hooks/effects/finalizable.h"

#include <algorithm>
#include <new>
#include <utility>

#include "python_hooks/scopes/scopes.h"

namespace grape::python::effects {
namespace {

constexpr int kDeepest = 8;

class Finalizable {
 public:
  Finalizable(ArgumentSnapshotState& state, refusal::Refusal& refusal) : state_(state), refusal_(refusal) {}

  // What refers to a finalizable object is one itself: to hold it would be to hold both.
  void mark(const std::vector<bool>& seen) {
    for (std::uint32_t i = 0; i < seen.size(); ++i) state_.objects[i].finalizable = seen[i];
    for (bool more = true; more;) {
      more = false;
      for (auto known = state_.objects.rbegin(); known != state_.objects.rend();
           ++known) {  // most are met before these
        if (known->finalizable || known->kept == Kept::kClass || !refers_to_any(*known)) continue;
        known->finalizable = more = true;
      }
    }
  }

  bool let_go() {
    for (std::uint32_t place = 0; place < state_.objects.size(); ++place) {
      const ObjectSnapshot& known = state_.objects[place];
      if (known.finalizable ? !let_go(place) : known.kept == Kept::kClass && !let_go_of_entries(place)) return false;
    }
    return true;
  }

 private:
  bool refers_to_any(const ObjectSnapshot& known) const {
    for (const auto* entries : {&known.attributes, &known.items, &known.slots}) {
      for (const Entry& entry : *entries) {
        if (is_finalizable(entry.value) || is_finalizable(entry.key.get())) return true;
      }
    }
    return false;
  }

  // What the walk has not noted is immutable (a tuple, a bound method), or lives longer than any call.
  bool is_finalizable(Object* value, int depth = 0) const {
    if (value == nullptr || is_type(value) || walk::is_plain_value(value)) return false;
    const auto place = state_.places.find(value);
    if (place != state_.places.end()) return state_.objects[place->second].finalizable;
    if (depth == kDeepest || is_function(value) || is_exactly(value, g_api.PyModule_Type)) return false;
    std::vector<walk::Item> referents;
    walk::referents_of(value, referents);
    const int next = is_exactly(value, g_api.PyTuple_Type) ? depth + 1 : kDeepest;
    return std::any_of(referents.begin(), referents.end(),
                       [&](const walk::Item& item) { return is_finalizable(item.value, next); });
  }

  bool let_go(std::uint32_t place) {
    ObjectSnapshot& known = state_.objects[place];
    const bool tensor = known.kept == Kept::kTensor;
    if (!tensor && type::weak_list_offset(type_of(known.object)) != 0) {
      watch(known.object, known.watch);
      known.held = Strong();
    } else if (!tensor && end_is_seen(known.object)) {
      return refuse(refusal::finalizer_without_weak_reference, place);
    } else if (known.parent != ~0U) {
      known.held = Strong();  // else the call's own argument, which the caller holds
    }
    known.dict.held = Strong();
    return let_go_of_entries(place);
  }

  bool let_go_of_entries(std::uint32_t place) {
    ObjectSnapshot& known = state_.objects[place];
    for (auto* entries : {&known.attributes, &known.items, &known.slots}) {
      for (Entry& entry : *entries) {
        if (is_finalizable(entry.key.get())) return refuse(refusal::end_of_key_seen, place);
        if (is_finalizable(entry.value) && !let_go(place, entry)) return false;
      }
    }
    return true;
  }

  bool let_go(std::uint32_t place, Entry& entry) {
    entry.finalizable = true;
    Object* const value = entry.value;
    if (state_.places.count(value) == 0) {
      if (is_exactly(value, g_api.PyTuple_Type)) {
        for (std::size_t i = 0; i < item_count(value); ++i) {
          Entry part;
          part.value = tuple_data(value)[i];
          if (!is_finalizable(part.value)) {
            part.held = Strong(part.value);
          } else if (!let_go(place, part)) {
            return false;
          }
          entry.parts.push_back(std::move(part));
        }
      } else if (type::weak_list_offset(type_of(value)) == 0) {
        return refuse(refusal::refers_to_seen_end, place, type::name(type_of(value)));
      } else {
        watch(value, entry.watch);
      }
    }
    entry.held = Strong();
    return true;
  }

  static void watch(Object* object, Strong& watch) {
    const Reference made(g_api.PyWeakref_NewRef(object, nullptr));
    if (!made) throw std::bad_alloc();
    watch = Strong(made.get());
  }

  template <std::size_t count, typename... Parts>
  bool refuse(refusal::Form<count> form, std::uint32_t place, const Parts&... parts) {
    return refusal::refuse(refusal_, form, state_.path(place), parts...);
  }

  ArgumentSnapshotState& state_;
  refusal::Refusal& refusal_;
};

// Does Grape alone refer to it weakly, for its name (scopes.h)?
bool weakly_held_for_its_name(Object* object) {
  constexpr std::size_t kNext = 48;  // of a weak reference: the next one to the same object
  const Object* reference = field<Object*>(object, static_cast<std::size_t>(type::weak_list_offset(type_of(object))));
  return field<Object*>(reference, kNext) == nullptr && reference_count(reference) == 1 &&
         scopes::refers_for_its_name(reference, object);
}

}  // namespace

bool end_is_seen(Object* object) {
  const bool held = walk::weakly_held(object) && !weakly_held_for_its_name(object);
  if (!type::has_finalizer(type_of(object)) && !held) return false;
  const walk::TypeInfo* info = walk::type_info(type_of(object));
  if (info == nullptr) throw std::bad_alloc();
  // To what is known by what it is, Grape itself refers weakly.
  return !walk::is(info->kind, walk::kLasting);
}

bool let_go_of_finalizable(ArgumentSnapshotState& state, const std::vector<bool>& seen, refusal::Refusal& refusal) {
  if (std::find(seen.begin(), seen.end(), true) == seen.end()) return true;
  Finalizable finalizable(state, refusal);
  finalizable.mark(seen);
  return finalizable.let_go();
}

bool ArgumentSnapshotState::same(const Entry& entry, Object* value) const noexcept {
  if (entry.value != value) return false;
  if (entry.held.get() != nullptr || value == nullptr) return true;
  if (entry.watch.get() != nullptr) return referent(entry.watch.get()) == value;
  const auto place = places.find(value);
  if (place != places.end()) return alive(place->second);
  // A tuple: one that is made anew may lie where it lay.
  if (!is_exactly(value, g_api.PyTuple_Type) || item_count(value) != entry.parts.size()) return false;
  Object* const* const items = tuple_data(value);
  return std::equal(entry.parts.begin(), entry.parts.end(), items,
                    [this](const Entry& part, Object* item) { return same(part, item); });
}

}  // namespace grape::python::effects
