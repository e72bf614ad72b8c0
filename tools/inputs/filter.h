// Which events a view is about: --region, --stream, --kernel, --line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/inputs/trace_input.h"

namespace grape::tools {

struct FilterOptions {
  std::string region;  // number, or pattern on name or type
  std::string stream;  // handle, "default", "per-thread"
  std::string kernel;  // part of the demangled name, or /regex/
  std::string line;    // file.py:12 or file.py, any frame of the stack
};

// --kernel: part of the demangled name, or /regex/. Throws Failure where that cannot be understood.
class KernelPattern {
 public:
  explicit KernelPattern(const std::string& option);
  bool matches(const std::string& name) const;  // all do where there is no option

 private:
  std::string part_;
  std::unique_ptr<std::regex> pattern_;
};

class Filter {
 public:
  // Throws Failure where an option cannot be understood.
  Filter(const FilterOptions& options, TraceInput& input);
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  bool by_kernel() const { return by_kernel_; }
  bool active() const { return by_region_ || by_stream_ || by_kernel_ || by_line_; }
  // Region numbers are known as the walk passes their first call: feed every step.
  void see(const Step& step) {
    std::uint32_t ordinal = 0;
    if (RegionNumbers::opens_region(step)) numbers_.begin(step, ordinal);
  }
  bool region(std::uint32_t scope);
  bool stream(std::uint64_t normal) const { return !by_stream_ || normal == stream_; }
  bool kernel(std::uint32_t function);
  bool line(std::uint32_t frame);
  // A launch or call, by all of them.
  bool event(const Step& step);
  // Of a block's allocation or end, for counts of what is live: the end passes where its allocation did.
  bool block(const Step& step);
  // Of what an ExecGraphs sees: all but launches of graphs that are left out. --kernel is for the graphs' own kernels.
  bool tells_of_graphs(const Step& step);
  // Of a graph's nodes.
  bool node(std::uint32_t function, bool is_kernel, std::uint64_t stream, std::uint32_t frame);
  // Of what stands between them: no kernel, and not always about a stream.
  bool between_nodes(const std::optional<std::uint64_t>& stream, std::uint32_t frame);

 private:
  enum class Known : std::uint8_t { kNot, kNo, kYes };
  void parse_line(const std::string& text);
  bool matches_line(const trace::Frame& frame) const;

  TraceInput& input_;
  FilterOptions options_;
  bool by_region_ = false, by_stream_ = false, by_kernel_ = false, by_line_ = false;
  std::uint64_t region_number_ = 0, stream_ = 0;
  KernelPattern kernel_pattern_;
  std::string file_;
  std::optional<std::uint64_t> line_number_;  // none: any
  RegionNumbers numbers_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> live_blocks_;  // device and address of those that passed
  std::vector<Known> kernels_, frames_;
};

// Glob if `pattern` has wildcards, else a part of `text`.
bool matches(const std::string& pattern, const std::string& text);
// All of `text` as a number, decimal or 0x; false: it is none.
bool parse_number(const std::string& text, std::uint64_t& number);

}  // namespace grape::tools
