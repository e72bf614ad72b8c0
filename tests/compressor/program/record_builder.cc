#include "tests/compressor/program/record_builder.h"

#include <algorithm>
#include <cstring>

namespace grape::program {

FunctionInfo function_with(std::uint64_t handle, const std::string& name, const std::vector<std::uint32_t>& bytes) {
  FunctionInfo function;
  function.handle = handle;
  function.name = name;
  function.has_layout = true;
  std::uint32_t offset = 0;
  for (const std::uint32_t size : bytes) {
    const std::uint32_t align = size >= 8 ? 8 : size >= 4 ? 4 : size;
    offset = (offset + align - 1) / align * align;
    function.parameters.push_back({offset, size});
    offset += size;
  }
  return function;
}

FunctionInfo plain_kernel(std::uint64_t handle, std::uint32_t parameters) {
  return function_with(handle, "plain", std::vector<std::uint32_t>(parameters, 8));
}

RecordBuilder& RecordBuilder::before(std::uint64_t address, std::uint64_t bytes) {
  record_.before.push_back({address, bytes, 100 + record_.before.size()});
  return *this;
}

RecordBuilder& RecordBuilder::input(std::uint64_t address, std::uint64_t bytes) {
  record_.inputs.push_back({address, bytes});
  return *this;
}

RecordBuilder& RecordBuilder::random(std::uint64_t seed, std::uint64_t offset_before, std::uint64_t offset_after) {
  record_.random = {true, seed, offset_before, offset_after};
  return *this;
}

RecordBuilder& RecordBuilder::alloc(std::uint64_t address, std::uint64_t bytes) {
  const auto node = static_cast<std::uint32_t>(record_.nodes.size());
  record_.block_events.push_back({true, node, address, bytes, 1000 + record_.block_events.size()});
  return *this;
}

RecordBuilder& RecordBuilder::free(std::uint64_t address) {
  const auto node = static_cast<std::uint32_t>(record_.nodes.size());
  record_.block_events.push_back({false, node, address, 0, 0});
  return *this;
}

RecordBuilder& RecordBuilder::launch(const FunctionInfo& function, const std::vector<std::uint64_t>& words,
                                     std::uint32_t parameter_bytes) {
  RecordedNode node;
  const auto known = std::find_if(record_.functions.begin(), record_.functions.end(),
                                  [&](const FunctionInfo& each) { return each.handle == function.handle; });
  node.function = static_cast<std::uint32_t>(known - record_.functions.begin());
  if (known == record_.functions.end()) record_.functions.push_back(function);
  node.parameter_bytes = parameter_bytes != 0 ? parameter_bytes : static_cast<std::uint32_t>(words.size() * 8);
  node.packed = !function.has_layout;
  return add(node, words);
}

RecordBuilder& RecordBuilder::copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes) {
  RecordedNode node;
  node.kind = NodeKind::kCopy;
  return add(node, {destination, source, bytes});
}

RecordBuilder& RecordBuilder::memset(std::uint64_t destination, std::uint64_t value, std::uint64_t bytes) {
  RecordedNode node;
  node.kind = NodeKind::kMemset;
  return add(node, {destination, value, 1, bytes, 1, bytes});
}

RecordBuilder& RecordBuilder::add(RecordedNode node, const std::vector<std::uint64_t>& words) {
  node.words_at = static_cast<std::uint32_t>(record_.words.size());
  node.word_count = static_cast<std::uint32_t>(words.size());
  record_.words.insert(record_.words.end(), words.begin(), words.end());
  node.attributes_at = static_cast<std::uint32_t>(record_.attributes.size() / kAttributeBytes);
  record_.nodes.push_back(node);
  std::vector<std::uint32_t> after;
  for (auto i = static_cast<std::uint32_t>(record_.nodes.size() - 1); i-- > 0 && after.empty();) {
    if (record_.nodes[i].stream == 0) after.push_back(i);
  }
  record_.nodes.back().after_at = static_cast<std::uint32_t>(record_.after.size());
  return on(0, after);
}

RecordBuilder& RecordBuilder::on(std::uint64_t stream, const std::vector<std::uint32_t>& after) {
  if (stream >= record_.streams.size()) record_.streams.resize(stream + 1);
  for (std::size_t i = 0; i < record_.streams.size(); ++i) record_.streams[i] = 0x5000 + i;
  last().stream = static_cast<std::uint32_t>(stream);
  record_.after.resize(last().after_at);
  record_.after.insert(record_.after.end(), after.begin(), after.end());
  last().after_count = static_cast<std::uint32_t>(after.size());
  return *this;
}

RecordBuilder& RecordBuilder::attribute(std::uint32_t id, const std::vector<std::uint8_t>& value,
                                        std::uint8_t garbage) {
  const std::size_t at = record_.attributes.size();
  record_.attributes.resize(at + kAttributeBytes, garbage);
  std::memcpy(&record_.attributes[at], &id, sizeof id);
  std::copy(value.begin(), value.end(), record_.attributes.begin() + static_cast<std::ptrdiff_t>(at + 8));
  ++last().attribute_count;
  return *this;
}

std::string symbol_at(const Program& program, std::uint32_t word) {
  static const char* const kNames[] = {"static", "input", "temp", "output", "host data", "seed", "offset"};
  for (const Reference& reference : program.references) {
    if (reference.word != word) continue;
    return std::string(kNames[static_cast<int>(reference.role)]) + " " + std::to_string(reference.block) + " + " +
           std::to_string(program.words[word]);
  }
  return "plain " + std::to_string(program.words[word]);
}

}  // namespace grape::program
