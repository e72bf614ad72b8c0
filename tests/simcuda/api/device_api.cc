// The one device, which says that it is simulated.
#include <cstdio>
#include <cstring>

#include "context.h"
#include "faults.h"

namespace simcuda {

namespace {

constexpr char kName[] = "Grape simulated GPU (no hardware)";
constexpr char kBusId[] = "0000:51:00.0";
constexpr unsigned char kUuid[16] = {'s', 'i', 'm', 'c', 'u', 'd', 'a', 0, 0, 0, 0, 0, 0, 0, 0, 1};

struct AttributeValue {
  CUdevice_attribute attribute;
  int value;
};
// As a GPU of compute capability 9.0 answers; what is not named here is 0.
constexpr AttributeValue kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0x51},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
};

}  // namespace

CUresult api::cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_TRY(check_device(ordinal));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetCount(int* count) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = settings.devices;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetName(char* name, int length, CUdevice device) {
  SIM_TRY(check_device(device));
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", kName);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return api::cuDeviceGetUuid_v2(uuid, device); }
CUresult api::cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIM_TRY(check_device(device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, kUuid, sizeof kUuid);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  SIM_TRY(check_device(device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = settings.memory;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  SIM_TRY(check_device(device));
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  for (const AttributeValue& known : kAttributes) {
    if (known.attribute == attribute) *value = known.value;
  }
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  SIM_TRY(check_device(device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = CUdevprop{};
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->sharedMemPerBlock = 49152;
  properties->totalConstantMemory = 65536;
  properties->SIMDWidth = 32;
  properties->memPitch = 2147483647;
  properties->regsPerBlock = 65536;
  properties->clockRate = 1000000;
  properties->textureAlign = 512;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  SIM_TRY(check_device(device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr || id == nullptr || std::strcmp(id, kBusId) != 0) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  SIM_TRY(check_device(device));
  if (id == nullptr || length <= static_cast<int>(std::strlen(kBusId))) return CUDA_ERROR_INVALID_VALUE;
  std::strcpy(id, kBusId);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType, CUdevice device) {
  SIM_TRY(check_device(device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceCanAccessPeer(int* value, CUdevice device, CUdevice peer) {
  SIM_TRY(check_device(device));
  SIM_TRY(check_device(peer));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice device, CUdevice peer) {
  SIM_TRY(check_device(device));
  SIM_TRY(check_device(peer));
  if (value == nullptr || device == peer) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
