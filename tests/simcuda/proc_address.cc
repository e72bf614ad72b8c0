// cuGetProcAddress: exact names, the newest signature that is not newer than asked for, either default stream.
#include <cstring>

#include "faults.h"

namespace simcuda {

namespace {

constexpr int kDriverVersion = 13000;

struct Lookup {
  void* address = nullptr;
  bool known = false;  // the name exists, in some version
};

// A name without a twin for the per-thread default stream answers for both.
Lookup look_up(const char* name, int version, bool per_thread) {
  Lookup result;
  int best = -1;
  bool best_per_thread = false;
  for (std::size_t i = 0; i < call_site_count(); ++i) {
    const CallSite& site = call_sites()[i];
    if (std::strcmp(site.name, name) != 0) continue;
    result.known = true;
    const bool site_per_thread = site.per_thread != 0;
    if (site.version > version || (site_per_thread && !per_thread)) continue;
    // Compare the plain versions of both twins: the twin came later than the function.
    const int rank = site_per_thread ? call_sites()[i - 1].version : site.version;
    if (rank > best || (rank == best && site_per_thread && !best_per_thread)) {
      best = rank;
      best_per_thread = site_per_thread;
      result.address = site.exported;
    }
  }
  return result;
}

CUresult get(const char* symbol, void** function, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kBoth = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || *symbol == '\0' || function == nullptr || (flags & ~kBoth) != 0 || flags == kBoth) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Lookup found = look_up(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  *function = found.address;
  if (status != nullptr) {
    *status = found.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.known            ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found.address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult api::cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return get(symbol, function, version, flags, nullptr);
}

CUresult api::cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  return get(symbol, function, version, flags, status);
}

CUresult api::cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;  // private interfaces of NVIDIA's own libraries
}

CUresult api::cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
