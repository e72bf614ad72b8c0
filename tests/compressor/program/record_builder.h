// Region records made by hand, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/program/program.h"
#include "compressor/program/record.h"

namespace grape::program {

// A function of a known layout: the parameters lie one behind the other, each aligned to `align` (8 at most).
FunctionInfo function_with(std::uint64_t handle, const std::string& name, const std::vector<std::uint32_t>& bytes);

class RecordBuilder {
 public:
  // Before the region; must ascend. Serials count up from 100.
  RecordBuilder& before(std::uint64_t address, std::uint64_t bytes);
  RecordBuilder& input(std::uint64_t address, std::uint64_t bytes);
  RecordBuilder& random(std::uint64_t seed, std::uint64_t offset_before, std::uint64_t offset_after);
  // At this point, before the next node.
  RecordBuilder& alloc(std::uint64_t address, std::uint64_t bytes);
  RecordBuilder& free(std::uint64_t address);

  // Functions are told apart by handle. On stream 0 a node follows the last one of its stream, unless told otherwise.
  RecordBuilder& launch(const FunctionInfo& function, const std::vector<std::uint64_t>& words,
                        std::uint32_t parameter_bytes = 0);  // 0: all of the words
  RecordBuilder& copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes);
  RecordBuilder& memset(std::uint64_t destination, std::uint64_t value, std::uint64_t bytes);
  // Of the last node.
  RecordBuilder& on(std::uint64_t stream, const std::vector<std::uint32_t>& after);
  RecordBuilder& attribute(std::uint32_t id, const std::vector<std::uint8_t>& value, std::uint8_t garbage = 0);
  RecordedNode& last() { return record_.nodes.back(); }

  const RegionRecord& record() const { return record_; }
  RegionRecord& record() { return record_; }

 private:
  RecordBuilder& add(RecordedNode node, const std::vector<std::uint64_t>& words);

  RegionRecord record_;
};

// A kernel of eight-byte parameters, one per word.
FunctionInfo plain_kernel(std::uint64_t handle, std::uint32_t parameters);

// The reference at a word; role and block, or "plain", as text that a failed test can show.
std::string symbol_at(const Program& program, std::uint32_t word);

}  // namespace grape::program
