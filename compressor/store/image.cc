#include "compressor/store/image.h"

#include <cstring>
#include <type_traits>

#include "compressor/program/numbers.h"
#include "compressor/store/parts.h"
#include "compressor/trace/event.h"

namespace grape::store {
namespace {

using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Reference;
using program::Role;
using trace::high;
using trace::low;
using trace::pack;

constexpr std::uint64_t kScalarCells = 4;
constexpr std::uint64_t kRoles = static_cast<std::uint64_t>(Role::kNumber) + 1;
constexpr std::uint64_t kKinds = static_cast<std::uint64_t>(NodeKind::kHostCopy) + 1;

// What an element of a section has in its cells, for the writer (T is const then) and the reader alike.
template <typename Cells, typename T>
void element(Cells& cells, T& e) {
  constexpr bool kReads = !std::is_const_v<T>;
  using Kind = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Kind, RecordedNode>) {
    std::uint32_t flags =
        static_cast<std::uint32_t>(e.kind) | std::uint32_t{e.cooperative} << 8 | std::uint32_t{e.packed} << 16;
    cells.halves(flags, e.function);
    if constexpr (kReads) {
      cells.good = cells.good && (flags & 0xFFu) < kKinds && (flags & ~0x101FFu) == 0;
      e.kind = static_cast<NodeKind>((flags & 0xFFu) % kKinds);
      e.cooperative = (flags >> 8 & 1u) != 0;
      e.packed = (flags >> 16 & 1u) != 0;
    }
    cells.halves(e.stream, e.frame);
    cells.halves(e.grid.x, e.grid.y);
    cells.halves(e.grid.z, e.block.x);
    cells.halves(e.block.y, e.block.z);
    cells.halves(e.shared_bytes, e.parameter_bytes);
    cells.halves(e.words_at, e.word_count);
    cells.halves(e.attributes_at, e.attribute_count);
    cells.halves(e.after_at, e.after_count);
  } else if constexpr (std::is_same_v<Kind, program::FunctionInfo>) {
    cells.word(e.handle);
    cells.parts(e);
  } else if constexpr (std::is_same_v<Kind, Reference>) {
    auto role = static_cast<std::uint32_t>(e.role);
    cells.halves(e.word, role);
    if constexpr (kReads) {
      cells.good = cells.good && role < kRoles;
      e.role = static_cast<Role>(role % kRoles);
    }
    cells.half(e.block);
  } else if constexpr (std::is_same_v<Kind, program::StaticBlock>) {
    cells.word(e.address);
    cells.word(e.bytes);
    cells.word(e.serial);
  } else if constexpr (std::is_same_v<Kind, program::BornBlock>) {
    cells.word(e.bytes);
    cells.halves(e.birth, e.born);
    cells.half(e.died);
  } else if constexpr (std::is_same_v<Kind, program::LiveHandle>) {
    cells.word(e.handle);
    cells.word(e.serial);
  } else if constexpr (std::is_same_v<Kind, std::uint32_t>) {
    cells.half(e);
  } else {
    cells.word(e);
  }
}

// All sections of a program but the scalars and the words, in the order of their numbers.
template <typename Each, typename T>
void for_sections(Each& each, T& program) {
  each(program.nodes);
  each(program.functions);
  each(program.references);
  each(program.attributes);
  each(program.after);
  each(program.statics);
  each(program.input_bytes);
  each(program.temps);
  each(program.outputs);
  each(program.strays);
  each(program.waited_events);
  each(program.recorded_events);
  each(program.waited_streams);
  each(program.host_data);
  each(program.streams);
}

template <typename Cells, typename T>
void scalars(Cells& cells, T& program) {
  cells.half(program.stream_count);
  cells.word(program.random_increment);
  cells.word(program.observed_seed);
  cells.word(program.observed_offset);
}

Counts counts_of(const Program& program) {
  Counts counts{};
  std::size_t section = 0;
  auto count = [&](const auto& list) { counts[section++] = list.size(); };
  for_sections(count, program);
  counts[kScalars] = kScalarCells;
  counts[kWords] = program.words.size();
  return counts;
}

// Fills cells, of which there are as many as the counts say.
struct CellWriter {
  std::uint64_t* at;
  Parts& known;

  void word(std::uint64_t value) { *at++ = value; }
  void half(std::uint32_t value) { *at++ = value; }
  void halves(std::uint32_t lower, std::uint32_t upper) { *at++ = pack(lower, upper); }
  void parts(const program::FunctionInfo& function) {
    halves(known.name(function.name), known.layout(function.parameters, function.has_layout));
  }

  template <typename Element>
  void operator()(const std::vector<Element>& list) {
    for (const Element& each : list) element(*this, each);
  }
  void operator()(const std::vector<std::uint8_t>& bytes) {
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += (bytes.size() + 7) / 8;
  }
};

// Takes cells, of which there are as many as the counts say. Their content is not trusted.
struct CellReader {
  const std::uint64_t* at;
  const std::uint64_t* count;  // of the next section's elements
  const std::vector<const std::string*>& names;
  const std::vector<const Layout*>& layouts;
  bool good = true;

  void word(std::uint64_t& value) { value = *at++; }
  void half(std::uint32_t& value) {
    good = good && high(*at) == 0;
    value = low(*at++);
  }
  void halves(std::uint32_t& lower, std::uint32_t& upper) {
    lower = low(*at);
    upper = high(*at++);
  }
  void parts(program::FunctionInfo& function) {
    std::uint32_t name = 0, layout = 0;
    halves(name, layout);
    good = good && name < names.size() && layout < layouts.size();
    if (!good) return;
    function.name = *names[name];
    function.parameters = layouts[layout]->parameters;
    function.has_layout = layouts[layout]->has_layout;
  }

  template <typename Element>
  void operator()(std::vector<Element>& list) {
    list.resize(*count++);
    for (Element& each : list) element(*this, each);
  }
  void operator()(std::vector<std::uint8_t>& bytes) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(at);
    bytes.assign(from, from + *count);
    at += (*count++ + 7) / 8;
  }
};

bool range_fits(std::uint64_t at, std::uint64_t count, std::uint64_t limit) {
  return at <= limit && count <= limit - at;
}

const char* fault_of_node(const Program& program, const RecordedNode& node) {
  if (static_cast<std::uint64_t>(node.kind) >= kKinds) return "a node of an unknown kind";
  if (node.kind == NodeKind::kKernel && node.function >= program.functions.size())
    return "a node's function is missing";
  if (!range_fits(node.words_at, node.word_count, program.words.size())) return "a node's words are missing";
  const std::uint64_t attributes = program.attributes.size() / program::kAttributeBytes;
  if (!range_fits(node.attributes_at, node.attribute_count, attributes)) return "a node's attributes are missing";
  if (!range_fits(node.after_at, node.after_count, program.after.size())) return "a node's edges are missing";
  if (node.kind == NodeKind::kKernel && node.parameter_bytes > node.word_count * std::uint64_t{8}) {
    return "a node has fewer words than parameters";
  }
  return nullptr;
}

const char* fault_of_reference(const Program& program, const Reference& reference) {
  std::size_t blocks = 1;
  switch (reference.role) {
    case Role::kStatic:
      blocks = program.statics.size();
      break;
    case Role::kInput:
      blocks = program.input_bytes.size();
      break;
    case Role::kTemp:
      blocks = program.temps.size();
      break;
    case Role::kOutput:
      blocks = program.outputs.size();
      break;
    case Role::kHostData:
    case Role::kRandomSeed:
    case Role::kRandomOffset:
      break;
    case Role::kNumber:
      if (!program::is_number_form(reference.block)) return "a reference to a number of an unknown form";
      return reference.word < program.words.size() ? nullptr : "a reference's word is missing";
    default:
      return "a reference of an unknown role";
  }
  if (reference.block >= blocks) return "a reference's block is missing";
  return reference.word < program.words.size() ? nullptr : "a reference's word is missing";
}

const char* fault_of(const Program& program) {
  for (const RecordedNode& node : program.nodes) {
    if (const char* fault = fault_of_node(program, node)) return fault;
  }
  for (const Reference& reference : program.references) {
    if (const char* fault = fault_of_reference(program, reference)) return fault;
  }
  for (const std::uint32_t node : program.after) {
    if (node >= program.nodes.size()) return "an edge's node is missing";
  }
  for (const std::uint32_t word : program.strays) {
    if (word >= program.words.size()) return "a stray word is missing";
  }
  return nullptr;
}

}  // namespace

std::uint64_t cells_of(Section section, std::uint64_t count) {
  switch (section) {
    case kNodes:
      return count * kNodeCells;
    case kFunctions:
    case kReferences:
    case kWaitedEvents:
    case kRecordedEvents:
    case kStreams:
      return count * 2;
    case kAttributes:
    case kHostData:
      return (count + 7) / 8;
    case kStatics:
    case kTemps:
    case kOutputs:
      return count * 3;
    default:
      return count;
  }
}

bool structure_cells(const Counts& counts, std::uint64_t& cells) {
  cells = 0;
  for (std::size_t section = 0; section < kSections; ++section) {
    if (counts[section] > kMaxElements) return false;
    if (section != kWords) cells += cells_of(static_cast<Section>(section), counts[section]);
  }
  return counts[kScalars] == kScalarCells && cells + counts[kWords] <= kMaxCells;
}

bool check(const Program& program, std::string& error) {
  std::uint64_t cells = 0;
  if (!structure_cells(counts_of(program), cells)) {
    error = "the program is larger than the store allows";
    return false;
  }
  const char* fault = fault_of(program);
  if (fault != nullptr) error = std::string("the program contradicts itself: ") + fault;
  return fault == nullptr;
}

Image to_image(const Program& program, Parts& parts) {
  Image image;
  image.counts = counts_of(program);
  std::uint64_t cells = 0;
  structure_cells(image.counts, cells);
  image.structure.resize(cells);
  CellWriter writer{image.structure.data(), parts};
  for_sections(writer, program);
  scalars(writer, program);
  image.words = program.words;
  return image;
}

bool from_structure(const Counts& counts, const std::vector<std::uint64_t>& structure,
                    const std::vector<const std::string*>& names, const std::vector<const Layout*>& layouts,
                    Program& program, std::string& error) {
  std::uint64_t expected = 0;
  if (!structure_cells(counts, expected) || expected != structure.size() || counts[kWords] != program.words.size()) {
    error = "the stored program's counts do not fit its cells";
    return false;
  }
  CellReader reader{structure.data(), counts.data(), names, layouts};
  for_sections(reader, program);
  scalars(reader, program);
  const char* fault = reader.good ? fault_of(program) : "a number that does not fit, or something of no known kind";
  if (fault != nullptr) error = std::string("the stored program contradicts itself: ") + fault;
  return fault == nullptr;
}

}  // namespace grape::store
