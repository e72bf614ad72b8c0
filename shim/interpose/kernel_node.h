// The kernel in the parameter struct of a graph node, if it has one.
#pragma once

#include "shim/interpose/driver_api.h"

namespace grape::interpose {

struct KernelNode {
  CUfunction function = nullptr;  // or a CUkernel
  void* const* parameters = nullptr;
  void* const* extra = nullptr;
};

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

inline KernelNode kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& node) noexcept { return newer_kernel_node(node); }
inline KernelNode kernel_node(const CUgraphNodeParams& node) noexcept {
  return node.type == CU_GRAPH_NODE_TYPE_KERNEL ? newer_kernel_node(node.kernel) : KernelNode{};
}

}  // namespace grape::interpose
