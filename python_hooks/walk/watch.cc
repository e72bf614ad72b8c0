#include "python_hooks/walk/watch.h"

#include <xxhash.h>

#include <cstring>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/torch/autograd_state.h"

namespace grape::python::state {
namespace {

constexpr std::size_t kAhead = 48;       // words that are asked for ahead
constexpr std::size_t kGradNoted = 144;  // where requires_grad stands in autograd's notes of a tensor; asked for ahead
constexpr std::size_t kMarkWords = sizeof(TensorMark) / sizeof(std::uint64_t);
static_assert(kMarkWords * sizeof(std::uint64_t) == sizeof(TensorMark), "compared as words");

template <typename T>
std::uint64_t bits(T* pointer) noexcept {
  return reinterpret_cast<std::uint64_t>(pointer);
}

// Is it an immutable value that holds nothing but such?
bool is_plain(Object* object, int depth) noexcept {
  Object* type = type_of(object);
  if (type == g_api.PyUnicode_Type || type == g_api.PyLong_Type || type == g_api.PyFloat_Type ||
      type == g_api.PyBytes_Type || type == g_api.PyComplex_Type || type == g_api.PyRange_Type ||
      object == g_api._Py_NoneStruct || type == type_of(g_api._Py_TrueStruct)) {
    return true;
  }
  const TorchType torch = torch_type(type);
  if (torch == TorchType::kConstant || torch == TorchType::kDevice) return true;
  if ((type != g_api.PyTuple_Type && torch != TorchType::kSize) || depth > 4) return false;
  for (std::size_t i = 0; i < item_count(object); ++i) {
    if (!is_plain(tuple_data(object)[i], depth + 1)) return false;
  }
  return true;
}

bool same_items(const Object* dict, const std::uint64_t* words, std::size_t count) noexcept {
  if (item_count(dict) * 2 != count) return false;
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(const_cast<Object*>(dict), &position, &key, &item) != 0; words += 2) {
    if (bits(key) != words[0] || bits(item) != words[1]) return false;
  }
  return true;
}

}  // namespace

void Watch::keep(Object* immutable) {
  kept_.push_back(immutable);
  g_api.Py_IncRef(immutable);
}

void Watch::check(const Check& check, bool reported) {
  checks_.push_back(check);
  if (!reported) always_.push_back(check);
}

void Watch::is(const void* address, std::uint64_t expected, bool reported) {
  check({reinterpret_cast<std::uintptr_t>(address), expected}, reported);
}

void Watch::more(const Entry& entry, bool reported) {
  check({reinterpret_cast<std::uintptr_t>(entry.object) | 1U, entries_.size()}, reported);
  entries_.push_back(entry);
}

void Watch::object(Object* object) {
  word(object, 8);  // its class
  Object** place = instance_dict_place(object);
  if (place != nullptr) is(place, bits(*place));
}

void Watch::dict(Object* dict, bool ordered) {
  const bool reported = asks_ && reports_changes(dict) && reports_.add(dict);
  if (ordered && g_api.PyDict_Size(dict) > 1) is(&order_version(dict), order_version(dict));
  if (tells_of_changes(dict)) {
    is(&dict_version(dict), dict_version(dict), reported);  // another one since it is watched
    return;
  }
  std::vector<Object*> items_now;
  std::ptrdiff_t position = 0;
  for (Object *key, *item; g_api.PyDict_Next(dict, &position, &key, &item) != 0;) {
    items_now.push_back(key);
    items_now.push_back(item);
  }
  items(What::kDictItems, dict, items_now.data(), items_now.size(), reported);
}

void Watch::empty_dict(Object* dict) {
  const bool reported = asks_ && reports_changes(dict) && reports_.add(dict);
  is(&place<std::uint64_t>(dict, 16), item_count(dict), reported);
}

void Watch::items(What what, const Object* object, Object* const* data, std::size_t count, bool reported) {
  more({what, static_cast<std::uint32_t>(count), object, words_.size()}, reported);
  for (std::size_t i = 0; i < count; ++i) {
    words_.push_back(bits(data[i]));
    if (data[i] != nullptr && is_plain(data[i], 0)) keep(data[i]);
  }
}

void Watch::list(Object* list) { items(What::kList, list, list_data(list), item_count(list)); }

void Watch::tuple(Object* tuple) {
  if (type_of(tuple) == g_api.PyTuple_Type && is_plain(tuple, 0)) return;  // whoever holds it keeps it
  items(What::kTuple, tuple, tuple_data(tuple), item_count(tuple));
}

void Watch::set(Object* set) {
  std::vector<Object*> keys;
  const SetEntry* table = set_table(set);
  for (std::size_t i = 0; i < set_table_size(set); ++i) {
    if (table[i].used()) keys.push_back(table[i].key);
  }
  items(What::kSet, set, keys.data(), keys.size());
}

void Watch::word(const Object* object, std::size_t offset) {
  const auto* place = reinterpret_cast<const char*>(object) + offset;
  is(place, field<std::uint64_t>(place, 0));
}

void Watch::reference(const Object* object, std::size_t offset) {
  word(object, offset);
  auto* content = field<Object*>(object, offset);
  if (content != nullptr && is_plain(content, 0)) keep(content);
}

void Watch::function(Object* function) {
  reference(function, g_layout.function_code);
  for (std::size_t i = 0; i < 3; ++i) reference(function, g_layout.function_defaults + 8 * i);
  word(function, g_layout.function_attributes);
}

void Watch::type(Object* type) {
  const std::uint32_t version = type::renew_version(type);
  if (version == 0) give_up();
  more({What::kType, 0, type, version});
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
  TensorWords words;
  if (words_of_tensor(tensor, words)) {
    for (std::size_t i = 0; i < words.count; ++i) is(words.at[i], *words.at[i]);
    check({reinterpret_cast<std::uintptr_t>(words.grad) | 1U, entries_.size()}, false);
    entries_.push_back({What::kGrad, autograd_facts(tensor), tensor, 0});
    return;
  }
  TensorMark mark;
  if (!mark_tensor(tensor, mark)) give_up();
  std::uint64_t mark_words[kMarkWords];
  std::memcpy(mark_words, &mark, sizeof mark);
  more({What::kTensor, 0, tensor, words_.size()});
  words_.insert(words_.end(), mark_words, mark_words + kMarkWords);
}

void Watch::memory(const void* data, std::size_t bytes) {
  // An odd address has the lowest bit set as well: its line is the same.
  more({What::kMemory, static_cast<std::uint32_t>(bytes), static_cast<const Object*>(data), XXH3_64bits(data, bytes)});
}

bool Watch::entry_holds(const Entry& entry) const noexcept {
  switch (entry.what) {
    case What::kType:
      return type::version(entry.object) == entry.a;
    case What::kGrad:
      return autograd_facts(const_cast<Object*>(entry.object)) == entry.count;
    case What::kTensor: {
      TensorMark mark;
      return mark_tensor(const_cast<Object*>(entry.object), mark) &&
             std::memcmp(&mark, &words_[entry.a], sizeof mark) == 0;
    }
    case What::kDictItems:
      return same_items(entry.object, &words_[entry.a], entry.count);
    case What::kList:
    case What::kTuple: {
      if (item_count(entry.object) != entry.count) return false;
      Object* const* data = entry.what == What::kList ? list_data(entry.object) : tuple_data(entry.object);
      return entry.count == 0 || std::memcmp(data, &words_[entry.a], entry.count * sizeof(std::uint64_t)) == 0;
    }
    case What::kSet: {
      if (set_size(entry.object) != entry.count) return false;
      const SetEntry* table = set_table(entry.object);
      const std::size_t size = entry.count != 0 ? set_table_size(entry.object) : 0;
      std::size_t at = entry.a;
      for (std::size_t i = 0; i < size; ++i) {
        if (table[i].used() && bits(table[i].key) != words_[at++]) return false;
      }
      return true;
    }
    case What::kMemory:
      return XXH3_64bits(entry.object, entry.count) == entry.a;
  }
  return false;
}

bool Watch::all_hold(const std::vector<Check>& checks) const noexcept {
  const Check* const end = checks.data() + checks.size();
  for (const Check* check = checks.data(); check != end; ++check) {
    // Only asked for: an address that is no more does no harm.
    if (static_cast<std::size_t>(end - check) > kAhead) {
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

}  // namespace grape::python::state
