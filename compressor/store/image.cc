#include "compressor/store/image.h"

#include <cstring>

#include "compressor/store/parts.h"
#include "compressor/trace/event.h"

namespace grape::store {
namespace {

using program::BornBlock;
using program::LiveHandle;
using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Reference;
using program::Role;
using trace::high;
using trace::low;
using trace::pack;

constexpr std::uint64_t kScalarCells = 4;
constexpr std::uint64_t kRoles = static_cast<std::uint64_t>(Role::kRandomOffset) + 1;
constexpr std::uint64_t kKinds = static_cast<std::uint64_t>(NodeKind::kHostCopy) + 1;

void put_bytes(std::vector<std::uint64_t>& cells, const std::vector<std::uint8_t>& bytes) {
  const std::size_t at = cells.size();
  cells.resize(at + (bytes.size() + 7) / 8, 0);
  if (!bytes.empty()) std::memcpy(cells.data() + at, bytes.data(), bytes.size());
}

void put_node(std::vector<std::uint64_t>& cells, const RecordedNode& node) {
  const std::uint32_t flags =
      static_cast<std::uint32_t>(node.kind) | std::uint32_t{node.cooperative} << 8 | std::uint32_t{node.packed} << 16;
  const std::uint64_t row[kNodeCells] = {
      pack(flags, node.function),           pack(node.stream, node.frame),
      pack(node.grid.x, node.grid.y),       pack(node.grid.z, node.block.x),
      pack(node.block.y, node.block.z),     pack(node.shared_bytes, node.parameter_bytes),
      pack(node.words_at, node.word_count), pack(node.attributes_at, node.attribute_count),
      pack(node.after_at, node.after_count)};
  cells.insert(cells.end(), row, row + kNodeCells);
}

void put_handles(std::vector<std::uint64_t>& cells, const std::vector<LiveHandle>& handles) {
  for (const LiveHandle& handle : handles) {
    cells.push_back(handle.handle);
    cells.push_back(handle.serial);
  }
}

void put_born(std::vector<std::uint64_t>& cells, const std::vector<BornBlock>& blocks) {
  for (const BornBlock& block : blocks) {
    cells.push_back(block.bytes);
    cells.push_back(pack(block.birth, block.born));
    cells.push_back(block.died);
  }
}

Counts counts_of(const Program& program) {
  Counts counts{};
  counts[kNodes] = program.nodes.size();
  counts[kFunctions] = program.functions.size();
  counts[kReferences] = program.references.size();
  counts[kAttributes] = program.attributes.size();
  counts[kAfter] = program.after.size();
  counts[kStatics] = program.statics.size();
  counts[kInputs] = program.input_bytes.size();
  counts[kTemps] = program.temps.size();
  counts[kOutputs] = program.outputs.size();
  counts[kStrays] = program.strays.size();
  counts[kWaitedEvents] = program.waited_events.size();
  counts[kRecordedEvents] = program.recorded_events.size();
  counts[kWaitedStreams] = program.waited_streams.size();
  counts[kHostData] = program.host_data.size();
  counts[kStreams] = program.streams.size();
  counts[kScalars] = kScalarCells;
  counts[kWords] = program.words.size();
  return counts;
}

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

// Takes cells from the front; how many there are was checked against the counts.
class Cells {
 public:
  explicit Cells(const std::vector<std::uint64_t>& cells) : at_(cells.data()) {}
  std::uint64_t next() { return *at_++; }
  const std::uint64_t* take(std::uint64_t count) {
    const std::uint64_t* here = at_;
    at_ += count;
    return here;
  }

  void bytes(std::uint64_t count, std::vector<std::uint8_t>& to) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(take((count + 7) / 8));
    to.assign(from, from + count);
  }

  // False: a number that does not fit 32 bits.
  bool numbers(std::uint64_t count, std::vector<std::uint32_t>& to) {
    to.resize(count);
    std::uint64_t all = 0;
    for (std::uint32_t& number : to) {
      const std::uint64_t cell = next();
      all |= cell;
      number = low(cell);
    }
    return high(all) == 0;
  }

  void words(std::uint64_t count, std::vector<std::uint64_t>& to) {
    const std::uint64_t* from = take(count);
    to.assign(from, from + count);
  }

  void handles(std::uint64_t count, std::vector<LiveHandle>& to) {
    to.resize(count);
    for (LiveHandle& handle : to) {
      handle.handle = next();
      handle.serial = next();
    }
  }

  void born(std::uint64_t count, std::vector<BornBlock>& to) {
    to.resize(count);
    for (BornBlock& block : to) {
      block.bytes = next();
      const std::uint64_t when = next();
      block.birth = low(when);
      block.born = high(when);
      block.died = low(next());
    }
  }

  bool nodes(std::uint64_t count, std::vector<RecordedNode>& to) {
    to.resize(count);
    bool good = true;
    for (RecordedNode& node : to) {
      const std::uint64_t* row = take(kNodeCells);
      const std::uint32_t flags = low(row[0]);
      good = good && (flags & 0xFFu) < kKinds && (flags & ~0x101FFu) == 0;
      node.kind = static_cast<NodeKind>((flags & 0xFFu) % kKinds);
      node.cooperative = (flags >> 8 & 1u) != 0;
      node.packed = (flags >> 16 & 1u) != 0;
      node.function = high(row[0]);
      node.stream = low(row[1]);
      node.frame = high(row[1]);
      node.grid = {low(row[2]), high(row[2]), low(row[3])};
      node.block = {high(row[3]), low(row[4]), high(row[4])};
      node.shared_bytes = low(row[5]);
      node.parameter_bytes = high(row[5]);
      node.words_at = low(row[6]);
      node.word_count = high(row[6]);
      node.attributes_at = low(row[7]);
      node.attribute_count = high(row[7]);
      node.after_at = low(row[8]);
      node.after_count = high(row[8]);
    }
    return good;
  }

  bool references(std::uint64_t count, std::vector<Reference>& to) {
    to.resize(count);
    bool good = true;
    for (Reference& reference : to) {
      const std::uint64_t cell = next();
      good = good && high(cell) < kRoles;
      reference.word = low(cell);
      reference.role = static_cast<Role>(high(cell) % kRoles);
      reference.block = low(next());
    }
    return good;
  }

 private:
  const std::uint64_t* at_;
};

bool take_functions(Cells& cells, std::uint64_t count, const std::vector<const std::string*>& names,
                    const std::vector<const Layout*>& layouts, Program& program) {
  program.functions.resize(count);
  for (program::FunctionInfo& function : program.functions) {
    function.handle = cells.next();
    const std::uint64_t parts = cells.next();
    if (low(parts) >= names.size() || high(parts) >= layouts.size()) return false;
    function.name = *names[low(parts)];
    const Layout& layout = *layouts[high(parts)];
    function.parameters = layout.parameters;
    function.has_layout = layout.has_layout;
  }
  return true;
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
  std::vector<std::uint64_t>& to = image.structure;
  to.reserve(cells);
  for (const RecordedNode& node : program.nodes) put_node(to, node);
  for (const program::FunctionInfo& function : program.functions) {
    to.push_back(function.handle);
    to.push_back(pack(parts.name(function.name), parts.layout(function.parameters, function.has_layout)));
  }
  for (const Reference& reference : program.references) {
    to.push_back(pack(reference.word, static_cast<std::uint32_t>(reference.role)));
    to.push_back(reference.block);
  }
  put_bytes(to, program.attributes);
  to.insert(to.end(), program.after.begin(), program.after.end());
  for (const program::StaticBlock& block : program.statics) {
    to.insert(to.end(), {block.address, block.bytes, block.serial});
  }
  to.insert(to.end(), program.input_bytes.begin(), program.input_bytes.end());
  put_born(to, program.temps);
  put_born(to, program.outputs);
  to.insert(to.end(), program.strays.begin(), program.strays.end());
  put_handles(to, program.waited_events);
  put_handles(to, program.recorded_events);
  to.insert(to.end(), program.waited_streams.begin(), program.waited_streams.end());
  put_bytes(to, program.host_data);
  put_handles(to, program.streams);
  to.insert(to.end(), {program.stream_count, program.random_increment, program.observed_seed, program.observed_offset});
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
  Cells cells(structure);
  bool good = cells.nodes(counts[kNodes], program.nodes);
  good = good && take_functions(cells, counts[kFunctions], names, layouts, program);
  good = good && cells.references(counts[kReferences], program.references);
  if (!good) {
    error = "a stored node, function or reference is of no known kind";
    return false;
  }
  cells.bytes(counts[kAttributes], program.attributes);
  good = cells.numbers(counts[kAfter], program.after);
  program.statics.resize(counts[kStatics]);
  for (program::StaticBlock& block : program.statics) {
    block.address = cells.next();
    block.bytes = cells.next();
    block.serial = cells.next();
  }
  cells.words(counts[kInputs], program.input_bytes);
  cells.born(counts[kTemps], program.temps);
  cells.born(counts[kOutputs], program.outputs);
  good = cells.numbers(counts[kStrays], program.strays) && good;
  cells.handles(counts[kWaitedEvents], program.waited_events);
  cells.handles(counts[kRecordedEvents], program.recorded_events);
  cells.words(counts[kWaitedStreams], program.waited_streams);
  cells.bytes(counts[kHostData], program.host_data);
  cells.handles(counts[kStreams], program.streams);
  program.stream_count = low(cells.next());
  program.random_increment = cells.next();
  program.observed_seed = cells.next();
  program.observed_offset = cells.next();
  const char* fault = good ? fault_of(program) : "a number that does not fit";
  if (fault != nullptr) error = std::string("the stored program contradicts itself: ") + fault;
  return fault == nullptr;
}

}  // namespace grape::store
