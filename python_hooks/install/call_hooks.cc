#include <unwind.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "python_hooks/control/controller.h"
#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/install/install.h"
#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/interpreter/named_functions.h"
#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/observation/inner_pass.h"
#include "python_hooks/scopes/scopes.h"
#include "python_hooks/torch/optimizer_functions.h"
#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"

namespace grape::python::install {
namespace {

using trace::ScopeKind;

// The hooks run Python code inside and may be unwound (a daemon thread that ends at shutdown): none is noexcept, and
// nothing in them waits for the way back.

GRAPE_HOT Vectorcall g_call_module = nullptr;  // what Module.__call__ ran before
MethodWithKeywords g_run_backward = nullptr;
scopes::ScopeEntry* g_backward_scope = nullptr;
std::uint32_t g_backward_calls = 0;
bool g_trains = false;  // a backward pass was asked for

record::ThreadLog* recording_log() noexcept {
  return g_shutdown.load(std::memory_order_relaxed) ? nullptr : record::thread_log();
}

// Asked again while torch is being imported: its modules may be called before that is over.
GRAPE_HOT control::Enabled g_replaying = control::Enabled::kNotYet;

__attribute__((cold, noinline)) bool ask_if_replaying() noexcept {
  constexpr std::int64_t kAskEvery = 10;  // milliseconds
  static std::int64_t next = 0;
  const std::int64_t now = coarse_milliseconds();
  if (now < next) return false;
  next = now + kAskEvery;
  g_replaying = control::enabled();
  return g_replaying == control::Enabled::kYes;
}

bool replaying() noexcept {
  if (__builtin_expect(g_replaying != control::Enabled::kNotYet, 1)) return g_replaying == control::Enabled::kYes;
  return ask_if_replaying();
}

Object* record_module(Object* function, Object* const* arguments, std::size_t count, Object* names) {
  record::ThreadLog* log = positional_count(count) != 0 ? recording_log() : nullptr;
  if (log == nullptr) return g_call_module(function, arguments, count, names);
  scopes::OpenScope scope;
  scopes::open_module(*log, arguments[0], scope);
  Object* result = g_call_module(function, arguments, count, names);
  scopes::close(scope, result == nullptr);
  return result;
}

Object* call_module(Object* function, Object* const* arguments, std::size_t count, Object* names) {
  if (replaying()) return control::call(record_module, function, arguments, count, names);
  return record_module(function, arguments, count, names);
}

void hook_optimizers() noexcept;
void hook_optimizer_functions() noexcept;

// The program trains.
__attribute__((cold, noinline)) void note_first_backward() noexcept {
  g_trains = true;
  const KeepException keep;
  if (config().auto_regions) hook_optimizer_functions();
}

Object* run_backward(Object* engine, Object* arguments, Object* keywords) {
  if (!g_trains) note_first_backward();
  record::ThreadLog* log = recording_log();
  if (log == nullptr) return g_run_backward(engine, arguments, keywords);
  // Optimizers wrap their step when the first one is made: look again, most often at the start.
  ++g_backward_calls;
  if (g_backward_calls <= 8 || g_backward_calls % 64 == 0) {
    const KeepException keep;
    hook_optimizers();
  }
  scopes::OpenScope scope;
  scopes::open_lasting(*log, g_backward_scope, scope);
  const std::uint64_t region = scope.id != 0 ? static_cast<scopes::PythonThread*>(log->python.data)->region : 0;
  if (region != 0) scopes::backward_begins(region);
  Object* result = observation::code_is_followed()
                       ? observation::run_inner_pass(g_run_backward, engine, arguments, keywords)
                       : g_run_backward(engine, arguments, keywords);
  if (region != 0) scopes::backward_ends(region);
  scopes::close(scope, result == nullptr);
  return result;
}

// A Python function that is a scope of its own, or an optimizer's step.
struct HookedFunction {
  Vectorcall call;
  scopes::ScopeEntry* entry;  // null: the scope is that of the first argument, an optimizer
};
using HookedFunctions = FlatMap<AddressKey, HookedFunction>;

HookedFunctions* hooked_functions() {
  static HookedFunctions* functions = new (std::nothrow) HookedFunctions;
  return functions;
}

Object* record_function(Object* function, Object* const* arguments, std::size_t count, Object* names) {
  const HookedFunction hooked = *hooked_functions()->find(AddressKey{function});
  record::ThreadLog* log = recording_log();
  if (log == nullptr || (hooked.entry == nullptr && positional_count(count) == 0)) {
    return hooked.call(function, arguments, count, names);
  }
  scopes::OpenScope scope;
  if (hooked.entry != nullptr) {
    scopes::open_lasting(*log, hooked.entry, scope);
  } else {
    scopes::open_object(*log, arguments[0], ScopeKind::kOptimizer, scope);
  }
  Object* result = hooked.call(function, arguments, count, names);
  scopes::close(scope, result == nullptr);
  return result;
}

// One that GRAPE_REGIONS names.
Object* call_named(Object* function, Object* const* arguments, std::size_t count, Object* names) {
  if (replaying()) return control::call_function(record_function, function, arguments, count, names);
  return record_function(function, arguments, count, names);
}

// Hooks a function once and keeps it alive, so that its address stays its own.
bool hook_function(Object* function, scopes::ScopeEntry* entry, Vectorcall call) noexcept {
  HookedFunctions* functions = hooked_functions();
  if (functions == nullptr) return false;
  if (functions->find(AddressKey{function}) != nullptr) return true;
  const Vectorcall before = vectorcall_of(function);
  if (before == nullptr || before == call_module) return false;
  if (!functions->put(AddressKey{function}, HookedFunction{before, entry})) return false;
  g_api.Py_IncRef(function);
  set_vectorcall(function, call);
  return true;
}

// The function that a decorator made with functools.wraps calls; the function itself where it wraps none.
void hook_step(Object* optimizer_class) noexcept {
  const Reference step(g_api.PyObject_GetAttrString(optimizer_class, "step"));
  if (!step || !is_function(step.get())) return;
  const Reference wrapped(g_api.PyObject_GetAttrString(step.get(), "__wrapped__"));
  hook_function(wrapped && is_function(wrapped.get()) ? wrapped.get() : step.get(), nullptr, record_function);
}

void hook_steps_below(Object* optimizer_class, int depth) noexcept {
  if (depth > 20) return;
  const Reference classes(g_api.PyObject_CallMethod(optimizer_class, "__subclasses__", nullptr));
  const std::ptrdiff_t count = classes ? g_api.PyList_Size(classes.get()) : 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    Object* subclass = g_api.PyList_GetItem(classes.get(), i);
    hook_step(subclass);
    hook_steps_below(subclass, depth + 1);
  }
}

void hook_optimizers() noexcept {
  Object* base = module_member("torch.optim.optimizer", "Optimizer");
  if (base != nullptr && is_type(base)) hook_steps_below(base, 0);
}

// A thread that Python ends (pthread_exit) is unwound by the process's unwinder, which runs what our frames have to
// clean up through our own copy: that one knows the registers only once it was used, and aborts before.
void prepare_to_be_unwound() noexcept {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

// False: torch is not there yet.
bool hook_module_calls() noexcept {
  static bool done = false;
  Object* module = done ? nullptr : module_member("torch.nn.modules.module", "Module");
  if (module == nullptr) return done;
  const Reference call(g_api.PyObject_GetAttrString(module, "__call__"));
  done = true;
  if (call && is_function(call.get())) {
    g_call_module = vectorcall_of(call.get());
    if (g_call_module != nullptr) {
      g_api.Py_IncRef(call.get());
      g_replaying = control::enabled();  // so that what it says is said early
      prepare_to_be_unwound();
      set_vectorcall(call.get(), call_module);
      return true;
    }
  }
  notice("no module regions: torch.nn.Module.__call__ is no plain Python function");
  return true;
}

bool is_writable(const void* address) noexcept {
  try {
    return AddressSpace().is_writable(address);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// False: torch is not there yet.
bool hook_backward() noexcept {
  static bool done = false;
  if (done) return true;
  Object* engine = module_member("torch._C", "_ImperativeEngine");
  if (engine == nullptr) engine = module_member("torch._C", "_EngineBase");
  if (engine == nullptr) return false;
  done = true;
  constexpr int kTupleAndKeywords = 3;
  const Reference descriptor(g_api.PyObject_GetAttrString(engine, "run_backward"));
  MethodDefinition* method = descriptor ? method_of(descriptor.get()) : nullptr;
  if (method == nullptr || method->flags != kTupleAndKeywords || !is_writable(method)) {
    notice("no backward regions: autograd's engine has no method run_backward of the expected kind");
    return true;
  }
  g_backward_scope = scopes::lasting_scope(engine, ScopeKind::kBackward, "backward", "torch.autograd:backward");
  if (g_backward_scope == nullptr || g_backward_scope->excluded) return true;
  g_api.Py_IncRef(descriptor.get());
  g_run_backward = reinterpret_cast<MethodWithKeywords>(method->method);
  method->method = reinterpret_cast<void*>(run_backward);
  return true;
}

// False: it is one already, or cannot be. `asked`: somebody has named it, and is to be told.
bool hook_region(Object* function, const char* name, bool asked) noexcept {
  if (matches(config().exclude, name)) return false;
  const Reference wrapped(g_api.PyObject_GetAttrString(function, "__wrapped__"));
  // Python 3.11 inlines direct calls between Python functions; what a decorator wraps is mostly called with * and **,
  // which is not.
  const bool inlines = g_layout.minor == 11, wraps = wrapped && is_function(wrapped.get());
  Object* target = inlines && wraps ? wrapped.get() : function;
  HookedFunctions* functions = hooked_functions();
  if (functions == nullptr || functions->find(AddressKey{target}) != nullptr) return false;
  if (inlines && !wraps) {
    if (!asked) return false;
    notice("GRAPE_REGIONS: Python 3.11 inlines direct calls of Python functions; those of %s are not seen", name);
  }
  scopes::ScopeEntry* entry = scopes::lasting_scope(target, ScopeKind::kFunction, "", name);
  if (entry == nullptr) return false;
  const Vectorcall call = is_special(name) ? record_function : call_named;
  if (!hook_function(target, entry, call)) {
    if (asked) notice("GRAPE_REGIONS: %s cannot be hooked", name);
    return false;
  }
  if (config().mode == Mode::kReplay && call == call_named) count_as_users(function, name);
  return true;
}

void hook_optimizer_functions() noexcept {
  if (g_shutdown.load(std::memory_order_relaxed) || !lifecycle::active()) return;
  try {
    torch::find_optimizer_functions([](Object* function, const char* name) { hook_region(function, name, false); });
  } catch (const std::bad_alloc&) {  // then they run as always
  }
}

}  // namespace

bool install_regions() noexcept {
  discovery::find_regions_with(
      [](Object* function, const char* name) noexcept { return hook_region(function, name, false); });
  const bool modules = hook_module_calls();
  const bool backward = hook_backward();
  hook_optimizers();
  if (config().regions[0] != 0)
    find_named_functions(config().regions,
                         [](Object* function, const char* name) noexcept { hook_region(function, name, true); });
  return modules && backward && config().regions[0] == 0;
}

}  // namespace grape::python::install
