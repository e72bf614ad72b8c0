// The regions of this process, by their modules' addresses.
#include <new>
#include <vector>

#include "python_hooks/patterns.h"
#include "python_hooks/replay/region.h"
#include "python_hooks/replay/report.h"
#include "shim/lifecycle/config.h"

namespace grape::python::replay {
namespace {

constexpr std::size_t kMostRegions = 65536, kFewRegions = 2048;
constexpr std::size_t kMostGone = 256;  // reports of modules that are gone

using Table = std::unordered_map<Object*, std::unique_ptr<Region>>;

// Never destroyed: calls may come until the very end.
Table& table() {
  static Table* regions = new Table;
  return *regions;
}

bool is_of(const Region& region, Object* module) { return referent(region.weak_module) == module; }

struct Gone {
  std::vector<RegionReport> reports;
  std::uint64_t left_out = 0;
};

Gone& gone_regions() {
  static Gone* gone = new Gone;
  return *gone;
}

void keep_report(const Region& region) {
  if (region.calls == 0 || region.no_gpu) return;
  if (gone_regions().reports.size() < kMostGone) {
    gone_regions().reports.push_back(report_of(region));
  } else {
    ++gone_regions().left_out;
  }
}

// Those whose modules are gone give back what they hold.
void sweep() {
  for (auto at = table().begin(); at != table().end();) {
    const bool gone = !at->second->busy && !is_of(*at->second, at->first);
    if (gone) keep_report(*at->second);
    at = gone ? table().erase(at) : std::next(at);
  }
}

}  // namespace

void Region::drop_proofs() noexcept {
  ahead.clear();
  signatures.clear();
  parked.clear();
}

void Region::give_up() noexcept {
  given_up = true;
  last_counts = count_stages(*this);
  drop_proofs();
}

Region::~Region() {
  drop_proofs();
  for (const Arena& arena : arenas) {
    if (arena.tensor != nullptr) g_api.Py_DecRef(arena.tensor);
  }
  if (weak_module != nullptr) g_api.Py_DecRef(weak_module);
}

void add_regions(RunReport& report) {
  report.regions = gone_regions().reports;
  report.regions_left_out = gone_regions().left_out;
  for (const auto& entry : table()) {
    if (entry.second->calls != 0) report.regions.push_back(report_of(*entry.second));
  }
}

Region* region_of(Object* module) noexcept {
  try {
    const auto found = table().find(module);
    if (found != table().end() && is_of(*found->second, module)) return found->second.get();
    // Soon for few; for many each time the table has doubled, so that the work per region stays the same.
    static std::size_t next_sweep = 0;
    if (table().size() >= next_sweep) {
      sweep();
      next_sweep = table().size() < kFewRegions ? 0 : 2 * table().size();
    }
    if (table().size() >= kMostRegions) return nullptr;
    auto region = std::make_unique<Region>();
    region->weak_module = g_api.PyWeakref_NewRef(module, nullptr);
    if (region->weak_module == nullptr) {
      g_api.PyErr_Clear();
      return nullptr;
    }
    char name[512];
    region->function = is_function(module);
    Object* named = region->function ? module : type_of(module);
    region->name = qualified_name(named, name, sizeof name) ? name : region->function ? "a function" : "a module";
    if (matches(config().exclude, region->name.c_str())) {
      region->given_up = true;
      region->reasons.add("GRAPE_EXCLUDE names it", {});
    }
    return (table()[module] = std::move(region)).get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace grape::python::replay
