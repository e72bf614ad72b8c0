// What a call drew: kept, compared, and drawn again.
#include "python_hooks/host_draws/host_draws.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/instance.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::host_draws {
namespace {

constexpr std::size_t kMostDraws = 4096;  // of one call
constexpr int kDepth = 4;

bool never_changes(Object* value) noexcept {
  const torch::TorchType type = torch::torch_type(type_of(value));
  return walk::is_plain_value(value) || type == torch::TorchType::kConstant || type == torch::TorchType::kDevice ||
         type == torch::TorchType::kSize;
}

// A new reference to what equals it, and that nobody else can change; null: there is no such thing, or no memory.
Object* copy_of(Object* value, int depth) noexcept {
  if (never_changes(value)) return new_reference(value);
  const bool tuple = is_exactly(value, g_api.PyTuple_Type), list = is_exactly(value, g_api.PyList_Type);
  if (depth == 0 || (!tuple && !list)) return nullptr;
  const auto size = static_cast<std::ptrdiff_t>(item_count(value));
  const Reference copy(tuple ? g_api.PyTuple_New(size) : g_api.PyList_New(size));
  for (std::ptrdiff_t i = 0; copy && i < size; ++i) {
    Object* item = copy_of(tuple ? tuple_data(value)[i] : list_data(value)[i], depth - 1);
    if (item == nullptr) return nullptr;
    tuple ? g_api.PyTuple_SetItem(copy.get(), i, item) : g_api.PyList_SetItem(copy.get(), i, item);
  }
  return new_reference(copy.get());
}

// Of keyword arguments, as above.
Object* copy_of_keywords(Object* keywords) noexcept {
  const Reference copy(g_api.PyDict_New());
  bool good = static_cast<bool>(copy);
  std::ptrdiff_t position = 0;
  for (Object *key, *value; good && g_api.PyDict_Next(keywords, &position, &key, &value) != 0;) {
    const Reference item(copy_of(value, kDepth));
    good = item && is_text(key) && g_api.PyDict_SetItem(copy.get(), key, item.get()) == 0;
  }
  if (!good) g_api.PyErr_Clear();
  return good ? new_reference(copy.get()) : nullptr;
}

bool same_value(const Strong& a, const Strong& b) noexcept {
  if (a.get() == nullptr || b.get() == nullptr) return a.get() == b.get();
  walk::Walk first(false), second(false);
  return first.add(a.get(), "argument") && second.add(b.get(), "argument") && first.bytes() == second.bytes();
}

bool same_decisions(const std::vector<Decision>& all, const std::vector<Decision>& others) noexcept {
  return std::equal(all.begin(), all.end(), others.begin(), others.end(), [](const Decision& a, const Decision& b) {
    return a.comparison == b.comparison && a.truth == b.truth && same_value(a.number, b.number);
  });
}

// One of its own that stands there, a new reference; null: there is none.
Object* generator_at(Object* state) noexcept {
  Object* type = module_member("torch._C", "Generator");
  const Reference generator(type != nullptr ? g_api.PyObject_CallObject(type, nullptr) : nullptr);
  if (!generator) return nullptr;
  const Reference set(g_api.PyObject_CallMethod(generator.get(), "set_state", "O", state));
  return set ? new_reference(generator.get()) : nullptr;
}

}  // namespace

bool HostDraws::add(Object* function, Object* arguments, Object* keywords) noexcept {
  if (draws_.size() == kMostDraws) return false;
  const Reference positional(copy_of(arguments, kDepth));
  const Reference named(keywords != nullptr ? copy_of_keywords(keywords) : nullptr);
  if (!positional || (keywords != nullptr && !named)) return false;
  try {
    draws_.push_back({Strong(function), Strong(positional.get()), Strong(named.get()), {}});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::size_t HostDraws::decisions() const noexcept {
  return std::accumulate(draws_.begin(), draws_.end(), std::size_t{0},
                         [](std::size_t sum, const Draw& draw) { return sum + draw.decisions.size(); });
}

std::vector<bool> HostDraws::outcomes() const {
  std::vector<bool> all;
  for (const Draw& draw : draws_) {
    for (const Decision& decision : draw.decisions) all.push_back(decision.truth);
  }
  return all;
}

bool HostDraws::decide(std::size_t index, const Decision& decision) noexcept {
  try {
    draws_[index].decisions.push_back(decision);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool HostDraws::same_as(const HostDraws& other) const noexcept {
  return std::equal(draws_.begin(), draws_.end(), other.draws_.begin(), other.draws_.end(),
                    [](const Draw& a, const Draw& b) {
                      return a.function.get() == b.function.get() && same_value(a.arguments, b.arguments) &&
                             same_value(a.keywords, b.keywords) && same_decisions(a.decisions, b.decisions);
                    });
}

bool HostDraws::repeat() const noexcept {
  for (const Draw& draw : draws_) {
    Object* drawn = g_api.PyObject_Call(draw.function.get(), draw.arguments.get(), draw.keywords.get());
    if (drawn == nullptr) return false;
    g_api.Py_DecRef(drawn);
  }
  return true;
}

// It was called without one.
Object* HostDraws::Draw::from(Object* generator) const noexcept {
  Object* given = keywords.get();
  const Reference all(given != nullptr ? g_api.PyDict_Copy(given) : g_api.PyDict_New());
  if (!all || g_api.PyDict_SetItemString(all.get(), "generator", generator) != 0) return nullptr;
  return g_api.PyObject_Call(function.get(), arguments.get(), all.get());
}

bool HostDraws::decide_the_same() const noexcept {
  const auto last =
      std::find_if(draws_.rbegin(), draws_.rend(), [](const Draw& draw) { return !draw.decisions.empty(); });
  if (last == draws_.rend()) return true;
  const KeepException keep;
  const Reference state(generator_state());
  const Reference generator(state ? generator_at(state.get()) : nullptr);
  return generator && std::all_of(draws_.begin(), last.base(), [&](const Draw& draw) {
           const Reference drawn(draw.from(generator.get()));
           return drawn && std::all_of(draw.decisions.begin(), draw.decisions.end(), [&](const Decision& decision) {
                    return g_api.PyObject_RichCompareBool(drawn.get(), decision.number.get(), decision.comparison) ==
                           static_cast<int>(decision.truth);
                  });
         });
}

Object* HostDraws::state_behind(Object* state) const noexcept {
  const Reference generator(generator_at(state));
  const bool good = generator && std::all_of(draws_.begin(), draws_.end(), [&](const Draw& draw) {
                      const Reference drawn(draw.from(generator.get()));
                      return static_cast<bool>(drawn);
                    });
  return good ? g_api.PyObject_CallMethod(generator.get(), "get_state", nullptr) : nullptr;
}

}  // namespace grape::python::host_draws
