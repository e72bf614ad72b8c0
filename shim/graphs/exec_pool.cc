#include "shim/graphs/exec_pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "shim/graphs/device_budget.h"
#include "shim/record/thread_log.h"

namespace grape::graphs {
namespace {

// So many programs of one shape may alternate without a node being set for it.
constexpr std::size_t kSameShape = 4;
// A program that was without an exec more often than this gets one of its own: by then it has paid for the building.
// Setting the nodes of a GPT-2 token took 0.14 ms, building its exec 1.16 ms (H200, driver 580).
constexpr std::uint32_t kMostMisses = 8;

}  // namespace

ExecPool::~ExecPool() { drop_all(); }

std::uint64_t ExecPool::device_bytes() noexcept { return g_device_bytes.replays.load(std::memory_order_relaxed); }

void ExecPool::drop(std::size_t index) noexcept {
  g_device_bytes.replays.fetch_sub(entries_[index].exec->device_bytes(), std::memory_order_relaxed);
  holders_.erase(entries_[index].part);
  if (index + 1 != entries_.size()) {
    entries_[index] = std::move(entries_.back());
    holders_[entries_[index].part] = index;
  }
  entries_.pop_back();
}

void ExecPool::drop_all() noexcept {
  while (!entries_.empty()) drop(entries_.size() - 1);
}

void ExecPool::forget(const store::KeptProgram& program) noexcept {
  for (std::size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].part.program == &program) drop(i);
  }
  for (auto at = missed_.begin(); at != missed_.end();) at = at->first.program == &program ? missed_.erase(at) : ++at;
}

// That of an exec which could adopt it; a new number where there is none.
std::uint32_t ExecPool::shape_of(const program::Program& program, program::Segment segment) const {
  std::vector<bool> asked(shapes_, false);
  for (const Entry& entry : entries_) {
    if (asked[entry.shape]) continue;
    if (entry.exec->fits(program, segment)) return entry.shape;
    asked[entry.shape] = true;
  }
  return shapes_;
}

// Of those with its shape the one that was not used for longest; null: it is to have one of its own.
ExecPool::Entry* ExecPool::to_adopt(const store::KeptProgram& program, program::Segment segment,
                                    std::uint32_t shape) noexcept {
  std::size_t alike = 0;
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    // One that holds another part of the same program is in use.
    if (entry.shape != shape || entry.part.program == &program) continue;
    ++alike;
    if (oldest == nullptr || entry.used < oldest->used) oldest = &entry;
  }
  if (oldest == nullptr) return nullptr;
  const bool no_room = device_bytes() + oldest->exec->device_bytes() > budget_beside(g_device_bytes.program);
  const bool often = ++missed_[Part{&program, segment.first}] > kMostMisses;
  return no_room || (alike >= kSameShape && !often) ? oldest : nullptr;
}

GraphExec* ExecPool::build(const store::KeptProgram& program, Whole whole, program::Segment segment,
                           std::uint32_t shape, const program::ArenaPlan& plan, const program::Bindings& bindings,
                           refusal::Refusal& error) {
  // What holds another part of this program stays.
  const auto in_use = [&](const Entry& entry) { return entry.part.program == &program; };
  const auto older = [&](const Entry& a, const Entry& b) {
    return in_use(a) != in_use(b) ? in_use(b) : a.used < b.used;
  };
  while (!entries_.empty() && device_bytes() > budget_beside(g_device_bytes.program)) {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(), older);
    if (in_use(*oldest)) break;
    drop(static_cast<std::size_t>(oldest - entries_.begin()));
  }
  entries_.reserve(entries_.size() + 1);
  std::unique_ptr<GraphExec> exec = GraphExec::build(std::move(whole), segment, plan, bindings, error);
  if (exec == nullptr) return nullptr;
  const Part part{&program, segment.first};
  holders_[part] = entries_.size();
  entries_.push_back({std::move(exec), ++clock_, part, shape});
  shapes_ = std::max(shapes_, shape + 1);
  ++built_;
  g_device_bytes.replays.fetch_add(entries_.back().exec->device_bytes(), std::memory_order_relaxed);
  return entries_.back().exec.get();
}

bool ExecPool::adopt(std::size_t index, const store::KeptProgram& program, Whole whole, program::Segment segment,
                     const program::ArenaPlan& plan, const program::Bindings& bindings) {
  Entry& entry = entries_[index];
  entry.used = ++clock_;
  if (!entry.exec->adopt(std::move(whole), segment, plan, bindings)) {
    if (!entry.exec->usable()) drop(index);
    return false;
  }
  ++adopted_;
  // Its node in the table is the new one's: no memory is needed.
  auto node = holders_.extract(entry.part);
  node.key() = entry.part = Part{&program, segment.first};
  holders_.insert(std::move(node));
  return true;
}

void ExecPool::hand_over(const store::KeptProgram& from, const store::KeptProgram& to, const program::ArenaPlan& plan,
                         const program::Bindings& bindings) noexcept {
  if (record::g_module_epoch.load(std::memory_order_acquire) != module_epoch_) return;
  try {
    const Whole whole = to.whole();
    if (whole == nullptr) return;
    for (const program::Segment& segment : program::segments(*whole)) {
      const auto held = holders_.find(Part{&from, segment.first});
      if (segment.count != 0 && held != holders_.end()) adopt(held->second, to, whole, segment, plan, bindings);
    }
  } catch (const std::bad_alloc&) {
    // What was not handed over goes with `from`.
  }
}

GraphExec* ExecPool::take(const store::KeptProgram& program, program::Segment segment, const program::ArenaPlan& plan,
                          const program::Bindings& bindings, refusal::Refusal& error) noexcept {
  try {
    const std::uint32_t epoch = record::g_module_epoch.load(std::memory_order_acquire);
    if (epoch != module_epoch_) {
      drop_all();
      module_epoch_ = epoch;
    }
    const Part part{&program, segment.first};
    if (const auto found = holders_.find(part); found != holders_.end()) {
      Entry& entry = entries_[found->second];
      entry.used = ++clock_;
      const CUresult bound = entry.exec->bind(bindings);
      if (bound == CUDA_SUCCESS) return entry.exec.get();
      error = refusal::make(refusal::parameters_refused, std::to_string(static_cast<int>(bound)));
      drop(found->second);
      return nullptr;
    }
    Whole whole = program.whole();
    if (whole == nullptr) {
      error = refusal::make(refusal::no_memory_for_program);
      return nullptr;
    }
    const std::uint32_t shape = shape_of(*whole, segment);
    if (Entry* entry = to_adopt(program, segment, shape)) {
      GraphExec* exec = entry->exec.get();
      const auto index = static_cast<std::size_t>(entry - entries_.data());
      if (adopt(index, program, whole, segment, plan, bindings)) return exec;
    }
    return build(program, std::move(whole), segment, shape, plan, bindings, error);
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_host_memory);
    return nullptr;
  }
}

}  // namespace grape::graphs
