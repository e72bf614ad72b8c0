// What is known of a driver function by its name (functions.def), at compile time.
#pragma once

#include <cstdint>

#include "shim/driver/same_text.h"

namespace grape::driver {

enum class MemoryEffect : std::uint8_t {
  kNone,
  kAlloc,           // (address:o, bytes)
  kAllocPitch,      // (address:o, pitch:o, width, height)
  kAllocUnsized,    // (address:o): the driver knows its size
  kAllocHost,       // (address:o, bytes): the host writes to it as well
  kRegisterHost,    // (address, bytes)
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
  const char* base;
  MemoryEffect memory = MemoryEffect::kNone;
  GraphDoor graphs = GraphDoor::kNone;
  CodeEffect code = CodeEffect::kNone;
  HostData host_data = HostData::kNone;
  InCall in_call = InCall::kByClass;
};

inline constexpr FunctionFacts kFunctions[] = {
#define GRAPE_FUNCTION(base, memory, graphs, code, host_data, in_call) \
  {#base, MemoryEffect::memory, GraphDoor::graphs, CodeEffect::code, HostData::host_data, InCall::in_call},
#include "shim/driver/functions.def"
#undef GRAPE_FUNCTION
};

// `base`: a name without version and stream suffixes.
constexpr FunctionFacts facts_of(const char* base) noexcept {
  for (const FunctionFacts& facts : kFunctions) {
    if (same_text(facts.base, base)) return facts;
  }
  return {base};
}

}  // namespace grape::driver
