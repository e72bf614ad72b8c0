// The effects of a driver function that Grape follows: the column `effects` of hooks.def.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace grape::driver {

enum class MemoryEffect : std::uint8_t {
  kNone,
  kAlloc,           // (address:o, bytes)
  kAllocPitch,      // (address:o, pitch:o, width, height)
  kAllocUnsized,    // (address:o): the driver knows its size
  kAllocHost,       // (address:o, bytes): the host writes to it as well
  kRegisterHost,    // (address, bytes)
  kReserve,         // (address:o, bytes, alignment, wanted, flags): addresses without memory
  kCreate,          // (handle:o, bytes): memory without an address yet
  kMap,             // (address, bytes)
  kFree,            // (address)
  kUnmap,           // (address, bytes)
  kUnknownMemory,   // memory comes to be that is not followed
  kRetainPrimary,   // (context:o, device)
  kReleasePrimary,  // (device): gone if nobody else holds it
  kResetPrimary,    // (device)
  kDestroyContext,  // (context)
  kMakeEvent,       // (event:o, flags)
  kDestroyEvent,    // (event)
  kMakeStream,      // (stream:o, ...)
  kDestroyStream,   // (stream)
};

enum class GraphDoor : std::uint8_t {
  kNone,
  kInstantiate,  // (exec:o, graph, ...)
  kLaunch,       // (exec, stream)
  kUpload,       // (exec, stream)
  kGetFlags,     // (exec, flags:o)
  kDestroy,      // (exec)
  kExec,         // (exec, ...): changes it as a whole
  kNode,         // (exec, node, ...): changes it, or tells of it
  kGraphGone,    // (graph)
  kNodeGone,     // (node)
  kObjects,      // (graph, ...)
  kClone,        // (clone:o, graph)
  kUnload,       // (module or library)
  kContextGone,  // (context)
  kPrimaryHeld,  // (context:o, device)
  kPrimaryGone,  // (device)
  kStreamGone,   // (stream)
  kAllocate,     // (...): takes memory of the device
};

enum class CodeEffect : std::uint8_t { kNone, kLoad, kUnload, kGetModule, kGetFunction };

// kMayBring: (destination, source, bytes, ...), with a source that may be the host's.
enum class HostData : std::uint8_t { kNone, kMayBring };

// In an observed call (shim/observation/region_screen.h).
enum class InCall : std::uint8_t {
  kByClass,         // as others of its class
  kHarmless,        // changes nothing that a replay needs
  kAsksOfCode,      // loads no code: its answers hold for replays as well
  kUnloads,         // code
  kSeveralDevices,  // launches on several devices
  kDeviceCopy,      // from device to device
  kUnifiedCopy,     // to or from the host, or neither
  kArrayCopy,       // to an array
  kWait,            // for one stream
  kRead,            // of device memory by the host, on a stream
};

struct FunctionFacts {
  MemoryEffect memory = MemoryEffect::kNone;
  GraphDoor graphs = GraphDoor::kNone;
  CodeEffect code = CodeEffect::kNone;
  HostData host_data = HostData::kNone;
  InCall in_call = InCall::kByClass;

  constexpr FunctionFacts() noexcept = default;
  // One column's value stands for a row with nothing else.
  constexpr FunctionFacts(MemoryEffect value) noexcept : memory(value) {}  // NOLINT(google-explicit-constructor)
  constexpr FunctionFacts(GraphDoor value) noexcept : graphs(value) {}     // NOLINT(google-explicit-constructor)
  constexpr FunctionFacts(CodeEffect value) noexcept : code(value) {}      // NOLINT(google-explicit-constructor)
  constexpr FunctionFacts(HostData value) noexcept : host_data(value) {}   // NOLINT(google-explicit-constructor)
  constexpr FunctionFacts(InCall value) noexcept : in_call(value) {}       // NOLINT(google-explicit-constructor)
};

inline constexpr FunctionFacts kNoEffect;

// Two values of the columns, or sets of them, which have no column in common.
template <class A, class B,
          class = std::enable_if_t<std::is_convertible_v<A, FunctionFacts> && std::is_convertible_v<B, FunctionFacts>>>
constexpr FunctionFacts operator|(A a, B b) noexcept {
  FunctionFacts both = a;
  const FunctionFacts more = b;
  if (more.memory != MemoryEffect::kNone) both.memory = more.memory;
  if (more.graphs != GraphDoor::kNone) both.graphs = more.graphs;
  if (more.code != CodeEffect::kNone) both.code = more.code;
  if (more.host_data != HostData::kNone) both.host_data = more.host_data;
  if (more.in_call != InCall::kByClass) both.in_call = more.in_call;
  return both;
}

// `base`: a name without version and stream suffixes.
InCall in_call_of(std::string_view base) noexcept;

}  // namespace grape::driver
