// All blocks of device memory that are alive: the framework's and the driver's; and the driver's events and streams.
// Addresses are reused, so each allocation has a serial number. A counter moves when a block is freed to which somebody
// holds a reference. Any thread; the lock is held for one table operation, never across a driver call.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::memory {

// Blocks of the framework's allocator lie inside segments of the driver's: both are kept, the inner one is found first.
// kHost: memory that the device reaches and the host may change at any time (pinned, registered, managed).
// kLibrary: the same, but a few bytes that a library of NVIDIA's keeps for itself (program::HostWord).
// kEvent, kStream: no memory; the address is the handle, and an event's bytes are the flags that it was made with.
enum class BlockSource : std::uint8_t { kFramework, kDriver, kHost, kLibrary, kEvent, kStream };
constexpr std::size_t kBlockSources = 6;

class LiveBlocks {
 public:
  static LiveBlocks& instance() noexcept;

  // Returns the block's serial; 0: no memory (the block is then unknown, and `complete()` false from then on). An older
  // block at the address counts as freed. `context`: the context that owns the memory; 0: none in particular.
  std::uint64_t add(BlockSource source, std::uint64_t address, std::uint64_t bytes, std::uint64_t context = 0) noexcept;
  // Returns the serial of the removed block; 0: none was known. `bytes`, if given, gets the block's size.
  std::uint64_t remove(BlockSource source, std::uint64_t address, std::uint64_t* bytes = nullptr) noexcept;
  // All blocks that begin in the range.
  void remove_range(BlockSource source, std::uint64_t address, std::uint64_t bytes) noexcept;
  // A context is gone: its blocks, and the framework's in them.
  void remove_context(std::uint64_t context) noexcept;
  void clear() noexcept;           // all of them
  void set_incomplete() noexcept;  // there is memory that is not known here

  // All blocks of device memory now alive, ascending and disjoint: the framework's, and of the driver's those that
  // never held any of them. False: no memory, or not complete.
  bool snapshot(std::vector<program::LiveBlock>& out) const noexcept;
  // All that the driver gave, whether the framework's blocks lie in it or not, ascending and disjoint.
  bool snapshot_segments(std::vector<program::Extent>& out) const noexcept;
  // The same of kHost.
  bool snapshot_host(std::vector<program::LiveBlock>& out) const noexcept;
  // Those of kLibrary, and what is in them now. False: no memory.
  bool snapshot_library(std::vector<program::HostWord>& out) const noexcept;
  // Are they alive, and is the same in them?
  bool hold(const std::vector<program::HostWord>& words) const noexcept;
  // The streams' handles, of all contexts. False: no memory.
  bool snapshot_streams(std::vector<std::uint64_t>& out) const noexcept;

  // Finds the block that begins at the address; false: none.
  bool find(BlockSource source, std::uint64_t address, program::LiveBlock& out) const noexcept;
  // Of what was added last.
  std::uint64_t last_serial() const noexcept;

  // References keep nothing alive; they make a free bump the epoch. `address`: where the block begins.
  bool refer(std::uint64_t address, std::uint64_t serial) noexcept;  // false: it is gone already
  void release(std::uint64_t address, std::uint64_t serial) noexcept;
  // Is the block with this serial still alive?
  bool alive(std::uint64_t address, std::uint64_t serial) const noexcept;
  // The same for all that a program needs alive: its statics, events and streams. refer(): all or nothing.
  bool refer(const program::Program& program) noexcept;
  void release(const program::Program& program) noexcept;
  bool alive(const program::Program& program) const noexcept;
  // Bumped whenever a block that is referred to is freed. Cheap where no block came or went: looked at before each
  // replay.
  std::uint32_t epoch() const noexcept;
  bool complete() const noexcept;
  // Has the framework's allocator ever told of a block? Without that its temporary memory looks like everlasting one.
  bool has_framework() const noexcept;
};

}  // namespace grape::memory
