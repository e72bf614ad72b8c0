#include "tests/compressor/store/programs.h"

#include <random>

namespace grape::store {
namespace {

using namespace program;  // NOLINT(google-build-using-namespace): all of this is about programs

template <typename Item, typename Same>
bool equal_lists(const std::vector<Item>& a, const std::vector<Item>& b, Same same) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return false;
  }
  return true;
}

bool same_node(const RecordedNode& a, const RecordedNode& b) {
  return a.kind == b.kind && a.cooperative == b.cooperative && a.packed == b.packed && a.function == b.function &&
         a.stream == b.stream && a.frame == b.frame && a.grid == b.grid && a.block == b.block &&
         a.shared_bytes == b.shared_bytes && a.parameter_bytes == b.parameter_bytes && a.words_at == b.words_at &&
         a.word_count == b.word_count && a.attributes_at == b.attributes_at && a.attribute_count == b.attribute_count &&
         a.after_at == b.after_at && a.after_count == b.after_count;
}

bool same_function(const FunctionInfo& a, const FunctionInfo& b) {
  return a.handle == b.handle && a.name == b.name && a.has_layout == b.has_layout &&
         equal_lists(a.parameters, b.parameters,
                     [](const Parameter& x, const Parameter& y) { return x.offset == y.offset && x.bytes == y.bytes; });
}

bool same_static(const StaticBlock& a, const StaticBlock& b) {
  return a.address == b.address && a.bytes == b.bytes && a.serial == b.serial;
}

bool same_born(const BornBlock& a, const BornBlock& b) {
  return a.bytes == b.bytes && a.birth == b.birth && a.born == b.born && a.died == b.died;
}

using Random = std::mt19937_64;
std::uint32_t below(Random& random, std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); }

void add_functions(Program& program, Random& random) {
  for (std::uint32_t i = 0; i < 5; ++i) {
    FunctionInfo function;
    function.handle = random();
    function.name = "_Z" + std::to_string(i) + "kernel" + std::to_string(random() % 100);
    function.has_layout = i != 4;
    for (std::uint32_t k = 0; k < i * 3; ++k) function.parameters.push_back({k * 8, k % 2 == 0 ? 8u : 4u});
    program.functions.push_back(std::move(function));
  }
}

void add_node(Program& program, Random& random) {
  RecordedNode node;
  const auto number = static_cast<std::uint32_t>(program.nodes.size());
  node.kind = number % 8 < 4 ? NodeKind::kKernel : static_cast<NodeKind>(number % 8 - 3);
  node.cooperative = below(random, 8) == 0;
  node.packed = below(random, 4) == 0;
  node.function = node.kind == NodeKind::kKernel ? below(random, 5) : 0;
  node.stream = below(random, 3);
  node.frame = below(random, 1000);
  node.grid = {below(random, 4096) + 1, below(random, 8) + 1, below(random, 4) + 1};
  node.block = {below(random, 1024) + 1, below(random, 4) + 1, 1};
  node.shared_bytes = below(random, 65536);
  node.words_at = static_cast<std::uint32_t>(program.words.size());
  node.word_count = 2 + below(random, 30);
  node.parameter_bytes = node.word_count * 8 - below(random, 8);
  for (std::uint32_t i = 0; i < node.word_count; ++i) {
    const bool pointer = below(random, 3) == 0;
    program.words.push_back(pointer ? 0x7F0000000000u + (below(random, 1u << 20) << 9) : below(random, 1000));
  }
  node.attributes_at = static_cast<std::uint32_t>(program.attributes.size() / kAttributeBytes);
  node.attribute_count = below(random, 3);
  for (std::size_t i = 0; i < node.attribute_count * kAttributeBytes; ++i) {
    program.attributes.push_back(static_cast<std::uint8_t>(random()));
  }
  node.after_at = static_cast<std::uint32_t>(program.after.size());
  node.after_count = number > 0 ? 1 : 0;
  if (number > 0) program.after.push_back(number - 1);
  program.nodes.push_back(node);
}

void add_references(Program& program, Random& random) {
  for (std::uint32_t word = 0; word < program.words.size(); word += 1 + below(random, 4)) {
    const auto role = static_cast<Role>(below(random, 7));
    const bool in_list = role == Role::kStatic || role == Role::kInput || role == Role::kTemp || role == Role::kOutput;
    program.references.push_back({word, role, in_list ? below(random, 2) : 0});
    if (below(random, 9) == 0) program.strays.push_back(word);
  }
}

void add_blocks(Program& program, Random& random) {
  for (std::uint32_t i = 0; i < 2; ++i) {
    program.statics.push_back({random(), random(), random()});
    program.input_bytes.push_back(random());
    program.temps.push_back({random(), i, i, i + 2});
    program.outputs.push_back({random(), i + 2, i, kNever});
    program.waited_events.push_back({random(), random()});
    program.recorded_events.push_back({random(), random()});
    program.waited_streams.push_back(random());
    program.streams.push_back({random(), random()});
  }
  for (int i = 0; i < 37; ++i) program.host_data.push_back(static_cast<std::uint8_t>(random()));
  program.stream_count = 3;
  program.random_increment = random();
  program.observed_seed = random();
  program.observed_offset = random();
}

}  // namespace

bool equal(const Program& a, const Program& b) {
  return equal_lists(a.nodes, b.nodes, same_node) && equal_lists(a.functions, b.functions, same_function) &&
         a.words == b.words && a.references == b.references && a.attributes == b.attributes && a.after == b.after &&
         equal_lists(a.statics, b.statics, same_static) && a.input_bytes == b.input_bytes &&
         equal_lists(a.temps, b.temps, same_born) && equal_lists(a.outputs, b.outputs, same_born) &&
         a.strays == b.strays && a.waited_events == b.waited_events && a.recorded_events == b.recorded_events &&
         a.waited_streams == b.waited_streams && a.host_data == b.host_data && a.streams == b.streams &&
         a.stream_count == b.stream_count && a.random_increment == b.random_increment &&
         a.observed_seed == b.observed_seed && a.observed_offset == b.observed_offset;
}

Program made_program(std::uint64_t seed, std::size_t nodes) {
  Random random(seed);
  Program program;
  add_functions(program, random);
  for (std::size_t i = 0; i < nodes; ++i) add_node(program, random);
  if (nodes > 0) {
    add_blocks(program, random);
    add_references(program, random);
  }
  return program;
}

Program relative_of(const Program& program, std::uint64_t length) {
  Program relative = program;
  Random random(length);
  const std::uint64_t moves[] = {length * 512, length * 4096, random() % 4096 * 512};
  for (std::uint64_t& word : relative.words) {
    if (word >= 0x7F0000000000u && word % 1536 != 0) word += moves[word >> 9 & 1];
    if (word < 1000 && word % 16 == 3) word += length;
    if (word % 61 == 7) word += moves[2];
  }
  for (RecordedNode& node : relative.nodes)
    node.grid.x += node.grid.y % 3 == 0 ? static_cast<std::uint32_t>(length) : 0;
  relative.observed_offset = length;
  return relative;
}

Program with_node_inserted(const Program& program) {
  Program longer = program;
  const std::size_t at = program.nodes.size() / 2;
  RecordedNode node = program.nodes[at];
  const std::uint32_t words_at = node.words_at, added = 4;
  node.kind = NodeKind::kMemset;
  node.function = 0;
  node.word_count = added;
  node.parameter_bytes = 0;
  node.attribute_count = 0;
  node.after_count = 0;
  const auto place = static_cast<std::ptrdiff_t>(words_at);
  longer.words.insert(longer.words.begin() + place, {0x7F0000001000u, 0, 1, 64});
  for (std::size_t i = at; i < longer.nodes.size(); ++i) longer.nodes[i].words_at += added;
  longer.nodes.insert(longer.nodes.begin() + static_cast<std::ptrdiff_t>(at), node);
  for (std::uint32_t& before : longer.after) before += before >= at ? 1 : 0;
  for (Reference& reference : longer.references) reference.word += reference.word >= words_at ? added : 0;
  for (std::uint32_t& stray : longer.strays) stray += stray >= words_at ? added : 0;
  return longer;
}

std::vector<Change> every_change() {
  return {
      {"kind", [](Program& p) { p.nodes[4].kind = NodeKind::kMemset; }},
      {"cooperative", [](Program& p) { p.nodes[3].cooperative = !p.nodes[3].cooperative; }},
      {"packed", [](Program& p) { p.nodes[3].packed = !p.nodes[3].packed; }},
      {"function", [](Program& p) { p.nodes[3].function = (p.nodes[3].function + 1) % 5; }},
      {"stream", [](Program& p) { ++p.nodes[3].stream; }},
      {"frame", [](Program& p) { ++p.nodes[3].frame; }},
      {"grid x", [](Program& p) { ++p.nodes[3].grid.x; }},
      {"grid y", [](Program& p) { ++p.nodes[3].grid.y; }},
      {"grid z", [](Program& p) { ++p.nodes[3].grid.z; }},
      {"block x", [](Program& p) { ++p.nodes[3].block.x; }},
      {"block y", [](Program& p) { ++p.nodes[3].block.y; }},
      {"block z", [](Program& p) { ++p.nodes[3].block.z; }},
      {"shared bytes", [](Program& p) { p.nodes[3].shared_bytes ^= 0x80000000u; }},
      {"parameter bytes", [](Program& p) { --p.nodes[3].parameter_bytes; }},
      {"words' place", [](Program& p) { --p.nodes[3].words_at; }},
      {"words' count", [](Program& p) { ++p.nodes[3].word_count; }},
      {"attributes' place",
       [](Program& p) {
         p.nodes[1].attributes_at = 0;
         p.nodes[2].attributes_at = 1;
         p.nodes[2].attribute_count = 0;
       }},
      {"edges' place", [](Program& p) { --p.nodes[3].after_at; }},
      {"edges' count", [](Program& p) { p.nodes[3].after_count = 0; }},
      {"function's handle", [](Program& p) { ++p.functions[2].handle; }},
      {"function's name", [](Program& p) { p.functions[2].name += "x"; }},
      {"function's empty name", [](Program& p) { p.functions[2].name.clear(); }},
      {"parameter's offset", [](Program& p) { ++p.functions[2].parameters[1].offset; }},
      {"parameter's bytes", [](Program& p) { ++p.functions[2].parameters[1].bytes; }},
      {"parameters", [](Program& p) { p.functions[2].parameters.clear(); }},
      {"layout known", [](Program& p) { p.functions[2].has_layout = false; }},
      {"a function more", [](Program& p) { p.functions.push_back(p.functions[0]); }},
      {"word", [](Program& p) { p.words[17] = ~p.words[17]; }},
      {"word's low bit", [](Program& p) { p.words.back() ^= 1; }},
      {"word's high bit", [](Program& p) { p.words[17] ^= std::uint64_t{1} << 63; }},
      {"a word more", [](Program& p) { p.words.push_back(5); }},
      {"reference's word", [](Program& p) { ++p.references[2].word; }},
      {"reference's role",
       [](Program& p) {
         p.references[2] = {p.references[2].word, Role::kRandomSeed, 0};
         p.references[3] = {p.references[3].word, Role::kHostData, 0};
       }},
      {"reference's block",
       [](Program& p) {
         p.references[2] = {p.references[2].word, Role::kInput, 1};
         p.references[3] = {p.references[3].word, Role::kInput, 0};
       }},
      {"no references", [](Program& p) { p.references.clear(); }},
      {"attribute", [](Program& p) { ++p.attributes[100]; }},
      {"a byte of attributes more", [](Program& p) { p.attributes.push_back(0); }},
      {"edge", [](Program& p) { p.after[5] = 0; }},
      {"static's address", [](Program& p) { ++p.statics[1].address; }},
      {"static's bytes", [](Program& p) { ++p.statics[1].bytes; }},
      {"static's serial", [](Program& p) { ++p.statics[1].serial; }},
      {"input", [](Program& p) { ++p.input_bytes[1]; }},
      {"temp's bytes", [](Program& p) { ++p.temps[1].bytes; }},
      {"temp's birth", [](Program& p) { ++p.temps[1].birth; }},
      {"temp's begin", [](Program& p) { ++p.temps[1].born; }},
      {"temp's end", [](Program& p) { ++p.temps[1].died; }},
      {"output", [](Program& p) { ++p.outputs[0].birth; }},
      {"a temp more", [](Program& p) { p.temps.push_back(p.temps[0]); }},
      {"stray", [](Program& p) { ++p.strays[0]; }},
      {"a stray less", [](Program& p) { p.strays.pop_back(); }},
      {"waited event", [](Program& p) { ++p.waited_events[0].serial; }},
      {"recorded event", [](Program& p) { ++p.recorded_events[1].handle; }},
      {"waited stream", [](Program& p) { ++p.waited_streams[0]; }},
      {"host data", [](Program& p) { ++p.host_data[36]; }},
      {"a byte of host data less", [](Program& p) { p.host_data.pop_back(); }},
      {"stream's handle", [](Program& p) { ++p.streams[1].handle; }},
      {"streams", [](Program& p) { ++p.stream_count; }},
      {"random increment", [](Program& p) { ++p.random_increment; }},
      {"observed seed", [](Program& p) { ++p.observed_seed; }},
      {"observed offset", [](Program& p) { ++p.observed_offset; }},
  };
}

}  // namespace grape::store
