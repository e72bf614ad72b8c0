#include "tests/faults/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace grape::faults {
namespace {

std::uint64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

std::string unique_name(const std::string& prefix) {
  static std::atomic<int> count{0};
  return prefix + std::to_string(++count);
}

// Waits without a signal handler or a thread: the test process may run several at once.
bool wait_until(pid_t pid, int seconds, int& status) {
  const std::uint64_t end = milliseconds() + static_cast<std::uint64_t>(seconds) * 1000;
  for (long pause = 200'000; waitpid(pid, &status, WNOHANG) != pid; pause = std::min(pause * 2, 5'000'000L)) {
    if (milliseconds() > end) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return false;
    }
    const timespec time{0, pause};
    nanosleep(&time, nullptr);
  }
  return true;
}

// Which region each thread is in.
class Regions {
 public:
  void see(const trace::Reader& reader, const trace::EventView& event, std::uint32_t thread) {
    using trace::EventKind;
    const std::uint64_t* words = event.words();
    if (event.header->kind == EventKind::kScopeBegin) {
      open_[thread].push_back(reader.tables().scopes[trace::low(words[0])].type);
      if (words[1] != 0) by_number_[words[1]] = open_[thread].back();
    } else if (event.header->kind == EventKind::kScopeEnd && !open_[thread].empty()) {
      open_[thread].pop_back();
    } else if (event.header->kind == EventKind::kScopeAttach) {
      attached_[thread] = words[0] == 0 ? "" : by_number_[words[0]];
    }
  }
  std::string of(std::uint32_t thread) { return open_[thread].empty() ? attached_[thread] : open_[thread].front(); }

 private:
  std::map<std::uint32_t, std::vector<std::string>> open_;
  std::map<std::uint32_t, std::string> attached_;
  std::map<std::uint64_t, std::string> by_number_;
};

void add_event(const trace::Reader& reader, const trace::EventView& event, std::uint32_t thread, Regions& regions,
               Trace& trace) {
  using trace::EventKind;
  const std::uint64_t* words = event.words();
  if (event.header->kind == EventKind::kLaunch) {
    const trace::LaunchView view(event);
    Launched launch;
    launch.thread = thread;
    launch.sequence = event.header->sequence;
    launch.stream = view.stream();
    launch.region = regions.of(thread);
    launch.kernel = reader.tables().functions[view.function()].name;
    launch.flags = event.header->flags;
    launch.result = view.result();
    launch.parameters.assign(view.parameters(), view.parameters() + view.parameter_bytes());
    trace.launches.push_back(std::move(launch));
  } else if (event.header->kind == EventKind::kCall) {
    const std::uint32_t api = trace::low(words[0]);
    const auto& apis = reader.meta().apis;
    trace.calls.push_back({thread, api >= 1 && api <= apis.size() ? apis[api - 1].symbol : "?", regions.of(thread),
                           event.header->flags, static_cast<int>(trace::high(words[0]))});
  } else if (event.header->kind == EventKind::kLost) {
    trace.lost += words[0];
  }
}

Trace read_all(std::unique_ptr<trace::Reader> reader, const trace::Error& error) {
  Trace trace;
  trace.error = error.message;
  if (reader == nullptr) {
    trace.headless =
        error.message.find("the file ends") != std::string::npos || error.message.find("empty") != std::string::npos;
    return trace;
  }
  trace.readable = true;
  Regions regions;
  trace::EventView event;
  std::uint32_t thread = 0;
  std::uint64_t last = 0;
  while (reader->next(event, thread)) {
    if (event.header->kind != trace::EventKind::kLost) {
      EXPECT_GT(event.header->sequence, last) << "events out of order";
      last = event.header->sequence;
    }
    ++trace.events;
    regions.see(*reader, event, thread);
    add_event(*reader, event, thread, regions, trace);
  }
  trace.complete = reader->complete();
  trace.damage = reader->damage().message;
  trace.meta = reader->meta();
  if (reader->end() != nullptr) trace.end = *reader->end();
  return trace;
}

}  // namespace

bool Result::exited(int code) const { return !timed_out && WIFEXITED(status) && WEXITSTATUS(status) == code; }
bool Result::signalled(int signal) const { return !timed_out && WIFSIGNALED(status) && WTERMSIG(status) == signal; }

std::vector<std::string> Result::notices() const {
  std::vector<std::string> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("grape: ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

std::ostream& operator<<(std::ostream& stream, const Result& result) {
  return stream << "status 0x" << std::hex << result.status << std::dec << (result.timed_out ? ", timed out" : "")
                << "\n--- stdout\n"
                << result.out.substr(0, 2000) << "--- stderr\n"
                << result.err.substr(0, 2000);
}

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "grape-faults-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> Folder::traces() const {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (entry.path().extension() == ".grape") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Command::Command(const Folder& folder, const std::string& program, std::vector<std::string> arguments)
    : folder_(folder), arguments_(std::move(arguments)) {
  arguments_.insert(arguments_.begin(), program[0] == '/' ? program : std::string(FAULT_PROGRAMS) + "/" + program);
  environment_ = {{"PATH", "/usr/local/bin:/usr/bin:/bin"},
                  {"LANG", "C.UTF-8"},
                  {"TMPDIR", folder.path().string()},
                  {"LD_LIBRARY_PATH", SIMCUDA_FOLDER}};
}

Command& Command::with_grape() {
  if (environment_.count("GRAPE_TRACE") == 0) set("GRAPE_TRACE", folder_.in("run-%p.grape"));
  return preload(kLibrary);
}

Command& Command::preload(const std::string& library, bool before) {
  preloaded_.insert(before ? preloaded_.begin() : preloaded_.end(), library);
  return *this;
}

Command& Command::set(const std::string& name, const std::string& value) {
  environment_[name] = value;
  return *this;
}

Command& Command::prepare(std::function<void()> function) {
  prepare_ = std::move(function);
  return *this;
}

pid_t Command::start() const {
  const pid_t pid = fork();
  if (pid == 0) become_program("/dev/null", "/dev/null");
  return pid;
}

Result Command::run(int seconds) const {
  const std::string out = folder_.in(unique_name("out")), err = folder_.in(unique_name("err"));
  const pid_t pid = fork();
  if (pid == 0) become_program(out.c_str(), err.c_str());
  Result result;
  result.timed_out = !wait_until(pid, seconds, result.status);
  result.out = content(out);
  result.err = content(err);
  fs::remove(out);
  fs::remove(err);
  return result;
}

// In the child of a fork. The tests have one thread while they prepare, except in for_each_of, where all that is
// needed is the C library's own allocator, which stays usable.
void Command::become_program(const char* out, const char* err) const {
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment_) settings.push_back(name + "=" + value);
  if (!preloaded_.empty()) {
    std::string list;
    for (const std::string& library : preloaded_) list += (list.empty() ? "" : ":") + library;
    settings.push_back("LD_PRELOAD=" + list);
  }
  std::vector<char*> environment, arguments;
  for (std::string& setting : settings) environment.push_back(setting.data());
  for (const std::string& argument : arguments_) arguments.push_back(const_cast<char*>(argument.c_str()));
  environment.push_back(nullptr);
  arguments.push_back(nullptr);
  const int in_file = open("/dev/null", O_RDONLY), out_file = open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int err_file = open(err, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (in_file < 0 || out_file < 0 || err_file < 0) _exit(126);
  dup2(in_file, 0);
  dup2(out_file, 1);
  dup2(err_file, 2);
  for (int file = 3; file < 256; ++file) close(file);
  if (chdir(folder_.path().c_str()) != 0) _exit(126);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (prepare_) prepare_();
  execve(arguments[0], arguments.data(), environment.data());
  _exit(127);
}

std::uint64_t Launched::word(std::size_t offset) const {
  std::uint64_t value = 0;
  if (offset + sizeof value <= parameters.size()) std::memcpy(&value, parameters.data() + offset, sizeof value);
  return value;
}

std::size_t Trace::count(const std::string& symbol) const {
  return static_cast<std::size_t>(
      std::count_if(calls.begin(), calls.end(), [&](const Called& call) { return call.symbol == symbol; }));
}

std::size_t Trace::launches_of(const std::string& kernel) const {
  return static_cast<std::size_t>(
      std::count_if(launches.begin(), launches.end(), [&](const Launched& one) { return one.kernel == kernel; }));
}

Trace read_trace(const std::string& path) {
  trace::Error error;
  return read_all(trace::Reader::open(path, error), error);
}

Trace read_trace(std::vector<std::uint8_t> bytes) {
  trace::Error error;
  return read_all(trace::Reader::from_bytes(std::move(bytes), error), error);
}

Trace only_trace(const Folder& folder) {
  const auto traces = folder.traces();
  EXPECT_EQ(traces.size(), 1u);
  Trace trace;
  if (traces.size() == 1) trace = read_trace(traces[0]);
  EXPECT_TRUE(trace.readable) << trace.error;
  return trace;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void for_each_of(int count, const std::function<void(int)>& job) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < count; i = next++) job(i);
  };
  std::thread other(work);
  work();
  other.join();
}

Result same_as_without(const Folder& folder, const std::string& program, const std::vector<std::string>& arguments,
                       const std::function<void(Command&)>& change) {
  const auto run = [&](bool grape) {
    Command command(folder, program, arguments);
    if (grape) command.with_grape();
    if (change) change(command);
    return command.run();
  };
  const Result without = run(false), with = run(true);
  EXPECT_FALSE(with.timed_out) << with;
  EXPECT_EQ(with.status, without.status) << "without: " << without << "with: " << with;
  EXPECT_EQ(with.out, without.out) << with;
  return with;
}

}  // namespace grape::faults
