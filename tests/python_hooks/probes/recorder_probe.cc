// Stands in for the recorder and the driver's wrappers in tests of python_hooks: preloaded into an interpreter, keeps
// each thread's events in memory, and is called from Python by ctypes.
#include <dlfcn.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "python_hooks/control/controller.h"
#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/install/install.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/scopes/frame_names.h"
#include "python_hooks/scopes/positions.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/record/thread_log.h"

namespace grape::record {

std::atomic<std::uint64_t> g_sequence{0};
std::atomic<std::uint32_t> g_recording{kTaken};
bool g_only_collected = false;
__thread ThreadState t_thread __attribute__((tls_model("initial-exec")));

// The friend that a log knows: gives it a block that has no room, so that each event goes through the slow way below.
class Recorder {
 public:
  static void fill(ThreadLog& log) {
    static Block full;
    log.block_ = &full;
    log.used_ = kBlockRoom;
  }
};

namespace {

struct ThreadEvents {
  ThreadEvents() { Recorder::fill(log); }
  ThreadLog log;
  std::vector<std::uint64_t> words;
  std::size_t pending = 0;
};

std::mutex g_mutex;
std::vector<ThreadEvents*>& all() {
  static auto* logs = new std::vector<ThreadEvents*>;
  return *logs;
}
std::atomic<bool> g_full{false};
std::atomic<bool> g_discard{false};
char g_version[64];
thread_local ThreadEvents* t_events = nullptr;

ThreadEvents* this_thread() {
  if (t_events == nullptr) {
    t_events = new ThreadEvents;
    const std::lock_guard<std::mutex> lock(g_mutex);
    all().push_back(t_events);
  }
  return t_events;
}

}  // namespace

std::uint64_t* ThreadLog::begin_in_new_block(trace::EventKind kind, std::uint32_t key, std::uint32_t payload_words,
                                             Stamp stamp, std::uint16_t flags, std::uint32_t duration) noexcept {
  if (g_full) return nullptr;
  ThreadEvents& events = *this_thread();
  if (g_discard.load(std::memory_order_relaxed) && static_cast<int>(kind) >= 16) {
    static thread_local std::uint64_t words[1024];
    const trace::EventHeader header{32 + payload_words * 8,     kind,       flags, key, duration,
                                    events.log.next_sequence(), stamp.ticks};
    std::memcpy(words, &header, sizeof(header));
    return words + 4;
  }
  const std::size_t start = events.words.size();
  events.pending = 4 + payload_words;
  events.words.resize(start + events.pending, 0xA5A5A5A5A5A5A5A5U);
  const trace::EventHeader header{static_cast<std::uint32_t>(events.pending * 8),
                                  kind,
                                  flags,
                                  key,
                                  duration,
                                  events.log.next_sequence(),
                                  stamp.ticks};
  std::memcpy(&events.words[start], &header, sizeof(header));
  return &events.words[start + 4];
}

void ThreadLog::commit_to_sink() noexcept { std::abort(); }  // nobody collects here

ThreadLog* start_thread_log() noexcept {
  t_thread.log = &this_thread()->log;
  return recording() ? t_thread.log : nullptr;
}

void set_python_version(const char* version) noexcept { std::strncpy(g_version, version, sizeof(g_version) - 1); }

}  // namespace grape::record

namespace grape::python::control {

// Nothing is replayed here.
Enabled enabled() noexcept { return Enabled::kNo; }
Object* call(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names) {
  return eager(function, arguments, count, names);
}
Object* call_function(Vectorcall eager, Object* function, Object* const* arguments, std::size_t count, Object* names) {
  return eager(function, arguments, count, names);
}
void write_report() noexcept {}

}  // namespace grape::python::control

namespace grape::python::discovery {

void find_regions_with(MakeRegion) noexcept {}

}  // namespace grape::python::discovery

using grape::record::thread_log;
using grape::record::ThreadLog;

#define PROBE extern "C" __attribute__((visibility("default")))

PROBE void probe_driver_call() { grape::python::install::on_driver_call(); }
PROBE std::uint32_t probe_stack() { return thread_log() ? grape::python::scopes::current_stack(*thread_log()) : 0; }
PROBE std::uint32_t probe_leaf() { return thread_log() ? grape::python::scopes::current_leaf(*thread_log()) : 0; }
// In words, where the frame of that id stands; valid until the next call.
PROBE const char* probe_place(std::uint32_t frame) {
  static thread_local std::string place;
  place = grape::python::scopes::place_of_frame(frame);
  return place.c_str();
}
PROBE const char* probe_version() { return grape::record::g_version; }

// No room for events from now on, or room again.
PROBE void probe_full(int full) { grape::record::g_full = full != 0; }

// Nothing is recorded from now on, as outside of a range, or again.
PROBE void probe_pause(int pause) {
  if (pause != 0) {
    grape::record::g_recording |= grape::record::kPaused;
  } else {
    grape::record::g_recording &= ~std::uint32_t{grape::record::kPaused};
  }
}

// Events (not definitions) are written and thrown away: for timings.
PROBE void probe_discard(int discard) { grape::record::g_discard = discard != 0; }

// A driver call as the wrappers record it: attached, with its stack.
PROBE void probe_launch() {
  grape::python::install::on_driver_call();
  ThreadLog* log = thread_log();
  if (log == nullptr) return;
  grape::python::scopes::attach(*log);
  const std::uint32_t frame = grape::python::scopes::current_stack(*log);
  std::uint64_t* words = log->begin(grape::trace::EventKind::kCall, 0, 3, {grape::record::ticks(), 0});
  if (words == nullptr) return;
  words[0] = 1;
  words[1] = frame;
  words[2] = 0;
  log->commit();
}

// The same on a thread of ours that has no Python, as autograd's: `count` launches on one thread.
PROBE void probe_native_launch(int count) {
  std::thread([count] {
    for (int i = 0; i < count; ++i) probe_launch();
  }).join();
}

// A native thread that lives on and launches when told: so that it is seen between two backward passes.
namespace {
std::mutex g_worker_mutex;
bool g_worker_go = false, g_worker_started = false;
}  // namespace
PROBE void probe_worker_launch() {
  {
    const std::lock_guard<std::mutex> lock(g_worker_mutex);
    g_worker_go = true;
  }
  if (!g_worker_started) {
    g_worker_started = true;
    std::thread([] {
      for (;;) {
        {
          const std::lock_guard<std::mutex> lock(g_worker_mutex);
          if (g_worker_go) {
            probe_launch();
            g_worker_go = false;
          }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }).detach();
  }
  for (bool busy = true; busy;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard<std::mutex> lock(g_worker_mutex);
    busy = g_worker_go;
  }
}

PROBE std::uint64_t probe_threads() {
  const std::lock_guard<std::mutex> lock(grape::record::g_mutex);
  return grape::record::all().size();
}

// The words of a thread's events from `start`; returns how many there are in all.
PROBE std::uint64_t probe_words(std::uint64_t thread, std::uint64_t start, std::uint64_t* out, std::uint64_t room) {
  const std::lock_guard<std::mutex> lock(grape::record::g_mutex);
  const auto& words = grape::record::all()[thread]->words;
  for (std::uint64_t i = 0; i < room && start + i < words.size(); ++i) out[i] = words[start + i];
  return words.size();
}

// This thread's number among probe_words' threads.
PROBE std::uint64_t probe_this_thread() {
  auto* mine = grape::record::this_thread();
  const std::lock_guard<std::mutex> lock(grape::record::g_mutex);
  const auto& logs = grape::record::all();
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (logs[i] == mine) return i;
  }
  return ~std::uint64_t{0};
}

// Nanoseconds a call of current_stack (or, with `leaf`, current_leaf) takes, on average.
PROBE double probe_time(int calls, int leaf) {
  ThreadLog* log = thread_log();
  std::uint32_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    sum += leaf != 0 ? grape::python::scopes::current_leaf(*log) : grape::python::scopes::current_stack(*log);
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return sum == 0 ? -1 : time.count() / calls;
}

// As if this interpreter were laid out otherwise than the table says: finds it, then moves one offset by `by` bytes
// before the pending call compares. Call with the GIL held. False: there is no such offset in this version.
PROBE int probe_move_offset(int which, int by) {
  grape::python::install::on_driver_call();
  grape::python::Layout& layout = grape::python::g_layout;
  std::uint32_t* const offsets[] = {&layout.thread_frame,      &layout.frame_previous, &layout.frame_code,
                                    &layout.frame_instruction, &layout.code_file,      &layout.code_name,
                                    &layout.code_first_line,   &layout.code_lines,     &layout.code_instructions,
                                    &layout.frame_owner};
  if ((layout.frame_objects && which >= 8) || static_cast<int>(*offsets[which]) + by < 0) return 0;
  *offsets[which] += static_cast<std::uint32_t>(by);
  return 1;
}

// The method of the engine of the test double of PyTorch: calls each function of the tuple that is its first argument.
// An exception goes through, as it does through the real one.
PROBE void* probe_run_backward(void*, void* arguments, void*) {
  static auto* item = reinterpret_cast<void* (*)(void*, long)>(dlsym(RTLD_DEFAULT, "PyTuple_GetItem"));
  static auto* size = reinterpret_cast<long (*)(void*)>(dlsym(RTLD_DEFAULT, "PyTuple_Size"));
  static auto* call = reinterpret_cast<void* (*)(void*, void*)>(dlsym(RTLD_DEFAULT, "PyObject_CallObject"));
  static auto* release = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "Py_DecRef"));
  static auto* build = reinterpret_cast<void* (*)(const char*, ...)>(dlsym(RTLD_DEFAULT, "Py_BuildValue"));
  void* functions = item(arguments, 0);
  for (long i = 0; i < size(functions); ++i) {
    void* result = call(item(functions, i), nullptr);
    if (result == nullptr) return nullptr;
    release(result);
  }
  return build("");
}
