// Compares two observed runs of one signature: are they the same program? Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/program/foreign_bytes.h"
#include "compressor/program/program.h"
#include "compressor/refusal/refusal.h"

namespace grape::program {

constexpr std::uint32_t kMostWithoutPadding = 8;  // bytes of a parameter; larger ones are structs

// Where two programs differ first, if they differ in what no hypothesis can explain. Nodes and their order are looked
// at before blocks, blocks before events and the random state, and words last.
enum class Difference : std::uint8_t {
  kNone,
  kNodeCount,
  kNodeKind,
  kFunction,     // another name, or the same name of another module
  kLaunchShape,  // grid, block, shared memory, cooperative, attributes, size of the parameters
  kOrder,        // streams or edges
  kScalar,       // a parameter of at most 8 bytes that is no leftover (see compare()), or a copy's or memset's word
  kPointer,      // symbols in both, not the same one
  kStray,        // a copy, a memset or a parameter of at most 8 bytes points to device memory that is not allocated
  kBlocks,       // blocks born inside, or inputs, differ in number, size or life
  kEvents,       // other events from before the call that it waits for, or that outlive it; or other waits of the host
  kHostData,     // other bytes of the host's are copied to the device
  kRandom,       // how the run depends on the random state cannot be told; see compare()
};

struct Comparison {
  Difference difference = Difference::kNone;
  std::uint32_t node = 0;       // of the difference
  std::uint32_t parameter = 0;  // kScalar, kPointer: its number, of a kernel with known layout
  std::uint32_t word = 0;       // in the node's words
  // With kNone: words that differ where there is room for padding, and words in such places that point into no
  // block: padding, by hypothesis. Indices into Program::words, ascending.
  std::vector<std::uint32_t> noise;
};

// Statics are the same if address and serial are, functions if handle and name are. Blocks are the same if they live
// from the same node to the same node and their sizes could be what the allocator made of one request.
//
// There is room for padding, in a kernel with known layout, in by-value structs of more than 8 bytes and in the gaps
// between parameters. Smaller parameters have none, but for leftovers of the host's as they were seen in real streams:
//   - an object of one byte, of a closure's type or of a class template (so says the kernel's name), that is no boolean
//     in one of the kernel's launches in either run: an empty object, whose byte nobody set. Of a class that is known
//     to be empty (PyTorch's TrivialOffsetCalculator), whatever it is;
//   - the first four bytes of a class template of 8, where the other four are the same in both: an empty object, or one
//     byte, in front of a number (PyTorch's BUnaryFunctor, LoadWithCast);
//   - a pointer, or a closure of 8 bytes, that is an address of the host's heap or stack in both runs: cuBLASLt hands
//     its kernels where alpha and beta lie, PyTorch's lambdas where a variable lies that they captured and do not use.
//
// A run that draws random numbers is compared with strictness, as a frozen seed or offset would repeat its numbers.
// kRandom is, besides another amount drawn:
//   - both runs began with the same state: then a constant cannot be told from what follows the state. Two runs with
//     states of their own are needed.
//   - a word that was taken for an offset in one run is a constant, as the other run shows (see compare_and_settle());
//     or the same word is two different offsets. The next pair of runs may do better.
//   - a kernel takes at::PhiloxCudaState (its name says so), but not of a state that is known: a generator of the
//     user's.
// `host`: what kind of memory the process has at an address now; of runs on other threads, whose stacks and heaps lie
// anywhere. None: what is known without.
Comparison compare(const Program& a, const Program& b, const HostPlaces& host = {});

// The same, but constants that were taken for offsets in one of the runs are put back there first. With a seed of 0,
// which many programs set, sizes look like a state where they meet the offsets of a call.
Comparison compare_and_settle(Program& a, Program& b, const HostPlaces& host = {});

// May these bits of the word be padding, by the rules of compare()? The runs' nodes are the same, but for handles of
// kernels. `plain`: no run has a symbol there, so it may be a leftover as well.
bool may_be_noise(const Program& a, const Program& b, std::uint32_t word, std::uint64_t bits, bool plain);

// What differs, in which kernel (demangled by the caller's function; null: names as they are), which parameter. Nodes
// and parameters count from 0. Nothing is refused where nothing differs.
refusal::Refusal describe(const Comparison& comparison, const Program& a, const Program& b,
                          std::string (*readable)(const std::string& kernel));

}  // namespace grape::program
