#include "node_work.h"

#include <cstring>

#include "context.h"
#include "handles.h"
#include "launch.h"
#include "memory.h"
#include "module.h"
#include "stream.h"

namespace simcuda {

CUDA_KERNEL_NODE_PARAMS upgrade(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
  CUDA_KERNEL_NODE_PARAMS parameters = {};
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, kern) == sizeof old, "the newer struct continues the older one");
  std::memcpy(static_cast<void*>(&parameters), &old, sizeof old);
  return parameters;
}

CUresult work_of(const CUDA_KERNEL_NODE_PARAMS& p, Work* work) {
  const LaunchShape shape = {
      {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes};
  const CUfunction function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  KernelWork made;
  SIM_TRY(make_kernel_work(function, shape, p.kernelParams, p.extra, nullptr, 0, &made));
  *work = std::move(made);
  return CUDA_SUCCESS;
}

CUresult work_of(const CUDA_MEMCPY3D& parameters, Work* work) {
  SIM_TRY(check_copy(parameters));
  *work = CopyWork{parameters, nullptr};
  return CUDA_SUCCESS;
}

CUresult work_of(const CUDA_MEMSET_NODE_PARAMS& parameters, Work* work) {
  SIM_TRY(check_memset(parameters));
  *work = MemsetWork{parameters};
  return CUDA_SUCCESS;
}

CUresult work_of(const CUDA_HOST_NODE_PARAMS& parameters, Work* work) {
  if (parameters.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostWork made;
  made.function = parameters.fn;
  made.data = parameters.userData;
  *work = made;
  return CUDA_SUCCESS;
}

CUresult work_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& parameters, Work* work) {
  if (parameters.count == 0 || parameters.paramArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BatchWork made;
  made.operations.assign(parameters.paramArray, parameters.paramArray + parameters.count);
  *work = std::move(made);
  return CUDA_SUCCESS;
}

CUresult work_of_child(CUgraph handle, Work* work) {
  const Graph* graph = find_handle<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ChildWork made;
  made.graph = clone_graph(*graph);
  made.graph->owned_by_node = true;
  made.handle = made.graph->handle = create_handle<CUgraph>(made.graph);
  *work = std::move(made);
  return CUDA_SUCCESS;
}

CUresult work_of_event(CUevent handle, bool record, Work* work) {
  const std::shared_ptr<Event> event = share_handle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (record) {
    EventRecordWork made;
    made.handle = handle;
    made.event = event;
    *work = std::move(made);
  } else {
    EventWaitWork made;
    made.handle = handle;
    made.event = event;
    *work = std::move(made);
  }
  return CUDA_SUCCESS;
}

CUresult work_of_allocation(CUDA_MEM_ALLOC_NODE_PARAMS* parameters, Work* work) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(Memory::instance().allocate(parameters->bytesize, MemoryKind::kAsync, context->handle, nullptr,
                                      &parameters->dptr));
  AllocWork made;
  made.parameters = *parameters;
  let_graph_own(&made);
  *work = std::move(made);
  return CUDA_SUCCESS;
}

CUresult work_of(CUgraphNodeParams* p, Work* work) {
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel;
      static_assert(sizeof kernel == sizeof p->kernel, "version 3 has version 2's fields");
      std::memcpy(static_cast<void*>(&kernel), &p->kernel, sizeof kernel);
      return work_of(kernel, work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return work_of(p->memcpy.copyParams, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS memset = {};
      memset.dst = p->memset.dst;
      memset.pitch = p->memset.pitch;
      memset.value = p->memset.value;
      memset.elementSize = p->memset.elementSize;
      memset.width = p->memset.width;
      memset.height = p->memset.height;
      return work_of(memset, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return work_of(CUDA_HOST_NODE_PARAMS{p->host.fn, p->host.userData}, work);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      SIM_TRY(work_of_child(p->graph.graph, work));
      p->graph.graph = std::get<ChildWork>(*work).handle;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *work = EmptyWork{};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return work_of_event(p->eventRecord.event, true, work);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return work_of_event(p->eventWait.event, false, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return work_of(CUDA_BATCH_MEM_OP_NODE_PARAMS{p->memOp.ctx, p->memOp.count, p->memOp.paramArray, p->memOp.flags},
                     work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
      allocation.poolProps = p->alloc.poolProps;
      allocation.bytesize = p->alloc.bytesize;
      SIM_TRY(work_of_allocation(&allocation, work));
      p->alloc.dptr = allocation.dptr;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      *work = FreeWork{p->free.dptr};
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // external semaphores, conditional nodes
  }
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(Node& node) {
  KernelWork& work = std::get<KernelWork>(node.work);
  node.parameter_pointers.clear();
  for (const ParameterLayout& parameter : work.kernel->builtin->parameters) {
    node.parameter_pointers.push_back(work.parameters.data() + parameter.offset);
  }
  CUDA_KERNEL_NODE_PARAMS p = {};
  if (find_handle<LibraryKernel>(work.function) != nullptr) {
    p.kern = reinterpret_cast<CUkernel>(work.function);
  } else {
    p.func = work.function;
  }
  p.gridDimX = work.grid[0];
  p.gridDimY = work.grid[1];
  p.gridDimZ = work.grid[2];
  p.blockDimX = work.block[0];
  p.blockDimY = work.block[1];
  p.blockDimZ = work.block[2];
  p.sharedMemBytes = work.shared_bytes;
  p.kernelParams = node.parameter_pointers.data();
  return p;
}

CUresult replace_work(Work* target, Work&& work) {
  if (type_of(*target) != type_of(work)) return CUDA_ERROR_INVALID_VALUE;
  if (auto* kernel = std::get_if<KernelWork>(target)) {
    std::get<KernelWork>(work).attributes = std::move(kernel->attributes);
  }
  *target = std::move(work);
  return CUDA_SUCCESS;
}

}  // namespace simcuda
