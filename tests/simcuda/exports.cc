// The exported symbols. For each row of the list: an entry function (a template over the implementation) that counts
// the call, injects a fault and keeps exceptions in; a pointer to it; and the exported symbol, a jump through that
// pointer. The jump leaves all argument registers alone, so no prototype is written a second time.
#include <cstring>
#include <new>

#include "api.h"
#include "faults.h"
#include "graph.h"
#include "handles.h"
#include "simcuda.h"

namespace simcuda {

thread_local bool per_thread_default_stream = false;

namespace {

enum SiteIndex {
#define DRIVER(symbol, name, version) kSite_##symbol,
#define DRIVER_PT(symbol, name, version, pt_version, suffix) kSite_##symbol, kSite_##symbol##suffix,
#define REJECTED DRIVER
#define REJECTED_PT DRIVER_PT
#include "driver_list.inc"
#include "extra_list.inc"
#include "rejected_list.inc"
#undef DRIVER
#undef DRIVER_PT
#undef REJECTED
#undef REJECTED_PT
  kSiteCount
};

extern CallSite sites[];

class DefaultStreamScope {
 public:
  explicit DefaultStreamScope(bool per_thread) : previous_(per_thread_default_stream) {
    per_thread_default_stream = per_thread;
  }
  ~DefaultStreamScope() { per_thread_default_stream = previous_; }

 private:
  bool previous_;
};

template <auto Implementation, int Index, bool PerThread>
struct Entry;
template <typename... Arguments, CUresult (*Implementation)(Arguments...), int Index>
struct Entry<Implementation, Index, false> {
  static CUresult call(Arguments... arguments) {
    SIM_TRY(enter(sites[Index]));
    try {
      return Implementation(arguments...);
    } catch (...) {  // std::bad_alloc, or no thread to be had
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
};
template <typename... Arguments, CUresult (*Implementation)(Arguments...), int Index>
struct Entry<Implementation, Index, true> {
  static CUresult call(Arguments... arguments) {
    SIM_TRY(enter(sites[Index]));
    DefaultStreamScope scope(true);
    try {
      return Implementation(arguments...);
    } catch (...) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
};

template <typename Function>
struct Rejection;
template <typename... Arguments>
struct Rejection<CUresult (*)(Arguments...)> {
  static CUresult answer(Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

}  // namespace

#define ENTRY(symbol, implementation, per_thread)                                             \
  extern "C" __attribute__((visibility("hidden"), used)) void* const simcuda_entry_##symbol = \
      reinterpret_cast<void*>(&Entry<implementation, kSite_##symbol, per_thread>::call);      \
  asm(".text\n.balign 16\n.globl " #symbol "\n.type " #symbol ", @function\n" #symbol         \
      ":\n\tjmp *simcuda_entry_" #symbol "(%rip)\n.size " #symbol ", .-" #symbol "\n");       \
  extern "C" __attribute__((visibility("default"))) char simcuda_export_##symbol[] asm(#symbol);
#define DRIVER(symbol, name, version) ENTRY(symbol, api::symbol, false)
#define DRIVER_PT(symbol, name, version, pt_version, suffix) \
  ENTRY(symbol, api::symbol, false)                          \
  ENTRY(symbol##suffix, api::symbol, true)
#define REJECTED(symbol, name, version) ENTRY(symbol, &Rejection<PFN_##name##_v##version>::answer, false)
#define REJECTED_PT(symbol, name, version, pt_version, suffix)      \
  ENTRY(symbol, &Rejection<PFN_##name##_v##version>::answer, false) \
  ENTRY(symbol##suffix, &Rejection<PFN_##name##_v##version>::answer, true)
#include "driver_list.inc"
#include "rejected_list.inc"
#undef DRIVER
#undef DRIVER_PT
#undef REJECTED
#undef REJECTED_PT

namespace api_extra {
// Declared here only: no header of NVIDIA's knows them.
CUresult unknown(double* result, int a, double b, long c, float d, int e, double f, long g, double h, unsigned i,
                 double j, const char* text) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *result = a + 2 * b + 3.0 * c + 4.0 * d + 5.0 * e + 6 * f + 7.0 * g + 8 * h + 9.0 * i + 10 * j +
            (text != nullptr ? static_cast<double>(std::strlen(text)) : 0);
  return CUDA_SUCCESS;
}
CUresult exec_nodes(void* exec, double* nodes, int b, double c, long d, float e, int f) {
  const std::shared_ptr<Exec> found = share_handle<Exec>(exec);
  if (found == nullptr || nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *nodes = static_cast<double>(found->image->nodes.size()) + b + c + static_cast<double>(d) + e + f;
  return CUDA_SUCCESS;
}
CUresult unknown_count() { return CUDA_SUCCESS; }
CUresult versioned(int* number) { return number == nullptr ? CUDA_ERROR_INVALID_VALUE : (*number = 1, CUDA_SUCCESS); }
CUresult versioned_v2(int* number) {
  return number == nullptr ? CUDA_ERROR_INVALID_VALUE : (*number = 2, CUDA_SUCCESS);
}
}  // namespace api_extra
ENTRY(cuSimUnknown, &api_extra::unknown, false)
ENTRY(cuSimUnknownCount, &api_extra::unknown_count, false)
ENTRY(cuSimGraphExecNodes, &api_extra::exec_nodes, false)
ENTRY(cuSimVersioned, &api_extra::versioned, false)
ENTRY(cuSimVersioned_v2, &api_extra::versioned_v2, false)

namespace {
CallSite sites[] = {
#define SITE(symbol, name, version, per_thread) \
  {#symbol, #name, version, per_thread, &simcuda_entry_##symbol, simcuda_export_##symbol},
#define DRIVER(symbol, name, version) SITE(symbol, name, version, 0)
#define DRIVER_PT(symbol, name, version, pt_version, suffix) \
  SITE(symbol, name, version, 0) SITE(symbol##suffix, name, pt_version, 1)
#define REJECTED DRIVER
#define REJECTED_PT DRIVER_PT
#include "driver_list.inc"
#include "extra_list.inc"
#include "rejected_list.inc"
};
static_assert(sizeof(sites) / sizeof(sites[0]) == kSiteCount, "one site per exported symbol");
}  // namespace

CallSite* call_sites() { return sites; }
std::size_t call_site_count() { return kSiteCount; }

}  // namespace simcuda
