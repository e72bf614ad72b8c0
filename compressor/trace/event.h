// The event: what a recorded thread writes down, and what a reader of a trace gets back.
//
// An event is a 32-byte header and a payload of 8-byte words, host-endian (little-endian on every supported
// machine). The same layout stands in the recorder's memory and comes out of trace::Reader; on disk it is
// coded differently (docs/FORMAT.md). Nothing here knows CUDA or Python: handles and addresses are plain u64.
//
// Ids in events (function, frame, scope, code) are dense from 1, 0 means "none", and are defined by a Def*
// event that precedes their first use in the stream of the same thread. In raw streams each thread has its own
// id space; trace::Reader maps them to file-wide ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace grape::trace {

enum class EventKind : std::uint16_t {
  kNone = 0,
  // Definitions.
  kDefFunction = 1,     // a kernel: name and parameter layout
  kDefCode = 2,         // a Python code object
  kDefFrame = 3,        // a node of the Python stack tree
  kDefNativeFrame = 4,  // a node of the native stack tree
  kDefScope = 5,        // a module, backward pass, optimizer or user function
  // Events.
  kLaunch = 16,       // a kernel launch
  kCall = 17,         // any other driver call
  kBlockAlloc = 18,   // the framework's allocator handed out a block
  kBlockFree = 19,    // the framework's allocator took a block back
  kScopeBegin = 20,   // a module call (or backward, step, user function) begins on this thread
  kScopeEnd = 21,     // and ends
  kScopeAttach = 22,  // this thread now works for a region that another thread opened (autograd's threads)
  kExecNode = 23,     // one node of a graph that the application instantiated
  kExecEdges = 24,    // its edges
  kLost = 25,         // events were dropped here because the buffers were full
};

constexpr bool is_definition(EventKind kind) noexcept { return kind < EventKind::kLaunch; }

// Bits of EventHeader::flags.
enum EventFlags : std::uint16_t {
  kFlagCaptured = 1,     // issued on a stream under capture: recorded into a graph, not executed
  kFlagNoLayout = 2,     // the driver gave no parameter layout: parameter bytes are absent
  kFlagPackedExtra = 4,  // parameters came as one packed buffer (`extra`), copied as they were
  kFlagCooperative = 8,  // cooperative launch
  kFlagTruncated = 16,   // the payload was cut to fit a block; counts are those that are present
};

struct EventHeader {
  std::uint32_t bytes;  // header and payload; a multiple of 8
  EventKind kind;
  std::uint16_t flags;     // EventFlags
  std::uint32_t key;       // like events have like keys (hash of a kernel's name, an API id): a hint for the coder only
  std::uint32_t duration;  // ticks the driver call took, saturated; 0 where that has no meaning
  std::uint64_t sequence;  // process-wide order, unique, from 1. Consistent with happens-before between threads
  std::uint64_t ticks;     // clock at the call's begin, in ticks of Meta::ticks_per_second
};
static_assert(sizeof(EventHeader) == 32, "the header is part of the recorder's memory layout");

constexpr std::size_t kMaxEventBytes = 128 * 1024;  // no event is larger; longer text is cut, larger lists are split

inline std::uint64_t pack(std::uint32_t low, std::uint32_t high) { return low | (std::uint64_t{high} << 32); }
inline std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
inline std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
constexpr std::size_t words_for(std::size_t bytes) { return (bytes + 7) / 8; }

// Payload layouts. `wN` is word N; `a|b` is pack(a, b). Bytes are padded with zeros to a whole word.
//
// kDefFunction      w0 id|kind (0 CUfunction, 1 CUkernel)  w1 handle  w2 module or library handle, 0 unknown
//                   w3 parameter count|name bytes  then per parameter offset|size  then the name (mangled)
// kDefCode          w0 id|first line  w1 content hash  w2 file bytes|qualname bytes
//                   then file, then qualname, each padded
// kDefFrame         w0 id|parent frame id (0: outermost)  w1 code id|line  w2 instruction offset in bytes|0
// kDefNativeFrame   w0 id|parent id  w1 offset in the object file  w2 object path bytes|symbol bytes
//                   then both, each padded
// kDefScope         w0 id|ScopeKind  w1 address of the object, 0 none  w2 name bytes|type bytes
//                   then both, each padded; name: the module's path in its root ("transformer.h.0.attn", "" for a
//                   root); type: "package.module:Qual.name"
// kLaunch           see LaunchWords
// kCall             w0 api id|result (CUresult)  w1 Python frame id|native frame id  w2 argument count|blob bytes
//                   then one word per argument (meaning: ApiInfo::arguments), then the blob (structs and text that
//                   pointer arguments led to, in argument order, each: u32 argument index, u32 bytes, bytes padded)
// kBlockAlloc       w0 address  w1 bytes  w2 Python frame id|device   (the frame may be a leaf without parents)
// kBlockFree        w0 address  w1 bytes  w2 0|device
// kScopeBegin       w0 scope id|Python frame id of the caller
//                   w1 region call number: process-wide, from 1; 0 where nested
// kScopeEnd         w0 scope id|status (0 returned, 1 raised)  w1 as in its kScopeBegin
// kScopeAttach      w0 region call number, 0: detached
// kExecNode         w0 exec handle  w1 node index|node type (CUgraphNodeType)  w2 function id|parameter bytes
//                   w3 gridX|gridY  w4 gridZ|blockX  w5 blockY|blockZ  w6 shared bytes|flags
//                   then parameter bytes (kernel nodes) or the node's parameter struct (others)
// kExecEdges        w0 exec handle  w1 edge count|0  then per edge from|to (node indices)
// kLost             w0 events dropped on this thread since the last event

enum class ScopeKind : std::uint32_t { kModule = 1, kBackward = 2, kOptimizer = 3, kFunction = 4 };

enum LaunchWords : std::size_t {
  kLaunchFunction = 0,  // function id|api id
  kLaunchStack = 1,     // Python frame id|native frame id
  kLaunchGridXY = 2,    // gridX|gridY
  kLaunchGridZ = 3,     // gridZ|blockX
  kLaunchBlock = 4,     // blockY|blockZ
  kLaunchShared = 5,    // dynamic shared memory in bytes|result (CUresult)
  kLaunchStream = 6,    // stream handle
  kLaunchSizes = 7,     // attribute count|parameter bytes
  kLaunchFixed = 8,     // then the attributes (kAttributeBytes each, as in CUlaunchAttribute), then parameter bytes
};
constexpr std::size_t kAttributeBytes = 72;

// A view of one event; owns nothing.
struct EventView {
  const EventHeader* header = nullptr;
  const std::uint64_t* words() const { return reinterpret_cast<const std::uint64_t*>(header + 1); }
  std::size_t word_count() const { return (header->bytes - sizeof(EventHeader)) / 8; }
};

// A kLaunch event by field. Precondition: header->kind == kLaunch and the payload passed Reader's check.
struct LaunchView : EventView {
  explicit LaunchView(EventView event) : EventView(event) {}
  std::uint32_t function() const { return low(words()[kLaunchFunction]); }
  std::uint32_t api() const { return high(words()[kLaunchFunction]); }
  std::uint32_t frame() const { return low(words()[kLaunchStack]); }
  std::uint32_t native_frame() const { return high(words()[kLaunchStack]); }
  std::uint32_t grid(int i) const { return i == 0 ? low(words()[2]) : i == 1 ? high(words()[2]) : low(words()[3]); }
  std::uint32_t block(int i) const { return i == 0 ? high(words()[3]) : i == 1 ? low(words()[4]) : high(words()[4]); }
  std::uint32_t shared_bytes() const { return low(words()[kLaunchShared]); }
  std::int32_t result() const { return static_cast<std::int32_t>(high(words()[kLaunchShared])); }
  std::uint64_t stream() const { return words()[kLaunchStream]; }
  std::uint32_t attribute_count() const { return low(words()[kLaunchSizes]); }
  std::uint32_t parameter_bytes() const { return high(words()[kLaunchSizes]); }
  const std::uint8_t* attribute(std::size_t i) const {
    return reinterpret_cast<const std::uint8_t*>(words() + kLaunchFixed) + i * kAttributeBytes;
  }
  const std::uint8_t* parameters() const { return attribute(attribute_count()); }
};

}  // namespace grape::trace
