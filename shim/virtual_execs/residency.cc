// Which real execs there are, and which graphs are on them.
#include <algorithm>
#include <new>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/graphs/device_budget.h"
#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {
namespace {

// So many execs of one shape are built before one is taken over from another graph.
constexpr std::size_t kSameShape = 4;
// A graph that was on no exec more often than this gets one of its own, as long as the budget lasts.
constexpr std::uint32_t kMostMisses = 2;

}  // namespace

std::uint64_t VirtualExecs::limit() noexcept { return graphs::budget_beside(graphs::g_device_bytes.replays); }

RealExec* VirtualExecs::insert(std::unique_ptr<RealExec> exec) {
  Lock table(table_);
  RealExec* inserted = exec.get();
  execs_.push_back(std::move(exec));
  graphs::g_device_bytes.program.fetch_add(inserted->bytes(), std::memory_order_relaxed);
  return inserted;
}

void VirtualExecs::attach(Virtual& to, RealExec& exec) noexcept {
  to.exec = &exec;
  exec.holder = &to;
}

std::unique_ptr<RealExec> VirtualExecs::remove(RealExec& exec) noexcept {
  const auto at =
      std::find_if(execs_.begin(), execs_.end(), [&](const auto& candidate) { return candidate.get() == &exec; });
  std::unique_ptr<RealExec> removed = std::move(*at);
  *at = std::move(execs_.back());
  execs_.pop_back();
  if (removed->holder != nullptr) removed->holder->exec = nullptr;
  removed->holder = nullptr;
  graphs::g_device_bytes.program.fetch_sub(removed->bytes(), std::memory_order_relaxed);
  return removed;
}

std::unique_ptr<RealExec> VirtualExecs::release(Virtual& v) noexcept {
  RealExec& exec = *v.exec;
  v.exec = nullptr;
  exec.holder = nullptr;
  // Ours serve other graphs; and one that another thread is launching, against the driver's rules, stays for it.
  if (exec.busy == 0 && (!exec.own() || v.pinned)) return remove(exec);
  if (v.changed != nullptr) exec.hold(std::move(*v.changed));  // what it will be compared with
  return nullptr;
}

void VirtualExecs::drop(RealExec& exec) {
  std::unique_ptr<RealExec> removed;
  {
    Lock table(table_);
    removed = remove(exec);
  }
}

// Takes an exec from its graph, for a look at it. False: it is in use.
bool VirtualExecs::claim(RealExec& exec, Virtual** holder) noexcept {
  Lock table(table_);
  if (exec.busy > 0 || (exec.holder != nullptr && exec.holder->pinned)) return false;
  *holder = exec.holder;
  if (exec.holder != nullptr) exec.holder->exec = nullptr;
  exec.holder = nullptr;
  return true;
}

// The same, of one that is not running elsewhere either: changing or destroying it must not wait, nor make others wait.
bool VirtualExecs::claim_idle(RealExec& exec, const Place* place) {
  Virtual* holder = nullptr;
  if (!claim(exec, &holder)) return false;
  const bool idle = exec.finished() || (place != nullptr && exec.was_last_in(*place) &&
                                        (holder == nullptr || leave_behind(*holder, *place)));
  if (idle && (holder == nullptr || settle(*holder, &exec))) return true;
  Lock table(table_);
  if (holder != nullptr) attach(*holder, exec);
  return false;
}

bool VirtualExecs::evict_oldest() {
  std::vector<RealExec*> all = select([](const RealExec& e) { return e.busy == 0; });
  std::sort(all.begin(), all.end(), [](const RealExec* a, const RealExec* b) { return a->used < b->used; });
  for (RealExec* exec : all) {
    if (!claim_idle(*exec, nullptr)) continue;
    drop(*exec);
    counters_.evicted.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void VirtualExecs::evict_to(std::uint64_t bytes) {
  while (device_bytes() > bytes && evict_oldest()) {
  }
}

bool VirtualExecs::make_room() noexcept {
  if (device_bytes() == 0) return false;
  try {
    Lock work(work_);
    const device::RelaxedCapture relaxed;
    bool any = false;
    while (evict_oldest()) any = true;
    return any;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool VirtualExecs::code_gone(const Virtual& v) const noexcept {
  return std::any_of(v.functions.begin(), v.functions.end(),
                     [&](std::uint32_t number) { return functions_[number].gone; });
}

// Our execs that can be set to it.
std::vector<RealExec*> VirtualExecs::of_shape(const Virtual& v) const {
  return select([&](const RealExec& e) { return e.own() && e.shape() == v.shape; });
}

// Of its shape the one that was not used for longest; null: it is to have one of its own.
RealExec* VirtualExecs::to_recycle(Virtual& v, const Place* place, bool ahead) {
  std::vector<RealExec*> alike = of_shape(v);
  if (alike.empty()) return nullptr;
  if (ahead && alike.size() < kExecsAhead && can_go_by_node(v)) return nullptr;
  const auto older = [](const RealExec* a, const RealExec* b) { return a->used < b->used; };
  std::sort(alike.begin(), alike.end(), older);
  if (!ahead) {
    const bool often = ++v.missed > kMostMisses;
    const bool no_room = device_bytes() + alike.front()->bytes() > limit();
    if (!no_room && (alike.size() < kSameShape || often)) return nullptr;
  }
  if (!ahead && alike.size() < kSameShape) {
    // Something else that was not used for longer makes room.
    const auto others = select([&](const RealExec& e) {
      return e.busy == 0 && e.used < alike.front()->used && (e.holder == nullptr || !e.holder->pinned);
    });
    if (!others.empty()) return nullptr;
  }
  for (RealExec* exec : alike) {
    if (claim_idle(*exec, place)) return exec;
  }
  return nullptr;
}

RealExec* VirtualExecs::take_over(Virtual& v, const Place* place, bool ahead) {
  RealExec* exec = to_recycle(v, place, ahead);
  if (exec == nullptr) return nullptr;
  if (exec->take_over(scratch_, v.disabled) != CUDA_SUCCESS) {
    drop(*exec);
    return nullptr;
  }
  counters_.taken_over.fetch_add(1, std::memory_order_relaxed);
  return exec;
}

// Of what is in scratch_.
RealExec* VirtualExecs::build(const std::shared_ptr<Shape>& shape, const std::vector<std::uint32_t>& disabled,
                              CUresult& result) {
  const std::uint64_t needed = graphs::estimated_device_bytes(shape->nodes.size());
  evict_to(limit() - std::min(limit(), needed));
  {
    Lock table(table_);
    execs_.reserve(execs_.size() + 1);
  }
  std::unique_ptr<RealExec> made;
  do {
    made = RealExec::build(shape, scratch_, disabled, functions_, result);
  } while (made == nullptr && result == CUDA_ERROR_OUT_OF_MEMORY && evict_oldest());
  if (made == nullptr) return nullptr;
  counters_.built.fetch_add(1, std::memory_order_relaxed);
  shape->ahead.built();
  return insert(std::move(made));
}

// Puts it on an exec: null, with the driver's error, if that cannot be. `place`: where it will be launched, if that is
// known. `pristine`: on one that was instantiated as it is.
RealExec* VirtualExecs::bring(Virtual& v, const Place* place, bool pristine, CUresult& result) {
  result = CUDA_SUCCESS;
  {
    Lock table(table_);
    if (v.exec != nullptr && (!pristine || v.pinned || !v.exec->own() || v.exec->pristine())) return v.exec;
  }
  result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (v.context_gone) return nullptr;
  result = CUDA_ERROR_INVALID_HANDLE;
  if (code_gone(v)) return nullptr;
  const device::RelaxedCapture relaxed;
  const device::ContextScope context(v.shape->context);
  result = context.result();
  if (result != CUDA_SUCCESS) return nullptr;
  if (!load(v)) {
    result = CUDA_ERROR_UNKNOWN;
    return nullptr;
  }
  // It leaves an exec that is not as it was instantiated, for a launch that is captured.
  const Place last = v.exec != nullptr ? v.exec->place() : Place{};
  if (last.stream != nullptr && last.stream != CU_STREAM_LEGACY && !v.exec->finished()) leave_behind(v, last);
  {
    Lock table(table_);
    if (v.exec != nullptr) {
      v.exec->holder = nullptr;
      v.exec = nullptr;
    }
  }
  RealExec* exec = pristine ? nullptr : take_over(v, place, false);
  if (exec == nullptr) exec = build(v.shape, v.disabled, result);
  if (exec == nullptr) return nullptr;
  Lock table(table_);
  exec->used = ++clock_;
  attach(v, *exec);
  return exec;
}

void VirtualExecs::bring_ahead(Virtual& v, const Place& place) {
  {
    Lock table(table_);
    if (v.exec != nullptr) return;
  }
  if (v.context_gone || code_gone(v)) return;
  const device::RelaxedCapture relaxed;
  const device::ContextScope context(v.shape->context);
  if (context.result() != CUDA_SUCCESS || !load(v)) return;
  RealExec* exec = take_over(v, &place, true);
  if (exec == nullptr) return;
  exec->upload();
  counters_.ahead.fetch_add(1, std::memory_order_relaxed);
  v.shape->ahead.served();
  Lock table(table_);
  exec->used = ++clock_;
  attach(v, *exec);
}

}  // namespace grape::virtual_execs
