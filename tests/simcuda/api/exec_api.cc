// Executable graphs: instantiate, update, set parameters, launch.
#include "capture.h"
#include "context.h"
#include "faults.h"
#include "handles.h"
#include "module.h"
#include "node_work.h"
#include "stream.h"

namespace simcuda {

namespace {

constexpr cuuint64_t kKnownFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                   CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                   CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, cuuint64_t flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(graph_handle);
  if (graph == nullptr || handle == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<Exec>();
  exec->image = make_image(*graph);
  if (exec->image == nullptr) return CUDA_ERROR_INVALID_VALUE;  // a circle
  exec->graph = clone_graph(*graph);
  exec->context = context;
  exec->flags = flags;
  *handle = create_handle<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

ExecNode* find_node(ExecImage& image, CUgraphNode source) {
  for (ExecNode& node : image.nodes) {
    if (node.source == source) return &node;
    if (auto* child = std::get_if<GraphWork>(&node.work)) {
      // Copied with the image that holds it, see own_image.
      if (ExecNode* found = find_node(const_cast<ExecImage&>(*child->image), source)) return found;
    }
  }
  return nullptr;
}

std::shared_ptr<ExecImage> copy_image(const ExecImage& image) {
  auto copy = std::make_shared<ExecImage>(image);
  for (ExecNode& node : copy->nodes) {
    if (auto* child = std::get_if<GraphWork>(&node.work)) child->image = copy_image(*child->image);
  }
  return copy;
}

// Launches that are queued keep the image they were launched with.
ExecImage& own_image(Exec& exec) {
  if (exec.image.use_count() > 1) exec.image = copy_image(*exec.image);
  return *exec.image;
}

template <typename Use>
CUresult with_node(CUgraphExec exec_handle, CUgraphNode source, const Use& use) {
  const std::shared_ptr<Exec> exec = share_handle<Exec>(exec_handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(graph_mutex());
  std::lock_guard<std::mutex> exec_lock(exec->mutex);
  ExecNode* node = find_node(own_image(*exec), source);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : use(*node);
}

template <typename Make>
CUresult set_work(CUgraphExec exec, CUgraphNode source, const Make& make) {
  return with_node(exec, source, [&](ExecNode& node) {
    Work work;
    SIM_TRY(make(&work));
    return replace_work(&node.work, std::move(work));
  });
}

template <typename Parameters>
CUresult set(CUgraphExec exec, CUgraphNode source, const Parameters* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_work(exec, source, [&](Work* work) { return work_of(*parameters, work); });
}

// Null if the graph may take the image's place; else the reason, with the node.
CUgraphExecUpdateResult compare(const ExecImage& now, const ExecImage& next, CUgraphNode* node) {
  if (now.nodes.size() != next.nodes.size() || now.dependencies != next.dependencies) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  for (std::size_t i = 0; i < now.nodes.size(); ++i) {
    *node = next.nodes[i].source;
    if (now.nodes[i].type != next.nodes[i].type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (const auto* child = std::get_if<GraphWork>(&now.nodes[i].work)) {
      const auto result = compare(*child->image, *std::get<GraphWork>(next.nodes[i].work).image, node);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
  }
  *node = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// The new parameters under the old names: nodes are still called by those of the graph first instantiated.
void take_over(ExecImage& now, const ExecImage& next) {
  for (std::size_t i = 0; i < now.nodes.size(); ++i) {
    if (auto* child = std::get_if<GraphWork>(&now.nodes[i].work)) {
      auto copy = copy_image(*child->image);
      take_over(*copy, *std::get<GraphWork>(next.nodes[i].work).image);
      child->image = std::move(copy);
    } else {
      now.nodes[i].work = next.nodes[i].work;
    }
  }
}

CUresult update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  const std::shared_ptr<Exec> exec = share_handle<Exec>(exec_handle);
  std::lock_guard<std::mutex> lock(graph_mutex());
  const Graph* graph = find_handle<Graph>(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = CUgraphExecUpdateResultInfo{};
  const std::shared_ptr<ExecImage> next = make_image(*graph);
  if (next == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> exec_lock(exec->mutex);
  info->result = compare(*exec->image, *next, &info->errorNode);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_over(own_image(*exec), *next);
  return CUDA_SUCCESS;
}

// A captured launch: the graph becomes a child node, with the parameters that the exec has now.
CUresult capture_launch(const Exec& exec, Stream& stream) {
  ChildWork work;
  {
    std::lock_guard<std::mutex> lock(graph_mutex());
    work.graph = clone_graph(*exec.graph);
    for (std::size_t i = 0; i < work.graph->nodes.size(); ++i) {
      const CUgraphNode source = exec.graph->nodes[i]->original;
      for (const ExecNode& node : exec.image->nodes) {
        const bool same = node.source == source && type_of(work.graph->nodes[i]->work) == type_of(node.work);
        if (same && node.type != CU_GRAPH_NODE_TYPE_GRAPH) work.graph->nodes[i]->work = node.work;
      }
    }
    work.graph->owned_by_node = true;
    work.handle = work.graph->handle = create_handle<CUgraph>(work.graph);
  }
  return capture_work(stream, std::move(work));
}

}  // namespace

CUresult api::cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, flags);
}
CUresult api::cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log, size_t bytes) {
  if (node != nullptr) *node = nullptr;
  if (log != nullptr && bytes > 0) *log = '\0';
  return instantiate(exec, graph, 0);
}
CUresult api::cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log, size_t bytes) {
  return api::cuGraphInstantiate(exec, graph, node, log, bytes);
}
CUresult api::cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->hErrNode_out = nullptr;
  const CUresult result = instantiate(exec, graph, parameters->flags);
  parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult api::cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  const std::shared_ptr<Exec> exec = share_handle<Exec>(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult api::cuGraphExecDestroy(CUgraphExec handle) {
  const std::shared_ptr<Exec> exec = destroy_handle<Exec>(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(graph_mutex());
  exec->graph = nullptr;
  return CUDA_SUCCESS;
}

CUresult api::cuGraphUpload(CUgraphExec exec, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  return share_handle<Exec>(exec) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult api::cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(stream_handle, &stream));
  if (settings.null_launch.load(std::memory_order_relaxed)) {
    busy_wait();
    return CUDA_SUCCESS;
  }
  if (!stream->capturing) return launch_exec(handle, *stream);
  const std::shared_ptr<Exec> exec = share_handle<Exec>(handle);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : capture_launch(*exec, *stream);
}

CUresult api::cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return info == nullptr ? CUDA_ERROR_INVALID_VALUE : update(exec, graph, info);
}
CUresult api::cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* node, CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult status = update(exec, graph, &info);
  if (node != nullptr) *node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return status;
}

CUresult api::cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return set(exec, node, parameters);
}
CUresult api::cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS upgraded = upgrade(*parameters);
  return set(exec, node, &upgraded);
}
CUresult api::cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* parameters,
                                             CUcontext) {
  return set(exec, node, parameters);
}
CUresult api::cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
  return set(exec, node, parameters);
}
CUresult api::cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_HOST_NODE_PARAMS* parameters) {
  return set(exec, node, parameters);
}
CUresult api::cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
  return set(exec, node, parameters);
}
CUresult api::cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_work(exec, node, [&](Work* work) { return work_of_event(event, true, work); });
}
CUresult api::cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_work(exec, node, [&](Work* work) { return work_of_event(event, false, work); });
}

CUresult api::cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode source, CUgraph child) {
  return with_node(exec, source, [&](ExecNode& node) {
    const Graph* graph = find_handle<Graph>(child);
    auto* work = std::get_if<GraphWork>(&node.work);
    if (graph == nullptr || work == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<ExecImage> next = make_image(*graph);
    CUgraphNode error = nullptr;
    if (next == nullptr || compare(*work->image, *next, &error) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto copy = copy_image(*work->image);
    take_over(*copy, *next);
    work->image = std::move(copy);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode source, CUgraphNodeParams* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return api::cuGraphExecChildGraphNodeSetParams(exec, source, parameters->graph.graph);
  }
  return set_work(exec, source, [&](Work* work) { return work_of(parameters, work); });
}

CUresult api::cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode source, unsigned enabled) {
  return with_node(exec, source, [&](ExecNode& node) {
    const bool can = node.type == CU_GRAPH_NODE_TYPE_KERNEL || node.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                     node.type == CU_GRAPH_NODE_TYPE_MEMSET;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    node.enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode source, unsigned* enabled) {
  if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(exec, source, [&](ExecNode& node) {
    *enabled = node.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDeviceGraphMemTrim(CUdevice device) { return check_device(device); }
CUresult api::cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute, void* value) {
  SIM_TRY(check_device(device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<cuuint64_t*>(value) = 0;  // graphs' allocations come from the heap
  return CUDA_SUCCESS;
}
CUresult api::cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute, void* value) {
  SIM_TRY(check_device(device));
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace simcuda
