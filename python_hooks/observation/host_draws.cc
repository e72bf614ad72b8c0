#include "python_hooks/observation/host_draws.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::state {
namespace {

constexpr std::size_t kMostDraws = 4096;  // of one call
constexpr int kDepth = 4;

bool never_changes(Object* value) noexcept {
  if (is_plain_value(value)) return true;
  const TorchType type = torch_type(type_of(value));
  return type == TorchType::kConstant || type == TorchType::kDevice || type == TorchType::kSize;
}

// A new reference to what equals it, and that nobody else can change; null: there is no such thing, or no memory.
Object* copy_of(Object* value, int depth) noexcept {
  if (never_changes(value)) {
    g_api.Py_IncRef(value);
    return value;
  }
  const bool tuple = is_exactly(value, g_api.PyTuple_Type), list = is_exactly(value, g_api.PyList_Type);
  if (depth == 0 || (!tuple && !list)) return nullptr;
  const std::size_t count = item_count(value);
  const auto size = static_cast<std::ptrdiff_t>(count);
  Object* copy = tuple ? g_api.PyTuple_New(size) : g_api.PyList_New(size);
  for (std::size_t i = 0; copy != nullptr && i < count; ++i) {
    Object* item = copy_of(tuple ? tuple_data(value)[i] : list_data(value)[i], depth - 1);
    if (item == nullptr) {
      g_api.Py_DecRef(copy);
      return nullptr;
    }
    const auto at = static_cast<std::ptrdiff_t>(i);
    tuple ? g_api.PyTuple_SetItem(copy, at, item) : g_api.PyList_SetItem(copy, at, item);
  }
  if (copy == nullptr) g_api.PyErr_Clear();
  return copy;
}

// Of keyword arguments. `generator`: another item, if not null.
Object* copy_of_keywords(Object* keywords, Object* generator) noexcept {
  Object* copy = g_api.PyDict_New();
  bool good = copy != nullptr;
  std::ptrdiff_t position = 0;
  for (Object *key, *value; good && keywords != nullptr && g_api.PyDict_Next(keywords, &position, &key, &value) != 0;) {
    const Reference item(copy_of(value, kDepth));
    good = item && is_text(key) && g_api.PyDict_SetItem(copy, key, item.get()) == 0;
  }
  if (good && generator != nullptr) good = g_api.PyDict_SetItemString(copy, "generator", generator) == 0;
  if (good) return copy;
  g_api.PyErr_Clear();
  if (copy != nullptr) g_api.Py_DecRef(copy);
  return nullptr;
}

// From a generator that it is not called with.
Object* draw_from(const Draw& draw, Object* generator) noexcept {
  const Reference keywords(copy_of_keywords(draw.keywords, generator));
  return keywords ? g_api.PyObject_Call(draw.function, draw.arguments, keywords.get()) : nullptr;
}

bool same_value(Object* a, Object* b) noexcept {
  if (a == nullptr || b == nullptr) return a == b;
  Walk first(false), second(false);
  return first.add(a, "argument") && second.add(b, "argument") && first.bytes() == second.bytes();
}

// Of PyTorch's CPU generator, a new reference; null: PyTorch is not there.
Object* torch_state() noexcept {
  Object* generator = module_member("torch._C", "default_generator");
  Object* state = generator != nullptr ? call_method(generator, "get_state") : nullptr;
  if (state == nullptr) g_api.PyErr_Clear();
  return state;
}

bool equal_bytes(Object* one, Object* other) noexcept {
  TensorView a, b;
  if (!is_plain_tensor(one) || !is_plain_tensor(other) || !view_tensor(one, a) || !view_tensor(other, b)) return false;
  return a.device_type == 0 && b.device_type == 0 && a.storage_bytes == b.storage_bytes &&
         std::memcmp(reinterpret_cast<const void*>(a.storage), reinterpret_cast<const void*>(b.storage),
                     a.storage_bytes) == 0;
}

}  // namespace

bool HostDraws::add(Object* function, Object* arguments, Object* keywords) noexcept {
  if (draws_.size() == kMostDraws) return false;
  Draw draw;
  draw.arguments = copy_of(arguments, kDepth);
  draw.keywords = keywords != nullptr ? copy_of_keywords(keywords, nullptr) : nullptr;
  bool good = draw.arguments != nullptr && (keywords == nullptr || draw.keywords != nullptr);
  if (good) {
    try {
      draws_.push_back(draw);
    } catch (const std::bad_alloc&) {
      good = false;
    }
  }
  if (good) {
    g_api.Py_IncRef(function);
    draws_.back().function = function;
    return true;
  }
  for (Object* object : {draw.arguments, draw.keywords}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
  return false;
}

void HostDraws::clear() noexcept {
  for (const Draw& draw : draws_) {
    for (Object* object : {draw.function, draw.arguments, draw.keywords}) {
      if (object != nullptr) g_api.Py_DecRef(object);
    }
  }
  draws_.clear();
}

bool HostDraws::same_as(const HostDraws& other) const noexcept {
  return std::equal(
      draws_.begin(), draws_.end(), other.draws_.begin(), other.draws_.end(), [](const Draw& a, const Draw& b) {
        return a.function == b.function && same_value(a.arguments, b.arguments) && same_value(a.keywords, b.keywords);
      });
}

bool HostDraws::repeat() const noexcept {
  for (const Draw& draw : draws_) {
    Object* drawn = g_api.PyObject_Call(draw.function, draw.arguments, draw.keywords);
    if (drawn == nullptr) return false;
    g_api.Py_DecRef(drawn);
  }
  return true;
}

Object* HostDraws::state_behind(Object* state) const noexcept {
  Object* type = module_member("torch._C", "Generator");
  const Reference generator(type != nullptr ? g_api.PyObject_CallObject(type, nullptr) : nullptr);
  if (!generator) return nullptr;
  g_api.Py_IncRef(state);
  const Reference set(call_method(generator.get(), "set_state", state));
  bool good = static_cast<bool>(set);
  for (const Draw& draw : draws_) {
    const Reference drawn(good ? draw_from(draw, generator.get()) : nullptr);
    good = good && drawn;
  }
  return good ? call_method(generator.get(), "get_state") : nullptr;
}

HostRandom::~HostRandom() {
  if (torch_ != nullptr) g_api.Py_DecRef(torch_);
}

void HostRandom::take() noexcept {
  const KeepException keep;
  others_ = python_random_hash();
  if (torch_ != nullptr) g_api.Py_DecRef(torch_);
  torch_ = torch_state();
}

bool HostRandom::moved_by(const HostDraws& draws) const noexcept {
  const KeepException keep;
  if (python_random_hash() != others_) return false;
  const Reference now(torch_state());
  if (!now || torch_ == nullptr) return !now && torch_ == nullptr;
  if (draws.empty()) return equal_bytes(torch_, now.get());
  const Reference expected(draws.state_behind(torch_));
  return expected && equal_bytes(expected.get(), now.get());
}

}  // namespace grape::python::state
