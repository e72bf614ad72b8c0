// make_cache KIND OUT: writes a small cache for the Python tests here.
//   sample      six programs of two regions; what they do differs in a known way
//   hostile     names with control characters, quotes, formulas, invalid UTF-8, tags
//   empty       nothing
//   damaged     a program that is damaged behind its checksum
#include <cstdio>
#include <cstring>
#include <string>

#include "compressor/cache/cache.h"
#include "tests/compressor/store/store_file.h"

namespace grape::tools {
namespace {

using program::Dimensions;
using program::NodeKind;
using program::Program;
using program::RecordedNode;
using program::Role;

constexpr cache::Digest kAxpy{0x11, 1}, kFill{0x21, 2}, kOtherFill{0x31, 3};

// Nodes, each after the one before it.
class ProgramMaker {
 public:
  ProgramMaker() {
    program_.input_bytes = {1024};
    program_.temps = {{512, 0, 0, 2}, {512, 1, 0, 2}};
    program_.outputs = {{2048, 2, 1, program::kNever}};
    program_.stream_count = 1;
    program_.host_data.resize(16, 1);
  }

  std::uint32_t function(const cache::Digest& kernel, const char* name, std::vector<program::Parameter> layout) {
    program_.functions.push_back({cache::handle_of(kernel), name, std::move(layout), true});
    return static_cast<std::uint32_t>(program_.functions.size() - 1);
  }

  RecordedNode& node(NodeKind kind, const std::vector<std::uint64_t>& words, std::uint32_t frame = 0) {
    RecordedNode node;
    node.kind = kind;
    node.frame = frame;
    node.words_at = static_cast<std::uint32_t>(program_.words.size());
    node.word_count = static_cast<std::uint32_t>(words.size());
    node.after_at = static_cast<std::uint32_t>(program_.after.size());
    node.attributes_at = static_cast<std::uint32_t>(program_.attributes.size() / program::kAttributeBytes);
    if (!program_.nodes.empty()) {
      program_.after.push_back(static_cast<std::uint32_t>(program_.nodes.size() - 1));
      node.after_count = 1;
    }
    program_.words.insert(program_.words.end(), words.begin(), words.end());
    program_.nodes.push_back(node);
    return program_.nodes.back();
  }

  RecordedNode& kernel(std::uint32_t function, const std::vector<std::uint64_t>& words, std::uint32_t frame) {
    RecordedNode& made = node(NodeKind::kKernel, words, frame);
    made.function = function;
    made.parameter_bytes = made.word_count * 8;
    made.block.x = 32;
    return made;
  }

  // Of the last node.
  void role(std::uint32_t word, Role role, std::uint32_t block) {
    program_.references.push_back({program_.nodes.back().words_at + word, role, block});
  }

  void cluster(std::uint32_t x) {
    program_.attributes.resize(program_.attributes.size() + program::kAttributeBytes);
    const std::uint32_t attribute[] = {4, 0, x, 1, 1};
    std::memcpy(&program_.attributes[program_.attributes.size() - program::kAttributeBytes], attribute,
                sizeof attribute);
    program_.nodes.back().attribute_count = 1;
  }

  Program& program() { return program_; }

 private:
  Program program_;
};

struct Variant {
  std::uint32_t factor = 0x40000000;
  std::uint32_t grid = 8;
  std::uint32_t temp = 0;
  std::uint32_t cluster = 2;
  std::uint64_t static_address = 0x7f0000000000;
  Role first = Role::kInput;
  std::uint32_t left_over = 0;  // in the four bytes behind axpy's parameters
  std::uint64_t length = 16;
  std::uint8_t host_byte = 1;
  bool memset = false;
  bool apart = false;  // fill runs beside what follows it; and what else a program has is another
  cache::Digest fill = kFill;
};

void set_apart(Program& program) {
  program.nodes[1].stream = 1;
  program.stream_count = 2;
  program.after[program.nodes[2].after_at] = 0;
  program.words[2] += 128;
  program.temps[1].bytes = 1024;
  program.waited_events = {{0xe1, 1}};
  program.random_increment = 4;
}

Program made(const Variant& variant) {
  ProgramMaker maker;
  const std::uint32_t axpy = maker.function(kAxpy, "_Z4axpyifPKfPf", {{0, 4}, {4, 4}, {8, 8}, {16, 8}, {24, 4}});
  maker.kernel(axpy, {16 | std::uint64_t{variant.factor} << 32, 64, 128, 5 | std::uint64_t{variant.left_over} << 32},
               1);
  maker.role(1, variant.first, 0);
  maker.role(2, Role::kTemp, variant.temp);
  if (variant.memset) {
    maker.node(NodeKind::kMemset, {0, 0, 1, 256, 1, 256}, 2);
    maker.role(0, Role::kTemp, 1);
  }
  const std::uint32_t fill = maker.function(variant.fill, "_ZN2at6native4fillIfEEvPT_", {{0, 8}});
  maker.kernel(fill, {0}, 2).grid.x = variant.grid;
  maker.role(0, Role::kStatic, 0);
  maker.program().statics = {{variant.static_address, 4096, 7}};
  maker.cluster(variant.cluster);
  maker.node(NodeKind::kHostCopy, {0, 0, variant.length}, 3);
  maker.role(0, Role::kOutput, 0);
  maker.program().host_data[0] = variant.host_byte;
  if (variant.apart) set_apart(maker.program());
  return maker.program();
}

std::string place(std::uint32_t frame) {
  return frame == 3 ? std::string() : "net.py:" + std::to_string(frame * 10) + " in Net.forward";
}

void add(cache::Builder& builder, const char* region, std::uint64_t number, const Variant& variant) {
  cache::Entry entry;
  entry.call = {region, {number, 0xabcdef0000000000}, {1, 2}};
  entry.last_used = number == 1 ? 0 : 1'700'000'000 + number;
  builder.add(entry, made(variant), place);
}

cache::Cache sample() {
  cache::Builder builder("python=3.12.1\ndriver=13000\n");
  Variant plain, other, longer, moved, padded, renewed;
  other.factor = 0x40400000;
  other.grid = 9;
  other.cluster = 4;
  other.first = Role::kStatic;
  longer.memset = true;
  moved.temp = 1;
  padded.left_over = 77;
  padded.static_address += 4096;
  renewed.fill = kOtherFill;
  renewed.host_byte = 9;
  renewed.apart = true;
  add(builder, "model:Net", 1, plain);
  add(builder, "model:Net", 2, other);
  add(builder, "model:Net", 3, longer);
  add(builder, "model:Net", 4, moved);
  add(builder, "model:Net", 5, padded);
  add(builder, "model:Head", 6, renewed);
  add(builder, "model:Head", 7, plain);
  builder.add_padding({kAxpy, 3, {0, 0, 0, 0, 2, 2, 2, 2}});
  return builder.take();
}

cache::Cache hostile() {
  const std::string bad = "=cmd|' /C calc'!A0\x1b[31m\"<script>alert(1)</script>\\\n\xff\xe2\x80\xae,end";
  cache::Builder builder(bad);
  for (std::uint64_t i = 0; i < 2; ++i) {
    ProgramMaker maker;
    maker.kernel(maker.function(kAxpy, bad.c_str(), {{0, 8}}), {i}, 1);
    cache::Entry entry;
    entry.call = {bad, {i, i}, {i, i}};
    entry.last_used = ~std::uint64_t{0} - i;
    builder.add(entry, maker.program(), [&](std::uint32_t) { return bad; });
  }
  return builder.take();
}

// The last byte of the last program that is no base: what is decoded only when it is asked for (docs/STORE.md).
void damage(std::vector<std::uint8_t>& file) {
  constexpr std::uint32_t kProgramRecord = 4;
  constexpr std::size_t kHeader = 16, kFlags = kHeader + 24;
  std::size_t last = 0;
  for (std::size_t at = 16; at + kHeader <= file.size();) {
    std::uint32_t type = 0, stored = 0;
    std::memcpy(&type, file.data() + at + 8, sizeof type);
    std::memcpy(&stored, file.data() + at + 12, sizeof stored);
    const bool member = type == kProgramRecord && (file[at + kFlags] & 1) == 0;
    at += kHeader + stored;
    if (member) last = at - 1;
  }
  file[last] ^= 1;
  store::repair_checksums(file);
}

bool write(const char* path, const std::vector<std::uint8_t>& bytes) {
  std::FILE* file = std::fopen(path, "wb");
  if (file == nullptr) return false;
  const bool good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && good;
}

}  // namespace
}  // namespace grape::tools

int main(int argc, char** argv) {
  using namespace grape;
  const std::string kind = argc == 3 ? argv[1] : "";
  if (kind != "sample" && kind != "hostile" && kind != "empty" && kind != "damaged") {
    std::fprintf(stderr, "usage: make_cache sample|hostile|empty|damaged OUT\n");
    return 2;
  }
  std::vector<std::uint8_t> file;
  cache::save(kind == "hostile" ? tools::hostile()
              : kind == "empty" ? cache::Builder("").take()
                                : tools::sample(),
              file);
  if (kind == "damaged") tools::damage(file);
  return tools::write(argv[2], file) ? 0 : 1;
}
