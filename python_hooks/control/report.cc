#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>

#include "python_hooks/control/controller.h"
#include "python_hooks/discovery/outside.h"
#include "python_hooks/proof/cached_proofs.h"
#include "python_hooks/proof/observe.h"
#include "python_hooks/proof/proof.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/regions_table.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/lifecycle/log.h"
#include "shim/record/trace_file.h"

namespace grape::python::control {
namespace {

std::atomic<bool> g_written{false};
void write_at_the_end() noexcept;

__attribute__((constructor)) void prepare() { lifecycle::add_finish(write_at_the_end); }

// Returns where it went; "": nowhere.
std::string write_file(const char* pattern, const std::string& text) {
  record::TraceFile file;
  if (file.create(pattern, true) && file.write(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()) &&
      file.commit()) {
    return file.path();
  }
  notice("the report was not written to %s: %s", pattern, std::strerror(file.error() != 0 ? file.error() : errno));
  return {};
}

void write(report::RunReport& report) {
  report.seconds = replay::now() - lifecycle::start_time();
  report.graphs = virtual_execs::graphs_report();
  report.programs = replay::programs().statistics();
  if (const proof::CachedProofs* proofs = proof::CachedProofs::in_use()) report.cache = proofs->report();
  std::string file;
  if (config().report[0] != '\0') file = write_file(config().report, report::to_json(report));
  for (const std::string& line : report::summary_of(report, file)) log_line(LogLevel::kInfo, "%s", line.c_str());
}

// os._exit runs no handlers of the interpreter's; so do processes end that multiprocessing forked.
bool inside_python() noexcept {
  return config().mode == Mode::kReplay && g_api.PyGILState_Check != nullptr && g_api.Py_IsInitialized() != 0 &&
         g_api.PyGILState_Check() == 1;
}

// Once. `fill` puts in what is known of regions. False: there is nothing to tell of.
void write_once(bool (*fill)(report::RunReport& report)) noexcept {
  if (g_written.exchange(true)) return;
  try {
    report::RunReport report;
    if (fill(report)) write(report);
  } catch (const std::exception&) {
    notice("no memory for the report");
  }
}

// Of a process that has no interpreter, or one that is not replayed, there are its own graphs to tell of.
void write_at_the_end() noexcept {
  if (!g_written.load() && inside_python()) write_report();
  write_once([](report::RunReport&) { return virtual_execs::graphs_report().any; });
}

}  // namespace

void write_report() noexcept {
  proof::write_cache();
  write_once([](report::RunReport& report) {
    report.region_seconds = seconds_in_regions();
    replay::add_regions(report);
    report.outside = discovery::outside_report();
    return true;
  });
}

}  // namespace grape::python::control
