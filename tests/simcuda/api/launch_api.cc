// Launches of kernels and of host functions, and occupancy.
#include <algorithm>
#include <cstring>

#include "context.h"
#include "faults.h"
#include "handles.h"
#include "image.h"
#include "launch.h"
#include "stream.h"

namespace simcuda {

namespace {

CUresult copy_packed(void** extra, std::size_t needed, std::vector<unsigned char>* bytes) {
  const void* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (void** entry = extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
    if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = entry[1];
    } else if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(entry[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || size == nullptr || *size < needed) return CUDA_ERROR_INVALID_VALUE;
  bytes->assign(static_cast<const unsigned char*>(buffer), static_cast<const unsigned char*>(buffer) + *size);
  return CUDA_SUCCESS;
}

CUresult check_attribute(const CUlaunchAttribute& attribute, const LaunchShape& shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& c = attribute.value.clusterDim;
      if (c.x == 0 || c.y == 0 || c.z == 0 || c.x * c.y * c.z > 16) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      const bool divides = shape.grid[0] % c.x == 0 && shape.grid[1] % c.y == 0 && shape.grid[2] % c.z == 0;
      return divides ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return find_handle<Event>(attribute.value.programmaticEvent.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return find_handle<Event>(attribute.value.launchCompletionEvent.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    default:
      return attribute.id >= 0 && attribute.id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult launch(CUfunction function, const LaunchShape& shape, CUstream stream_handle, void** parameters, void** extra,
                const CUlaunchAttribute* attributes, unsigned attribute_count) {
  if (settings.null_launch.load(std::memory_order_relaxed)) {
    busy_wait();
    return CUDA_SUCCESS;
  }
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(stream_handle, &stream));
  KernelWork work;
  SIM_TRY(make_kernel_work(function, shape, parameters, extra, attributes, attribute_count, &work));
  SIM_TRY(submit(*stream, std::move(work)));
  for (unsigned i = 0; i < attribute_count; ++i) {  // events that a launch records: here when it has ended
    if (stream->capturing) break;
    const CUlaunchAttribute& attribute = attributes[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      record_event(*stream, *find_handle<Event>(attribute.value.programmaticEvent.event));
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      record_event(*stream, *find_handle<Event>(attribute.value.launchCompletionEvent.event));
    }
  }
  return CUDA_SUCCESS;
}

int blocks_per_multiprocessor(int block_size, std::size_t shared_bytes) {
  if (block_size <= 0 || block_size > 1024 || shared_bytes > kMaxSharedBytes) return 0;
  const int by_threads = 2048 / ((block_size + 31) / 32 * 32);
  const int by_shared = static_cast<int>(std::size_t{233472} / (shared_bytes + 1024));
  return std::min({by_threads, by_shared, 32});
}

CUresult cluster_answer(int* value, CUfunction function, const CUlaunchConfig* config, int answer) {
  if (value == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *value = answer;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult make_kernel_work(CUfunction function, const LaunchShape& shape, void** parameters, void** extra,
                          const CUlaunchAttribute* attributes, unsigned attribute_count, KernelWork* work) {
  work->kernel = kernel_of(function);
  if (work->kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel& kernel = *work->kernel;
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[i];
  }
  if (threads > 1024 || shape.block[2] > 64 || shape.grid[1] > 65535 || shape.grid[2] > 65535) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int shared_limit = kernel.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES].load();
  if (shape.shared_bytes > static_cast<unsigned>(shared_limit)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute_count > 0 && attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < attribute_count; ++i) SIM_TRY(check_attribute(attributes[i], shape));
  work->function = function;
  std::copy(shape.grid, shape.grid + 3, work->grid);
  std::copy(shape.block, shape.block + 3, work->block);
  work->shared_bytes = shape.shared_bytes;
  if (attribute_count > 0) work->attributes.assign(attributes, attributes + attribute_count);

  const BuiltinKernel& builtin = *kernel.builtin;
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return copy_packed(extra, builtin.parameter_bytes(), &work->parameters);
  work->parameters.resize(builtin.parameter_bytes());
  for (std::size_t i = 0; i < builtin.parameters.size(); ++i) {
    if (parameters == nullptr || parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(work->parameters.data() + builtin.parameters[i].offset, parameters[i], builtin.parameters[i].size);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                             void** parameters, void** extra) {
  const LaunchShape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(function, shape, stream, parameters, extra, nullptr, 0);
}

CUresult api::cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes};
  return launch(function, shape, config->hStream, parameters, extra, config->attrs, config->numAttrs);
}

CUresult api::cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                        CUstream stream, void** parameters) {
  const LaunchShape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  const std::uint64_t blocks = std::uint64_t{grid_x} * grid_y * grid_z;
  const auto block_size = static_cast<int>(std::min<std::uint64_t>(std::uint64_t{block_x} * block_y * block_z, 2048));
  if (blocks > 132U * static_cast<unsigned>(blocks_per_multiprocessor(block_size, shared_bytes))) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  return launch(function, shape, stream, parameters, nullptr, &attribute, 1);
}

CUresult api::cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned) {
  if (launches == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const CUDA_LAUNCH_PARAMS* each = launches; each != launches + count; ++each) {
    SIM_TRY(api::cuLaunchCooperativeKernel(each->function, each->gridDimX, each->gridDimY, each->gridDimZ,
                                           each->blockDimX, each->blockDimY, each->blockDimZ, each->sharedMemBytes,
                                           each->hStream, each->kernelParams));
  }
  return CUDA_SUCCESS;
}

CUresult api::cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostWork work;
  work.function = function;
  work.data = data;
  return submit(*stream, work);
}

CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int block_size,
                                                                   size_t shared_bytes, unsigned) {
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = blocks_per_multiprocessor(block_size, shared_bytes);
  return CUDA_SUCCESS;
}
CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                          size_t shared_bytes) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, 0);
}

CUresult api::cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                        CUoccupancyB2DSize, size_t, int limit, unsigned) {
  if (min_grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *block = limit > 0 ? std::min(limit, 1024) : 1024;
  *min_grid = 132 * blocks_per_multiprocessor(*block, 0);
  return CUDA_SUCCESS;
}
CUresult api::cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function, CUoccupancyB2DSize sizes,
                                               size_t shared_bytes, int limit) {
  return api::cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid, block, function, sizes, shared_bytes, limit, 0);
}

CUresult api::cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int blocks, int) {
  if (bytes == nullptr || blocks <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (kernel_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *bytes = std::min<std::size_t>(233472 / static_cast<unsigned>(blocks), 233472 - 1024) / 1024 * 1024;
  return CUDA_SUCCESS;
}

CUresult api::cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
  return cluster_answer(size, function, config, 8);
}
CUresult api::cuOccupancyMaxActiveClusters(int* count, CUfunction function, const CUlaunchConfig* config) {
  return cluster_answer(count, function, config, 66);
}

}  // namespace simcuda
