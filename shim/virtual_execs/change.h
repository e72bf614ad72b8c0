// A change of one node of an exec, in one form for all driver functions that change nodes.
#pragma once

#include <cstddef>
#include <cstring>

#include "shim/driver/driver_api.h"
#include "shim/driver/kernel_node.h"

namespace grape::virtual_execs {

struct Change {
  enum class Kind : unsigned char {
    kNone,     // asks only
    kKernel,   // new parameters
    kCopy,     // the same
    kMemset,   // the same
    kEnabled,  // or disabled
    kOther,    // nobody follows it
  } kind = Kind::kOther;
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  CUDA_MEMCPY3D_v2 copy{};
  CUDA_MEMSET_NODE_PARAMS_v1 memset{};
  CUcontext context = nullptr;  // of copies and memsets
  bool enabled = true;
};

// From the arguments behind exec and node. Pointers have been read by the driver: the call succeeded.
inline Change change_of(const CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept { return {Change::Kind::kKernel, *params}; }
inline Change change_of(const CUDA_KERNEL_NODE_PARAMS_v1* params) noexcept {
  return {Change::Kind::kKernel, driver::newer_params(*params)};
}
inline Change change_of(const CUDA_MEMCPY3D_v2* params, CUcontext context) noexcept {
  return {Change::Kind::kCopy, {}, *params, {}, context};
}
inline Change change_of(const CUDA_MEMSET_NODE_PARAMS_v1* params, CUcontext context) noexcept {
  return {Change::Kind::kMemset, {}, {}, *params, context};
}
inline Change change_of(unsigned enabled) noexcept {
  return {Change::Kind::kEnabled, {}, {}, {}, nullptr, enabled != 0};
}
inline Change change_of(unsigned*) noexcept { return {Change::Kind::kNone}; }
// The newer form, for all kinds of nodes.
inline Change change_of(const CUgraphNodeParams* params) noexcept {
  Change change;
  if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    change.kind = Change::Kind::kKernel;
    static_assert(sizeof change.kernel == sizeof params->kernel, "version 3 has version 2's fields");
    std::memcpy(&change.kernel, &params->kernel, sizeof change.kernel);
  } else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    change = change_of(&params->memcpy.copyParams, params->memcpy.copyCtx);
  } else if (params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
    const auto& memset = params->memset;
    change.kind = Change::Kind::kMemset;
    change.memset = {memset.dst, memset.pitch, memset.value, memset.elementSize, memset.width, memset.height};
    change.context = memset.ctx;
  }
  return change;
}
inline Change change_of(CUgraphNodeParams* params) noexcept {
  return change_of(static_cast<const CUgraphNodeParams*>(params));
}
// For nodes that no virtual exec has.
template <class... Others>
Change change_of(Others...) noexcept {
  return {};
}

}  // namespace grape::virtual_execs
