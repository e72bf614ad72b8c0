// Doing the work, on a stream's worker.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "context.h"
#include "faults.h"
#include "graph.h"
#include "memory.h"
#include "module.h"
#include "stream.h"
#include "work.h"

namespace simcuda {

namespace {

// One side of a copy: where its rows lie.
struct Side {
  unsigned char* base = nullptr;
  std::size_t pitch = 0;
  std::size_t slice = 0;
  unsigned char* row(std::size_t z, std::size_t y) const { return base + z * slice + y * pitch; }
};

// Resolves one side; null base where the memory is not as said.
Side resolve(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
             std::size_t pitch, std::size_t height, const CUDA_MEMCPY3D& copy) {
  Side side;
  side.pitch = pitch != 0 ? pitch : copy.WidthInBytes + x;
  side.slice = side.pitch * std::max(height, std::max<std::size_t>(copy.Height, 1));
  if (height != 0) side.slice = side.pitch * height;
  const std::size_t offset = z * side.slice + y * side.pitch + x;
  const std::size_t span = (std::max<std::size_t>(copy.Depth, 1) - 1) * side.slice +
                           (std::max<std::size_t>(copy.Height, 1) - 1) * side.pitch + copy.WidthInBytes;
  Memory& memory = Memory::instance();
  if (type == CU_MEMORYTYPE_HOST) {
    side.base = static_cast<unsigned char*>(const_cast<void*>(host)) + offset;
    if (host == nullptr || memory.in_device_range(reinterpret_cast<CUdeviceptr>(host))) side.base = nullptr;
  } else if (type == CU_MEMORYTYPE_DEVICE) {
    side.base = static_cast<unsigned char*>(memory.translate(device + offset, span));
  } else if (type == CU_MEMORYTYPE_UNIFIED) {
    side.base = static_cast<unsigned char*>(memory.translate_any(device + offset, span));
    if (device == 0) side.base = nullptr;
  }
  return side;
}

Side source_of(const CUDA_MEMCPY3D& c) {
  return resolve(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch, c.srcHeight, c);
}
Side target_of(const CUDA_MEMCPY3D& c) {
  return resolve(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch, c.dstHeight, c);
}

bool is_empty(const CUDA_MEMCPY3D& copy) { return copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0; }

CUresult run(CopyWork& work, Context&, CUstream) {
  const CUDA_MEMCPY3D& copy = work.copy;
  if (is_empty(copy)) return CUDA_SUCCESS;
  const Side from = source_of(copy);
  const Side to = target_of(copy);
  if (from.base == nullptr || to.base == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::size_t z = 0; z < copy.Depth; ++z) {
    for (std::size_t y = 0; y < copy.Height; ++y) std::memmove(to.row(z, y), from.row(z, y), copy.WidthInBytes);
  }
  return CUDA_SUCCESS;
}

std::size_t memset_span(const CUDA_MEMSET_NODE_PARAMS& p) {
  return (p.height - 1) * (p.height > 1 ? p.pitch : 0) + p.width * p.elementSize;
}

CUresult run(MemsetWork& work, Context&, CUstream) {
  const CUDA_MEMSET_NODE_PARAMS& p = work.parameters;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  auto* base = static_cast<unsigned char*>(Memory::instance().translate(p.dst, memset_span(p)));
  if (base == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::size_t y = 0; y < p.height; ++y, base += p.pitch) {
    if (p.elementSize == 1) {
      std::memset(base, static_cast<int>(p.value & 0xff), p.width);
      continue;
    }
    for (std::size_t x = 0; x < p.width; ++x) std::memcpy(base + x * p.elementSize, &p.value, p.elementSize);
  }
  return CUDA_SUCCESS;
}

CUresult run(KernelWork& work, Context& context, CUstream stream) {
  log_kernel(stream, work.kernel->name);
  t_kernel_device = context.device;
  const CUresult result = work.kernel->builtin->run({work.parameters.data(), work.grid, work.block});
  t_kernel_device = kAnyDevice;
  return result;
}

CUresult run(HostWork& work, Context&, CUstream) {
  if (work.callback != nullptr) {
    work.callback(work.stream, CUDA_SUCCESS, work.data);
  } else {
    work.function(work.data);
  }
  return CUDA_SUCCESS;
}

template <typename Value>
bool condition_holds(Value current, Value wanted, unsigned flags) {
  switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return current == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (current & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<Value>(~(current | wanted)) != 0;
    default:
      return static_cast<std::make_signed_t<Value>>(current - wanted) >= 0;
  }
}

template <typename Value>
CUresult wait_value(const CUstreamBatchMemOpParams& operation, Value wanted, Context& context) {
  auto* at = static_cast<Value*>(Memory::instance().translate(operation.waitValue.address, sizeof(Value)));
  if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  while (!condition_holds(__atomic_load_n(at, __ATOMIC_ACQUIRE), wanted, operation.waitValue.flags)) {
    if (context.sticky.load() != 0) return CUDA_SUCCESS;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult write_value(const CUstreamBatchMemOpParams& operation, Value value) {
  auto* at = static_cast<Value*>(Memory::instance().translate(operation.writeValue.address, sizeof(Value)));
  if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult run(BatchWork& work, Context& context, CUstream) {
  for (const CUstreamBatchMemOpParams& operation : work.operations) {
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        SIM_TRY(wait_value(operation, operation.waitValue.value, context));
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        SIM_TRY(wait_value(operation, operation.waitValue.value64, context));
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        SIM_TRY(write_value(operation, operation.writeValue.value));
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        SIM_TRY(write_value(operation, operation.writeValue.value64));
        break;
      default:
        break;  // barriers: operations here are in order anyway
    }
  }
  return CUDA_SUCCESS;
}

CUresult run(EventRecordWork& work, Context&, CUstream) {
  if (work.record != nullptr) work.record->time.store(now_ns());
  return CUDA_SUCCESS;
}

CUresult run(FreeWork& work, Context&, CUstream) {
  const CUresult result = Memory::instance().release(work.address, MemoryKind::kAsync, MemoryKind::kDevice);
  return result == CUDA_SUCCESS ? result : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// What has no effect of its own: its order is all.
CUresult run(EmptyWork&, Context&, CUstream) { return CUDA_SUCCESS; }
CUresult run(EventWaitWork&, Context&, CUstream) { return CUDA_SUCCESS; }
CUresult run(AllocWork&, Context&, CUstream) { return CUDA_SUCCESS; }
CUresult run(ChildWork&, Context&, CUstream) { return CUDA_ERROR_INVALID_VALUE; }  // images have GraphWork instead

CUresult run_image(const ExecImage& image, const GraphWork& launch, Context& context, CUstream stream) {
  for (const ExecNode& node : image.nodes) {
    if (!node.enabled) continue;
    if (const auto* child = std::get_if<GraphWork>(&node.work)) {
      SIM_TRY(run_image(*child->image, launch, context, stream));
    } else if (const auto* event = std::get_if<EventRecordWork>(&node.work)) {
      for (const auto& [recorded, record] : launch.records) {
        if (recorded == event->event) record->time.store(now_ns());
      }
    } else {
      SIM_TRY(execute(const_cast<Work&>(node.work), context, stream));
    }
  }
  return CUDA_SUCCESS;
}

CUresult run(GraphWork& work, Context& context, CUstream stream) {
  return run_image(*work.image, work, context, stream);
}

}  // namespace

CUresult execute(Work& work, Context& context, CUstream stream) {
  return std::visit([&](auto& what) { return run(what, context, stream); }, work);
}

void let_graph_own(AllocWork* work) {
  Memory& memory = Memory::instance();
  const CUdeviceptr address = work->parameters.dptr;
  const std::optional<Allocation> made = memory.find(address);
  if (!made) return;
  work->owner = std::shared_ptr<void>(nullptr, [address, id = made->id](void*) {
    const std::optional<Allocation> now = Memory::instance().find(address);
    if (now && now->id == id) Memory::instance().release(address, MemoryKind::kAsync, MemoryKind::kAsync);
  });
}

CUresult check_copy(const CUDA_MEMCPY3D& copy) {
  if (is_empty(copy)) return CUDA_SUCCESS;
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (copy.Height > 1 && ((copy.srcPitch != 0 && copy.srcPitch < copy.WidthInBytes) ||
                          (copy.dstPitch != 0 && copy.dstPitch < copy.WidthInBytes))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool valid = source_of(copy).base != nullptr && target_of(copy).base != nullptr;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS& p) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  if (p.dst % p.elementSize != 0 || (p.height > 1 && p.pitch < p.width * p.elementSize))
    return CUDA_ERROR_INVALID_VALUE;
  return Memory::instance().translate(p.dst, memset_span(p)) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace simcuda
