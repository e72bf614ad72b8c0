#include "python_hooks/interpreter/call_check.h"

#include <cstring>
#include <initializer_list>

#include "python_hooks/interpreter/call_hook.h"
#include "python_hooks/interpreter/cpython.h"

namespace grape::python {
namespace {

// What the interpreter may specialise runs often enough before, and once more to be counted.
constexpr char kSource[] = R"(
class Item:
    def __init__(self): self.value = 1
    def __getitem__(self, key): return key
    def __getattr__(self, name): return name
    @property
    def attribute(self): return 2
    def method(self, argument): return argument
    def __call__(self): return 3
    def __iter__(self):
        yield 1
    def __lt__(self, other): return True
    def __add__(self, other): return self

class Every:
    def __getattribute__(self, name): return name

def closure():
    cell = 1
    def inner(first, second=2): return cell
    return inner

inner = closure()
item = Item()
every = Every()

def run(item, inner, every):
    Item()
    item[0]; item.missing; item.attribute; item.method(1); item(); item < item; item + item
    for _ in item: pass
    inner(1); inner(*(1,), **{"second": 3})
    (lambda item: item)(4)
    every.any
    list(x for x in (1,))
    max((1,), key=inner)

for _ in range(120):
    run(item, inner, every)
)";

struct Expected {
  const char* name;  // ends the name, which is qualified in some versions
  unsigned calls;    // at least
  bool method;       // the first argument is an Item, a function is expected
  unsigned seen;
};
Expected g_expected[] = {{"__init__", 1, true, 0},   {"__getitem__", 1, true, 0},      {"__getattr__", 1, true, 0},
                         {"attribute", 1, true, 0},  {"method", 1, true, 0},           {"__call__", 1, true, 0},
                         {"__iter__", 2, true, 0},   {"__lt__", 1, true, 0},           {"__add__", 1, true, 0},
                         {"run", 1, true, 0},        {"inner", 3, false, 0},           {"<lambda>", 1, false, 0},
                         {"<genexpr>", 2, false, 0}, {"__getattribute__", 1, false, 0}};

struct Checking {
  Object* globals = nullptr;
  Object* item = nullptr;  // the class
  bool right = true;
};

bool ends_with(const char* text, std::size_t size, const char* end) {
  const std::size_t length = std::strlen(end);
  return size >= length && std::memcmp(text + size - length, end, length) == 0 &&
         (size == length || text[size - length - 1] == '.');
}

bool check_function(const void* frame, Object* code) {
  if (g_layout.frame_function < 0) return true;
  Object* function = frame_function(frame);
  return function != nullptr && g_api.PyFunction_GetCode(function) == code &&
         g_api.PyFunction_GetGlobals(function) == frame_globals(frame);
}

void on_frame(void* context, const void* frame) {
  auto& checking = *static_cast<Checking*>(context);
  Object* code = frame_code(frame);
  if (frame_globals(frame) != checking.globals) return;  // a finaliser's or a signal handler's
  if (code == nullptr || type_of(code) != g_api.PyCode_Type) {
    checking.right = false;
    return;
  }
  char name[64];
  const std::size_t size = copy_text(field<Object*>(code, g_layout.code_name), name, sizeof(name));
  for (Expected& expected : g_expected) {
    if (!ends_with(name, size, expected.name)) continue;
    ++expected.seen;
    Object* first = frame_local(frame, 0);
    if (expected.method && (first == nullptr || type_of(first) != checking.item)) checking.right = false;
    if (!check_function(frame, code)) checking.right = false;
  }
}

// The exception of a signal handler that came in between goes on as soon as the interpreter can take it.
void pass_on_exception() {
  if (g_api.PyErr_Occurred() == nullptr) return;
  const bool ours = g_api.PyErr_ExceptionMatches(exception(g_api.PyExc_RecursionError)) != 0 ||
                    g_api.PyErr_ExceptionMatches(exception(g_api.PyExc_MemoryError)) != 0;
  Object *type = nullptr, *value = nullptr, *traceback = nullptr;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  if (!ours) g_api.PyThreadState_SetAsyncExc(g_api.PyThread_get_thread_ident(), type);
  for (Object* object : {type, value, traceback}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
}

CallCheck run_once(Object* globals) {
  Checking checking{globals, dict_item(globals, "Item"), true};
  Object *run = dict_item(globals, "run"), *item = dict_item(globals, "item");
  Object *inner = dict_item(globals, "inner"), *every = dict_item(globals, "every");
  for (Object* object : {checking.item, run, item, inner, every}) {
    if (object == nullptr) return CallCheck::kLater;
  }
  for (Expected& expected : g_expected) expected.seen = 0;
  if (!hook_calls(on_frame, &checking)) return CallCheck::kLater;
  Object* result = g_api.PyObject_CallFunctionObjArgs(run, item, inner, every, nullptr);
  const bool undisturbed = unhook_calls();
  if (result == nullptr) return CallCheck::kLater;
  g_api.Py_DecRef(result);
  if (!undisturbed) return CallCheck::kLater;
  for (const Expected& expected : g_expected) checking.right = checking.right && expected.seen >= expected.calls;
  return checking.right ? CallCheck::kPassed : CallCheck::kFailed;
}

}  // namespace

CallCheck check_calls() noexcept {
  const Reference globals(g_api.PyDict_New());
  if (!globals) return CallCheck::kLater;
  Object* result = run_text(kSource, globals.get(), "<grape: check of calls>");
  const CallCheck check = result != nullptr ? run_once(globals.get()) : CallCheck::kLater;
  if (result != nullptr) g_api.Py_DecRef(result);
  pass_on_exception();
  g_api.PyDict_Clear(globals.get());  // its functions refer to it
  return check;
}

}  // namespace grape::python
