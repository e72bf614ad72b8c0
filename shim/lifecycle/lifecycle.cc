#include "shim/lifecycle/lifecycle.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/elf_lookup.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/log.h"

namespace grape {
namespace {

Config g_config{true};  // disabled until the constructor has run

}  // namespace

const Config& config() noexcept { return g_config; }

namespace lifecycle {

GRAPE_HOT std::atomic<State> g_state{State::kInert};
std::atomic<bool> g_begun{false};

namespace {

std::atomic<void (*)()> g_finish{nullptr};
std::atomic<void (*)()> g_also[4];
pid_t g_process = 0;
double g_start_time = 0;
char g_command_line[8193] = "";

// What is to be said of the settings: lines, each with its end; what does not fit is left out.
char g_warnings[4096] = "";
std::size_t g_warning_bytes = 0;
std::atomic<bool> g_untold{false};

void keep_warning(const char* line) {
  const std::size_t bytes = std::strlen(line) + 1;
  if (bytes > sizeof g_warnings - g_warning_bytes) return;
  std::memcpy(g_warnings + g_warning_bytes, line, bytes);
  g_warning_bytes += bytes;
  g_untold.store(true, std::memory_order_release);
}

// Where Grape is disabled it says nothing, unless it is a mistake in the very setting that disables it.
void keep_if_disabling(const char* line) {
  if (std::strncmp(line, "GRAPE_DISABLE=", 14) == 0) keep_warning(line);
}

void copy_command_line(int count, const char* const* list) {
  std::size_t used = 0;
  for (int i = 0; i < count && list[i] != nullptr; ++i) {
    const std::size_t room = sizeof g_command_line - 1 - used, bytes = std::strlen(list[i]);
    if (room < 2) break;
    if (i > 0) g_command_line[used++] = ' ';
    const std::size_t copied = bytes < room - 1 ? bytes : room - 1;
    std::memcpy(g_command_line + used, list[i], copied);
    used += copied;
  }
  g_command_line[used] = '\0';
}

// A child shares the parent's file and none of its threads: it records nothing and touches nothing. Where there is no
// file yet, nor a thread, it is a process like any other: servers fork their workers before these load their models.
void in_child() {
  if (!g_begun.load(std::memory_order_relaxed)) {
    g_process = getpid();
    g_start_time = monotonic_seconds();
    return;
  }
  g_state.store(State::kInert, std::memory_order_relaxed);
  g_untold.store(false, std::memory_order_relaxed);
}

// Runs at most once. Not in a vfork child, which shares our memory but is another process.
void finish() noexcept {
  if (getpid() != g_process) return;
  State expected = State::kActive;
  if (!g_state.compare_exchange_strong(expected, State::kFinished)) return;
  for (const auto& also : g_also) {
    if (auto* function = also.load()) function();
  }
  if (auto* function = g_finish.load()) function();
}

__attribute__((constructor(101))) void load(int count, char** argument_list, char** environment) {
  copy_command_line(count, argument_list);
  g_process = getpid();
  g_start_time = monotonic_seconds();
  // Twice: the first pass learns how much the second may say.
  Config quiet;
  parse_environment(environment, quiet, [](const char*) {});
  g_config.log = quiet.log;
  Config parsed;
  parse_environment(environment, parsed, quiet.disabled ? keep_if_disabling : keep_warning);
  g_config = parsed;
  if (parsed.disabled || (parsed.mode == Mode::kOff && !parsed.virtual_graphs)) return;
  if (loaded_late()) {
    tell_of_settings();  // no call to the driver will come by
    log_line(parsed.asked ? LogLevel::kWarning : LogLevel::kInfo,
             "loaded after the program had started, too late to see it; not recording (preload it)");
    return;
  }
  if (pthread_atfork(nullptr, nullptr, in_child) != 0) {
    log_line(LogLevel::kWarning, "cannot watch for forks; not recording");
    return;
  }
  std::at_quick_exit(finish);  // runs no destructors; the handlers of the program come before this one
  g_state.store(State::kActive, std::memory_order_relaxed);
}

__attribute__((destructor(101))) void unload() { finish(); }

}  // namespace

void tell_of_settings() noexcept {
  if (!g_untold.load(std::memory_order_relaxed) || !g_untold.exchange(false, std::memory_order_acquire)) return;
  for (std::size_t at = 0; at < g_warning_bytes; at += std::strlen(g_warnings + at) + 1) {
    log_line(LogLevel::kWarning, "%s", g_warnings + at);
  }
}

void give_up(const char* reason) noexcept {
  State expected = State::kActive;
  if (g_state.compare_exchange_strong(expected, State::kInert)) {
    log_line(LogLevel::kError, "disabled: %s; the program runs on without Grape", reason);
  }
}

void* next_symbol(const char* symbol, const char* library) noexcept {
  void* found = nullptr;
  if (auto* dlsym_function = real_dlsym()) found = dlsym_function(reinterpret_cast<void*>(-1L) /* RTLD_NEXT */, symbol);
  if (found == nullptr && library != nullptr) found = symbol_in(library, symbol);
  return found;
}

double start_time() noexcept { return g_start_time; }

const char* command_line() noexcept { return g_command_line; }
void add_finish(void (*function)()) noexcept {
  for (auto& also : g_also) {
    void (*none)() = nullptr;
    if (also.compare_exchange_strong(none, function)) return;
  }
}
void set_finish(void (*function)()) noexcept { g_finish.store(function); }

}  // namespace lifecycle
}  // namespace grape

// os._exit and _Exit run no destructors: what was recorded is written here.
extern "C" __attribute__((visibility("default"), noreturn)) void _exit(int status) {
  grape::lifecycle::finish();
  for (;;) syscall(SYS_exit_group, status);
}

extern "C" __attribute__((visibility("default"), noreturn)) void _Exit(int status) {
  grape::lifecycle::finish();
  for (;;) syscall(SYS_exit_group, status);
}
