#include "python_hooks/replay/regions_table.h"

#include <new>
#include <vector>

#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/torch/optimizer_functions.h"
#include "shim/lifecycle/config.h"

namespace grape::python::replay {
namespace {

constexpr std::size_t kMostRegions = 65536, kFewRegions = 2048;
constexpr std::size_t kMostGone = 256;  // reports of modules that are gone

struct Key {
  Object *root, *self;
  bool operator==(const Key& other) const { return root == other.root && self == other.self; }
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const {
    return std::hash<Object*>()(key.root) ^ (std::hash<Object*>()(key.self) << 1);
  }
};
using Table = std::unordered_map<Key, std::unique_ptr<Region>, HashOfKey>;

// Never destroyed: calls may come until the very end.
Table& table() {
  static Table* regions = new Table;
  return *regions;
}

// The regions that were called last, by a hash of where their modules lie: most calls find theirs in one cache line,
// where two of the same hash have room. Without a look at weak references: a region whose module goes leaves its place
// first (note_end).
struct alignas(64) Recent {
  struct Place {
    Key key;
    Region* region;
  } places[2];
  // What the call behind one of these needed last time: never followed, since it may be gone.
  const void *next = nullptr, *next_region = nullptr;
};
static_assert(sizeof(Recent) == 64);
constexpr int kRecentBits = 10;
Recent g_recent[std::size_t{1} << kRecentBits];

Recent& recent_of(const Key& key) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(key.root) ^ (reinterpret_cast<std::uintptr_t>(key.self) << 1);
  return g_recent[(address * 0x9E3779B97F4A7C15ull) >> (64 - kRecentBits)];
}

void remember_recent(Recent& recent, const Key& key, Region* region) noexcept {
  if (!(recent.places[0].key == key)) recent.places[1] = recent.places[0];  // each key once
  recent.places[0] = {key, region};
}

// Models call their modules in the same order again and again, each so late that it has left the near caches.
Region* found_recent(Recent& recent, Region* region) noexcept {
  static Recent* last = g_recent;
  last->next = &recent;
  last->next_region = region;
  last = &recent;
  __builtin_prefetch(recent.next, 1);
  __builtin_prefetch(recent.next_region, 1);
  return region;
}

void forget_recent(const Region& region) noexcept {
  for (Recent::Place& place : recent_of({region.root, region.self}).places) {
    if (place.region == &region) place = {};
  }
}

bool is_of(const Region& region, const Key& key) {
  return referent(region.weak_root) == key.root &&
         (region.weak_self == nullptr || referent(region.weak_self) == key.self);
}

// False: it cannot be referred to weakly.
bool refer_weakly(Object* object, Object* callback, Object*& reference) {
  reference = g_api.PyWeakref_NewRef(object, callback);
  if (reference == nullptr) g_api.PyErr_Clear();
  return reference != nullptr;
}

const char* state_of(const Region& region, const report::StageCounts& counts) {
  if (region.no_gpu) return "no GPU work";
  if (region.given_up) return "given up";
  if (region.statistics.replayed != 0) return "replayed";
  if (counts.proven != 0) return "proven";
  return counts.given_up != 0 && counts.seen + counts.observed == 0 ? "given up" : "observing";
}

double average_ms(double seconds, std::uint64_t calls) {
  return calls == 0 ? 0 : seconds * 1000 / static_cast<double>(calls);
}

report::RegionReport report_of(const Region& region) {
  report::RegionReport report;
  static_cast<report::Statistics&>(report) = region.statistics;
  region.evidence.count(report.signatures);
  report.name = region.name;
  report.state = state_of(region, report.signatures);
  report.calls = region.calls;
  report.fell_back = region.fell_back;
  report.rested = region.budget.payoff.rested();
  const report::Times& times = region.times;
  report.seconds = times.all;
  report.eager_ms = average_ms(times.eager, times.eager_calls);
  report.observed_ms = average_ms(times.observed, times.observed_calls);
  report.replay_ms = average_ms(times.replayed, region.statistics.replayed);
  report.eager_interval_ms = times.eager_intervals.median() * 1000;
  report.replay_interval_ms = times.replay_intervals.median() * 1000;
  report.parts = region.latest_parts.median();
  report.arena_bytes = region.arena.bytes();
  report.reasons = region.reasons.all();
  if (region.autograd_again != 0) report.reasons[region.autograd_reason].count += region.autograd_again;
  report.other_reasons = region.reasons.others();
  if (const report::Reason* last = region.reasons.last()) report.last_reason = refusal::in_words(*last);
  return report;
}

struct Gone {
  std::vector<report::RegionReport> reports;
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

// Null: a thread is inside, or it is out already.
std::unique_ptr<Region> take_out(Region* region) noexcept {
  const auto at = table().find({region->root, region->self});
  if (at == table().end() || at->second.get() != region || region->busy) return nullptr;
  try {
    keep_report(*region);
  } catch (const std::bad_alloc&) {
    ++gone_regions().left_out;
  }
  std::unique_ptr<Region> taken = std::move(at->second);
  table().erase(at);
  return taken;
}

// A module is gone: what was needed for its calls is the program's again, at once. The region is out of the table
// before its tensors end, since other threads run meanwhile. `number`: where it lies; it lives as long as its
// references.
Object* note_end(Object* number, Object*) {
  auto* region = reinterpret_cast<Region*>(g_api.PyLong_AsUnsignedLongLong(number));
  if (region != nullptr) forget_recent(*region);
  if (!shutting_down() && region != nullptr) take_out(region);
  return new_reference(g_api._Py_NoneStruct);
}

// Null: no memory.
Object* new_note(Region* region) {
  constexpr int kOneArgument = 8;
  static MethodDefinition definition = {"grape_note_end", reinterpret_cast<void*>(note_end), kOneArgument, nullptr};
  const Reference number(g_api.PyLong_FromUnsignedLongLong(reinterpret_cast<std::uint64_t>(region)));
  Object* note = number ? g_api.PyCFunction_NewEx(&definition, number.get(), nullptr) : nullptr;
  if (note == nullptr) g_api.PyErr_Clear();
  return note;
}

using Regions = std::vector<std::unique_ptr<Region>>;

// Those whose modules are gone, but for those that a thread was inside of, went with them.
void sweep(Regions& gone) {
  for (auto at = table().begin(); at != table().end();) {
    if (at->second->busy || is_of(*at->second, at->first)) {
      ++at;
      continue;
    }
    keep_report(*at->second);
    forget_recent(*at->second);
    gone.push_back(std::move(at->second));
    at = table().erase(at);
  }
}

bool g_module_called = false;

// Null: it cannot be.
std::unique_ptr<Region> make_region(const Key& key) {
  auto region = std::make_unique<Region>();
  region->root = key.root;
  region->self = key.self;
  const Reference note(new_note(region.get()));
  if (!note || !refer_weakly(key.root, note.get(), region->weak_root)) return nullptr;
  if (key.self != nullptr && !refer_weakly(key.self, note.get(), region->weak_self)) return nullptr;
  char name[512];
  const bool function = is_function(key.root);
  if (function) region->kind = RegionKind::kFunction;
  g_module_called = g_module_called || !function;
  Object* named = function ? key.root : type_of(key.root);
  region->name = qualified_name(named, name, sizeof name) ? name : function ? "a function" : "a module";
  if (function && config().auto_regions && !matches(config().regions, region->name.c_str())) {
    const bool optimizer = torch::is_optimizer_function(region->name.c_str());
    region->kind = optimizer ? RegionKind::kOptimizer : RegionKind::kFoundFunction;
  }
  if (function) region->optimizer = torch::known_optimizer(key.root, region->name.c_str());
  if (matches(config().exclude, region->name.c_str())) {
    region->given_up = true;
    region->reasons.add(refusal::make(refusal::excluded));
  }
  return region;
}

__attribute__((noinline, cold)) Region* find_or_make(const Key& key) noexcept {
  try {
    const auto found = table().find(key);
    if (found != table().end() && is_of(*found->second, key)) return found->second.get();
    Regions gone;  // they end behind all that is done here
    // Soon for few; for many each time the table has doubled, so that the work per region stays the same.
    static std::size_t next_sweep = 0;
    if (table().size() >= next_sweep) {
      sweep(gone);
      next_sweep = table().size() < kFewRegions ? 0 : 2 * table().size();
    }
    if (table().size() >= kMostRegions) return nullptr;
    std::unique_ptr<Region> made = make_region(key);
    if (made == nullptr) return nullptr;
    std::unique_ptr<Region>& region = table()[key];
    if (region == nullptr || !is_of(*region, key)) std::swap(region, made);  // a collection may have let others run
    Region* result = region.get();
    if (made != nullptr) gone.push_back(std::move(made));
    return result;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

bool module_was_called() noexcept { return g_module_called; }

void add_regions(report::RunReport& report) {
  report.regions = gone_regions().reports;
  report.regions_left_out = gone_regions().left_out;
  for (const auto& entry : table()) {
    if (entry.second->calls != 0) report.regions.push_back(report_of(*entry.second));
  }
}

Region* region_of(Object* root, Object* self) noexcept {
  const Key key{root, self};
  Recent& recent = recent_of(key);
  for (const Recent::Place& place : recent.places) {
    if (place.region != nullptr && place.key == key) return found_recent(recent, place.region);
  }
  Region* region = find_or_make(key);
  if (region != nullptr) remember_recent(recent, key, region);
  return region;
}

}  // namespace grape::python::replay
