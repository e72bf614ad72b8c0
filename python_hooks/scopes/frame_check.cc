#include <cstring>
#include <initializer_list>

#include "python_hooks/scopes/frames.h"
#include "shim/lifecycle/log.h"

namespace grape::python::scopes {
namespace {

constexpr int kNoArguments = 4;
constexpr std::size_t kMinimumCalls = 30;

// Frames of many kinds, each of which asks for a comparison.
constexpr char kSource[] = R"(
def leaf():
    check()

def nested(depth):
    if depth:
        nested(depth - 1)
    else:
        leaf()

def generate():
    for i in range(2):

        check()
        yield i
    yield from (check() for _ in range(2))

def closure(*arguments, **keywords):
    value = 1
    def inner(argument=2):
        check()
        return value + argument
    return inner(
        3)

class Body:
    check()

    def __init__(self):
        check(

        )

    @property
    def attribute(self):
        check()

async def coroutine():
    check()

nested(6)
list(generate())
[check() for _ in range(2)]
{check(): 1 for _ in range(2)}
(lambda: check())()
closure(1, key=2)
for _ in range(8):
    Body().attribute
max([1, 2], key=lambda _: check() or 0)
try:
    coroutine().send(None)
except StopIteration:
    check()
finally:
    check()
)";

struct Comparison {
  std::size_t calls = 0;
  bool differs = false;
};
Comparison g_comparison;  // with the GIL
RawFrame g_frames[kMaxDepth];

// Is the text that we read from `code` what its attribute says?
bool compare_text(Object* code, std::uint32_t offset, const char* attribute) {
  const Reference text(g_api.PyObject_GetAttrString(code, attribute));
  if (!text || !is_text(text.get())) return false;
  std::ptrdiff_t size = 0;
  const char* theirs = g_api.PyUnicode_AsUTF8AndSize(text.get(), &size);
  if (theirs == nullptr) {  // it holds lone surrogates
    g_api.PyErr_Clear();
    return true;
  }
  char ours[512];
  const std::size_t bytes = copy_text(field<Object*>(code, offset), ours, sizeof(ours));
  const bool cut = bytes + 4 > sizeof(ours);
  return (cut || bytes == static_cast<std::size_t>(size)) && std::memcmp(ours, theirs, bytes) == 0;
}

// Do we stand at the same line and instruction as the frame object says?
bool compare_position(Object* frame, const Position& position) {
  const int line = g_api.PyFrame_GetLineNumber(frame);
  const Reference instruction(g_api.PyObject_GetAttrString(frame, "f_lasti"));
  return instruction && position.offset == g_api.PyLong_AsLong(instruction.get()) &&
         position.line == (line > 0 ? line : 0);
}

bool compare_with_api() {
  const std::size_t count = read_frames(g_frames, kMaxDepth);
  Object* frame = g_api.PyThreadState_GetFrame(g_api.PyThreadState_Get());
  bool same = true;
  for (std::size_t i = 0; i < count && same; ++i) {
    Position position;
    if (!position_of(g_frames[i], position)) continue;
    if (frame == nullptr) return false;
    const Reference code(g_api.PyFrame_GetCode(frame));
    same = reinterpret_cast<std::uintptr_t>(code.get()) == g_frames[i].code && compare_position(frame, position) &&
           compare_text(code.get(), g_layout.code_file, "co_filename") &&
           compare_text(code.get(), g_layout.code_name, g_layout.minor >= 11 ? "co_qualname" : "co_name");
    Object* caller = g_api.PyFrame_GetBack(frame);
    g_api.Py_DecRef(frame);
    frame = caller;
  }
  if (frame == nullptr) return same;
  g_api.Py_DecRef(frame);
  return same && count == kMaxDepth;
}

Object* compare_now(Object*, Object*) {
  ++g_comparison.calls;
  if (!g_comparison.differs && !compare_with_api()) g_comparison.differs = true;
  return new_reference(g_api._Py_NoneStruct);
}

MethodDefinition g_method = {"check", reinterpret_cast<void*>(compare_now), kNoArguments, nullptr};

// False: an exception is set.
bool run_source() {
  Object* globals = g_api.PyDict_New();
  Object* check = g_api.PyCFunction_NewEx(&g_method, nullptr, nullptr);
  Object* result = nullptr;
  if (globals != nullptr && check != nullptr && g_api.PyDict_SetItemString(globals, "check", check) == 0) {
    result = run_text(kSource, globals, "<grape: check of frames>");
  }
  const KeepException keep;
  if (globals != nullptr) g_api.PyDict_Clear(globals);  // its functions refer to it
  for (Object* object : {globals, check, result}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
  return result != nullptr;
}

}  // namespace

FrameCheck check_frames() noexcept {
  if (!runs_plainly()) return FrameCheck::kLater;
  g_comparison = Comparison{};
  if (!check_text() || !frames_are_sensible() || !compare_with_api()) return FrameCheck::kDiffers;
  if (!run_source()) {
    const bool short_of_room = g_api.PyErr_ExceptionMatches(exception(g_api.PyExc_RecursionError)) != 0 ||
                               g_api.PyErr_ExceptionMatches(exception(g_api.PyExc_MemoryError)) != 0;
    if (!short_of_room) return FrameCheck::kRaised;
    g_api.PyErr_Clear();
    return FrameCheck::kLater;
  }
  return g_comparison.differs || g_comparison.calls < kMinimumCalls ? FrameCheck::kDiffers : FrameCheck::kPassed;
}

}  // namespace grape::python::scopes
