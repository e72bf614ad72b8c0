// Adding nodes to graphs, and their parameters.
#include "context.h"
#include "handles.h"
#include "node_work.h"
#include "stream.h"

namespace simcuda {

namespace {

// `make` fills in the work, under the mutex.
template <typename Make>
CUresult add(CUgraphNode* result, CUgraph handle, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
             size_t count, const Make& make) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(graph_mutex());
  Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(check_dependencies(*graph, dependencies, count));
  Work work;
  SIM_TRY(make(&work));
  *result = add_node(*graph, std::move(work), dependencies, data, count)->handle;
  return CUDA_SUCCESS;
}

// The node's work, if it is of this kind.
template <typename Kind, typename Use>
CUresult with(CUgraphNode handle, const void* argument, const Use& use) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Node* node = find_handle<Node>(handle);
  if (node == nullptr || argument == nullptr || !std::holds_alternative<Kind>(node->work)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return use(*node, std::get<Kind>(node->work));
}

template <typename Parameters>
CUresult set(CUgraphNode handle, const Parameters* parameters) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Node* node = find_handle<Node>(handle);
  if (node == nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  SIM_TRY(work_of(*parameters, &work));
  return replace_work(&node->work, std::move(work));
}

CUresult set_event(CUgraphNode handle, CUevent event, bool record) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Node* node = find_handle<Node>(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  SIM_TRY(work_of_event(event, record, &work));
  return replace_work(&node->work, std::move(work));
}

template <typename Parameters>
auto from(const Parameters* parameters) {
  return [parameters](Work* work) {
    return parameters == nullptr ? CUDA_ERROR_INVALID_VALUE : work_of(*parameters, work);
  };
}

}  // namespace

CUresult api::cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return add(node, graph, dependencies, nullptr, count, from(parameters));
}
CUresult api::cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS upgraded = upgrade(*parameters);
  return api::cuGraphAddKernelNode_v2(node, graph, dependencies, count, &upgraded);
}
CUresult api::cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_MEMCPY3D* parameters, CUcontext) {
  return add(node, graph, dependencies, nullptr, count, from(parameters));
}
CUresult api::cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
  return add(node, graph, dependencies, nullptr, count, from(parameters));
}
CUresult api::cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 const CUDA_HOST_NODE_PARAMS* parameters) {
  return add(node, graph, dependencies, nullptr, count, from(parameters));
}
CUresult api::cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
  return add(node, graph, dependencies, nullptr, count, from(parameters));
}
CUresult api::cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                       CUgraph child) {
  if (graph == child) return CUDA_ERROR_INVALID_VALUE;
  return add(node, graph, dependencies, nullptr, count, [&](Work* work) { return work_of_child(child, work); });
}
CUresult api::cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  return add(node, graph, dependencies, nullptr, count, [](Work*) { return CUDA_SUCCESS; });
}
CUresult api::cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                        CUevent event) {
  return add(node, graph, dependencies, nullptr, count, [&](Work* work) { return work_of_event(event, true, work); });
}
CUresult api::cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                      CUevent event) {
  return add(node, graph, dependencies, nullptr, count, [&](Work* work) { return work_of_event(event, false, work); });
}
CUresult api::cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return add(node, graph, dependencies, nullptr, count,
             [&](Work* work) { return work_of_allocation(parameters, work); });
}
CUresult api::cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                    CUdeviceptr address) {
  return add(node, graph, dependencies, nullptr, count, [&](Work* work) {
    *work = FreeWork{address};
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(node, graph, dependencies, data, count, [&](Work* work) { return work_of(parameters, work); });
}
CUresult api::cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                             CUgraphNodeParams* parameters) {
  return api::cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, parameters);
}

CUresult api::cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  return with<KernelWork>(node, parameters, [&](Node& found, KernelWork&) {
    *parameters = kernel_parameters(found);
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  return with<KernelWork>(node, parameters, [&](Node& found, KernelWork&) {
    const CUDA_KERNEL_NODE_PARAMS newer = kernel_parameters(found);
    if (newer.func == nullptr) return CUDA_ERROR_INVALID_VALUE;  // version 1 cannot say a CUkernel
    __builtin_memcpy(static_cast<void*>(parameters), &newer, sizeof *parameters);
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return set(node, parameters);
}
CUresult api::cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS upgraded = upgrade(*parameters);
  return set(node, &upgraded);
}

CUresult api::cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* parameters) {
  return with<CopyWork>(node, parameters, [&](Node&, CopyWork& work) {
    *parameters = work.copy;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) {
  return set(node, parameters);
}
CUresult api::cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
  return with<MemsetWork>(node, parameters, [&](Node&, MemsetWork& work) {
    *parameters = work.parameters;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
  return set(node, parameters);
}
CUresult api::cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  return with<HostWork>(node, parameters, [&](Node&, HostWork& work) {
    *parameters = {work.function, work.data};
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  return set(node, parameters);
}
CUresult api::cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* child) {
  return with<ChildWork>(node, child, [&](Node&, ChildWork& work) {
    *child = work.handle;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return with<EventRecordWork>(node, event, [&](Node&, EventRecordWork& work) {
    *event = work.handle;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) { return set_event(node, event, true); }
CUresult api::cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return with<EventWaitWork>(node, event, [&](Node&, EventWaitWork& work) {
    *event = work.handle;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) { return set_event(node, event, false); }
CUresult api::cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
  return with<BatchWork>(node, parameters, [&](Node&, BatchWork& work) {
    *parameters = {nullptr, static_cast<unsigned>(work.operations.size()), work.operations.data(), 0};
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
  return set(node, parameters);
}
CUresult api::cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return with<AllocWork>(node, parameters, [&](Node&, AllocWork& work) {
    *parameters = work.parameters;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  return with<FreeWork>(node, address, [&](Node&, FreeWork& work) {
    *address = work.address;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* parameters) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  Node* node = find_handle<Node>(handle);
  if (node == nullptr || parameters == nullptr || parameters->type != type_of(node->work)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work;
  SIM_TRY(work_of(parameters, &work));
  return replace_work(&node->work, std::move(work));
}

CUresult api::cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from_node) {
  return with<KernelWork>(to, to, [&](Node&, KernelWork& target) {
    const Node* source = find_handle<Node>(from_node);
    const auto* work = source != nullptr ? std::get_if<KernelWork>(&source->work) : nullptr;
    if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
    target.attributes = work->attributes;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
  return with<KernelWork>(node, value, [&](Node&, KernelWork& work) {
    *value = CUkernelNodeAttrValue{};
    for (const CUlaunchAttribute& attribute : work.attributes) {
      if (attribute.id == id) *value = attribute.value;
    }
    return CUDA_SUCCESS;
  });
}

CUresult api::cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                            const CUkernelNodeAttrValue* value) {
  return with<KernelWork>(node, value, [&](Node&, KernelWork& work) {
    for (CUlaunchAttribute& attribute : work.attributes) {
      if (attribute.id != id) continue;
      attribute.value = *value;
      return CUDA_SUCCESS;
    }
    CUlaunchAttribute attribute = {};
    attribute.id = id;
    attribute.value = *value;
    work.attributes.push_back(attribute);
    return CUDA_SUCCESS;
  });
}

}  // namespace simcuda
