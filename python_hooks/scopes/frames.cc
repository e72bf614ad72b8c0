#include "python_hooks/scopes/frames.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "python_hooks/interpreter/code_deaths.h"
#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/scopes/positions.h"
#include "python_hooks/scopes/python_thread.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/hot.h"

namespace grape::python::scopes {

std::atomic<bool> g_frames_checked{false};

GRAPE_HOT Straight g_straight;

namespace {

bool readable() noexcept { return g_frames_checked.load(std::memory_order_acquire) && !shutting_down(); }

const char* outer_frame(const Layout& layout, const char* frame) noexcept {
  return field<const char*>(frame, layout.frame_previous);
}

// One frame's code and instruction. False: a shim of the interpreter's, no frame of Python code.
bool read_frame(const Layout& layout, const char* frame, RawFrame& out) noexcept {
  if (layout.frame_objects) {
    out = {field<std::uintptr_t>(frame, layout.frame_code),
           static_cast<std::uintptr_t>(field<int>(frame, layout.frame_instruction))};
    return true;
  }
  if (field<std::uint8_t>(frame, layout.frame_owner) >= kFirstShimOwner) return false;
  // From 3.14 the low bits of a reference are marks.
  out = {field<std::uintptr_t>(frame, layout.frame_code) & ~std::uintptr_t{3},
         field<std::uintptr_t>(frame, layout.frame_instruction)};
  return true;
}

// Does `address` hold an object of that type, with all that is read of it?
bool holds(const CarefulReader& reader, const Object* address, const Object* type, std::size_t bytes) noexcept {
  return address != nullptr && reader.readable(address, bytes) && (type == nullptr || type_of(address) == type);
}

bool is_sensible_text(const CarefulReader& reader, const Object* text) noexcept {
  if (!holds(reader, text, nullptr, 80) || !reader.readable(type_of(text), 256)) return false;
  const auto length = field<std::size_t>(text, 16);
  return length < 65536 && is_text(const_cast<Object*>(text)) && reader.readable(text, 40 + length);
}

bool is_sensible_code(const CarefulReader& reader, const Object* code) noexcept {
  constexpr std::size_t kRead = 208;  // farther than any offset in the table
  if (!holds(reader, code, g_api.PyCode_Type, kRead)) return false;
  const Object* lines = field<const Object*>(code, g_layout.code_lines);
  return is_sensible_text(reader, field<const Object*>(code, g_layout.code_file)) &&
         is_sensible_text(reader, field<const Object*>(code, g_layout.code_name)) &&
         holds(reader, lines, nullptr, 40) && bytes_size(lines) < (1U << 24) &&
         reader.readable(lines, 32 + bytes_size(lines));
}

// The main thread's state is one and the same as long as the interpreter lives: asked for once. Those of other threads
// come and go.
enum class ThreadRole : std::uint8_t { kUnknown, kMain, kOther };
__thread ThreadRole t_role __attribute__((tls_model("initial-exec")));
__thread const ThreadState* t_main_state __attribute__((tls_model("initial-exec")));

__attribute__((noinline)) const ThreadState* thread_state() noexcept {
  if (t_main_state != nullptr) return t_main_state;
  const ThreadState* state = g_api.PyGILState_GetThisThreadState();
  if (t_role == ThreadRole::kUnknown) {
    t_role = syscall(SYS_gettid) == getpid() ? ThreadRole::kMain : ThreadRole::kOther;
  }
  if (t_role == ThreadRole::kMain) t_main_state = state;
  return state;
}

void destroy(void* thread) { delete static_cast<PythonThread*>(thread); }

}  // namespace

const char* innermost_frame() noexcept {
  const ThreadState* thread = thread_state();
  if (thread == nullptr) return nullptr;
  const char* frame = field<const char*>(thread, g_layout.thread_frame);
  if (g_layout.cframe_frame < 0 || frame == nullptr) return frame;
  return field<const char*>(frame, static_cast<std::size_t>(g_layout.cframe_frame));
}

const char* waiting_frame() noexcept { return readable() ? innermost_frame() : nullptr; }

std::size_t read_frames(RawFrame* out, std::size_t most) noexcept {
  const Layout layout = g_layout;  // a copy: writing to `out` could change g_layout, for all that the compiler knows
  std::size_t count = 0;
  for (const char* frame = innermost_frame(); frame != nullptr && count < most; frame = outer_frame(layout, frame)) {
    if (read_frame(layout, frame, out[count])) ++count;
  }
  return count;
}

bool frames_are_sensible() noexcept {
  const CarefulReader reader;
  const auto* thread = reinterpret_cast<const char*>(g_api.PyGILState_GetThisThreadState());
  if (thread == nullptr) return true;
  if (!reader.readable(thread, g_layout.thread_frame + 8)) return false;
  if (g_layout.cframe_frame >= 0) {
    const char* cframe = field<const char*>(thread, g_layout.thread_frame);
    if (!reader.readable(cframe, static_cast<std::size_t>(g_layout.cframe_frame) + 8)) return false;
  }
  std::size_t count = 0;
  for (const char* frame = innermost_frame(); frame != nullptr && count < kMaxDepth; ++count) {
    if (!reader.readable(frame, 112)) return false;
    const bool shim = !g_layout.frame_objects && field<std::uint8_t>(frame, g_layout.frame_owner) >= kFirstShimOwner;
    const auto code = field<std::uintptr_t>(frame, g_layout.frame_code) & ~std::uintptr_t{3};
    if (!shim && !is_sensible_code(reader, reinterpret_cast<const Object*>(code))) return false;
    frame = field<const char*>(frame, g_layout.frame_previous);
  }
  return true;
}

PythonThread* python_thread(record::ThreadLog& log) noexcept {
  if (__builtin_expect(log.python.data == nullptr, 0)) {
    const int saved = errno;
    log.python.data = new (std::nothrow) PythonThread;
    log.python.destroy = destroy;
    errno = saved;
  }
  return static_cast<PythonThread*>(log.python.data);
}

void allow_frames() noexcept {
  const bool whole = config().stacks == Stacks::kPython || config().stacks == Stacks::kNative;
  auto* is_finalizing = g_api.Py_IsFinalizing != nullptr ? g_api.Py_IsFinalizing : g_api._Py_IsFinalizing;
  const auto cframe_frame = static_cast<std::uint32_t>(std::max(g_layout.cframe_frame, 0));
  const std::uint32_t farthest = std::max(
      {g_layout.frame_code, g_layout.frame_previous, g_layout.frame_instruction, g_layout.frame_owner, cframe_frame});
  g_straight.code = static_cast<std::uint8_t>(g_layout.frame_code);
  g_straight.previous = static_cast<std::uint8_t>(g_layout.frame_previous);
  g_straight.instruction = static_cast<std::uint8_t>(g_layout.frame_instruction);
  g_straight.owner = static_cast<std::uint8_t>(g_layout.frame_owner);
  g_straight.cframe_frame = static_cast<std::uint8_t>(cframe_frame);
  g_straight.through_cframe = g_layout.cframe_frame >= 0;
  g_straight.thread_frame = static_cast<std::uint16_t>(g_layout.thread_frame);
  g_straight.is_finalizing = is_finalizing;
  g_frames_checked.store(true, std::memory_order_release);
  const bool fits = farthest <= UINT8_MAX && g_layout.thread_frame <= UINT16_MAX;
  g_straight.open.store(whole && fits && !g_layout.frame_objects && is_finalizing != nullptr,
                        std::memory_order_release);
}

namespace {

// Only as far out as the innermost frame whose stack is known: that one waits for a scope which this thread has open.
__attribute__((noinline)) std::uint32_t careful_stack(record::ThreadLog& log) noexcept {
  if (!readable()) return 0;
  if (config().stacks == Stacks::kLeaf) return current_leaf(log);
  PythonThread* thread = config().stacks == Stacks::kOff ? nullptr : python_thread(log);
  if (thread == nullptr) return 0;
  const Layout layout = g_layout;
  RawFrame* frames = thread->stacks.buffer();
  const std::uint32_t open = std::min(thread->open, kMaxWaiting);
  std::uint32_t passed = 0;  // innermost scopes whose waiting frame was met, its stack not known
  std::size_t place[kMaxWaiting];
  WaitingFrame base;
  std::size_t count = 0;
  for (const char* frame = innermost_frame(); frame != nullptr && count < kMaxDepth;
       frame = outer_frame(layout, frame)) {
    while (passed < open && thread->waiting[open - 1 - passed].frame == frame) {
      const WaitingFrame& waiting = thread->waiting[open - 1 - passed];
      if (waiting.id != 0 && waiting.depth + count <= kMaxDepth) {
        base = waiting;
        break;
      }
      place[passed++] = count;
    }
    if (base.id != 0) break;
    if (read_frame(layout, frame, frames[count])) ++count;
  }
  const int saved = errno;  // memory may be asked for
  const std::uint32_t id = thread->stacks.stack(log, base.id, count);
  errno = saved;
  thread->main_state = t_main_state;
  thread->code_epoch = thread->stacks.looked_at();
  for (std::uint32_t i = 0; id != 0 && i < passed && place[i] < count; ++i) {
    WaitingFrame& waiting = thread->waiting[open - 1 - i];
    waiting.id = thread->stacks.id_at(place[i]);
    waiting.depth = base.depth + static_cast<std::uint32_t>(count - place[i]);
  }
  return id;
}

// A stack that was seen before, as almost all were: the same as careful_stack(), in as few cache lines of code and data
// as it takes.
__attribute__((always_inline)) inline std::uint32_t straight_stack(record::ThreadLog& log) noexcept {
  constexpr std::uint32_t kMostPassed = 8;
  constexpr std::size_t kFrameSpan = 72;  // bytes of a frame that are read
  auto* thread = static_cast<PythonThread*>(log.python.data);
  if (__builtin_expect(thread == nullptr, 0)) return careful_stack(log);
#pragma GCC unroll 1  // few lines of code count here as well
  for (const char* frame : thread->walked) {
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + kFrameSpan);
  }
  if (__builtin_expect(!g_straight.open.load(std::memory_order_acquire) ||
                           thread->code_epoch != g_code_epoch.load(std::memory_order_acquire) ||
                           thread->open > kMaxWaiting || g_shutdown.load(std::memory_order_relaxed) ||
                           g_straight.is_finalizing() != 0,
                       0)) {
    return careful_stack(log);
  }
  const ThreadState* state = thread->main_state;
  if (__builtin_expect(state == nullptr, 0) && (state = thread_state()) == nullptr) return careful_stack(log);
  const char* frame = straight_innermost(state);
  const WaitingFrame* const outermost = thread->waiting;
  WaitingFrame* waiting = thread->waiting + thread->open;  // the outermost scope whose waiting frame was met
  const char* next = waiting != outermost ? waiting[-1].frame : nullptr;
  std::uint64_t hash = kNoFrames;
  std::uint32_t count = 0, base = 0, depth = 0;
  std::uint8_t place[kMostPassed];
  const char** met = thread->walked;
  for (; frame != nullptr; frame = field<const char*>(frame, g_straight.previous)) {
    if (met != thread->walked + PythonThread::kWalked) *met++ = frame;
    while (frame == next) {
      base = waiting[-1].id;
      if (base != 0) break;
      const auto passed = static_cast<std::size_t>(thread->waiting + thread->open - waiting);
      if (passed == kMostPassed) return careful_stack(log);
      place[passed] = static_cast<std::uint8_t>(count);
      --waiting;
      next = waiting != outermost ? waiting[-1].frame : nullptr;
    }
    if (base != 0) {
      depth = waiting[-1].depth;
      break;
    }
    if (field<std::uint8_t>(frame, g_straight.owner) >= kFirstShimOwner) continue;
    if (count == StackTree::kMostSeen) return careful_stack(log);
    hash = hash_with(hash, {field<std::uintptr_t>(frame, g_straight.code) & ~std::uintptr_t{3},
                            field<std::uintptr_t>(frame, g_straight.instruction)});
    ++count;
  }
  if (count == 0) return base;
  const std::uint32_t* ids = thread->stacks.seen(hash, base, count);
  if (__builtin_expect(ids == nullptr || depth + count > kMaxDepth, 0)) return careful_stack(log);
  const std::uint8_t* at = place;
  for (WaitingFrame* passed = thread->waiting + thread->open; passed != waiting; ++at) {
    --passed;
    if (*at < count) *passed = {passed->frame, ids[*at], depth + count - *at};
  }
  return ids[0];
}

}  // namespace

std::uint32_t current_stack(record::ThreadLog& log) noexcept { return straight_stack(log); }

std::uint32_t attached_stack(record::ThreadLog& log) noexcept {
  const auto* thread = static_cast<const PythonThread*>(log.python.data);
  if (__builtin_expect(thread == nullptr || thread->open == 0, 0)) attach(log);
  return straight_stack(log);
}

std::uint32_t current_leaf(record::ThreadLog& log) noexcept {
  if (!readable()) return 0;
  PythonThread* thread = config().stacks == Stacks::kOff ? nullptr : python_thread(log);
  // The innermost may be incomplete (a frame that is still making its cells can run a destructor): then the next one.
  RawFrame frames[2];
  const std::size_t count = thread == nullptr ? 0 : read_frames(frames, 2);
  const int saved = errno;
  std::uint32_t id = 0;
  for (std::size_t i = 0; i < count && id == 0; ++i) id = thread->stacks.leaf(log, frames[i]);
  errno = saved;
  return id;
}

}  // namespace grape::python::scopes
