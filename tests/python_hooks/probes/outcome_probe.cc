// Lets a test script watch calls and repeat them: python_hooks/effects/call_outcome.h by ctypes (PyDLL: with the GIL).
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "python_hooks/effects/call_outcome.h"
#include "python_hooks/guards/module_guard.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/walk.h"

namespace python = grape::python;
using python::g_api;
using python::Object;

#define PROBE extern "C" __attribute__((visibility("default")))

namespace {

struct Observed {
  Object* result = nullptr;
  std::unique_ptr<python::effects::CallOutcome> outcome;
  std::vector<std::uint8_t> walked;
  grape::refusal::Refusal refusal;
};

bool walk_arguments(Object* arguments, python::walk::Walk& walk) {
  for (std::size_t i = 0; i < python::item_count(arguments); ++i) {
    const std::string name = "args[" + std::to_string(i) + "]";
    if (!walk.add(python::tuple_data(arguments)[i], name.c_str())) return false;
  }
  return true;
}

std::vector<Object*> items(Object* list) {
  std::vector<Object*> out;
  for (std::ptrdiff_t i = 0; i < python::g_api.PyList_Size(list); ++i) {
    Object* item = python::g_api.PyList_GetItem(list, i);
    out.push_back(item == python::g_api._Py_NoneStruct ? nullptr : item);
  }
  return out;
}

}  // namespace

// With `torch`, CPU tensors stand for a device's from now on.
PROBE int probe_load(int torch) {
  bool permanent = false;
  python::torch::treat_cpu_as_device(true);
  return python::load_api(permanent) && python::check_objects() && (torch == 0 || python::torch::load_torch_api()) ? 1
                                                                                                                   : 0;
}

// Calls `function` and learns what it did. To be ended by probe_forget().
PROBE void* probe_observe(Object* function, Object* arguments, Object* module) {
  auto observed = std::make_unique<Observed>();
  grape::refusal::Refusal& refusal = observed->refusal;
  auto guard = python::guards::ModuleGuard::take(module, nullptr, refusal);
  python::walk::Walk walk(false);
  if (guard == nullptr || !walk_arguments(arguments, walk)) {
    if (!refusal) refusal = walk.refusal();
    return observed.release();
  }
  auto before = python::effects::ArgumentSnapshot::take(walk, *guard, nullptr, refusal);
  if (before == nullptr) return observed.release();
  observed->result = python::g_api.PyObject_CallObject(function, arguments);
  if (observed->result == nullptr) {
    refusal = grape::refusal::make(grape::refusal::raised);
    python::g_api.PyErr_Clear();
    return observed.release();
  }
  observed->walked = walk.bytes();
  observed->outcome = python::effects::CallOutcome::learn(observed->result, *before, *guard, refusal);
  return observed.release();
}

PROBE void probe_forget(void* observed) {
  auto* known = static_cast<Observed*>(observed);
  if (known->result != nullptr) python::g_api.Py_DecRef(known->result);
  delete known;
}

// The observed call's own result; a new reference.
PROBE Object* probe_result(void* observed) {
  Object* result = static_cast<Observed*>(observed)->result;
  if (result == nullptr) result = python::g_api._Py_NoneStruct;
  python::g_api.Py_IncRef(result);
  return result;
}

// Gives the result up, and keeps what was learned.
PROBE void probe_drop_result(void* observed) {
  auto* known = static_cast<Observed*>(observed);
  if (known->result != nullptr) python::g_api.Py_DecRef(known->result);
  known->result = nullptr;
}

// Null: learned. Else why not.
PROBE const char* probe_reason(void* observed) {
  auto* known = static_cast<Observed*>(observed);
  if (known->outcome != nullptr) return nullptr;
  return known->refusal ? known->refusal.text.c_str() : "no reason given";
}

// Null: the same. Else what differs; valid until the next call.
PROBE const char* probe_difference(void* a, void* b) {
  static grape::refusal::Refusal difference;
  const auto *left = static_cast<Observed*>(a), *right = static_cast<Observed*>(b);
  if (left->walked != right->walked) return "the arguments differ";
  if (left->outcome->same_as(*right->outcome, difference)) return nullptr;
  return difference ? difference.text.c_str() : "no difference given";
}

PROBE int probe_made_count(void* observed) {
  return static_cast<int>(static_cast<Observed*>(observed)->outcome->made().size());
}

// group, storage, storage bytes, type, item bytes, offset, dimensions, sizes, strides. Returns how many words.
PROBE int probe_made(void* observed, int index, std::int64_t* out) {
  const python::effects::MadeTensor& made =
      static_cast<Observed*>(observed)->outcome->made()[static_cast<std::size_t>(index)];
  int used = 0;
  for (const std::int64_t word :
       {std::int64_t{made.group}, static_cast<std::int64_t>(made.storage),
        static_cast<std::int64_t>(made.storage_bytes), std::int64_t{made.type}, std::int64_t{made.item_bytes},
        made.offset, static_cast<std::int64_t>(made.sizes.size())}) {
    out[used++] = word;
  }
  for (const std::int64_t size : made.sizes) out[used++] = size;
  for (const std::int64_t stride : made.strides) out[used++] = stride;
  return used;
}

// The result of doing it again with these tensors (None: a null) for these arguments; `refused`: nothing came back.
PROBE Object* probe_repeat(void* observed, Object* tensors, Object* arguments, Object* refused) {
  auto* known = static_cast<Observed*>(observed);
  python::walk::Walk walk(false);
  const bool same = walk_arguments(arguments, walk) && walk.bytes() == known->walked;
  python::effects::References replaced;
  Object* result = same ? known->outcome->repeat(items(tensors).data(), walk, replaced) : nullptr;
  if (result != nullptr) return result;
  python::g_api.Py_IncRef(refused);
  return refused;
}

// The interpreter's functions that need memory, as if the n-th call of any of them found none.
namespace {

int g_until_failure = -1;
bool fails() { return g_until_failure >= 0 && g_until_failure-- == 0; }
python::Api g_real;

template <auto member>
struct Failing;
template <typename Result, typename... Arguments, Result (*python::Api::*member)(Arguments...)>
struct Failing<member> {
  static Result call(Arguments... arguments) {
    if (!fails()) return (g_real.*member)(arguments...);
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }
  static void put() { python::g_api.*member = call; }
};

int fail_list_set_item(Object* list, std::ptrdiff_t index, Object* item) {
  if (!fails()) return g_real.PyList_SetItem(list, index, item);
  python::g_api.Py_DecRef(item);  // it takes the reference also when it fails
  return -1;
}

}  // namespace

// repeat() without memory at the n-th time that some is needed; `refused`: nothing came back. -1 in `left`: there were
// fewer such times.
PROBE Object* probe_repeat_failing(void* observed, Object* tensors, Object* arguments, Object* refused, int n,
                                   int* left) {
  auto* known = static_cast<Observed*>(observed);
  python::walk::Walk walk(false);
  if (!walk_arguments(arguments, walk)) return nullptr;
  const std::vector<Object*> list = items(tensors);
  g_real = python::g_api;
  Failing<&python::Api::PyDict_SetItem>::put();
  Failing<&python::Api::PyODict_SetItem>::put();
  Failing<&python::Api::PyList_Append>::put();
  Failing<&python::Api::PyList_New>::put();
  Failing<&python::Api::PyList_GetSlice>::put();
  Failing<&python::Api::PyDict_New>::put();
  Failing<&python::Api::PyTuple_New>::put();
  Failing<&python::Api::PySet_Add>::put();
  Failing<&python::Api::PyObject_GenericGetDict>::put();
  python::g_api.PyList_SetItem = fail_list_set_item;
  g_until_failure = n;
  python::effects::References replaced;
  Object* result = known->outcome->repeat(list.data(), walk, replaced);
  *left = g_until_failure;
  g_until_failure = -1;
  python::g_api = g_real;
  if (result != nullptr) return result;
  python::g_api.Py_IncRef(refused);
  return refused;
}

// Nanoseconds that repeat() takes, on average. `cycle`: lists of tensors that are taken in turn, and kept.
PROBE double probe_time(void* observed, Object* cycle, Object* arguments, int count) {
  auto* known = static_cast<Observed*>(observed);
  python::walk::Walk walk(false);
  if (!walk_arguments(arguments, walk)) return -1;
  std::vector<std::vector<Object*>> lists;
  for (Object* list : items(cycle)) lists.push_back(items(list));
  std::chrono::duration<double, std::nano> time{};
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    python::effects::References replaced;
    Object* result = known->outcome->repeat(lists[static_cast<std::size_t>(i) % lists.size()].data(), walk, replaced);
    replaced.clear();
    time += std::chrono::steady_clock::now() - start;
    if (result == nullptr) return -1;
    python::g_api.Py_DecRef(result);
  }
  return time.count() / count;
}
