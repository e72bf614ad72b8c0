// All forms of copies, as one: the three-dimensional.
#include <cstring>

#include "context.h"
#include "handles.h"
#include "memory.h"
#include "stream.h"

namespace simcuda {

namespace {

struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
};
End host(const void* pointer) { return {CU_MEMORYTYPE_HOST, pointer, 0}; }
End device(CUdeviceptr address) { return {CU_MEMORYTYPE_DEVICE, nullptr, address}; }
End unified(CUdeviceptr address) { return {CU_MEMORYTYPE_UNIFIED, nullptr, address}; }

CUDA_MEMCPY3D linear(End to, End from, std::size_t bytes) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = from.type;
  copy.srcHost = from.host;
  copy.srcDevice = from.device;
  copy.dstMemoryType = to.type;
  copy.dstHost = const_cast<void*>(to.host);
  copy.dstDevice = to.device;
  copy.WidthInBytes = bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D planar(const CUDA_MEMCPY2D& plane) {
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = plane.srcXInBytes;
  copy.srcY = plane.srcY;
  copy.srcMemoryType = plane.srcMemoryType;
  copy.srcHost = plane.srcHost;
  copy.srcDevice = plane.srcDevice;
  copy.srcPitch = plane.srcPitch;
  copy.dstXInBytes = plane.dstXInBytes;
  copy.dstY = plane.dstY;
  copy.dstMemoryType = plane.dstMemoryType;
  copy.dstHost = plane.dstHost;
  copy.dstDevice = plane.dstDevice;
  copy.dstPitch = plane.dstPitch;
  copy.WidthInBytes = plane.WidthInBytes;
  copy.Height = plane.Height;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D peer(const CUDA_MEMCPY3D_PEER& p) {
  CUDA_MEMCPY3D copy;
  static_assert(sizeof copy == sizeof p, "the peer form differs in what the reserved fields mean only");
  std::memcpy(&copy, &p, sizeof copy);
  copy.reserved0 = copy.reserved1 = nullptr;
  return copy;
}

// Ordinary host memory, which the driver does not know: neither pinned nor managed.
bool pageable(CUmemorytype type, const void* pointer, CUdeviceptr address) {
  if (type == CU_MEMORYTYPE_DEVICE) return false;
  const CUdeviceptr at = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(pointer) : address;
  return !Memory::instance().in_device_range(at) && !Memory::instance().find(at);
}

CUresult copy_and_wait(const CUDA_MEMCPY3D& copy) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(nullptr, &stream));
  SIM_TRY(check_copy(copy));
  return submit_and_wait(*stream, CopyWork{copy, nullptr});
}

// As the real driver: a pageable source is read before the call returns, a pageable target is written before.
CUresult copy_async(const CUDA_MEMCPY3D& copy, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  SIM_TRY(check_copy(copy));
  CopyWork work{copy, nullptr};
  if (!stream->capturing && copy.WidthInBytes > 0) {
    const bool flat = copy.Height == 1 && copy.Depth == 1 && copy.srcXInBytes == 0;
    if (pageable(copy.dstMemoryType, copy.dstHost, copy.dstDevice)) return submit_and_wait(*stream, std::move(work));
    if (pageable(copy.srcMemoryType, copy.srcHost, copy.srcDevice)) {
      if (!flat) return submit_and_wait(*stream, std::move(work));
      const auto* from = static_cast<const unsigned char*>(
          copy.srcMemoryType == CU_MEMORYTYPE_HOST ? copy.srcHost : reinterpret_cast<const void*>(copy.srcDevice));
      work.staging = std::make_shared<std::vector<unsigned char>>(from, from + copy.WidthInBytes);
      work.copy.srcMemoryType = CU_MEMORYTYPE_HOST;
      work.copy.srcHost = work.staging->data();
    }
  }
  return submit(*stream, std::move(work));
}

}  // namespace

CUresult api::cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_and_wait(linear(device(to), host(from), bytes));
}
CUresult api::cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_and_wait(linear(host(to), device(from), bytes));
}
CUresult api::cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_and_wait(linear(device(to), device(from), bytes));
}
CUresult api::cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_and_wait(linear(unified(to), unified(from), bytes));
}
CUresult api::cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return copy_and_wait(linear(device(to), device(from), bytes));
}
CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* plane) {
  return plane == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_and_wait(planar(*plane));
}
CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* plane) { return api::cuMemcpy2D_v2(plane); }
CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_and_wait(*copy);
}
CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_and_wait(peer(*copy));
}

CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_async(linear(device(to), host(from), bytes), stream);
}
CUresult api::cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async(linear(host(to), device(from), bytes), stream);
}
CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async(linear(device(to), device(from), bytes), stream);
}
CUresult api::cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async(linear(unified(to), unified(from), bytes), stream);
}
CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return copy_async(linear(device(to), device(from), bytes), stream);
}
CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* plane, CUstream stream) {
  return plane == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_async(planar(*plane), stream);
}
CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_async(*copy, stream);
}
CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_async(peer(*copy), stream);
}

CUresult api::cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                    CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  if (count == 0 || to == nullptr || from == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) SIM_TRY(copy_async(linear(unified(to[i]), unified(from[i]), bytes[i]), stream));
  return CUDA_SUCCESS;
}
CUresult api::cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count,
                                 size_t* failed, CUstream stream) {
  const CUresult result =
      api::cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, indices, attribute_count, stream);
  if (result != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return result;
}

}  // namespace simcuda
