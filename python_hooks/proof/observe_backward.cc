#include "python_hooks/proof/observe_backward.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/proof/backward_watch.h"
#include "python_hooks/replay/clock.h"
#include "python_hooks/replay/run.h"
#include "shim/device/copy_memory.h"
#include "shim/driver/kernel_content.h"
#include "shim/lifecycle/log.h"
#include "shim/memory/live_blocks.h"

namespace grape::python::proof {
namespace {

// Of a thread that runs nodes. With the GIL.
struct ThreadOfNodes {
  BackwardWatch* recording = nullptr;  // whose sink has the thread's events
  // Of calls whose pass met an error, and whose graph has gone since: a sink ends on its own thread.
  std::vector<std::unique_ptr<grape::observation::RegionSink>> left;
};

ThreadOfNodes& thread_of_nodes(std::thread::id thread) {
  static auto& threads = *new std::unordered_map<std::thread::id, ThreadOfNodes>;
  return threads[thread];
}

// 0: not known.
std::uint64_t serial_of(std::uint64_t storage) noexcept {
  program::LiveBlock block;
  return memory::LiveBlocks::instance().find(memory::BlockSource::kFramework, storage, block) ? block.serial : 0;
}

}  // namespace

BackwardWatch::BackwardWatch(std::shared_ptr<replay::Passes> passes, AwaitedCall call, const bridge::Border& border)
    : passes_(std::move(passes)),
      call_(std::move(call)),
      links_(border.links, border.links + border.link_count + border.cast_count),
      slots_(border.slot_count),
      contribution_count_(bridge::count_contributions(border)) {
  for (const program::Extent& saved : call_.saved) serials_.push_back(serial_of(saved.address));
  ++passes_->awaited;
}

BackwardWatch::~BackwardWatch() {
  abandon();
  settle();
  --passes_->awaited;
  passes_->unused = passed_ ? 0 : passes_->unused + 1;
  if (call_.shadow != nullptr) g_api.Py_DecRef(call_.shadow);
}

void BackwardWatch::abandon() noexcept {
  under_way_ = false;
  recorded_ = {};
  if (sink_ != nullptr) {
    ThreadOfNodes& thread = thread_of_nodes(thread_);
    if (thread.recording == this) thread.recording = nullptr;
    if (thread_ == std::this_thread::get_id()) {
      sink_->cancel();
    } else {
      thread.left.push_back(std::move(sink_));
    }
    sink_.reset();
  }
  for (Object* tensor : owned_) g_api.Py_DecRef(tensor);
  owned_.clear();
}

// Its nodes are done, for all that is known: the last one has run, or those of another call do. A pass that ends on
// another thread than its nodes ran on has no record: only that thread can close it.
void BackwardWatch::seal() {
  if (sink_ == nullptr) return;
  ThreadOfNodes& thread = thread_of_nodes(thread_);
  if (thread.recording == this) thread.recording = nullptr;
  if (thread_ == std::this_thread::get_id()) {
    recorded_ = sink_->end();
  } else {
    thread.left.push_back(std::move(sink_));
    recorded_.refusal = refusal::make(refusal::not_recorded);
  }
  sink_.reset();
}

std::uint64_t BackwardWatch::copy(std::uint64_t address, std::uint64_t bytes) {
  std::uint64_t to = 0;
  if (bytes == 0) return 0;
  Object* const tensor = replay::new_bytes(bytes, torch::kCudaDevice, call_.work.device, to);
  if (tensor == nullptr) return 0;
  owned_.push_back(tensor);
  return device::copy_on_device(call_.work.driver_stream(), to, address, bytes) ? to : 0;
}

SeenGradient BackwardWatch::seen(const bridge::Gradient& gradient) const {
  SeenGradient seen;
  seen.as = gradient;
  if (gradient.identity == nullptr) return seen;
  if (gradient.plain) {
    seen.sizes.assign(gradient.sizes, gradient.sizes + gradient.dimensions);
    seen.strides.assign(gradient.strides, gradient.strides + gradient.dimensions);
    const bridge::Shape& base = gradient.of_base;
    seen.base_sizes.assign(base.sizes, base.sizes + base.dimensions);
    seen.base_strides.assign(base.strides, base.strides + base.dimensions);
  }
  seen.serial = serial_of(gradient.storage);
  return seen;
}

void BackwardWatch::begin(const bridge::Began& pass) {
  abandon();
  passed_ = true;
  thread_ = std::this_thread::get_id();
  ThreadOfNodes& thread = thread_of_nodes(thread_);
  if (grape::observation::CallScope::current() != nullptr) {  // its thread is recorded for a call with a pass inside
    passes_->refusal = refusal::make(refusal::backward_interrupted);
    return;
  }
  if (thread.recording != nullptr) thread.recording->seal();
  for (auto& left : thread.left) left->cancel();
  thread.left.clear();
  pass_ = {};
  pass_.keeps_graph = pass.keeps_graph;
  pass_.given.resize(slots_);
  pass_.contributions.resize(contribution_count_);
  pass_.runs.assign(contribution_count_, 0);
  passes_->makes_graph = passes_->makes_graph || pass.makes_graph;
  if (pass.makes_graph) {
    made_again_ = true;
    passes_->refusal = refusal::make(refusal::second_derivative);
    return;
  }
  refusal::Form<0> blocked;
  if (!torch::take_dispatch_state(pass_.dispatch, blocked)) pass_.refusal = refusal::make(blocked);
  if (pass.waits) pass_.refusal = refusal::make(refusal::gradient_comes_late);
  if (pass.hooked != nullptr) pass_.refusal = refusal::make(refusal::node_with_hooks, pass.hooked);
  pass_.random.known = torch::random_state(call_.work.device, pass_.random.seed, pass_.random.offset_before);
  for (std::size_t i = 0; i < call_.saved.size(); ++i) {
    const program::Extent& saved = call_.saved[i];
    const bool shadowed = i < call_.shadowed.size() && call_.shadowed[i] != 0;
    pass_.saved.push_back(serial_of(saved.address) == serials_[i] ? saved : program::Extent());
    pass_.saved_copies.push_back(!call_.proves ? 0
                                 : shadowed    ? call_.shadowed[i]
                                               : copy(saved.address, pass_.saved.back().bytes));
  }
  auto sink = std::make_unique<grape::observation::RegionSink>();
  if (!sink->begin(reinterpret_cast<std::uint64_t>(call_.work.context))) {
    passes_->refusal = refusal::make(refusal::backward_interrupted);
    return;
  }
  sink->set_outside(true);
  sink_ = std::move(sink);
  under_way_ = true;
  thread.recording = this;
  loads_ = driver::code_loads();
  began_ = replay::now();
}

void BackwardWatch::give(std::uint32_t slot, const bridge::Gradient& gradient) {
  if (under_way_ && sink_ == nullptr) pass_.refusal = refusal::make(refusal::backward_interrupted);
  if (sink_ == nullptr) return;
  sink_->set_outside(true);
  if (!gradient.plain || gradient.device_type != torch::kCudaDevice)
    pass_.refusal = refusal::make(refusal::gradient_not_plain);
  pass_.given[slot] = seen(gradient);
  if (!call_.proves || pass_.refusal) return;
  const WithGil gil;
  pass_.given[slot].bytes = gradient.storage_bytes;
  pass_.given[slot].copy = copy(gradient.storage, gradient.storage_bytes);
}

// What came to the last node is freed once the record is closed.
void BackwardWatch::note_ended(const bridge::Left& left) {
  if (recorded_.record == nullptr) return;
  for (std::size_t i = 0; i < left.ended_count; ++i) {
    program::LiveBlock block;
    if (!memory::LiveBlocks::instance().find(memory::BlockSource::kFramework, left.ended[i], block)) continue;
    const auto at = static_cast<std::uint32_t>(recorded_.record->nodes.size());
    recorded_.record->block_events.push_back({false, at, block.address, block.bytes, block.serial});
  }
}

void BackwardWatch::leave(const bridge::Left& left) {
  if (under_way_ && sink_ == nullptr) pass_.refusal = refusal::make(refusal::backward_interrupted);
  if (sink_ == nullptr) return;
  sink_->set_outside(true);
  const bridge::Gradient* const outputs = left.outputs;
  for (std::uint32_t i = 0; i < links_[left.link].edge_count; ++i) {
    const std::uint32_t edge = links_[left.link].first_edge + i;
    pass_.runs[edge] = left.asked[i] ? 1 : 0;
    SeenGradient& contribution = pass_.contributions[edge];
    contribution = seen(outputs[i]);
    if (outputs[i].identity == nullptr) continue;
    if (!outputs[i].plain || outputs[i].device_type != torch::kCudaDevice) {
      pass_.refusal = refusal::make(refusal::gradient_not_plain);
      continue;
    }
    if (!call_.proves) continue;
    const WithGil gil;
    contribution.bytes = contribution.span();
    contribution.copy = copy(outputs[i].data, contribution.bytes);
  }
  if (left.how == bridge::Leaving::kBoth) pass_.refusal = refusal::make(refusal::sums_mixed);
  if (left.how == bridge::Leaving::kInside) sink_->set_inside_while(bridge::loaded()->at_node, left.node);
  if (left.how != bridge::Leaving::kDone) return;
  const double seconds = replay::now() - began_;
  const WithGil gil;
  if (driver::code_loads() == loads_) seconds_ += replay::kRecording * std::max(seconds - seconds_, 0.0);
  replay::Payoff::observed(passes_->times, seconds);
  seal();
  note_ended(left);
}

void BackwardWatch::end() {
  if (!under_way_) return;
  const double began = replay::now();
  const WithGil gil;
  const KeepException keep;
  try {
    seal();
    conclude();
  } catch (const std::bad_alloc&) {
    passes_->refusal = refusal::make(refusal::no_host_memory);
  }
  if (passes_->refusal) {
    log_line(LogLevel::kDebug, "%s: a backward pass is not proven: %s", call_.name.c_str(),
             passes_->refusal.text.c_str());
  }
  abandon();
  seconds_ += replay::now() - began;
  settle();
}

// What was spent on the pass, of a call that was looked at.
void BackwardWatch::settle() noexcept {
  const double seconds = std::exchange(seconds_, 0);
  if (call_.costs == nullptr || seconds == 0) return;
  replay::LookBudget::spend(seconds);
  replay::LookCosts::note(call_.costs->pass, seconds);
}

const bridge::Watcher& BackwardWatch::callbacks() noexcept {
  static constexpr auto of = [](void* call) -> BackwardWatch& { return *static_cast<BackwardWatch*>(call); };
  static constexpr auto guarded = [](void* call, auto&& work) noexcept {
    const double began = replay::now();
    try {
      work(of(call));
      of(call).seconds_ += replay::now() - began;
    } catch (const std::bad_alloc&) {
      const WithGil gil;
      of(call).abandon();
    }
  };
  static constexpr bridge::Watcher kCallbacks = {
      [](void* call, const bridge::Began& pass) noexcept {
        guarded(call, [&](BackwardWatch& watch) {
          const WithGil gil;
          const KeepException keep;
          watch.begin(pass);
        });
      },
      [](void* call, std::uint32_t slot, const bridge::Gradient& gradient) noexcept {
        guarded(call, [&](BackwardWatch& watch) { watch.give(slot, gradient); });
      },
      [](void* call, const void* node) noexcept {
        if (of(call).sink_ != nullptr) of(call).sink_->set_inside_while(bridge::loaded()->at_node, node);
      },
      [](void* call, const bridge::Left& left) noexcept {
        guarded(call, [&](BackwardWatch& watch) { watch.leave(left); });
      },
      [](void* call) noexcept { of(call).end(); },
      [](void* call) noexcept {
        if (shutting_down()) return;
        const WithGil gil;
        const KeepException keep;
        delete &of(call);
      }};
  return kCallbacks;
}

namespace {

AwaitedCall awaited_call(const replay::Region& region, const replay::Call& call, const program::RandomState& random,
                         const ObservedBorder& border, Object*& memory) {
  AwaitedCall awaited;
  awaited.name = region.name;
  awaited.work = call.work;
  awaited.random = random;
  awaited.saved = border.saved;
  awaited.shadow = std::exchange(memory, nullptr);
  for (const walk::StorageExtent& extent : region.evidence.guard->extents())
    awaited.guarded.push_back({extent.address, extent.bytes});
  return awaited;
}

// The call's program ran in the shadow: where it left what is saved.
void note_shadowed(const replay::Proven& proven, const replay::CallFacts& facts, AwaitedCall& awaited) {
  awaited.proves = true;
  for (const replay::SavedMemory& saved : facts.border->saved) {
    const auto recipe = std::find_if(facts.recipes.begin(), facts.recipes.end(), [&](const auto& each) {
      return each.saved_bytes != 0 && saved.of == replay::SavedMemory::Of::kBlock && each.block == saved.index;
    });
    const bool found = recipe != facts.recipes.end();
    awaited.shadowed.push_back(found ? proven.bindings.outputs[saved.index] : 0);
    awaited.saved_at.push_back(found ? recipe->saved_at : 0);
  }
}

void watch(const std::shared_ptr<replay::Passes>& passes, AwaitedCall awaited, const bridge::Border& border) {
  auto watch = std::make_unique<BackwardWatch>(passes, std::move(awaited), border);
  bridge::loaded()->watch(&border, &BackwardWatch::callbacks(), watch.get());
  static_cast<void>(watch.release());  // the graph's, and gone with it
}

}  // namespace

void await_backward(const replay::Region& region, replay::Signature& signature, const replay::Call& call,
                    const replay::Observation& observation, const replay::Proven* proven, ObservedCall& observed) {
  if (!replay::awaits_backward(observation.border.get())) return;
  if (signature.passes == nullptr) signature.passes = std::make_shared<replay::Passes>();
  signature.passes->inner = region.inner;
  signature.passes->saved_lasts = signature.passes->saved_lasts || observation.border->form.saved_lasts;
  AwaitedCall awaited = awaited_call(region, call, observed.random, observed.border, observed.saved_memory);
  awaited.module_epoch = observed.module_epoch;
  awaited.costs = region.budget.costs;
  awaited.room = std::move(observed.room);
  if (proven != nullptr) note_shadowed(*proven, observation, awaited);
  watch(signature.passes, std::move(awaited), *observed.border.border);
}

void check_backward(const replay::Region& region, const replay::Proven& proven, const replay::Call& call,
                    const program::RandomState& random, ObservedBorder& border, Object*& memory) {
  AwaitedCall awaited = awaited_call(region, call, random, border, memory);
  awaited.module_epoch = proven.module_epoch;
  awaited.checks = true;
  note_shadowed(proven, proven, awaited);
  watch(proven.passes, std::move(awaited), *border.border);
}

}  // namespace grape::python::proof
