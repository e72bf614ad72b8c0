// All forms of memset, and writes and waits of single values.
#include "context.h"
#include "memory.h"
#include "stream.h"

namespace simcuda {

namespace {

CUDA_MEMSET_NODE_PARAMS make(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                             size_t height) {
  CUDA_MEMSET_NODE_PARAMS parameters = {};
  parameters.dst = to;
  parameters.pitch = pitch;
  parameters.value = value;
  parameters.elementSize = element;
  parameters.width = width;
  parameters.height = height;
  return parameters;
}

CUresult set_async(const CUDA_MEMSET_NODE_PARAMS& parameters, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  SIM_TRY(check_memset(parameters));
  return submit(*stream, MemsetWork{parameters});
}

// On the default stream; the host waits, which the real driver leaves open.
CUresult set(const CUDA_MEMSET_NODE_PARAMS& parameters) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(nullptr, &stream));
  SIM_TRY(check_memset(parameters));
  return submit_and_wait(*stream, MemsetWork{parameters});
}

CUresult submit_batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* operations) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (operations == nullptr || count == 0 || count > 256) return CUDA_ERROR_INVALID_VALUE;
  BatchWork work;
  work.operations.assign(operations, operations + count);
  for (const CUstreamBatchMemOpParams& operation : work.operations) {
    const bool wide =
        operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const bool narrow =
        operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
    const std::size_t size = wide ? 8 : 4;
    if (!wide && !narrow) continue;
    if (operation.waitValue.address % size != 0 ||
        Memory::instance().translate(operation.waitValue.address, size) == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return submit(*stream, std::move(work));
}

CUresult submit_value(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value,
                      unsigned flags) {
  CUstreamBatchMemOpParams operation = {};
  operation.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return submit_batch(stream, 1, &operation);
}

}  // namespace

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return set(make(to, 0, value, 1, count, 1));
}
CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return set(make(to, 0, value, 2, count, 1));
}
CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return set(make(to, 0, value, 4, count, 1));
}
CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return set(make(to, pitch, value, 1, width, height));
}
CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return set(make(to, pitch, value, 2, width, height));
}
CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return set(make(to, pitch, value, 4, width, height));
}
CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return set_async(make(to, 0, value, 1, count, 1), stream);
}
CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return set_async(make(to, 0, value, 2, count, 1), stream);
}
CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return set_async(make(to, 0, value, 4, count, 1), stream);
}
CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                                CUstream stream) {
  return set_async(make(to, pitch, value, 1, width, height), stream);
}
CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
  return set_async(make(to, pitch, value, 2, width, height), stream);
}
CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                                 CUstream stream) {
  return set_async(make(to, pitch, value, 4, width, height), stream);
}

CUresult api::cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit_value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return submit_value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult api::cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit_value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult api::cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return submit_value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult api::cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations, unsigned) {
  return submit_batch(stream, count, operations);
}
CUresult api::cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return api::cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult api::cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return api::cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult api::cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return api::cuStreamWriteValue64_v2(stream, address, value, flags);
}
CUresult api::cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return api::cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult api::cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                                 unsigned flags) {
  return api::cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

}  // namespace simcuda
