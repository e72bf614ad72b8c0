#include "python_hooks/walk/watch.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/walk/held.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::walk {
namespace {

constexpr std::size_t kAhead = 48;       // words that are asked for ahead
constexpr std::size_t kGradNoted = 144;  // where requires_grad stands in autograd's notes of a tensor; asked for ahead
constexpr std::size_t kMarkWords = sizeof(torch::TensorMark) / sizeof(std::uint64_t);
static_assert(kMarkWords * sizeof(std::uint64_t) == sizeof(torch::TensorMark), "compared as words");

std::uint64_t bits(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

void Watch::keep(Object* immutable) {
  kept_.push_back(immutable);
  g_api.Py_IncRef(immutable);
}

void Watch::check(const Check& check, bool reported) {
  checks_.push_back(check);
  if (!reported) always_.push_back(check);
}

void Watch::expect(const void* address, std::uint64_t expected, bool reported) {
  check({reinterpret_cast<std::uintptr_t>(address), expected}, reported);
}

void Watch::more(const Entry& entry, bool reported) {
  check({reinterpret_cast<std::uintptr_t>(entry.object) | 1U, entries_.size()}, reported);
  entries_.push_back(entry);
}

void Watch::object(Object* object) {
  word(object, 8);  // its class
  Object** place = instance_dict_place(object);
  if (place != nullptr) expect(place, bits(*place));
}

void Watch::items(Object* container, Kind kind) {
  const bool keyed = is(kind, kKeyed);
  const bool reported = keyed && asks_ && reports_changes(container) && reports_.add(container);
  if (kind == Kind::kOrderedDict && g_api.PyDict_Size(container) > 1) {
    expect(&order_version(container), order_version(container));
  }
  if (keyed && tells_of_changes(container)) {
    expect(&dict_version(container), dict_version(container), reported);  // another one since it is watched
    return;
  }
  if (kind == Kind::kDeque) return give_up();
  if (is_exactly(container, g_api.PyTuple_Type) && is_constant(container)) return;  // whoever holds it keeps it
  const Kind read_as = keyed ? Kind::kDict : kind;
  const auto count = static_cast<std::uint32_t>(size_of(container, kind));
  more({What::kItems, read_as, count, container, words_.size()}, reported);
  const auto add = [this](Object* part) {
    words_.push_back(bits(part));
    if (part != nullptr && is_constant(part)) keep(part);
  };
  std::vector<Item> now;
  items_of(container, read_as, now);
  for (const Item& item : now) {
    if (keyed) add(item.key);
    add(item.value);
  }
}

bool Watch::items_hold(const Entry& entry) const noexcept {
  auto* const container = const_cast<Object*>(entry.object);
  if (size_of(container, entry.kind) != entry.count) return false;
  if (entry.count == 0) return true;
  const std::uint64_t* word = &words_[entry.a];
  if (entry.kind == Kind::kList) return std::memcmp(list_data(container), word, entry.count * sizeof *word) == 0;
  return each_item(container, entry.kind, [&](Object* key, Object* item, std::size_t) {
    return (key == nullptr || bits(key) == *word++) && bits(item) == *word++;
  });
}

void Watch::empty_dict(Object* dict) {
  const bool reported = asks_ && reports_changes(dict) && reports_.add(dict);
  expect(&place<std::uint64_t>(dict, 16), item_count(dict), reported);
}

void Watch::word(const Object* object, std::size_t offset) {
  const auto* place = reinterpret_cast<const char*>(object) + offset;
  expect(place, field<std::uint64_t>(place, 0));
}

void Watch::reference(const Object* object, std::size_t offset) {
  word(object, offset);
  auto* content = field<Object*>(object, offset);
  if (content != nullptr && is_constant(content)) keep(content);
}

void Watch::function(Object* function) {
  reference(function, g_layout.function_code);
  for (std::size_t i = 0; i < 3; ++i) reference(function, g_layout.function_defaults + 8 * i);
  word(function, g_layout.function_attributes);
}

void Watch::type(Object* type) {
  const std::uint32_t version = type::renew_version(type);
  if (version == 0) give_up();
  more({What::kType, {}, 0, type, version});
}

void Watch::identity(Object* object) {
  Object* reference = g_api.PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr) {
    g_api.PyErr_Clear();
    give_up();
    return;
  }
  word(reference, 16);  // what it refers to
  kept_.push_back(reference);
}

void Watch::tensor(Object* tensor) {
  torch::TensorWords words;
  if (torch::words_of_tensor(tensor, words)) {
    for (std::size_t i = 0; i < words.count; ++i) expect(words.at[i], *words.at[i]);
    check({reinterpret_cast<std::uintptr_t>(words.grad) | 1U, entries_.size()}, false);
    entries_.push_back({What::kGrad, {}, torch::autograd_facts(tensor), tensor, 0});
    return;
  }
  torch::TensorMark mark;
  if (!torch::mark_tensor(tensor, mark)) give_up();
  std::uint64_t mark_words[kMarkWords];
  std::memcpy(mark_words, &mark, sizeof mark);
  more({What::kTensor, {}, 0, tensor, words_.size()});
  words_.insert(words_.end(), mark_words, mark_words + kMarkWords);
}

void Watch::memory(const void* data, std::size_t bytes) {
  // An odd address has the lowest bit set as well: its line is the same.
  more({What::kMemory,
        {},
        static_cast<std::uint32_t>(bytes),
        static_cast<const Object*>(data),
        XXH3_64bits(data, bytes)});
}

bool Watch::entry_holds(const Entry& entry) const noexcept {
  switch (entry.what) {
    case What::kType:
      return type::version(entry.object) == entry.a;
    case What::kGrad:
      return torch::autograd_facts(const_cast<Object*>(entry.object)) == entry.count;
    case What::kTensor: {
      torch::TensorMark mark;
      return torch::mark_tensor(const_cast<Object*>(entry.object), mark) &&
             std::memcmp(&mark, &words_[entry.a], sizeof mark) == 0;
    }
    case What::kItems:
      return items_hold(entry);
    case What::kMemory:
      return XXH3_64bits(entry.object, entry.count) == entry.a;
  }
  return false;
}

bool Watch::all_hold(const std::vector<Check>& checks) const noexcept {
  const Check* const end = checks.data() + checks.size();
  const Check* const end_ahead = end - std::min(kAhead, checks.size());
  for (const Check* check = checks.data(); check != end; ++check) {
    // Only asked for: an address that is no more does no harm.
    if (check < end_ahead) {
      const std::uintptr_t ahead = check[kAhead].address;
      __builtin_prefetch(reinterpret_cast<const void*>(ahead));
      if ((ahead & 1U) != 0) __builtin_prefetch(reinterpret_cast<const void*>(ahead + kGradNoted));
    }
    const bool holds = (check->address & 1U) == 0
                           ? *reinterpret_cast<const std::uint64_t*>(check->address) == check->expected
                           : entry_holds(entries_[check->expected]);
    if (!holds) return false;
  }
  return true;
}

bool Watch::holds() noexcept {
  if (!complete_) return false;
  if (!reports_.changed()) return all_hold(always_);
  reports_.look();
  if (all_hold(checks_)) return true;
  reports_.give_up();
  return false;
}

void Watch::clear() noexcept {
  checks_.clear();
  always_.clear();
  reports_.clear();
  entries_.clear();
  words_.clear();
  for (Object* object : kept_) g_api.Py_DecRef(object);
  kept_.clear();
  complete_ = true;
}

}  // namespace grape::python::walk
