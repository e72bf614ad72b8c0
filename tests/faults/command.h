// Runs a program under Grape, or without, in a folder of its own, and reads back what it left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compressor/trace/reader.h"

namespace grape::faults {

namespace fs = std::filesystem;

struct Result {
  int status = -1;  // as waitpid gives it
  bool timed_out = false;
  std::string out, err;
  bool exited(int code) const;
  bool signalled(int signal) const;
  // The lines of stderr that Grape wrote.
  std::vector<std::string> notices() const;
};

// Shows a result where a test fails.
std::ostream& operator<<(std::ostream& stream, const Result& result);

class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  std::string in(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> traces() const;  // *.grape, by name

 private:
  fs::path path_;
};

class Command {
 public:
  // `program`: a name from programs/, or an absolute path. Runs in `folder`, with the simulated driver, without
  // Grape, and with no environment but what is set here and a minimum.
  Command(const Folder& folder, const std::string& program, std::vector<std::string> arguments = {});

  // With libgrape.so preloaded, its trace in the folder under a name with the process id.
  Command& with_grape();
  // Preloads `library` before or behind what is preloaded already.
  Command& preload(const std::string& library, bool before = false);
  Command& set(const std::string& name, const std::string& value);
  // Runs in the child before it becomes the program: limits and the like. May not allocate.
  Command& prepare(std::function<void()> function);

  Result run(int seconds = 60) const;
  pid_t start() const;  // stdout and stderr go to nowhere; the caller waits

 private:
  void become_program(const char* out, const char* err) const;

  const Folder& folder_;
  std::vector<std::string> arguments_;
  std::map<std::string, std::string> environment_;
  std::vector<std::string> preloaded_;
  std::function<void()> prepare_;
};

// What a test asks a trace about.
struct Launched {
  std::uint32_t thread = 0;
  std::uint64_t sequence = 0;
  std::uint64_t stream = 0;
  std::string kernel;
  std::string region;  // type of the outermost module (or other scope) that the thread was in or worked for; "" none
  std::uint16_t flags = 0;
  int result = 0;
  std::vector<std::uint8_t> parameters;
  std::uint64_t word(std::size_t offset) const;  // 8 bytes of the parameters
};

struct Called {
  std::uint32_t thread = 0;
  std::string symbol;
  std::string region;
  std::uint16_t flags = 0;
  int result = 0;
};

struct Trace {
  bool readable = false;
  bool complete = false;
  bool headless = false;  // empty, or cut within the file's header: nothing to read, and it says so
  std::string error;      // why it is not readable
  std::string damage;     // or not whole
  std::uint64_t events = 0;
  std::uint64_t lost = 0;
  std::vector<Launched> launches;
  std::vector<Called> calls;
  trace::End end;
  trace::Meta meta;
  std::size_t count(const std::string& symbol) const;        // calls of this function
  std::size_t launches_of(const std::string& kernel) const;  // launches under this kernel's name
};

Trace read_trace(const std::string& path);
Trace read_trace(std::vector<std::uint8_t> bytes);
// The one trace in the folder. Fails the test where there is none, or several.
Trace only_trace(const Folder& folder);

std::string content(const std::string& path);
// Runs `count` jobs, two at a time.
void for_each_of(int count, const std::function<void(int)>& job);

// Runs the program without Grape and with, and expects the same output and exit status. Gives the run with Grape.
Result same_as_without(const Folder& folder, const std::string& program, const std::vector<std::string>& arguments,
                       const std::function<void(Command&)>& change = {});

constexpr char kLibrary[] = GRAPE_LIBRARY;

}  // namespace grape::faults
