#include "python_hooks/frames.h"

#include <cerrno>
#include <new>

#include "python_hooks/python_hooks.h"
#include "python_hooks/python_thread.h"
#include "shim/lifecycle/config.h"

namespace grape::python {

std::atomic<bool> g_frames_checked{false};

namespace {

bool readable() noexcept { return g_frames_checked.load(std::memory_order_acquire) && !shutting_down(); }

const char* innermost_frame() noexcept {
  const ThreadState* thread = g_api.PyGILState_GetThisThreadState();
  if (thread == nullptr) return nullptr;
  const char* frame = field<const char*>(thread, g_layout.thread_frame);
  if (g_layout.cframe_frame < 0 || frame == nullptr) return frame;
  return field<const char*>(frame, static_cast<std::size_t>(g_layout.cframe_frame));
}

std::size_t read_frame_objects(const char* frame, RawFrame* out, std::size_t most) noexcept {
  const Layout layout = g_layout;
  std::size_t count = 0;
  for (; frame != nullptr && count < most; frame = field<const char*>(frame, layout.frame_previous)) {
    out[count++] = {field<std::uintptr_t>(frame, layout.frame_code),
                    static_cast<std::uintptr_t>(field<int>(frame, layout.frame_instruction))};
  }
  return count;
}

std::size_t read_interpreter_frames(const char* frame, RawFrame* out, std::size_t most) noexcept {
  const std::size_t previous = g_layout.frame_previous, code = g_layout.frame_code;
  const std::size_t instruction = g_layout.frame_instruction, owner = g_layout.frame_owner;
  std::size_t count = 0;
  for (; frame != nullptr && count < most; frame = field<const char*>(frame, previous)) {
    if (field<std::uint8_t>(frame, owner) >= kFirstShimOwner) continue;
    // From 3.14 the low bits of a reference are marks.
    out[count++] = {field<std::uintptr_t>(frame, code) & ~std::uintptr_t{3}, field<std::uintptr_t>(frame, instruction)};
  }
  return count;
}

void destroy(void* thread) { delete static_cast<PythonThread*>(thread); }

}  // namespace

std::size_t read_frames(RawFrame* out, std::size_t most) noexcept {
  const char* frame = innermost_frame();
  return g_layout.frame_objects ? read_frame_objects(frame, out, most) : read_interpreter_frames(frame, out, most);
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

std::uint32_t current_stack(record::ThreadLog& log) noexcept {
  if (!readable()) return 0;
  if (config().stacks == Stacks::kLeaf) return current_leaf(log);
  PythonThread* thread = config().stacks == Stacks::kOff ? nullptr : python_thread(log);
  if (thread == nullptr) return 0;
  return thread->stacks.stack(log, read_frames(thread->stacks.buffer(), kMaxDepth));
}

std::uint32_t current_leaf(record::ThreadLog& log) noexcept {
  if (!readable()) return 0;
  PythonThread* thread = config().stacks == Stacks::kOff ? nullptr : python_thread(log);
  // The innermost may be incomplete (a frame that is still making its cells can run a destructor): then the next one.
  RawFrame frames[2];
  const std::size_t count = thread == nullptr ? 0 : read_frames(frames, 2);
  for (std::size_t i = 0; i < count; ++i) {
    if (const std::uint32_t id = thread->stacks.leaf(log, frames[i])) return id;
  }
  return 0;
}

}  // namespace grape::python
