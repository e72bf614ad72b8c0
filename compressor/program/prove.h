// Do two observed runs of one signature tell the same program? Core: no CUDA, no Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

// Where two programs differ first, if they differ in what no hypothesis can explain.
enum class Difference : std::uint8_t {
  kNone,
  kNodeCount,
  kNodeKind,
  kFunction,
  kLaunchShape,  // grid, block, shared memory, cooperative, attributes
  kOrder,        // streams or edges
  kScalar,       // a parameter of at most 8 bytes, or a copy's or memset's word: no place for padding
  kPointer,      // symbols in both, not the same one
  kBlocks,       // blocks born inside differ in number, size or life
  kRandom,       // the generator moved by another amount
};

struct Comparison {
  Difference difference = Difference::kNone;
  std::uint32_t node = 0;       // of the difference
  std::uint32_t parameter = 0;  // kScalar, kPointer: its number, of a kernel with known layout
  std::uint32_t word = 0;       // in the node's words
  // With kNone: words inside by-value structs of more than 8 bytes that differ: padding, by hypothesis. Indices into
  // Program::words, ascending.
  std::vector<std::uint32_t> noise;
};

Comparison compare(const Program& a, const Program& b);

// One line for a PyTorch user: what differs, in which kernel (demangled by the caller's function), which parameter.
std::string describe(const Comparison& comparison, const Program& a, const Program& b,
                     std::string (*readable)(const std::string& kernel));

// The noise words of `program` take the values (or symbols) that `donor` has there. Both were compared equal but for
// `noise`. Used for shadow replays: padding of another run must not change a result.
void take_noise(Program& program, const Program& donor, const std::vector<std::uint32_t>& noise);

}  // namespace grape::program
