// What the application changes of its execs, followed: it stays where the exec is as long as it is on one, and goes
// into the store with the rest when another graph comes onto it.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "shim/driver/kernel_node.h"
#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {
namespace {

using program::Program;
using program::RecordedNode;

// Puts `words` in the place of a node's own. The others stay where they are, or all move up: words lie without gaps.
void replace_words(Program& program, std::size_t index, const std::vector<std::uint64_t>& words) {
  RecordedNode& node = program.nodes[index];
  const auto at = program.words.begin() + node.words_at;
  if (node.word_count == words.size()) {
    std::copy(words.begin(), words.end(), at);
    return;
  }
  std::vector<std::uint64_t> all;
  all.reserve(program.words.size() + words.size());
  node.word_count = static_cast<std::uint32_t>(words.size());
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    RecordedNode& each = program.nodes[i];
    const auto from = i == index ? words.begin() : program.words.cbegin() + each.words_at;
    each.words_at = static_cast<std::uint32_t>(all.size());
    all.insert(all.end(), from, from + each.word_count);
  }
  program.words = std::move(all);
}

// The function's place in the program; a new one where it has none.
std::uint32_t place_of_function(Program& program, const program::FunctionInfo& info) {
  const auto same = [&](const program::FunctionInfo& other) { return other.handle == info.handle; };
  const auto found = std::find_if(program.functions.begin(), program.functions.end(), same);
  if (found != program.functions.end()) return static_cast<std::uint32_t>(found - program.functions.begin());
  program.functions.push_back(info);
  return static_cast<std::uint32_t>(program.functions.size() - 1);
}

bool one_row(const CUDA_MEMCPY3D_v2& copy) { return copy.Height <= 1 && copy.Depth <= 1; }

}  // namespace

VirtualExecs::Use VirtualExecs::begin_node(CUgraphExec handle, CUgraphNode node) noexcept {
  Use result = begin(handle);
  result.node = node;
  if (result.held == nullptr) return result;
  Lock work(work_);
  Lock table(table_);
  const Virtual* v = find(handle);
  if (v == nullptr || v->exec != result.held || node == nullptr) return result;
  const auto at = std::find(v->source_nodes.begin(), v->source_nodes.end(), node);
  if (at != v->source_nodes.end()) result.index = static_cast<std::size_t>(at - v->source_nodes.begin());
  // Ours has nodes of its own in the place of the application's.
  if (result.held->own()) result.node = result.index != kNoIndex ? result.held->node(result.index) : nullptr;
  return result;
}

void VirtualExecs::pin(Virtual& v) noexcept {
  Lock table(table_);
  if (!v.pinned) counters_.pinned.fetch_add(1, std::memory_order_relaxed);
  v.pinned = true;
  if (v.exec != nullptr) v.exec->modified();
}

bool VirtualExecs::follow_kernel(Virtual& v, std::size_t index, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  const NodeShape& shape = v.shape->nodes[index];
  const driver::KernelNode kernel = driver::kernel_node(params);
  const bool kernel_handle = params.func == nullptr;
  if (shape.type != CU_GRAPH_NODE_TYPE_KERNEL || kernel.function == nullptr || kernel_handle != shape.kernel_handle ||
      (kernel_handle && params.ctx != shape.context)) {
    return false;
  }
  const std::uint32_t number = functions_.find(reinterpret_cast<std::uint64_t>(kernel.function));
  if (functions_[number].owner == 0) return false;
  RecordedNode node;
  std::vector<std::uint64_t> words;
  if (!pack_parameters(functions_[number], kernel.parameters, kernel.extra, node, words)) return false;
  node.function = place_of_function(*v.changed, functions_[number].info);
  node.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  node.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  node.shared_bytes = params.sharedMemBytes;
  if (std::find(v.functions.begin(), v.functions.end(), number) == v.functions.end()) v.functions.push_back(number);
  replace_words(*v.changed, index, words);
  RecordedNode& changed = v.changed->nodes[index];
  node.words_at = changed.words_at;
  node.word_count = changed.word_count;
  changed = node;
  return true;
}

bool VirtualExecs::follow_words(Virtual& v, std::size_t index, const Change& change) {
  const CUgraphNodeType type = v.shape->nodes[index].type;
  std::vector<std::uint64_t> words;
  if (change.context != v.shape->context) return false;
  if (change.kind == Change::Kind::kCopy) {
    CUDA_MEMCPY3D_v2 before;
    if (type != CU_GRAPH_NODE_TYPE_MEMCPY) return false;
    std::memcpy(&before, v.changed->words.data() + v.changed->nodes[index].words_at, sizeof before);
    // Otherwise it would be of another shape.
    if (!one_row(change.copy) || !one_row(before) || change.copy.srcMemoryType != before.srcMemoryType ||
        change.copy.dstMemoryType != before.dstMemoryType) {
      return false;
    }
    words.resize(kCopyWords);
    std::memcpy(words.data(), &change.copy, sizeof change.copy);
  } else {
    const CUDA_MEMSET_NODE_PARAMS_v1& memset = change.memset;
    const std::uint64_t* before = v.changed->words.data() + v.changed->nodes[index].words_at;
    if (type != CU_GRAPH_NODE_TYPE_MEMSET || memset.height > 1 || before[4] > 1) return false;
    words = {memset.dst, memset.value, memset.elementSize, memset.width, memset.height, memset.pitch};
  }
  replace_words(*v.changed, index, words);
  return true;
}

bool VirtualExecs::follow(Virtual& v, const Use& use, const Change& change) {
  if (use.index >= v.shape->nodes.size() || change.kind == Change::Kind::kOther) return false;
  const auto index = static_cast<std::uint32_t>(use.index);
  if (change.kind == Change::Kind::kEnabled) {
    const auto at = std::lower_bound(v.disabled.begin(), v.disabled.end(), index);
    const bool is_disabled = at != v.disabled.end() && *at == index;
    if (change.enabled && is_disabled) v.disabled.erase(at);
    if (!change.enabled && !is_disabled) v.disabled.insert(at, index);
    use.held->set_disabled(v.disabled);
    return true;
  }
  if (v.changed == nullptr) {
    auto decoded = std::make_unique<Program>();
    std::string error;
    if (!store_.get(v.id, *decoded, error)) return false;
    v.changed = std::move(decoded);
  }
  return change.kind == Change::Kind::kKernel ? follow_kernel(v, use.index, change.kernel)
                                              : follow_words(v, use.index, change);
}

void VirtualExecs::changed(CUgraphExec handle, const Use& use, const Change& change) noexcept {
  if (use.held == nullptr || change.kind == Change::Kind::kNone) return;
  Lock work(work_);
  Virtual* v = nullptr;
  {
    Lock table(table_);
    v = find(handle);
    if (v == nullptr || v->exec != use.held) return;
    use.held->modified();
    if (v->pinned) return;
  }
  bool followed = false;
  try {
    followed = follow(*v, use, change);
  } catch (const std::bad_alloc&) {
  }
  if (!followed) pin(*v);
}

// What was changed goes into the store; an exec of ours knows what it holds. Throws std::bad_alloc.
bool VirtualExecs::settle(Virtual& v, RealExec* exec) {
  if (v.changed == nullptr) return true;
  std::string error;
  const std::uint64_t id = last_id_ + 1;
  if (!store_.put(id, *v.changed, error)) return false;
  last_id_ = id;
  store_.erase(v.id);
  v.id = id;
  if (exec != nullptr && exec->own()) exec->hold(std::move(*v.changed));
  v.changed.reset();
  return true;
}

bool VirtualExecs::load(Virtual& v) {
  std::string error;
  return settle(v, v.exec) && store_.get(v.id, scratch_, error);
}

}  // namespace grape::virtual_execs
