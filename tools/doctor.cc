#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tools/child.h"
#include "tools/commands.h"
#include "tools/inputs/trace_input.h"
#include "tools/program_file.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/text/table.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter = R"(Examples:
  grape doctor
  grape doctor --python .venv/bin/python
  grape doctor -- python train.py      run it under the library, and say what was not covered

Exit status:
  0  all that is essential works
  1  something essential does not
  2  wrong usage)";

// Under the library: a driver call at least, a launch in a module where torch has a GPU.
constexpr const char* kPythonProbe = R"(
import json, sys
result = {"version": sys.version.split()[0], "implementation": sys.implementation.name, "executable": sys.executable}
def call_driver():
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    driver.cuInit(0)
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0:
        driver.cuCtxSetCurrent(context)
        for _ in range(8):  # the first calls install the hooks
            if driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0:
                driver.cuMemFree_v2(memory)
        driver.cuDevicePrimaryCtxRelease_v2(0)
try:
    import torch
    result["torch"] = torch.__version__
    result["torch_cuda"] = torch.version.cuda
    result["cuda"] = bool(torch.cuda.is_available())
    if result["cuda"]:
        model = torch.nn.Linear(8, 8).cuda()
        model(torch.ones(2, 8, device="cuda")).sum().item()
except ImportError as error:
    result["torch_error"] = str(error)
except Exception as error:
    result["torch_error"] = f"{type(error).__name__}: {error}"
try:
    call_driver()
except Exception as error:
    result["driver_error"] = str(error)
print("\n" + json.dumps(result))
)";

// Under the library in mode replay: a module that is called again and again.
constexpr const char* kReplayProbe = R"(
import json
result = {}
try:
    import torch
    result["torch"] = torch.__version__
    result["cuda"] = bool(torch.cuda.is_available())
    if result["cuda"]:
        model = torch.nn.Linear(8, 8).cuda().eval()
        x = torch.ones(2, 8, device="cuda")
        with torch.no_grad():
            for _ in range(32):
                model(x)
except Exception as error:
    result["error"] = f"{type(error).__name__}: {error}"
print("\n" + json.dumps(result))
)";

// A folder for the probes' traces, gone at the end.
class Scratch {
 public:
  Scratch() {
    const char* base = std::getenv("TMPDIR");
    folder_ = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/grape-doctor-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) throw Failure("no folder for temporary files can be made: " + folder_);
  }
  ~Scratch() {
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(folder_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const std::string& name) {
    files_.push_back(folder_ + "/" + name);
    return files_.back();
  }

 private:
  std::string folder_;
  std::vector<std::string> files_;
};

// What a probe's trace tells.
struct Seen {
  bool exists = false;
  std::string error, python;
  std::uint64_t calls = 0, launches = 0, with_line = 0, calls_with_line = 0, blocks = 0, regions = 0, in_regions = 0;
  std::uint64_t lost = 0;
  std::vector<trace::NamedCount> unhandled;
  std::vector<std::string> notices;
  bool complete = false;
};

Seen read_trace(const std::string& path) {
  Seen seen;
  seen.exists = access(path.c_str(), F_OK) == 0;
  if (!seen.exists) return seen;
  try {
    TraceInput input(path);
    Step step;
    input.rewind();
    while (input.next(step)) {
      const trace::EventKind kind = step.event.header->kind;
      if (kind == trace::EventKind::kLaunch) {
        ++seen.launches;
        seen.with_line += trace::LaunchView(step.event).frame() != 0 ? 1 : 0;
        seen.in_regions += step.call != 0 ? 1 : 0;
      } else if (kind == trace::EventKind::kCall) {
        ++seen.calls;
        seen.calls_with_line += record::CallView(step.event).frame() != 0 ? 1 : 0;
      } else if (kind == trace::EventKind::kBlockAlloc) {
        ++seen.blocks;
      } else if (RegionNumbers::opens_region(step)) {
        ++seen.regions;
      }
    }
    seen.complete = input.reader().complete();
    seen.python = input.meta().python_version;
    if (const trace::End* end = input.reader().end()) {
      seen.unhandled = end->unhandled;
      seen.notices = end->notices;
      seen.lost = end->lost;
    }
  } catch (const Failure& failure) {
    seen.error = failure.what();
  }
  return seen;
}

// Discarded: there is none.
Json read_json(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return {Json::value_t::discarded};
  Json json = Json::parse(file, nullptr, false);
  std::fclose(file);
  return json;
}

enum class State { kGood, kMissing, kBad };
constexpr const char* kStates[] = {"ok", "-", "FAIL"};

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  int run() {
    check_library();
    check_settings();
    if (!library_.empty()) {
      check_driver();
      check_python();
      if (!options_.program.empty()) check_program_run();
    }
    Table table({{"check", "check"}, {"state", "state"}, {"detail", "detail", false, true}});
    for (const Row& row : rows_) table.add({row.check, kStates[static_cast<int>(row.state)], text_value(row.detail)});
    Output out("", false);
    if (options_.json) {
      out.print("{}\n", dump_json({{"works", good_}, {"checks", table.json()}}, 2));
    } else {
      table.text(out);
    }
    out.close();
    return good_ ? kOk : kDifferent;
  }

 private:
  struct Row {
    std::string check;
    State state;
    std::string detail;
  };

  void add(const std::string& check, State state, const std::string& detail) {
    rows_.push_back({check, state, detail});
    if (state == State::kBad) good_ = false;
  }

  Variables variables(const std::string& trace, const std::string& mode = "observe") const {
    return {{"LD_PRELOAD", preload_value(library_)},
            {"GRAPE_TRACE", trace},
            {"GRAPE_TRACE_REPLACE", "0"},
            {"GRAPE_TRACE_RANGE", "process"},
            {"GRAPE_MODE", mode},
            {"GRAPE_DISABLE", "0"},
            {"GRAPE_LOG", "warning"}};
  }

  void check_library() {
    try {
      const std::string library = find_library(options_.library);
      check_loadable(library);
      library_ = library;
      add("library", State::kGood, library + ", loads into this tool");
    } catch (const Failure& failure) {
      add("library", State::kBad, failure.what());
    }
  }

  void check_settings() {
    try {
      check_environment();
      add("settings", State::kGood, "no bad GRAPE_ variables");
    } catch (const Failure& failure) {
      add("settings", State::kBad, failure.what());
    }
  }

  void check_driver() {
    const std::string trace = scratch_.file("driver.grape");
    const ChildResult child = run_child({own_path(), "--probe-driver"}, variables(trace), true);
    const Json json = Json::parse(child.output, nullptr, false);
    if (child.status != 0 || json.is_discarded() || !json.is_object()) {
      return add("driver", State::kBad,
                 fmt::format("the probe failed (status {}, signal {}): {}", child.status, child.signal, child.errors));
    }
    const std::string why = json.value("why", "");
    if (!json.value("driver", false)) return add("driver", State::kBad, why);
    const int version = json.value("version", 0);
    add("driver", why.empty() ? State::kGood : State::kBad,
        fmt::format("CUDA {}.{}{}{}", version / 1000, version % 1000 / 10, why.empty() ? "" : "; ", why));
    std::size_t devices = 0;
    for (const Json& device : json.value("devices", Json::array())) {
      add(fmt::format("GPU {}", devices++), State::kGood,
          fmt::format("{}, {}, compute capability {}", device.value("name", ""),
                      human_bytes(device.value("bytes", std::uint64_t{0})), device.value("compute", "")));
    }
    if (devices == 0) add("GPU", State::kBad, "the driver sees none");
    const Seen seen = read_trace(trace);
    if (seen.calls > 0 && seen.complete) {
      add("recording", State::kGood, fmt::format("{} driver calls of a probe in its trace", seen.calls));
    } else {
      add("recording", State::kBad,
          !seen.exists          ? "the probe left no trace: the library was not active"
          : !seen.error.empty() ? seen.error
                                : fmt::format("the probe's trace has {} driver calls{}", seen.calls,
                                              seen.complete ? "" : " and is incomplete"));
    }
  }

  void check_python() {
    int error = 0;
    const std::string python = find_program(options_.python.empty() ? "python3" : options_.python, error);
    if (python.empty())
      return add("Python", State::kMissing, "not found; programs without Python are recorded all the same");
    const std::string why_not = why_not_preloadable(python);
    if (!why_not.empty()) return add("Python", State::kBad, why_not);
    const std::string trace = scratch_.file("python.grape");
    const ChildResult child = run_child({python, "-c", kPythonProbe}, variables(trace), true, 240);
    const std::size_t brace = child.output.rfind("\n{");
    const Json json = Json::parse(brace == std::string::npos ? "" : child.output.substr(brace + 1), nullptr, false);
    if (json.is_discarded() || !json.is_object()) {
      return add(
          "Python", State::kBad,
          fmt::format("{} failed under the library ({}): {}", python,
                      child.timed_out ? "time was up" : fmt::format("status {}, signal {}", child.status, child.signal),
                      child.errors));
    }
    add("Python", State::kGood,
        fmt::format("{} {} at {}", json.value("implementation", ""), json.value("version", ""),
                    json.value("executable", "")));
    const Seen seen = read_trace(trace);
    report_torch(json, seen);
    report_positions(json, seen);
    for (const std::string& notice : seen.notices) add("notice", State::kMissing, notice);
    if (!json.value("cuda", false)) return;
    check_replay(python);
    report_bridge(json.value("torch", ""));
  }

  // Calls under autograd are replayed where the library finds the bridge to this version.
  void report_bridge(const std::string& torch) {
    const std::size_t minor = torch.find('.');
    const std::string version = torch.substr(0, torch.find('.', minor == std::string::npos ? minor : minor + 1));
    const std::string name = "libgrape-torch" + version + ".so";
    const std::string path = library_.substr(0, library_.rfind('/') + 1) + name;
    const bool found = access(path.c_str(), R_OK) == 0;
    add("training", found ? State::kGood : State::kMissing,
        found ? name + ": calls under autograd are replayed, with their backward passes"
              : fmt::format("calls under autograd run as always: {} is not beside the library", name));
  }

  void check_replay(const std::string& python) {
    const std::string file = scratch_.file("replay.json");
    Variables probe = variables("", "replay");
    probe.emplace_back("GRAPE_REPORT", file);
    const ChildResult child = run_child({python, "-c", kReplayProbe}, probe, true, 240);
    std::uint64_t replayed = 0;
    std::string why = child.errors.substr(0, child.errors.find('\n'));
    const Json report = read_json(file);
    for (const Json& region : report.is_object() ? report.value("regions", Json::array()) : Json::array()) {
      replayed += region.value("replayed", std::uint64_t{0});
      if (region.contains("reason") && region["reason"].is_string()) why = region["reason"].get<std::string>();
    }
    if (replayed > 0)
      return add("replay", State::kGood, fmt::format("{} calls of a probe's module replayed", replayed));
    add("replay", State::kMissing,
        "a probe's module was not replayed: " + (why.empty() ? "its calls were not seen" : why));
  }

  void report_torch(const Json& json, const Seen& seen) {
    if (!json.contains("torch")) {
      return add("PyTorch", State::kMissing, json.value("torch_error", "not installed") + "; nothing to observe there");
    }
    const std::string cuda = json["torch_cuda"].is_string() ? json["torch_cuda"].get<std::string>() : "none";
    const std::string version = fmt::format("{}, built for CUDA {}", json.value("torch", ""), cuda);
    if (!json.value("cuda", false)) return add("PyTorch", State::kMissing, version + "; it sees no GPU");
    add("PyTorch", json.contains("torch_error") ? State::kBad : State::kGood,
        json.contains("torch_error") ? version + "; " + json.value("torch_error", "") : version + ", sees the GPU");
    add("regions", seen.regions > 0 ? State::kGood : State::kBad,
        seen.regions > 0 ? fmt::format("{} region calls seen", seen.regions) : "the probe's module call was not seen");
    add("allocator events", seen.blocks > 0 ? State::kGood : State::kMissing,
        seen.blocks > 0 ? fmt::format("{} blocks seen", seen.blocks)
                        : "this PyTorch does not report blocks: pointers are shown without their block");
  }

  void report_positions(const Json& json, const Seen& seen) {
    if (seen.calls + seen.launches == 0) {
      return add("Python lines", State::kMissing,
                 "not known: no driver call was made" +
                     (json.contains("driver_error") ? " (" + json.value("driver_error", "") + ")" : ""));
    }
    const std::uint64_t lines = seen.with_line + seen.calls_with_line;
    add("Python lines", lines > 0 ? State::kGood : State::kMissing,
        lines > 0
            ? fmt::format("known; {} of the probe's {} calls and launches have one", lines, seen.calls + seen.launches)
            : "this Python's frames are not known: launches are shown without their line");
  }

  void check_program_run() {
    check_program(options_.program[0]);
    const std::string trace = scratch_.file("program.grape");
    const ChildResult child = run_child(options_.program, variables(trace), false);
    add("program", child.status == 0 ? State::kGood : State::kMissing,
        child.signal != 0 ? fmt::format("ended by signal {}", child.signal)
                          : fmt::format("exit status {}", child.status));
    const Seen seen = read_trace(trace);
    if (!seen.exists)
      return add("its trace", State::kMissing, "none: it made no CUDA call, or other processes of it did");
    if (!seen.error.empty()) return add("its trace", State::kBad, seen.error);
    add("its trace", seen.complete ? State::kGood : State::kMissing,
        fmt::format("{} launches, {} other calls, {} region calls{}", seen.launches, seen.calls, seen.regions,
                    seen.complete ? "" : "; incomplete"));
    const auto share = [&seen](std::uint64_t part) {
      return seen.launches == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(seen.launches);
    };
    add("coverage", State::kGood,
        fmt::format("{:.1f}% of launches have a Python line, {:.1f}% are in a region", share(seen.with_line),
                    share(seen.in_regions)));
    if (seen.lost > 0) add("lost events", State::kBad, fmt::format("{}", seen.lost));
    for (const auto& entry : seen.unhandled) {
      add("not handled", State::kMissing, fmt::format("{}, {} calls", entry.name, entry.count));
    }
    for (const std::string& notice : seen.notices) add("notice", State::kMissing, notice);
  }

  const DoctorOptions& options_;
  Scratch scratch_;
  std::string library_;
  std::vector<Row> rows_;
  bool good_ = true;
};

}  // namespace

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* doctor = app.add_subcommand("doctor", "Check that recording and replaying work here");
  doctor->footer(kFooter);
  doctor->add_option("program", options.program, "A program to run under the library, with its arguments");
  doctor->add_option("--library", options.library, "libgrape.so, where it is not beside this tool");
  doctor->add_option("--python", options.python, "The Python to try (default: python3)");
  doctor->add_flag("--json", options.json, "As JSON");
  return doctor;
}

int run_doctor(const DoctorOptions& options) { return Doctor(options).run(); }

}  // namespace grape::tools
