#include "shim/graphs/graph_exec.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/current_context.h"
#include "shim/driver/real_driver.h"
#include "shim/graphs/device_budget.h"
#include "shim/graphs/node_parameters.h"
#include "shim/graphs/node_shape.h"
#include "shim/graphs/shared_memory.h"
#include "shim/graphs/stream_order.h"
#include "shim/graphs/upload_ahead.h"
#include "shim/graphs/value_node.h"

namespace grape::graphs {
namespace {
namespace real = driver::real;
using program::Program;
using program::RecordedNode;
using program::Segment;

struct Node {
  CUgraphNode handle = nullptr;
  CUDA_KERNEL_NODE_PARAMS shape{};  // all but the parameters
};

struct MovingWord {
  program::Reference reference;
  std::uint32_t node = 0;
};

bool same_shape(const CUDA_KERNEL_NODE_PARAMS& a, const CUDA_KERNEL_NODE_PARAMS& b) {
  return a.func == b.func && a.kern == b.kern && a.gridDimX == b.gridDimX && a.gridDimY == b.gridDimY &&
         a.gridDimZ == b.gridDimZ && a.blockDimX == b.blockDimX && a.blockDimY == b.blockDimY &&
         a.blockDimZ == b.blockDimZ && a.sharedMemBytes == b.sharedMemBytes;
}

// What a node cannot change once it is instantiated: edges and attributes.
// `shift`: the difference between the two nodes' numbers.
bool same_fixed(const Program& a, const RecordedNode& x, const Program& b, const RecordedNode& y, std::uint32_t shift) {
  const auto same_edge = [shift](std::uint32_t from, std::uint32_t other) { return from + shift == other; };
  return x.after_count == y.after_count && x.attribute_count == y.attribute_count && x.cooperative == y.cooperative &&
         std::equal(a.after.begin() + x.after_at, a.after.begin() + x.after_at + x.after_count,
                    b.after.begin() + y.after_at, same_edge) &&
         std::equal(a.attributes.begin() + x.attributes_at * program::kAttributeBytes,
                    a.attributes.begin() + (x.attributes_at + x.attribute_count) * program::kAttributeBytes,
                    b.attributes.begin() + y.attributes_at * program::kAttributeBytes);
}

bool same_fixed(const Program& a, Segment at_a, const Program& b, Segment at_b) {
  if (at_a.count != at_b.count) return false;
  for (std::uint32_t i = 0; i < at_a.count; ++i) {
    if (!same_fixed(a, a.nodes[at_a.first + i], b, b.nodes[at_b.first + i], at_b.first - at_a.first)) return false;
  }
  return true;
}

}  // namespace

struct GraphExec::State {
  std::shared_ptr<const Program> program;
  Segment segment;
  const program::ArenaPlan* plan = nullptr;
  CUcontext context = nullptr;  // that its nodes belong to
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<Node> nodes;
  std::vector<MovingWord> moving;    // by base, then ascending by node
  std::vector<std::uint32_t> bases;  // where in `moving` the words of each base begin; and the end
  std::vector<std::uint32_t> moved;  // nodes, while they are set
  program::Bindings bound;           // what `words` has
  std::vector<std::uint64_t> words;  // what the driver has: it gives none back
  NodeParameters parameters;
  std::deque<SharedMemoryLimit> raised;  // while it is built
  std::uint32_t patched = 0;
  bool changed = true;  // since it was uploaded or launched
  ValueNode read_value;
  UploadAhead ahead;
  StreamOrder order;

  bool build(const program::Bindings& bindings, refusal::Refusal& error) {
    auto* create = real::get_cuGraphCreate();
    auto* instantiate = real::get_cuGraphInstantiateWithFlags();
    if (create == nullptr || instantiate == nullptr || real::get_cuGraphAddKernelNode_v2() == nullptr ||
        real::get_cuGraphExecKernelNodeSetParams_v2() == nullptr || real::get_cuGraphLaunch() == nullptr) {
      error = refusal::make(refusal::driver_too_old);
      return false;
    }
    context = driver::current_context();
    if (context == nullptr) {
      error = refusal::make(refusal::no_current_context);
      return false;
    }
    words.resize(program->words.size());
    program::bind(*program, *plan, bindings, words.data());
    const device::RelaxedCapture relaxed;
    CUresult result = create(&graph, 0);
    if (device::failed(result, "cuGraphCreate", error)) {
      graph = nullptr;
      return false;
    }
    const bool added = add_nodes(error);
    if (added) {
      add_value(bindings);
      result = instantiate(&exec, graph, 0);
    }
    while (!raised.empty()) raised.pop_back();
    if (!added) return false;
    if (device::failed(result, "cuGraphInstantiate", error)) {
      exec = nullptr;
      return false;
    }
    find_moving();
    bound = bindings;
    return true;
  }

  bool add_nodes(refusal::Refusal& error) {
    NodeShapes shapes;
    if (!shapes.look_up(*program, segment, error)) return false;
    nodes.resize(segment.count);
    for (std::uint32_t i = segment.first; i < segment.first + segment.count; ++i) {
      if (add_node(i, shapes, error)) continue;
      error.text += name_of_node(*program, i);
      return false;
    }
    return true;
  }

  bool add_node(std::uint32_t index, const NodeShapes& shapes, refusal::Refusal& error) {
    const RecordedNode& recorded = program->nodes[index];
    Node& node = nodes[index - segment.first];
    if (!shapes.shape(*program, recorded, node.shape, error)) return false;
    std::vector<CUgraphNode> after;
    for (std::uint32_t i = 0; i < recorded.after_count; ++i) {
      const std::uint32_t from = program->after[recorded.after_at + i];
      if (from >= index) {
        error = refusal::make(refusal::node_before_others);
        return false;
      }
      if (from >= segment.first) after.push_back(nodes[from - segment.first].handle);
    }
    const CUDA_KERNEL_NODE_PARAMS full = parameters.fill(node.shape, *program, recorded, words.data());
    const auto add = [&] {
      return real::get_cuGraphAddKernelNode_v2()(&node.handle, graph, after.data(), after.size(), &full);
    };
    CUresult result = add();
    if (result == CUDA_ERROR_INVALID_VALUE && raised.emplace_back(full).raised()) result = add();
    return !device::failed(result, "cuGraphAddKernelNode", error) && set_attributes(recorded, node.handle, error);
  }

  // Behind what no other node follows.
  void add_value(const program::Bindings& bindings) {
    if (!ValueNode::possible(*program, segment)) return;
    std::vector<bool> followed(segment.count, false);
    for (std::uint32_t i = segment.first; i < segment.first + segment.count; ++i) {
      const RecordedNode& node = program->nodes[i];
      for (std::uint32_t at = node.after_at; at < node.after_at + node.after_count; ++at) {
        if (program->after[at] >= segment.first) followed[program->after[at] - segment.first] = true;
      }
    }
    std::vector<CUgraphNode> last;
    for (std::uint32_t i = 0; i < segment.count; ++i) {
      if (!followed[i]) last.push_back(nodes[i].handle);
    }
    read_value.add(graph, last, *program, segment, *plan, bindings);
  }

  // The driver's state is known word by word, so only what differs is set.
  bool adopt(std::shared_ptr<const Program> taken, Segment next_segment, const program::ArenaPlan& next_plan,
             const program::Bindings& bindings) {
    const std::shared_ptr<const Program> former = program;
    const Program &old = *former, &next = *taken;
    std::vector<std::uint64_t> next_words(next.words.size());
    program::bind(next, next_plan, bindings, next_words.data());
    std::vector<CUDA_KERNEL_NODE_PARAMS> shapes(nodes.size());
    NodeShapes look_up;
    refusal::Refusal error;
    const Segment old_segment = segment;
    program = std::move(taken);
    segment = next_segment;
    bool good = look_up.look_up(next, segment, error);
    for (std::uint32_t i = 0; good && i < nodes.size(); ++i) {
      good = look_up.shape(next, next.nodes[segment.first + i], shapes[i], error);
    }
    for (std::uint32_t i = 0; good && i < nodes.size(); ++i) {
      const RecordedNode &before = old.nodes[old_segment.first + i], &after = next.nodes[segment.first + i];
      const bool same = before.word_count == after.word_count && before.parameter_bytes == after.parameter_bytes &&
                        same_shape(nodes[i].shape, shapes[i]) &&
                        std::memcmp(words.data() + before.words_at, next_words.data() + after.words_at,
                                    std::size_t{after.word_count} * sizeof(std::uint64_t)) == 0;
      nodes[i].shape = shapes[i];
      if (!same) good = set_node(segment.first + i, next_words.data()) == CUDA_SUCCESS;
    }
    plan = &next_plan;
    words = std::move(next_words);
    find_moving();
    bound = bindings;
    return good && set_value(bindings) == CUDA_SUCCESS;
  }

  CUresult set_node(std::uint32_t index, std::uint64_t* from) {
    const CUDA_KERNEL_NODE_PARAMS full =
        parameters.fill(nodes[index - segment.first].shape, *program, program->nodes[index], from);
    ++patched;
    changed = true;
    const auto set = [&] {
      return real::get_cuGraphExecKernelNodeSetParams_v2()(exec, nodes[index - segment.first].handle, &full);
    };
    const CUresult result = set();
    if (result != CUDA_ERROR_INVALID_VALUE) return result;
    const SharedMemoryLimit limit(full);
    return limit.raised() ? set() : result;
  }

  // Most often nothing has moved, and nothing but the bindings is looked at.
  CUresult set_moved(const program::Bindings& bindings) {
    const auto base_in = [this](const program::Bindings& in, const program::Reference& reference) {
      return program::base_of(*program, *plan, in, reference);
    };
    moved.clear();
    for (std::size_t i = 0; i + 1 < bases.size(); ++i) {
      const program::Reference& one = moving[bases[i]].reference;
      if (base_in(bound, one) == base_in(bindings, one)) continue;
      for (std::uint32_t at = bases[i]; at != bases[i + 1]; ++at) {
        const program::Reference& reference = moving[at].reference;
        words[reference.word] = program->words[reference.word] + base_in(bindings, reference);
        if (moved.empty() || moved.back() != moving[at].node) moved.push_back(moving[at].node);
      }
    }
    bound = bindings;
    std::sort(moved.begin(), moved.end());
    moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
    for (const std::uint32_t node : moved) {
      const CUresult result = set_node(node, words.data());
      if (result != CUDA_SUCCESS) return result;
    }
    return set_value(bindings);
  }

  CUresult set_value(const program::Bindings& bindings) noexcept {
    bool set = false;
    const CUresult result = read_value.bind(exec, *program, segment, *plan, bindings, set);
    if (set) {
      ++patched;
      changed = true;
    }
    return result;
  }

  bool set_attributes(const RecordedNode& node, CUgraphNode handle, refusal::Refusal& error) const {
    const auto apply = [&](CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
      const CUresult result = real::call_cuGraphKernelNodeSetAttribute(handle, id, &value);
      if (result != CUDA_SUCCESS) {
        error = refusal::make(refusal::driver_error_of_attribute, "cuGraphKernelNodeSetAttribute",
                              device::name_of_error(result), std::to_string(id));
      }
      return result == CUDA_SUCCESS;
    };
    CUlaunchAttribute attribute{};
    if (node.cooperative) {
      attribute.value.cooperative = 1;
      if (!apply(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, attribute.value)) return false;
    }
    for (std::uint32_t i = 0; i < node.attribute_count; ++i) {
      static_assert(sizeof attribute == program::kAttributeBytes, "attributes are recorded as they are");
      std::memcpy(&attribute, program->attributes.data() + (node.attributes_at + i) * program::kAttributeBytes,
                  sizeof attribute);
      // A kernel that may begin before the one ahead has ended: beginning after it is always right.
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) continue;
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
      // A property of streams, which launches may name and nodes may not.
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) continue;
      if (!apply(attribute.id, attribute.value)) return false;
    }
    return true;
  }

  // Addresses of static blocks stay; all other references may move.
  void find_moving() {
    moving.clear();
    std::uint32_t node = segment.first;  // words lie in node order
    const std::uint32_t end = segment.first + segment.count;
    for (const program::Reference& reference : program->references) {
      if (reference.role == program::Role::kStatic || node == end || reference.word < program->nodes[node].words_at) {
        continue;
      }
      while (node < end && reference.word >= program->nodes[node].words_at + program->nodes[node].word_count) ++node;
      if (node < end) moving.push_back({reference, node});
    }
    // Temporary blocks have bases in common, the arena and the pieces of lent memory.
    const auto base = [this](const MovingWord& word) {
      const program::Reference& reference = word.reference;
      if (reference.role != program::Role::kTemp) return std::make_pair(reference.role, reference.block);
      const bool lent = plan->in_lent(reference.block);
      return std::make_pair(reference.role, lent ? 1 + program::piece_of(plan->offsets[reference.block]) : 0);
    };
    std::stable_sort(moving.begin(), moving.end(), [&](const auto& a, const auto& b) { return base(a) < base(b); });
    bases.clear();
    for (std::uint32_t i = 0; i < moving.size(); ++i) {
      if (i == 0 || base(moving[i]) != base(moving[i - 1])) bases.push_back(i);
    }
    bases.push_back(static_cast<std::uint32_t>(moving.size()));
    moved.reserve(segment.count);
  }

  void destroy() noexcept {
    if (exec == nullptr && graph == nullptr) return;
    const device::ContextScope scope(
        context);  // where it cannot be entered the driver says what it says of these handles
    if (exec != nullptr) real::call_cuGraphExecDestroy(exec);
    if (graph != nullptr) real::call_cuGraphDestroy(graph);
    exec = nullptr;
    graph = nullptr;
  }
};

GraphExec::GraphExec() = default;

GraphExec::~GraphExec() {
  if (state_ != nullptr) state_->destroy();
}

std::unique_ptr<GraphExec> GraphExec::build(std::shared_ptr<const program::Program> program, Segment segment,
                                            const program::ArenaPlan& plan, const program::Bindings& bindings,
                                            refusal::Refusal& error) noexcept {
  try {
    std::unique_ptr<GraphExec> result(new GraphExec);
    result->state_ = std::make_unique<State>();
    result->state_->program = std::move(program);
    result->state_->segment = segment;
    result->state_->plan = &plan;
    if (result->state_->build(bindings, error)) return result;
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_memory);
  }
  return nullptr;
}

CUresult GraphExec::bind(const program::Bindings& bindings) noexcept {
  State& state = *state_;
  state.patched = 0;
  if (state.exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  try {
    return state.set_moved(bindings);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

bool GraphExec::adopt(std::shared_ptr<const program::Program> program, Segment segment, const program::ArenaPlan& plan,
                      const program::Bindings& bindings) noexcept {
  State& state = *state_;
  state.patched = 0;
  if (!fits(*program, segment)) return false;
  bool good = false;
  try {
    good = state.adopt(std::move(program), segment, plan, bindings);
  } catch (const std::bad_alloc&) {
  }
  // Half of one program and half of another is nothing to launch.
  if (!good) state.destroy();
  return good;
}

bool GraphExec::fits(const program::Program& program, Segment segment) const noexcept {
  return state_->exec != nullptr && state_->context == driver::current_context() &&
         same_fixed(*state_->program, state_->segment, program, segment) &&
         (!state_->read_value.added() || ValueNode::possible(program, segment));
}

bool GraphExec::usable() const noexcept { return state_->exec != nullptr; }
const program::Program* GraphExec::holds() const noexcept { return state_->program.get(); }

std::shared_ptr<HostBuffer> GraphExec::value() const noexcept {
  const std::shared_ptr<HostBuffer>& landing = state_->read_value.landing();
  return landing != nullptr && landing->data() != nullptr ? landing : nullptr;
}

void GraphExec::upload() noexcept {
  if (state_->exec == nullptr || !state_->changed) return;
  state_->ahead.begin(state_->exec);
  state_->changed = false;
}

CUresult GraphExec::launch(CUstream stream) noexcept {
  if (state_->exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  state_->ahead.order(stream);
  state_->changed = false;
  return real::get_cuGraphLaunch()(state_->exec, stream);
}

CUresult GraphExec::launch(CUstream stream, const std::vector<CUstream>& others) noexcept {
  CUresult result = state_->order.begin(stream, others);
  if (result == CUDA_SUCCESS) result = launch(stream);
  return result == CUDA_SUCCESS ? state_->order.end(stream, others) : result;
}

std::uint32_t GraphExec::patched() const noexcept { return state_->patched; }
std::uint64_t GraphExec::device_bytes() const noexcept {
  return estimated_device_bytes(state_->nodes.size() + (state_->read_value.added() ? 1 : 0));
}

void GraphExec::abandon() noexcept {
  state_->exec = nullptr;
  state_->graph = nullptr;
  state_->order.abandon();
  state_->ahead.abandon();
}

}  // namespace grape::graphs
