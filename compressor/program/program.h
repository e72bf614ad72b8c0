// A program: a region's work without addresses of its own, so that it can be compared, stored, and run with its memory
// anywhere. Core: no CUDA, no Python. Plain data; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/record.h"

namespace grape::program {

enum class Role : std::uint8_t {
  kStatic,        // alive before the region and no argument: a weight, a workspace. Stays where it is
  kInput,         // an argument's memory
  kTemp,          // born and freed inside
  kOutput,        // born inside, alive after
  kHostData,      // Program::host_data, wherever that lies on the device; one block
  kRandomSeed,    // no memory: the generator's seed
  kRandomOffset,  // no memory: the generator's offset at the region's begin, plus the word's value
  kNumber,        // no memory: numbers of the call (numbers.h)
};

// A parameter word that is not a plain value. Program::words[word] holds the offset in the block (the addend for
// kRandomOffset, 0 for kRandomSeed, the word's other bits for kNumber).
struct Reference {
  std::uint32_t word = 0;  // index into Program::words
  Role role = Role::kStatic;
  std::uint32_t block = 0;  // index into the role's list of blocks; 0 for host data and the random roles; a NumberForm
  bool operator==(const Reference& o) const { return word == o.word && role == o.role && block == o.block; }
  bool operator!=(const Reference& o) const { return !(*this == o); }
};

struct StaticBlock {
  std::uint64_t address = 0, bytes = 0, serial = 0;
};

constexpr std::uint32_t kNever = ~0u;

// A block born inside, temp or output. Temps and outputs are each numbered in the order of birth.
struct BornBlock {
  std::uint64_t bytes = 0;
  std::uint32_t birth = 0;      // its number among all blocks born inside
  std::uint32_t born = 0;       // alive from before this node
  std::uint32_t died = kNever;  // to before this node; kNever: alive after the region (an output)
};

struct Program {
  std::vector<RecordedNode> nodes;      // their words, attributes and edges lie in node order without gaps
  std::vector<FunctionInfo> functions;  // only those used, in the order of first use
  std::vector<std::uint64_t> words;
  std::vector<Reference> references;  // ascending by word
  // Of each reference, the lower half of what the word was, as observed; empty: not known. No part of the program, and
  // not kept with it: it tells what compare() takes for padding from a number beside padding.
  std::vector<std::uint32_t> lows;
  std::vector<std::uint8_t> attributes;
  std::vector<std::uint32_t> after;        // per node ascending
  std::vector<StaticBlock> statics;        // only those referred to, in the order of first use
  std::vector<std::uint64_t> input_bytes;  // per extent of the record
  std::vector<BornBlock> temps, outputs;
  // Words that point into device memory, but into no block that was alive: what an earlier call left in padding, or a
  // pointer to memory that was given back. Ascending.
  std::vector<std::uint32_t> strays;
  // The stream of the launch waits for the first before anything is launched, and records the second behind all of it:
  // both is later than it was in the call, so whoever waits for one of them waits for all that it did wait for.
  std::vector<LiveHandle> waited_events, recorded_events;
  // The host waits for these before anything is launched, as it waited for them in the call: what the program copied to
  // the host before is there then. Handles of the observed run; only their number is part of the comparison.
  std::vector<std::uint64_t> waited_streams;
  std::vector<std::uint8_t> host_data;  // that kHostCopy nodes copy to the device
  std::vector<LiveHandle> streams;      // that the observed run was on, as far as known: no part of the comparison
  std::uint32_t stream_count = 0;       // nodes refer to streams by number, in the order of first use
  std::uint64_t random_increment = 0;   // of the generator's offset, by one call; 0 where the state is not known
  // The generator's state as this run began: no part of the program, but evidence for compare().
  std::uint64_t observed_seed = 0, observed_offset = 0;
};

// What Program::words[word] refers to; null: it is a plain value.
const Reference* reference_at(const Program& program, std::uint32_t word) noexcept;
// The node that has Program::words[word].
const RecordedNode& node_of(const Program& program, std::uint32_t word) noexcept;

// `gone`: per reference. Takes these out, and what Program::lows has of them.
void drop_references(Program& program, const std::vector<bool>& gone);
// Takes out the statics that no reference refers to.
void drop_unused_statics(Program& program);

// Nodes [first, first + count), launched as one, and the read by the host that follows (kNever: none).
struct Segment {
  std::uint32_t first = 0, count = 0;
  std::uint32_t read = kNever;
};

// A program's nodes between its reads by the host. At least one segment; one may be empty.
std::vector<Segment> segments(const Program& program);

}  // namespace grape::program
