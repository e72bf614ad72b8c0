#include "faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "context.h"
#include "simcuda.h"

namespace simcuda {

Settings settings;

namespace {

const std::unordered_map<std::string, CallSite*>& sites_by_symbol() {
  static auto& map = *[] {
    auto* made = new std::unordered_map<std::string, CallSite*>;
    for (std::size_t i = 0; i < call_site_count(); ++i) made->emplace(call_sites()[i].symbol, &call_sites()[i]);
    return made;
  }();
  return map;
}

// Functions that answer in the child of a fork after cuInit, where the rest of CUDA does not work.
bool works_after_fork(const CallSite& site) {
  return std::strncmp(site.symbol, "cuGet", 5) == 0 || std::strcmp(site.symbol, "cuDriverGetVersion") == 0 ||
         std::strncmp(site.symbol, "cuSim", 5) == 0;
}

bool parse_number(const char* text, const char* end, std::uint64_t* value) {
  if (text == end) return false;
  char* stop = nullptr;
  errno = 0;
  *value = std::strtoull(text, &stop, 10);
  return errno == 0 && stop == end && *text >= '0' && *text <= '9';
}

// One "symbol:nth:result".
bool parse_fault(const std::string& text) {
  const auto first = text.find(':');
  const auto second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos) return false;
  const std::string nth = text.substr(first + 1, second - first - 1);
  const std::string result = text.substr(second + 1);
  std::uint64_t number = 0;
  std::uint64_t code = 0;
  if (nth != "*" && (!parse_number(nth.c_str(), nth.c_str() + nth.size(), &number) || number == 0)) return false;
  if (!parse_number(result.c_str(), result.c_str() + result.size(), &code)) return false;
  return simcuda_set_fault(text.substr(0, first).c_str(), number, static_cast<int>(code)) == 0;
}

int open_log() {
  const char* path = std::getenv("SIMCUDA_LOG");
  if (path == nullptr || *path == '\0') return -1;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) std::fprintf(stderr, "simcuda: cannot write SIMCUDA_LOG %s: %s\n", path, std::strerror(errno));
  return fd;
}

int log_file = -1;

void read_number(const char* variable, std::uint64_t* value) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return;
  std::uint64_t number = 0;
  if (parse_number(text, text + std::strlen(text), &number)) {
    *value = number;
  } else {
    std::fprintf(stderr, "simcuda: %s must be a number, not \"%s\"; ignored\n", variable, text);
  }
}

__attribute__((constructor)) void read_environment() {
  std::uint64_t memory = settings.memory;
  std::uint64_t latency = 0;
  std::uint64_t null_launch = 0;
  read_number("SIMCUDA_MEMORY", &memory);
  read_number("SIMCUDA_LATENCY", &latency);
  read_number("SIMCUDA_NULL", &null_launch);
  std::uint64_t devices = 1;
  read_number("SIMCUDA_DEVICES", &devices);
  settings.devices = static_cast<int>(std::clamp<std::uint64_t>(devices, 1, kMostDevices));
  settings.memory = memory;
  settings.latency = latency;
  settings.null_launch = null_launch != 0;
  log_file = open_log();
  const char* faults = std::getenv("SIMCUDA_FAULTS");
  if (faults != nullptr && *faults != '\0' && simcuda_set_faults(faults) != 0) {
    std::fprintf(stderr, "simcuda: SIMCUDA_FAULTS \"%s\" is not understood (symbol:nth:result,...)\n", faults);
  }
  pthread_atfork(nullptr, nullptr, [] {
    if (!initialized()) return;  // the child is as good as new
    settings.forked = true;
    settings.check = true;
  });
}

}  // namespace

CallSite* find_call_site(const char* symbol) {
  const auto found = sites_by_symbol().find(symbol != nullptr ? symbol : "");
  return found == sites_by_symbol().end() ? nullptr : found->second;
}

CUresult check_call(CallSite& site, std::uint64_t number) {
  if (settings.forked.load(std::memory_order_relaxed) && !works_after_fork(site)) return CUDA_ERROR_NOT_INITIALIZED;
  const std::int64_t fail_at = site.fail_at.load(std::memory_order_acquire);
  if (fail_at != 0 && fail_at != static_cast<std::int64_t>(number)) return CUDA_SUCCESS;
  return static_cast<CUresult>(site.fail_with.load(std::memory_order_relaxed));
}

void busy_wait() {
  const std::uint64_t latency = settings.latency.load(std::memory_order_relaxed);
  if (latency == 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(latency);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void log_kernel(const void* stream, const std::string& name) {
  if (log_file < 0) return;
  static std::mutex& mutex = *new std::mutex;
  static std::uint64_t executed = 0;
  std::lock_guard<std::mutex> lock(mutex);
  char head[64];
  std::snprintf(head, sizeof head, "%llu %p ", static_cast<unsigned long long>(++executed), stream);
  const std::string line = head + name + "\n";
  if (write(log_file, line.data(), line.size()) < 0) log_file = -1;
}

}  // namespace simcuda

using simcuda::CallSite;
using simcuda::settings;

#define CONTROL extern "C" __attribute__((visibility("default")))

CONTROL int simcuda_set_fault(const char* symbol, uint64_t nth, int result) {
  CallSite* site = simcuda::find_call_site(symbol);
  if (site == nullptr) return -1;
  site->fail_with = result;
  site->fail_at = nth == 0 ? 0 : static_cast<std::int64_t>(site->calls.load() + nth);
  settings.check.store(true, std::memory_order_release);
  return 0;
}

CONTROL int simcuda_set_faults(const char* text) {
  int status = 0;
  const std::string all(text != nullptr ? text : "");
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    if (end > begin && !simcuda::parse_fault(all.substr(begin, end - begin))) status = -1;
    begin = end + 1;
  }
  return status;
}

CONTROL uint64_t simcuda_calls(const char* symbol) {
  CallSite* site = simcuda::find_call_site(symbol);
  return site == nullptr ? 0 : site->calls.load();
}

CONTROL void simcuda_reset(void) {
  for (std::size_t i = 0; i < simcuda::call_site_count(); ++i) {
    CallSite& site = simcuda::call_sites()[i];
    site.fail_at = -1;
    site.calls = 0;
  }
  settings.check = settings.forked.load();
  simcuda::forget_sticky_errors();
}

CONTROL void simcuda_set_memory(size_t bytes) { settings.memory = bytes; }
CONTROL void simcuda_set_latency(uint64_t nanoseconds) { settings.latency = nanoseconds; }
CONTROL int simcuda_set_null_launch(int on) { return settings.null_launch.exchange(on != 0) ? 1 : 0; }
CONTROL size_t simcuda_symbol_count(void) { return simcuda::call_site_count(); }
CONTROL const char* simcuda_symbol_name(size_t index) {
  return index < simcuda::call_site_count() ? simcuda::call_sites()[index].symbol : nullptr;
}
