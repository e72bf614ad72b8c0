// Handles driver calls that name an exec, or change what execs are made of, where graphs are virtual (GRAPE_GRAPHS).
// All other calls go to the driver unchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "shim/driver/driver_api.h"
#include "shim/driver/function_facts.h"
#include "shim/virtual_execs/submissions.h"
#include "shim/virtual_execs/virtual_execs.h"

namespace grape::virtual_execs {

// Set once, before the first driver call: GRAPE_GRAPHS=virtual. Stays set when the library gives up: handles that were
// given out must work until the end.
extern std::atomic<bool> g_on;

using Door = driver::GraphDoor;

// Notes of the wrappers that code or a primary context goes, or that a primary context is held.
void unloads(CUmodule module) noexcept;
void unloads(CUlibrary library) noexcept;
void primary_held(CUcontext context, CUdevice device) noexcept;
void primary_gone(CUdevice device) noexcept;

inline cuuint64_t flags_of() noexcept { return 0; }
inline cuuint64_t flags_of(unsigned long long flags) noexcept { return flags; }
inline cuuint64_t flags_of(const CUDA_GRAPH_INSTANTIATE_PARAMS* params) noexcept {
  return params != nullptr ? params->flags : 0;
}
inline cuuint64_t flags_of(CUgraphNode*, char*, std::size_t) noexcept { return 0; }

template <class Call, class... Rest>
CUresult instantiate(const Call& call, CUgraphExec* exec, CUgraph graph, Rest... rest) {
  VirtualExecs& execs = VirtualExecs::instance();
  execs.instantiating(graph);
  CUresult result = call(exec, graph, rest...);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && execs.make_room()) result = call(exec, graph, rest...);
  if (result == CUDA_SUCCESS && exec != nullptr) *exec = execs.instantiated(*exec, graph, flags_of(rest...));
  return result;
}

template <class Call, class... Rest>
CUresult with(VirtualExecs::Use use, const Call& call, Rest... rest) {
  if (use.result != CUDA_SUCCESS || use.launched) return use.result;
  const CUresult result = call(use.exec, rest...);
  VirtualExecs::instance().end(use);
  return result;
}

template <bool kPerThread, class Call>
CUresult launch(CUgraphExec exec, const Call& call, CUstream stream) {
  VirtualExecs& execs = VirtualExecs::instance();
  const VirtualExecs::Use use = execs.begin_launch(exec, stream, kPerThread);
  const CUresult result = with(use, call, stream);
  if (use.next != nullptr && result == CUDA_SUCCESS) execs.prepare(use.next, stream, kPerThread);
  return result;
}

template <class Call, class... Rest>
CUresult with_node(CUgraphExec exec, const Call& call, CUgraphNode node, Rest... rest) {
  VirtualExecs& execs = VirtualExecs::instance();
  const VirtualExecs::Use use = execs.begin_node(exec, node);
  if (use.result != CUDA_SUCCESS) return use.result;
  const CUresult result = call(use.exec, use.node, rest...);
  if (result == CUDA_SUCCESS) execs.changed(exec, use, change_of(rest...));
  execs.end(use);
  return result;
}

template <class Call, class Flags>
CUresult get_flags(const Call& call, CUgraphExec exec, Flags* flags) {
  cuuint64_t known = 0;
  if (flags == nullptr || !VirtualExecs::instance().flags(exec, known)) return call(nullptr, flags);
  *flags = known;
  return CUDA_SUCCESS;
}

// `call`: the driver's function.
template <Door kDoor, bool kPerThread, class Call, class First, class... Rest>
CUresult through(const Call& call, First first, Rest... rest) {
  VirtualExecs& execs = VirtualExecs::instance();
  if constexpr (kDoor == Door::kInstantiate) {
    return instantiate(call, first, rest...);
  } else if constexpr (std::is_same_v<First, CUgraphExec>) {
    if (!VirtualExecs::ours(first)) return call(first, rest...);
    if constexpr (kDoor == Door::kLaunch) return launch<kPerThread>(first, call, rest...);
    if constexpr (kDoor == Door::kUpload) return with(execs.begin(first), call, rest...);
    if constexpr (kDoor == Door::kGetFlags) return get_flags(call, first, rest...);
    if constexpr (kDoor == Door::kDestroy) return execs.destroy(first, call);
    if constexpr (kDoor == Door::kExec) return with(execs.begin_pinned(first), call, rest...);
    if constexpr (kDoor == Door::kNode) return with_node(first, call, rest...);
  } else if constexpr (kDoor == Door::kAllocate) {
    // What execs take must not be what the application lacks.
    const CUresult result = call(first, rest...);
    return result == CUDA_ERROR_OUT_OF_MEMORY && execs.make_room() ? call(first, rest...) : result;
  } else if constexpr (kDoor == Door::kUnload) {
    unloads(first);
    return call(first, rest...);
  } else if constexpr (kDoor == Door::kStreamGone) {
    execs.before_stream_goes(first);
    return call(first, rest...);
  } else {
    // A handle may be given anew as soon as it is gone: what knows it forgets it before.
    if constexpr (kDoor == Door::kGraphGone) execs.graph_gone(first);
    if constexpr (kDoor == Door::kNodeGone) execs.node_gone(first);
    const CUresult result = call(first, rest...);
    if (result != CUDA_SUCCESS) return result;
    if constexpr (kDoor == Door::kObjects) execs.keeps_objects(first);
    if constexpr (kDoor == Door::kClone) execs.cloned(rest..., *first);
    if constexpr (kDoor == Door::kContextGone) execs.context_gone(first);
    if constexpr (kDoor == Door::kPrimaryHeld) primary_held(*first, rest...);
    if constexpr (kDoor == Door::kPrimaryGone) primary_gone(first);
    return result;
  }
}

}  // namespace grape::virtual_execs
