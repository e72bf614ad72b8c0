// Launches of graphs that are on no exec, node by node: the device begins at once, where an exec would have to be set
// first. And what keeps the launches of one graph in order, on whatever they are.
#include <algorithm>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/real_driver.h"
#include "shim/virtual_execs/node_launch.h"
#include "shim/virtual_execs/submissions.h"
#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {
namespace {

namespace real = driver::real;

// A graph that would have been found on an exec more often than this is put on one.
constexpr std::uint32_t kMostMissedSoon = 2;

}  // namespace

// Would it still be on an exec, had it been on one after its last launch? Asked when it is launched and on none.
bool VirtualExecs::comes_again_soon(Virtual& v) {
  const std::uint64_t fit = limit() / graphs::estimated_device_bytes(v.shape->nodes.size());
  Lock table(table_);
  const bool soon = v.launched_at != 0 && launches_ - v.launched_at < fit;
  v.missed_soon = soon ? v.missed_soon + 1 : 0;
  return v.missed_soon > kMostMissedSoon;
}

// Graphs come in an order that is known: is it worth an exec more?
bool VirtualExecs::is_worth_going_ahead(const Virtual& v) const {
  if (of_shape(v).size() >= kExecsAhead) return false;
  if (v.shape->users <= kExecsAhead || limit() < kExecsAhead * graphs::estimated_device_bytes(v.shape->nodes.size())) {
    return false;
  }
  return v.shape->ahead.pays();
}

bool VirtualExecs::can_go_by_node(Virtual& v) {
  Shape& shape = *v.shape;
  if (!shape.sequenced) {
    if (can_be_launched(shape)) shape.sequence = sequence_of(shape);
    shape.sequenced = true;
  }
  return shape.sequence.lanes != 0 && !v.pinned && !v.context_gone && !code_gone(v);
}

// False: it is to be put on an exec, and nothing was launched. `work` is given up while nodes are launched.
bool VirtualExecs::launch_by_node(CUgraphExec handle, const Place& place, std::unique_lock<std::mutex>& work,
                                  Use& launched) {
  Virtual* v = nullptr;
  {
    Lock table(table_);
    v = find(handle);
    if (v == nullptr || v->exec != nullptr) return false;
  }
  if (!can_go_by_node(*v) || comes_again_soon(*v)) return false;
  if (foreseen(handle) && is_worth_going_ahead(*v)) return false;
  const Alone alone;
  const device::RelaxedCapture relaxed;
  const device::ContextScope context(v->shape->context);
  if (!alone || context.result() != CUDA_SUCCESS) return false;
  const std::shared_ptr<Tail> tail = tails_.of(place, v->shape->context);
  if (tail == nullptr || !load(*v) || !can_be_launched(*v->shape, scratch_)) return false;
  const bool forks = v->shape->sequence.lanes > 1;
  const std::shared_ptr<Lanes> lanes = forks ? lanes_.of(tail, v->shape->sequence) : nullptr;
  if (forks && lanes == nullptr) return false;
  stay_in_order(*v, place);
  std::swap(scratch_, by_node_);
  const std::shared_ptr<Shape> shape = v->shape;
  std::vector<std::uint32_t> disabled = v->disabled;
  std::size_t done = 0;
  work.unlock();
  launched.result = launch_nodes(*shape, by_node_, shape->sequence, disabled, place.stream, lanes.get(), done);
  if (launched.result != CUDA_SUCCESS) {
    work.lock();
    if (done == 0) {
      if (forks) mark_end(*tail);  // some lanes may wait for what lies before it
      shape->sequence = {};
      return false;
    }
    launched.result = launch_rest(shape, done, std::move(disabled), place);
  }
  mark_end(*tail);
  launched.launched = true;
  counters_.by_node.fetch_add(1, std::memory_order_relaxed);
  Lock table(table_);
  v = find(handle);
  if (v == nullptr) return true;
  v->tail = tail;
  v->launched_at = ++launches_;
  launched.next = foresee(handle, *v);
  return true;
}

// Of what is in by_node_, behind `done` steps of its sequence: on an exec whose other nodes are disabled.
CUresult VirtualExecs::launch_rest(const std::shared_ptr<Shape>& shape, std::size_t done,
                                   std::vector<std::uint32_t> disabled, const Place& place) {
  for (std::size_t i = 0; i < done; ++i) {
    const std::uint32_t node = shape->sequence.steps[i].node;
    if (node != Step::kNone && does_work(shape->nodes[node])) disabled.push_back(node);
  }
  std::sort(disabled.begin(), disabled.end());
  disabled.erase(std::unique(disabled.begin(), disabled.end()), disabled.end());
  std::swap(scratch_, by_node_);
  CUresult result = CUDA_SUCCESS;
  RealExec* exec = build(shape, disabled, result);
  if (exec == nullptr) return result;
  exec->launching(place);
  return real::call_cuGraphLaunch(exec->exec(), place.stream);
}

// Its launch there comes behind its last one elsewhere.
void VirtualExecs::stay_in_order(Virtual& v, const Place& place) {
  std::shared_ptr<Tail> tail;
  {
    Lock table(table_);
    if (v.tail == nullptr || v.tail->place == place) return;
    tail = std::move(v.tail);
  }
  const device::RelaxedCapture relaxed;
  const device::ContextScope context(v.shape->context);
  come_behind(*tail, place.stream);
}

// Another graph takes an exec over that may still run this one, in that place.
bool VirtualExecs::leave_behind(Virtual& v, const Place& place) {
  const std::shared_ptr<Tail> tail = tails_.of(place, v.shape->context);
  if (tail == nullptr) return false;
  // On the default stream, too, which others wait for, and where it would break their captures: a launch there comes
  // right before or behind it, in the same call of the application's.
  mark_end(*tail);
  Lock table(table_);
  v.tail = tail;
  return true;
}

}  // namespace grape::virtual_execs
