// The parameters of graph nodes, between CUDA's structs and Work. All of these check what they are given and need
// graph_mutex held.
#pragma once

#include "graph.h"

namespace simcuda {

CUresult work_of(const CUDA_KERNEL_NODE_PARAMS& parameters, Work* work);
CUresult work_of(const CUDA_MEMCPY3D& parameters, Work* work);
CUresult work_of(const CUDA_MEMSET_NODE_PARAMS& parameters, Work* work);
CUresult work_of(const CUDA_HOST_NODE_PARAMS& parameters, Work* work);
CUresult work_of(const CUDA_BATCH_MEM_OP_NODE_PARAMS& parameters, Work* work);
CUresult work_of_child(CUgraph child, Work* work);
CUresult work_of_event(CUevent event, bool record, Work* work);
CUresult work_of_allocation(CUDA_MEM_ALLOC_NODE_PARAMS* parameters, Work* work);
// By type; fills in what a CUgraphNodeParams returns.
CUresult work_of(CUgraphNodeParams* parameters, Work* work);

CUDA_KERNEL_NODE_PARAMS kernel_parameters(Node& node);  // pointers into the node

CUDA_KERNEL_NODE_PARAMS upgrade(const CUDA_KERNEL_NODE_PARAMS_v1& parameters);

// Puts `work` in the node's place, which must be of the same type. A kernel keeps its attributes.
CUresult replace_work(Work* target, Work&& work);

}  // namespace simcuda
