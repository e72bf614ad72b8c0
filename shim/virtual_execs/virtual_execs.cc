#include "shim/virtual_execs/virtual_execs.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/captures.h"
#include "shim/driver/real_driver.h"
#include "shim/driver/unhandled.h"
#include "shim/lifecycle/lifecycle.h"

namespace grape::virtual_execs {
namespace {

namespace real = driver::real;

// Handles are addresses in a range of ours that nobody else can have: what is in it is known without looking there, and
// a destroyed one is never taken for another's. It can be read, as zeros, should one escape to someone who follows it.
constexpr std::size_t kHandles = std::size_t{1} << 20, kHandleBytes = 64;
static_assert(kHandles * kHandleBytes == GRAPE_HANDLE_RANGE_BYTES, "unhandled.S knows the range");
constexpr std::size_t kRestingHandles = 4096;  // destroyed ones that are not given again yet
std::atomic<char*> g_range{nullptr};
std::atomic<bool> g_child{false};  // of a fork

// For functions that nobody knows: it stays on its exec from then on. Null: nobody's, as the driver will say.
void* real_handle(void* handle) noexcept {
  VirtualExecs& all = VirtualExecs::instance();
  const VirtualExecs::Use use = all.begin_pinned(static_cast<CUgraphExec>(handle));
  all.end(use);
  return use.exec;
}

bool reserve() noexcept {
  if (g_range.load(std::memory_order_acquire) != nullptr) return true;
  void* range = mmap(nullptr, kHandles * kHandleBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  if (pthread_atfork(nullptr, nullptr, [] { g_child.store(true, std::memory_order_relaxed); }) != 0) {
    munmap(range, kHandles * kHandleBytes);
    return false;
  }
  g_range.store(static_cast<char*>(range), std::memory_order_release);
  driver::exchange_handles(static_cast<char*>(range), real_handle);
  return true;
}

std::size_t slot_of(CUgraphExec handle) noexcept {
  return (reinterpret_cast<std::uintptr_t>(handle) -
          reinterpret_cast<std::uintptr_t>(g_range.load(std::memory_order_acquire))) /
         kHandleBytes;
}

CUgraphExec handle_of(std::size_t slot) noexcept {
  return reinterpret_cast<CUgraphExec>(g_range.load(std::memory_order_acquire) + slot * kHandleBytes);
}

// Would a launch into the stream be captured? Counts of captures are kept only while the library is active.
bool is_captured(CUstream stream, bool per_thread) noexcept {
  if (lifecycle::active() && driver::g_captures.load(std::memory_order_relaxed) <= 0) return false;
  return driver::is_capturing(stream, per_thread);
}

}  // namespace

VirtualExecs* VirtualExecs::g_instance = nullptr;

bool VirtualExecs::start() noexcept {
  try {
    g_instance = new VirtualExecs;
  } catch (const std::bad_alloc&) {
  }
  return g_instance != nullptr;
}

bool VirtualExecs::ours(CUgraphExec handle) noexcept {
  const auto range = reinterpret_cast<std::uintptr_t>(g_range.load(std::memory_order_acquire));
  return range != 0 && reinterpret_cast<std::uintptr_t>(handle) - range < kHandles * kHandleBytes;
}

Virtual* VirtualExecs::find(CUgraphExec handle) const noexcept {
  const std::size_t slot = slot_of(handle);
  return slot < slots_.size() && handle == handle_of(slot) ? slots_[slot] : nullptr;
}

Virtual* VirtualExecs::look_up(CUgraphExec handle) const noexcept {
  Lock table(table_);
  return find(handle);
}

VirtualExecs::Use VirtualExecs::use(RealExec* exec) noexcept {
  ++exec->busy;
  exec->used = ++clock_;
  Use use;
  use.held = exec;
  use.exec = exec->exec();
  return use;
}

void VirtualExecs::end(const Use& use) noexcept {
  if (use.held == nullptr) return;
  Lock table(table_);
  --use.held->busy;
}

void VirtualExecs::prepare(CUgraphExec next, CUstream stream, bool per_thread) noexcept {
  try {
    std::unique_lock<std::mutex> work(work_, std::try_to_lock);
    if (!work.owns_lock()) return;  // another thread has more urgent work
    if (Virtual* v = look_up(next)) bring_ahead(*v, place_of(stream, per_thread));
  } catch (const std::bad_alloc&) {
    // Then it is brought when it is launched.
  }
}

VirtualExecs::Use VirtualExecs::begin_launch(CUgraphExec handle, CUstream stream, bool per_thread) noexcept {
  if (g_child.load(std::memory_order_relaxed)) return {};
  const bool captured = is_captured(stream, per_thread);
  const Place place = place_of(stream, per_thread);
  const auto launch = [&](Virtual& v) {
    Use begun = use(v.exec);
    v.launched_at = ++launches_;
    if (captured) return begun;
    v.exec->launching(place);
    begun.next = foresee(handle, v);
    return begun;
  };
  const auto suits = [&](const Virtual& v) {
    return v.exec != nullptr && (!captured || v.pinned || !v.exec->own() || v.exec->pristine());
  };
  const auto in_order = [&](const Virtual& v) { return captured || v.tail == nullptr || v.tail->place == place; };
  {
    Lock table(table_);
    Virtual* v = find(handle);
    if (v == nullptr) return {};
    if (suits(*v) && in_order(*v)) return launch(*v);
  }
  Use failed;
  try {
    std::unique_lock<std::mutex> work(work_);
    if (!captured && launch_by_node(handle, place, work, failed)) return failed;
    Virtual* v = look_up(handle);
    if (v == nullptr) return {};
    if (bring(*v, captured ? nullptr : &place, captured, failed.result) == nullptr) return failed;
    if (!captured) stay_in_order(*v, place);
    Lock table(table_);
    return launch(*v);
  } catch (const std::bad_alloc&) {
    failed.result = CUDA_ERROR_OUT_OF_MEMORY;
    return failed;
  }
}

VirtualExecs::Use VirtualExecs::begin(CUgraphExec handle) noexcept {
  Use failed;
  if (g_child.load(std::memory_order_relaxed)) return {};
  try {
    Lock work(work_);
    Virtual* v = look_up(handle);
    if (v == nullptr) return {};
    RealExec* exec = bring(*v, nullptr, false, failed.result);
    if (exec == nullptr) return failed;
    Lock table(table_);
    return use(exec);
  } catch (const std::bad_alloc&) {
    failed.result = CUDA_ERROR_OUT_OF_MEMORY;
    return failed;
  }
}

VirtualExecs::Use VirtualExecs::begin_pinned(CUgraphExec handle) noexcept {
  const Use result = begin(handle);
  if (result.held == nullptr) return result;
  Lock work(work_);
  Virtual* v = look_up(handle);
  if (v != nullptr && v->exec == result.held) pin(*v);
  return result;
}

bool VirtualExecs::flags(CUgraphExec handle, cuuint64_t& flags) noexcept {
  if (g_child.load(std::memory_order_relaxed)) return false;
  Lock table(table_);
  const Virtual* v = find(handle);
  if (v != nullptr) flags = v->flags;
  return v != nullptr;
}

void VirtualExecs::instantiating(CUgraph graph) noexcept {
  std::size_t count = 0;
  if (device_bytes() == 0 || real::call_cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  try {
    Lock work(work_);
    const device::RelaxedCapture relaxed;
    const std::uint64_t needed = graphs::estimated_device_bytes(count);
    evict_to(limit() - std::min(limit(), needed));
  } catch (const std::bad_alloc&) {
    // Then there is more than the budget for a while.
  }
}

refusal::Form<0> VirtualExecs::read(CUgraph graph, cuuint64_t flags, GraphReading& reading,
                                    std::shared_ptr<Shape>& shape) {
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return refusal::graph_launched_from_device;
  if (keeping_objects_.count(graph) != 0) return refusal::graph_keeps_objects;
  reading.shape.flags = flags & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  const device::RelaxedCapture relaxed;
  refusal::Form<0> refusal = read_graph(graph, functions_, reading);
  if (refusal) return refusal;
  shape = shapes_.intern(std::move(reading.shape));
  const bool seen =
      shape->can_be_rebuilt && std::all_of(reading.functions.begin(), reading.functions.end(),
                                           [&](std::uint32_t number) { return functions_[number].can_be_rebuilt; });
  if (seen) return {};
  // While the driver's own is there: can one be built that is the same?
  BuiltGraph trial;
  if (build_graph(*shape, reading.program, functions_, trial, refusal) != CUDA_SUCCESS) {
    return refusal ? refusal : refusal::graph_not_told;
  }
  destroy_graph(trial);
  shape->can_be_rebuilt = true;
  return {};
}

CUgraphExec VirtualExecs::new_handle(Virtual* made) {
  if (!reserve()) throw std::bad_alloc();
  Lock table(table_);
  if (slots_.size() < kHandles && free_slots_.size() < kRestingHandles) {
    slots_.push_back(made);
    return handle_of(slots_.size() - 1);
  }
  if (free_slots_.empty()) throw std::bad_alloc();
  const std::uint32_t slot = free_slots_.front();
  free_slots_.pop_front();
  slots_[slot] = made;
  return handle_of(slot);
}

CUgraphExec VirtualExecs::add(CUgraphExec exec, CUgraph graph, GraphReading& reading,
                              const std::shared_ptr<Shape>& shape) {
  auto made = std::make_unique<Virtual>();
  made->id = ++last_id_;
  made->functions = reading.functions;
  made->source = graph;
  made->source_nodes = std::move(reading.nodes);
  auto resident = std::make_unique<RealExec>(shape);
  made->shape = shape;
  if (real::call_cuGraphExecGetFlags(exec, &made->flags) != CUDA_SUCCESS) made->flags = shape->flags;
  std::string error;
  if (!store_.put(made->id, reading.program, error)) return nullptr;
  CUgraphExec handle = nullptr;
  try {
    std::vector<CUgraphExec>& of_graph = made_of_[graph];
    of_graph.reserve(of_graph.size() + 1);
    {
      Lock table(table_);
      execs_.reserve(execs_.size() + 1);
    }
    handle = new_handle(made.get());
    of_graph.push_back(handle);
  } catch (const std::bad_alloc&) {
    store_.erase(made->id);
    throw;
  }
  // From here on nothing fails.
  ++shape->users;
  resident->adopt(exec);
  RealExec* inserted = insert(std::move(resident));
  Lock table(table_);
  inserted->used = ++clock_;
  attach(*made.release(), *inserted);
  return handle;
}

CUgraphExec VirtualExecs::instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags) noexcept {
  if (g_child.load(std::memory_order_relaxed) || exec == nullptr) return exec;
  refusal::Form<0> refusal;
  CUgraphExec handle = nullptr;
  try {
    Lock work(work_);
    GraphReading reading;
    std::shared_ptr<Shape> shape;
    refusal = read(graph, flags, reading, shape);
    if (!refusal) {
      handle = add(exec, graph, reading, shape);
      if (handle == nullptr) refusal = refusal::graph_size;
    }
  } catch (const std::bad_alloc&) {
    refusal = refusal::no_host_memory;
  }
  if (handle == nullptr) {
    counters_.refused[static_cast<std::size_t>(refusal.id)].fetch_add(1, std::memory_order_relaxed);
    return exec;
  }
  counters_.made.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

// Ends a handle; `held`: the exec that goes with it. Null: no such handle.
std::unique_ptr<Virtual> VirtualExecs::take_out(CUgraphExec handle, std::unique_ptr<RealExec>& held) noexcept {
  Lock table(table_);
  std::unique_ptr<Virtual> v(find(handle));
  if (v == nullptr) return v;
  const std::size_t slot = slot_of(handle);
  slots_[slot] = nullptr;
  try {
    free_slots_.push_back(static_cast<std::uint32_t>(slot));
  } catch (const std::bad_alloc&) {
    // The slot stays free for good.
  }
  if (v->exec != nullptr) held = release(*v);
  return v;
}

CUresult VirtualExecs::destroy(CUgraphExec handle, DestroyExec destroy_exec) noexcept {
  if (g_child.load(std::memory_order_relaxed)) return destroy_exec(nullptr);
  std::unique_lock<std::mutex> work(work_);
  std::unique_ptr<RealExec> held;
  const std::unique_ptr<Virtual> v = take_out(handle, held);
  if (v == nullptr) {
    work.unlock();
    return destroy_exec(nullptr);
  }
  counters_.destroyed.fetch_add(1, std::memory_order_relaxed);
  const CUresult result = held != nullptr ? destroy_exec(held->give_exec()) : CUDA_SUCCESS;
  held.reset();
  try {
    store_.erase(v->id);
    const auto of_graph = made_of_.find(v->source);
    if (v->source != nullptr && of_graph != made_of_.end()) {
      auto& handles = of_graph->second;
      handles.erase(std::remove(handles.begin(), handles.end(), handle), handles.end());
      if (handles.empty()) made_of_.erase(of_graph);
    }
    // Nobody else can use what is left of its shape: the application expects its memory back.
    if (!v->context_gone && --v->shape->users == 0) {
      for (RealExec* exec : select([&](const RealExec& e) { return e.shape() == v->shape && e.busy == 0; })) {
        drop(*exec);
      }
    }
  } catch (const std::bad_alloc&) {
    // What is left goes when there is need of room.
  }
  return result;
}

// Throwing std::bad_alloc, `act` ends all of Grape's work: what it did not note would be missed.
template <class Act>
void VirtualExecs::note_change(const Act& act) noexcept {
  if (g_child.load(std::memory_order_relaxed)) return;
  try {
    Lock work(work_);
    act();
  } catch (const std::bad_alloc&) {
    lifecycle::give_up("no memory");
  }
}

void VirtualExecs::graph_gone(CUgraph graph) noexcept {
  note_change([&] {
    keeping_objects_.erase(graph);
    const auto found = made_of_.find(graph);
    if (found == made_of_.end()) return;
    Lock table(table_);
    for (const CUgraphExec handle : found->second) {
      Virtual* v = find(handle);
      if (v == nullptr) continue;
      v->source = nullptr;
      std::vector<CUgraphNode>().swap(v->source_nodes);
    }
    made_of_.erase(found);
  });
}

void VirtualExecs::node_gone(CUgraphNode node) noexcept {
  note_change([&] {
    Lock table(table_);
    for (const auto& [graph, handles] : made_of_) {
      for (const CUgraphExec handle : handles) {
        Virtual* v = find(handle);
        if (v != nullptr) std::replace(v->source_nodes.begin(), v->source_nodes.end(), node, CUgraphNode{});
      }
    }
  });
}

void VirtualExecs::keeps_objects(CUgraph graph) noexcept {
  note_change([&] { keeping_objects_.insert(graph); });
}

void VirtualExecs::cloned(CUgraph from, CUgraph to) noexcept {
  note_change([&] {
    if (keeping_objects_.count(from) != 0) keeping_objects_.insert(to);
  });
}

void VirtualExecs::before_unload(std::uint64_t owner) noexcept {
  note_change([&] {
    functions_.unload(owner);
    // Ours that have a node with such a function: setting it to another one would name it.
    for (RealExec* exec : select([&](const RealExec& e) { return e.own() && e.busy == 0; })) {
      if (exec->runs([&](std::uint64_t handle) { return functions_.is_gone(handle); })) drop(*exec);
    }
  });
}

void VirtualExecs::context_gone(CUcontext context) noexcept {
  note_change([&] {
    for (RealExec* exec : select([&](const RealExec& e) { return e.shape()->context == context && e.busy == 0; })) {
      exec->abandon();
      drop(*exec);
    }
    Lock table(table_);
    tails_.context_gone(context);
    lanes_.context_gone(context);
    for (Virtual* v : slots_) {
      if (v == nullptr || v->shape->context != context || v->context_gone) continue;
      v->context_gone = true;
      --v->shape->users;  // another context may get the handle, and graphs of this shape
    }
    forget_unused_functions();
  });
}

// Functions of a context that is gone: another one may get their handles. Whose they are is not known of all, since
// their graphs may be gone: so all go that no graph needs, and are asked for anew where one comes that does.
void VirtualExecs::forget_unused_functions() {
  std::vector<bool> needed(functions_.size());
  for (const Virtual* v : slots_) {
    if (v == nullptr || v->context_gone) continue;
    for (const std::uint32_t number : v->functions) needed[number] = true;
  }
  for (std::uint32_t number = 0; number < needed.size(); ++number) {
    if (!needed[number] && !functions_[number].kernel) functions_.forget(number);
  }
}

void VirtualExecs::before_stream_goes(CUstream stream) noexcept {
  if (counters_.made.load(std::memory_order_relaxed) == 0) return;
  note_change([&] {
    const device::RelaxedCapture relaxed;
    for (RealExec* exec : select([](const RealExec& e) { return e.busy == 0; })) exec->stream_goes(stream);
    Lock table(table_);
    tails_.stream_goes(stream);
  });
}

}  // namespace grape::virtual_execs
