// Programs by hand: nodes one after another unless their edges are given.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/program.h"
#include "compressor/store/kept_program.h"
#include "compressor/store/store.h"

namespace grape::replay_test {

class ProgramBuilder {
 public:
  // A parameter: a plain value, or a place in a block.
  struct Word {
    std::uint64_t value = 0;  // offset in the block
    bool refers = false;
    program::Role role = program::Role::kStatic;
    std::uint32_t block = 0;
  };
  struct Block {
    program::Role role;
    std::uint32_t index;
    Word at(std::uint64_t offset) const { return {offset, true, role, index}; }
  };

  static Word plain(std::uint64_t value) { return {value, false, program::Role::kStatic, 0}; }
  static Word random_seed() { return {0, true, program::Role::kRandomSeed, 0}; }
  static Word random_offset(std::uint64_t plus) { return {plus, true, program::Role::kRandomOffset, 0}; }

  Block add_static(std::uint64_t address, std::uint64_t bytes) {
    program_.statics.push_back({address, bytes, 1});
    return {program::Role::kStatic, static_cast<std::uint32_t>(program_.statics.size() - 1)};
  }
  Block add_input(std::uint64_t bytes) {
    program_.input_bytes.push_back(bytes);
    return {program::Role::kInput, static_cast<std::uint32_t>(program_.input_bytes.size() - 1)};
  }
  Block add_temp(std::uint64_t bytes) {
    program_.temps.push_back({bytes, births_++, 0, program::kNever - 1});
    return {program::Role::kTemp, static_cast<std::uint32_t>(program_.temps.size() - 1)};
  }
  Block add_output(std::uint64_t bytes) {
    program_.outputs.push_back({bytes, births_++, 0, program::kNever});
    return {program::Role::kOutput, static_cast<std::uint32_t>(program_.outputs.size() - 1)};
  }

  // Parameters of these sizes, each aligned to its own.
  std::uint32_t add_function(std::uint64_t handle, const char* name, const std::vector<std::uint32_t>& sizes) {
    program::FunctionInfo info;
    info.handle = handle;
    info.name = name;
    info.has_layout = true;
    std::uint32_t offset = 0;
    for (const std::uint32_t size : sizes) {
      offset = (offset + size - 1) / size * size;
      info.parameters.push_back({offset, size});
      offset += size;
    }
    program_.functions.push_back(std::move(info));
    return static_cast<std::uint32_t>(program_.functions.size() - 1);
  }

  program::RecordedNode& kernel(std::uint32_t function, const std::vector<Word>& parameters) {
    return kernel(function, parameters, last());
  }
  program::RecordedNode& kernel(std::uint32_t function, const std::vector<Word>& parameters,
                                const std::vector<std::uint32_t>& after) {
    program::RecordedNode& node = add(program::NodeKind::kKernel, after);
    node.function = function;
    node.block = {32, 1, 1};
    const program::FunctionInfo& info = program_.functions[function];
    const program::Parameter& end = info.parameters.back();
    node.parameter_bytes = end.offset + end.bytes;
    node.word_count = (node.parameter_bytes + 7) / 8;
    program_.words.resize(program_.words.size() + node.word_count);
    auto* buffer = reinterpret_cast<char*>(program_.words.data() + node.words_at);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const program::Parameter& place = info.parameters[i];
      std::memcpy(buffer + place.offset, &parameters[i].value, place.bytes);
      refer(node.words_at + place.offset / 8, parameters[i]);
    }
    return node;
  }
  void copy(Word to, Word from, std::uint64_t bytes) { add_words(program::NodeKind::kCopy, {to, from, plain(bytes)}); }
  void fill(Word to, std::uint64_t value, std::uint64_t element, std::uint64_t width, std::uint64_t height = 1,
            std::uint64_t pitch = 0) {
    add_words(program::NodeKind::kMemset,
              {to, plain(value), plain(element), plain(width), plain(height), plain(pitch)});
  }

  void read(Word from, std::uint64_t bytes, const std::vector<std::uint64_t>& value) {
    std::vector<Word> words = {from, plain(bytes)};
    for (const std::uint64_t word : value) words.push_back(plain(word));
    add_words(program::NodeKind::kHostRead, words);
  }

  // Of the node that was added last. `attribute`: a CUlaunchAttribute.
  void add_attribute(program::RecordedNode& node, const void* attribute) {
    if (node.attribute_count++ == 0) {
      node.attributes_at = static_cast<std::uint32_t>(program_.attributes.size() / program::kAttributeBytes);
    }
    const auto* bytes = static_cast<const std::uint8_t*>(attribute);
    program_.attributes.insert(program_.attributes.end(), bytes, bytes + program::kAttributeBytes);
  }

  const program::Program& program() const { return program_; }
  // The program as it is now, in a store. Copies of the builder share it.
  const store::KeptProgram& kept() const {
    static auto& programs = *new store::Store;
    if (kept_ == nullptr) {
      kept_ = std::make_shared<store::KeptProgram>(program_);
      kept_->put_away(programs);
    }
    return *kept_;
  }
  // Each temp has a place of its own.
  program::ArenaPlan plan() const {
    program::ArenaPlan plan;
    for (const program::BornBlock& temp : program_.temps) {
      plan.offsets.push_back(plan.bytes);
      plan.bytes += (temp.bytes + program::kArenaAlignment - 1) / program::kArenaAlignment * program::kArenaAlignment;
    }
    return plan;
  }

 private:
  std::vector<std::uint32_t> last() const {
    if (program_.nodes.empty()) return {};
    return {static_cast<std::uint32_t>(program_.nodes.size() - 1)};
  }
  program::RecordedNode& add(program::NodeKind kind, const std::vector<std::uint32_t>& after) {
    program::RecordedNode node;
    node.kind = kind;
    node.words_at = static_cast<std::uint32_t>(program_.words.size());
    node.after_at = static_cast<std::uint32_t>(program_.after.size());
    node.after_count = static_cast<std::uint32_t>(after.size());
    program_.after.insert(program_.after.end(), after.begin(), after.end());
    program_.nodes.push_back(node);
    return program_.nodes.back();
  }
  void add_words(program::NodeKind kind, const std::vector<Word>& words) {
    program::RecordedNode& node = add(kind, last());
    node.word_count = static_cast<std::uint32_t>(words.size());
    for (const Word& word : words) {
      refer(static_cast<std::uint32_t>(program_.words.size()), word);
      program_.words.push_back(word.value);
    }
  }
  void refer(std::uint32_t at, const Word& word) {
    if (word.refers) program_.references.push_back({at, word.role, word.block});
  }

  program::Program program_;
  mutable std::shared_ptr<store::KeptProgram> kept_;
  std::uint32_t births_ = 0;
};

}  // namespace grape::replay_test
