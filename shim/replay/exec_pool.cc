#include "shim/replay/exec_pool.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "shim/lifecycle/config.h"
#include "shim/record/thread_log.h"

namespace grape::replay {
namespace {

// So many programs of one shape may alternate without a node being set for it.
constexpr std::size_t kSameShape = 4;

std::atomic<std::uint64_t> g_device_bytes{0};

}  // namespace

ExecPool::~ExecPool() {
  while (!entries_.empty()) drop(entries_.size() - 1);
}

std::uint64_t ExecPool::device_bytes() noexcept { return g_device_bytes.load(std::memory_order_relaxed); }

void ExecPool::drop(std::size_t index) noexcept {
  g_device_bytes.fetch_sub(entries_[index].exec->device_bytes(), std::memory_order_relaxed);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
}

void ExecPool::forget(const program::Program& program) noexcept {
  for (std::size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].exec->holds() == &program) drop(i);
  }
}

GraphExec* ExecPool::build(const program::Program& program, program::Segment segment, const program::ArenaPlan& plan,
                           const program::Bindings& bindings, std::string& error) {
  // What holds another part of this program stays.
  const auto in_use = [&](const Entry& entry) { return entry.exec->holds() == &program; };
  const auto older = [&](const Entry& a, const Entry& b) {
    return in_use(a) != in_use(b) ? in_use(b) : a.used < b.used;
  };
  while (!entries_.empty() && device_bytes() > config().memory_budget) {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(), older);
    if (in_use(*oldest)) break;
    drop(static_cast<std::size_t>(oldest - entries_.begin()));
  }
  entries_.reserve(entries_.size() + 1);
  std::unique_ptr<GraphExec> exec = GraphExec::build(program, segment, plan, bindings, error);
  if (exec == nullptr) return nullptr;
  ++built_;
  g_device_bytes.fetch_add(exec->device_bytes(), std::memory_order_relaxed);
  entries_.push_back({std::move(exec), ++clock_});
  return entries_.back().exec.get();
}

GraphExec* ExecPool::take(const program::Program& program, program::Segment segment, const program::ArenaPlan& plan,
                          const program::Bindings& bindings, std::string& error) noexcept {
  try {
    const std::uint32_t epoch = record::g_module_epoch.load(std::memory_order_acquire);
    if (epoch != module_epoch_) {
      while (!entries_.empty()) drop(entries_.size() - 1);
      module_epoch_ = epoch;
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].exec->holds() != &program || entries_[i].exec->first_node() != segment.first) continue;
      entries_[i].used = ++clock_;
      const CUresult bound = entries_[i].exec->bind(bindings);
      if (bound == CUDA_SUCCESS) return entries_[i].exec.get();
      error = "the driver refused new parameters, with error " + std::to_string(static_cast<int>(bound));
      drop(i);
      return nullptr;
    }
    // Of those with its shape the one that was not used for longest.
    std::size_t alike = 0;
    Entry* oldest = nullptr;
    for (Entry& entry : entries_) {
      // One that holds another part of the same program is in use.
      if (entry.exec->holds() == &program || !entry.exec->fits(program, segment)) continue;
      ++alike;
      if (oldest == nullptr || entry.used < oldest->used) oldest = &entry;
    }
    if (alike >= kSameShape || (alike != 0 && device_bytes() > config().memory_budget)) {
      oldest->used = ++clock_;
      if (oldest->exec->adopt(program, segment, plan, bindings)) {
        ++adopted_;
        return oldest->exec.get();
      }
      if (!oldest->exec->usable()) drop(static_cast<std::size_t>(oldest - entries_.data()));
    }
    return build(program, segment, plan, bindings, error);
  } catch (const std::bad_alloc&) {
    error = "no host memory";
    return nullptr;
  }
}

}  // namespace grape::replay
