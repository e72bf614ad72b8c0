// What can be done on a stream or by a node of a graph.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "api.h"

namespace simcuda {

struct Graph;
struct ExecImage;
class Stream;
struct BuiltinKernel;
struct Context;
struct Event;
struct EventRecord;
struct Kernel;

struct EmptyWork {};

struct KernelWork {
  std::shared_ptr<const Kernel> kernel;
  CUfunction function = nullptr;  // the handle as the caller gave it: a CUfunction, or a CUkernel cast to one
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> parameters;  // laid out as the kernel's parameters are
  std::vector<CUlaunchAttribute> attributes;
};

struct CopyWork {
  CUDA_MEMCPY3D copy;
  std::shared_ptr<std::vector<unsigned char>> staging;  // keeps the bytes that copy.srcHost points to
};

struct MemsetWork {
  CUDA_MEMSET_NODE_PARAMS parameters;
};

struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback: instead of function
  CUstream stream = nullptr;
};

struct ChildWork {
  std::shared_ptr<Graph> graph;
  CUgraph handle = nullptr;
};

struct EventRecordWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
  std::shared_ptr<EventRecord> record;  // set when submitted to a stream
};

struct EventWaitWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
};

struct BatchWork {
  std::vector<CUstreamBatchMemOpParams> operations;
};

struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
  std::shared_ptr<void> owner;  // of a graph's node: ends the allocation with the last graph that has it
};

struct FreeWork {
  CUdeviceptr address = 0;
};

struct GraphWork {
  std::shared_ptr<const ExecImage> image;
  std::vector<std::pair<std::shared_ptr<Event>, std::shared_ptr<EventRecord>>> records;  // of its event record nodes
};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, MemsetWork, HostWork, ChildWork, EventRecordWork,
                          EventWaitWork, BatchWork, AllocWork, FreeWork, GraphWork>;

// Does the work, on the calling thread. `stream` is what the log names.
CUresult execute(Work& work, Context& context, CUstream stream);

// Makes a graph own the allocation. It stays at its address from launch to launch.
void let_graph_own(AllocWork* work);

// Checks before anything is submitted: CUDA_ERROR_INVALID_VALUE for addresses that are not the device's.
CUresult check_copy(const CUDA_MEMCPY3D& copy);
CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS& parameters);

}  // namespace simcuda
