// One call of a region as it was observed, with addresses: what is symbolised. Core: no CUDA, no Python; handles and
// addresses are plain u64. Plain data, owned by whoever holds it; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace grape::program {

enum class NodeKind : std::uint8_t { kKernel, kCopy, kMemset, kHostRead, kHostCopy };

struct Dimensions {
  std::uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dimensions& other) const { return x == other.x && y == other.y && z == other.z; }
  bool operator!=(const Dimensions& other) const { return !(*this == other); }
};

struct Parameter {
  std::uint32_t offset = 0;  // in bytes, in the packed buffer
  std::uint32_t bytes = 0;
  bool operator==(const Parameter& other) const { return offset == other.offset && bytes == other.bytes; }
};

// A kernel, by handle: the same function has the same handle as long as its module stays loaded.
struct FunctionInfo {
  std::uint64_t handle = 0;  // CUfunction or CUkernel
  std::string name;          // mangled
  std::vector<Parameter> parameters;
  bool has_layout = false;  // false: parameters came as one packed buffer and nobody knows what lies in it
};

// Parameter words by kind; a word is 8 bytes, the last one padded with zeros.
//   kKernel  the packed parameter buffer
//   kCopy    destination, source, bytes          (device to device, one row)
//   kHostRead  source, bytes, then what the host read: the host waits here, and goes on as the value says
//   kHostCopy  destination, offset of the bytes in host_data, bytes: they are those that the host had at the call
//   kMemset  destination, value, element bytes, width in elements, height, pitch in bytes
struct RecordedNode {
  NodeKind kind = NodeKind::kKernel;
  bool cooperative = false;
  bool packed = false;         // parameters came packed (`extra`)
  std::uint32_t function = 0;  // index into RegionRecord::functions; kernels only
  std::uint32_t stream = 0;    // index into RegionRecord::streams
  std::uint32_t frame = 0;     // Python frame id of the trace, 0 unknown; for reports only
  Dimensions grid, block;
  std::uint32_t shared_bytes = 0;  // dynamic
  std::uint32_t parameter_bytes = 0;
  std::uint32_t words_at = 0, word_count = 0;            // in RegionRecord::words
  std::uint32_t attributes_at = 0, attribute_count = 0;  // in RegionRecord::attributes, in units of kAttributeBytes
  std::uint32_t after_at = 0, after_count = 0;           // in RegionRecord::after: nodes that it directly follows
};
constexpr std::size_t kAttributeBytes = 72;  // sizeof(CUlaunchAttribute)

// A block of device memory that was alive before the region began.
struct LiveBlock {
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t serial = 0;  // process-wide and unique: names this allocation, not its address
};

// Memory of the host that a library keeps for itself and hands to its kernels: an error flag, say. It stays where it is
// and is never written to, so a pointer to it is a plain word.
struct HostWord {
  std::uint64_t address = 0, bytes = 0;  // at most kMost
  std::uint64_t serial = 0;              // as LiveBlock's
  std::uint64_t value = 0;               // its bytes
  static constexpr std::uint64_t kMost = sizeof value;
  bool operator==(const HostWord& o) const noexcept {
    return address == o.address && bytes == o.bytes && serial == o.serial && value == o.value;
  }
};

// A block's birth or death inside the region, before node `before_node` (== nodes.size(): after the last).
struct BlockEvent {
  bool alloc = false;
  std::uint32_t before_node = 0;
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t serial = 0;
};

// Memory of one of the call's tensor arguments. Extents do not overlap (aliasing arguments share one).
struct Extent {
  std::uint64_t address = 0, bytes = 0;
};

// Have two ranges of memory (address, bytes) bytes in common?
template <class A, class B>
bool overlap(const A& a, const B& b) noexcept {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

// An event or a stream of the driver's. Handles are reused, serials are not.
struct LiveHandle {
  std::uint64_t handle = 0;
  std::uint64_t serial = 0;
  bool operator==(const LiveHandle& other) const { return handle == other.handle && serial == other.serial; }
  bool operator!=(const LiveHandle& other) const { return !(*this == other); }
};

// The framework's random state for the device: words that hold the seed, or the offset plus a little, follow it.
struct RandomState {
  bool known = false;
  std::uint64_t seed = 0, offset_before = 0, offset_after = 0;
};

struct RegionRecord {
  std::vector<RecordedNode> nodes;  // in the order of the calls
  std::vector<FunctionInfo> functions;
  std::vector<std::uint64_t> streams;         // handles, in the order of first use; behind them those without a node
  std::vector<std::uint64_t> stream_serials;  // of those; 0: not known, or a default stream
  // Events from before the call that a stream waited for, and events that the call recorded and that outlive it.
  // Ascending by serial, each once.
  std::vector<LiveHandle> waited_events, recorded_events;
  std::vector<std::uint64_t> words;           // of all nodes
  std::vector<std::uint8_t> host_data;        // of all nodes: each a multiple of 16 bytes, the last ones zero
  std::vector<std::uint64_t> waited_streams;  // handles of those that the host waited for, ascending, each once
  std::vector<std::uint8_t> attributes;       // of all nodes
  std::vector<std::uint32_t> after;           // of all nodes
  std::vector<HostWord> host_words;           // that kernels were handed; each once
  std::vector<LiveBlock> before;              // ascending by address, disjoint
  std::vector<BlockEvent> block_events;       // in order
  // Blocks that the call gave to somebody else: they outlive it, whatever that one does with them. By serial,
  // ascending.
  std::vector<std::uint64_t> given_away;
  std::vector<Extent> segments;  // all device memory that the driver has given, ascending: blocks lie in it
  std::vector<Extent> inputs;
  RandomState random;
};

}  // namespace grape::program
