// A program as rows of 64-bit cells, so that programs can be compared, kept as differences and written to disk by one
// and the same code. Core: no CUDA, no Python. Plain data; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compressor/program/program.h"

namespace grape::store {

// The rows, in the order of Image::structure; kWords is last and lies by itself, being most of a program.
enum Section : std::size_t {
  kNodes,
  kFunctions,
  kReferences,
  kAttributes,
  kAfter,
  kStatics,
  kInputs,
  kTemps,
  kOutputs,
  kStrays,
  kWaitedEvents,
  kRecordedEvents,
  kWaitedStreams,
  kHostData,
  kStreams,
  kScalars,
  kWords,
  kSections,
};

using Counts = std::array<std::uint64_t, kSections>;  // elements; bytes of attributes and host data

constexpr std::uint64_t kNodeCells = 9;           // of a node; they come first, then two of each function
constexpr std::uint64_t kMaxElements = 1u << 24;  // of one section
constexpr std::uint64_t kMaxCells = 1u << 24;     // of one program: 128 MiB

// Cells that so many elements take.
std::uint64_t cells_of(Section section, std::uint64_t count);
// Of all sections but the words. False: more than the limits allow.
bool structure_cells(const Counts& counts, std::uint64_t& cells);

struct Image {
  Counts counts{};
  std::vector<std::uint64_t> structure;
  std::vector<std::uint64_t> words;

  std::size_t cells() const { return structure.size() + words.size(); }
  std::size_t bytes() const { return cells() * sizeof(std::uint64_t) + sizeof(Image); }
};

// How the parameters of functions lie.
struct Layout {
  std::vector<program::Parameter> parameters;
  bool has_layout = false;
  bool operator==(const Layout& other) const {
    return has_layout == other.has_layout && parameters == other.parameters;
  }
};

class Parts;

// False: the program contradicts itself (indices beyond their lists, unknown kinds) or exceeds a limit; `error` says
// so.
bool check(const program::Program& program, std::string& error);

// Of a program that check() passed.
Image to_image(const program::Program& program, Parts& parts);

// From the cells of all sections but the words, into `program`, whose words are there already; memory that it has is
// used again. The cells are not trusted. False: `error` says what is wrong; `program` is then in no particular state.
bool from_structure(const Counts& counts, const std::vector<std::uint64_t>& structure,
                    const std::vector<const std::string*>& names, const std::vector<const Layout*>& layouts,
                    program::Program& program, std::string& error);

}  // namespace grape::store
