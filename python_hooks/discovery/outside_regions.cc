#include "python_hooks/discovery/outside_regions.h"

#include <algorithm>
#include <new>
#include <vector>

#include "python_hooks/discovery/outside.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/replay/regions_table.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"

namespace grape::python::discovery {

std::atomic<bool> g_look_due{false};

namespace {

std::atomic<std::uint64_t> g_samples{0}, g_next_look{replay::LookLimits{}.first_look};

// With the GIL.
std::uint64_t g_distance = replay::LookLimits{}.first_look;  // samples between the last look and the next one
std::size_t g_found = 0;
MakeRegion g_make_region = nullptr;

std::string* found_names() {
  static auto* names = new std::string;
  return names;
}

int on_pending_call(void*) {
  look_for_regions_if_due();
  return 0;
}

// The outermost of what launches most; what has no name, or is hooked already, changes nothing. A loop that calls
// modules is none: these would not be replayed for as long as it is looked at, and it would be given up.
bool name_some() {
  bool any = false;
  if (g_make_region == nullptr) return any;
  for (const OutsideCandidate& function : outside_candidates(true, replay::module_was_called())) {
    if (g_found == replay::g_look_limits.most_found) break;
    std::string names = found_regions();
    names += (names.empty() ? "" : ",") + function.region;
    if (!g_make_region(function.function, function.region.c_str())) continue;
    found_names()->swap(names);
    ++g_found;
    any = true;
    log_line(LogLevel::kInfo, "replay: %s (%s) is a region from now on: %.0f%% of the launches outside of modules",
             function.region.c_str(), function.place.c_str(), function.share * 100);
  }
  return any;
}

}  // namespace

void find_regions_with(MakeRegion make) noexcept {
  if (g_make_region != nullptr) return;
  g_make_region = make;
  if (!config().early_regions) return;
  replay::g_look_limits = replay::kEarlyLooks;
  g_distance = replay::g_look_limits.first_look;
  g_next_look.store(g_distance, std::memory_order_relaxed);
}

void note_sample() noexcept {
  const std::uint64_t samples = g_samples.fetch_add(1, std::memory_order_relaxed) + 1;
  if (samples < g_next_look.load(std::memory_order_relaxed)) return;
  g_next_look.store(~std::uint64_t{0}, std::memory_order_relaxed);
  g_look_due.store(true, std::memory_order_relaxed);
  // Whichever comes first: the main thread between two of its instructions, or a region's call in any thread.
  g_api.Py_AddPendingCall(on_pending_call, nullptr);
}

void look_for_regions() noexcept {
  if (!g_look_due.exchange(false) || shutting_down()) return;
  const KeepException exception;
  bool any = false;
  try {
    any = name_some();
  } catch (const std::bad_alloc&) {  // then later
  }
  g_distance = any ? replay::g_look_limits.first_look : std::min(g_distance * 2, replay::g_look_limits.last_distance);
  if (g_found < replay::g_look_limits.most_found)
    g_next_look.store(g_samples.load(std::memory_order_relaxed) + g_distance, std::memory_order_relaxed);
}

const std::string& found_regions() noexcept { return *found_names(); }

}  // namespace grape::python::discovery
