#include "shim/replay/steps.h"

#include <cstring>
#include <utility>

#include "shim/interpose/real_driver.h"
#include "shim/replay/region_record.h"

namespace grape::replay {
namespace real = interpose::real;

// What is the same each time.
bool Steps::lay_out(const program::Program& program, std::string& error) {
  std::vector<Part> parts;
  for (const program::Segment& segment : program::segments(program)) {
    Part part;
    part.segment = segment;
    if (segment.read != program::kNever) {
      const program::RecordedNode& read = program.nodes[segment.read];
      part.source_offset = program.words[read.words_at];
      for (const program::Reference& reference : program.references) {
        if (reference.word == read.words_at) part.source_base = &reference;
      }
      part.bytes = program.words[read.words_at + 1];
      part.value = program.words.data() + read.words_at + 2;
      if (part.bytes > kMostValueBytes) {
        error = "the host reads more than is kept";
        return false;
      }
      landing_.resize(kMostValueBytes / sizeof(std::uint64_t));
    }
    parts.push_back(part);
  }
  parts_ = std::move(parts);
  return true;
}

bool Steps::prepare(ExecPool& pool, const program::Program& program, const program::ArenaPlan& plan,
                    const program::Bindings& bindings, std::string& error) {
  launched_ = false;
  if (parts_.empty() && !lay_out(program, error)) return false;
  for (Part& part : parts_) {
    if (part.segment.count != 0) {
      part.exec = pool.take(program, part.segment, plan, bindings, error);
      if (part.exec == nullptr) return false;
    }
    part.source = part.source_offset;
    if (part.source_base != nullptr) part.source += program::base_of(program, plan, bindings, *part.source_base);
  }
  return true;
}

Steps::Ran Steps::run(CUstream stream, const std::vector<CUstream>& others) noexcept {
  auto* copy = real::get_cuMemcpyDtoHAsync_v2();
  auto* wait = real::get_cuStreamSynchronize();
  for (const Part& part : parts_) {
    if (part.exec != nullptr) {
      if (part.exec->launch(stream, others) != CUDA_SUCCESS) return Ran::kFailed;
      launched_ = true;
    }
    if (part.value == nullptr) continue;
    if (copy == nullptr || wait == nullptr || copy(landing_.data(), part.source, part.bytes, stream) != CUDA_SUCCESS ||
        wait(stream) != CUDA_SUCCESS) {
      return Ran::kFailed;
    }
    if (std::memcmp(landing_.data(), part.value, part.bytes) != 0) return Ran::kOtherValue;
  }
  return Ran::kDone;
}

}  // namespace grape::replay
