// Names and texts of results.
#include <cstddef>

#include "api.h"

namespace simcuda {

namespace {

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};

#define ERROR_TEXT(result, text) \
  { result, #result, text }
constexpr ErrorText kErrors[] = {
    ERROR_TEXT(CUDA_SUCCESS, "no error"),
    ERROR_TEXT(CUDA_ERROR_INVALID_VALUE, "invalid value"),
    ERROR_TEXT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR_TEXT(CUDA_ERROR_NOT_INITIALIZED, "not initialized"),
    ERROR_TEXT(CUDA_ERROR_DEINITIALIZED, "deinitialized"),
    ERROR_TEXT(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled"),
    ERROR_TEXT(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    ERROR_TEXT(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    ERROR_TEXT(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    ERROR_TEXT(CUDA_ERROR_STUB_LIBRARY, "stub library"),
    ERROR_TEXT(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "call requires newer driver"),
    ERROR_TEXT(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable"),
    ERROR_TEXT(CUDA_ERROR_NO_DEVICE, "no device"),
    ERROR_TEXT(CUDA_ERROR_INVALID_DEVICE, "invalid device"),
    ERROR_TEXT(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed"),
    ERROR_TEXT(CUDA_ERROR_INVALID_IMAGE, "invalid image"),
    ERROR_TEXT(CUDA_ERROR_INVALID_CONTEXT, "invalid context"),
    ERROR_TEXT(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    ERROR_TEXT(CUDA_ERROR_MAP_FAILED, "map failed"),
    ERROR_TEXT(CUDA_ERROR_UNMAP_FAILED, "unmap failed"),
    ERROR_TEXT(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    ERROR_TEXT(CUDA_ERROR_ALREADY_MAPPED, "already mapped"),
    ERROR_TEXT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no binary for gpu"),
    ERROR_TEXT(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired"),
    ERROR_TEXT(CUDA_ERROR_NOT_MAPPED, "not mapped"),
    ERROR_TEXT(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "not mapped as array"),
    ERROR_TEXT(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "not mapped as pointer"),
    ERROR_TEXT(CUDA_ERROR_ECC_UNCORRECTABLE, "ecc uncorrectable"),
    ERROR_TEXT(CUDA_ERROR_UNSUPPORTED_LIMIT, "unsupported limit"),
    ERROR_TEXT(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "context already in use"),
    ERROR_TEXT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access unsupported"),
    ERROR_TEXT(CUDA_ERROR_INVALID_PTX, "invalid ptx"),
    ERROR_TEXT(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid graphics context"),
    ERROR_TEXT(CUDA_ERROR_NVLINK_UNCORRECTABLE, "nvlink uncorrectable"),
    ERROR_TEXT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "jit compiler not found"),
    ERROR_TEXT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "unsupported ptx version"),
    ERROR_TEXT(CUDA_ERROR_JIT_COMPILATION_DISABLED, "jit compilation disabled"),
    ERROR_TEXT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "unsupported exec affinity"),
    ERROR_TEXT(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "unsupported devside sync"),
    ERROR_TEXT(CUDA_ERROR_CONTAINED, "contained"),
    ERROR_TEXT(CUDA_ERROR_INVALID_SOURCE, "invalid source"),
    ERROR_TEXT(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    ERROR_TEXT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    ERROR_TEXT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object init failed"),
    ERROR_TEXT(CUDA_ERROR_OPERATING_SYSTEM, "operating system"),
    ERROR_TEXT(CUDA_ERROR_INVALID_HANDLE, "invalid handle"),
    ERROR_TEXT(CUDA_ERROR_ILLEGAL_STATE, "illegal state"),
    ERROR_TEXT(CUDA_ERROR_LOSSY_QUERY, "lossy query"),
    ERROR_TEXT(CUDA_ERROR_NOT_FOUND, "not found"),
    ERROR_TEXT(CUDA_ERROR_NOT_READY, "not ready"),
    ERROR_TEXT(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal address"),
    ERROR_TEXT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "launch out of resources"),
    ERROR_TEXT(CUDA_ERROR_LAUNCH_TIMEOUT, "launch timeout"),
    ERROR_TEXT(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch incompatible texturing"),
    ERROR_TEXT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access already enabled"),
    ERROR_TEXT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access not enabled"),
    ERROR_TEXT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context active"),
    ERROR_TEXT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR_TEXT(CUDA_ERROR_ASSERT, "assert"),
    ERROR_TEXT(CUDA_ERROR_TOO_MANY_PEERS, "too many peers"),
    ERROR_TEXT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory already registered"),
    ERROR_TEXT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory not registered"),
    ERROR_TEXT(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    ERROR_TEXT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction"),
    ERROR_TEXT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR_TEXT(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space"),
    ERROR_TEXT(CUDA_ERROR_INVALID_PC, "invalid pc"),
    ERROR_TEXT(CUDA_ERROR_LAUNCH_FAILED, "launch failed"),
    ERROR_TEXT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large"),
    ERROR_TEXT(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak"),
    ERROR_TEXT(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
    ERROR_TEXT(CUDA_ERROR_NOT_SUPPORTED, "not supported"),
    ERROR_TEXT(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready"),
    ERROR_TEXT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system driver mismatch"),
    ERROR_TEXT(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "compat not supported on device"),
    ERROR_TEXT(CUDA_ERROR_MPS_CONNECTION_FAILED, "mps connection failed"),
    ERROR_TEXT(CUDA_ERROR_MPS_RPC_FAILURE, "mps rpc failure"),
    ERROR_TEXT(CUDA_ERROR_MPS_SERVER_NOT_READY, "mps server not ready"),
    ERROR_TEXT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "mps max clients reached"),
    ERROR_TEXT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "mps max connections reached"),
    ERROR_TEXT(CUDA_ERROR_MPS_CLIENT_TERMINATED, "mps client terminated"),
    ERROR_TEXT(CUDA_ERROR_CDP_NOT_SUPPORTED, "cdp not supported"),
    ERROR_TEXT(CUDA_ERROR_CDP_VERSION_MISMATCH, "cdp version mismatch"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "stream capture unsupported"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "stream capture invalidated"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "stream capture merge"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "stream capture unmatched"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "stream capture unjoined"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "stream capture isolation"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "stream capture implicit"),
    ERROR_TEXT(CUDA_ERROR_CAPTURED_EVENT, "captured event"),
    ERROR_TEXT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "stream capture wrong thread"),
    ERROR_TEXT(CUDA_ERROR_TIMEOUT, "timeout"),
    ERROR_TEXT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "graph exec update failure"),
    ERROR_TEXT(CUDA_ERROR_EXTERNAL_DEVICE, "external device"),
    ERROR_TEXT(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    ERROR_TEXT(CUDA_ERROR_FUNCTION_NOT_LOADED, "function not loaded"),
    ERROR_TEXT(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type"),
    ERROR_TEXT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration"),
    ERROR_TEXT(CUDA_ERROR_KEY_ROTATION, "key rotation"),
    ERROR_TEXT(CUDA_ERROR_UNKNOWN, "unknown"),
};
#undef ERROR_TEXT

const ErrorText* find(CUresult result) {
  for (const ErrorText& error : kErrors) {
    if (error.result == result) return &error;
  }
  return nullptr;
}

CUresult answer(CUresult result, const char** out, const char* ErrorText::*field) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* error = find(result);
  *out = error != nullptr ? error->*field : nullptr;
  return error != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult api::cuGetErrorName(CUresult result, const char** name) { return answer(result, name, &ErrorText::name); }
CUresult api::cuGetErrorString(CUresult result, const char** text) { return answer(result, text, &ErrorText::text); }

}  // namespace simcuda
