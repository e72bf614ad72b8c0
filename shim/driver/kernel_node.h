// Finds the kernel in the parameter struct of a graph node, and the parameters that came as one buffer.
#pragma once

#include <cstddef>
#include <cstring>

#include "shim/driver/driver_api.h"

namespace grape::driver {

struct KernelNode {
  CUfunction function = nullptr;  // or a CUkernel
  void* const* parameters = nullptr;
  void* const* extra = nullptr;
};

// Parameters that came as one buffer.
struct PackedBuffer {
  const void* data = nullptr;  // the caller's; null: there is none
  std::size_t bytes = 0;
};

// `extra` as cuLaunchKernel has it, not null.
inline PackedBuffer packed_buffer(void* const* extra) noexcept {
  constexpr int kMost = 16;  // words; the driver knows two pairs and the end
  PackedBuffer buffer;
  for (int i = 0; i < kMost && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer.data = extra[i + 1];
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != nullptr) {
      buffer.bytes = *static_cast<const std::size_t*>(extra[i + 1]);
    }
  }
  return buffer;
}

template <class T>
KernelNode kernel_node(const T&) noexcept {
  return {};
}

inline KernelNode kernel_node(const CUDA_KERNEL_NODE_PARAMS_v1& node) noexcept {
  return {node.func, node.kernelParams, node.extra};
}

template <class Node>
KernelNode newer_kernel_node(const Node& node) noexcept {
  CUfunction function = node.func != nullptr ? node.func : reinterpret_cast<CUfunction>(node.kern);
  return {function, node.kernelParams, node.extra};
}

// The same in the newer struct, which begins like the older one.
inline CUDA_KERNEL_NODE_PARAMS_v2 newer_params(const CUDA_KERNEL_NODE_PARAMS_v1& older) noexcept {
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v1, extra) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, extra));
  std::memcpy(&params, &older, sizeof older);
  return params;
}

inline KernelNode kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& node) noexcept { return newer_kernel_node(node); }
inline KernelNode kernel_node(const CUgraphNodeParams& node) noexcept {
  return node.type == CU_GRAPH_NODE_TYPE_KERNEL ? newer_kernel_node(node.kernel) : KernelNode{};
}

}  // namespace grape::driver
