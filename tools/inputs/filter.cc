#include "tools/inputs/filter.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <cerrno>
#include <cstdlib>

#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

constexpr std::size_t kLongestForRegex = 2048;  // std::regex recurses per character

}  // namespace

KernelPattern::KernelPattern(const std::string& option) : part_(option) {
  if (option.size() < 3 || option.front() != '/' || option.back() != '/') return;
  try {
    pattern_ = std::make_unique<std::regex>(option.substr(1, option.size() - 2),
                                            std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw Failure(fmt::format("--kernel {}: {}", escape_text(option), error.what()));
  }
}

bool KernelPattern::matches(const std::string& name) const {
  return pattern_ != nullptr ? std::regex_search(name.substr(0, kLongestForRegex), *pattern_)
                             : name.find(part_) != std::string::npos;
}

bool parse_number(const std::string& text, std::uint64_t& number) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const bool hex = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  char* end = nullptr;
  errno = 0;
  number = std::strtoull(text.c_str(), &end, hex ? 16 : 10);
  return errno == 0 && *end == '\0';
}

bool matches(const std::string& pattern, const std::string& text) {
  if (pattern.find_first_of("*?[") == std::string::npos) return text.find(pattern) != std::string::npos;
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

Filter::Filter(const FilterOptions& options, TraceInput& input)
    : input_(input),
      options_(options),
      by_region_(!options.region.empty()),
      by_stream_(!options.stream.empty()),
      by_kernel_(!options.kernel.empty()),
      by_line_(!options.line.empty()),
      kernel_pattern_(options.kernel) {
  if (!parse_number(options.region, region_number_)) region_number_ = 0;
  if (by_stream_) {
    if (options.stream == "per-thread" || options.stream == "2") {
      stream_ = record::kPerThreadStream;
    } else if (options.stream != "default" && !parse_number(options.stream, stream_)) {
      throw Failure(fmt::format("--stream {}: not a handle, nor default or per-thread", escape_text(options.stream)));
    }
    if (stream_ == 1) stream_ = record::kLegacyStream;
  }
  parse_line(options.line);
}

void Filter::parse_line(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  file_ = text.substr(0, colon);
  if (by_line_ && file_.empty()) throw Failure(fmt::format("--line {}: no file name", escape_text(text)));
  if (colon == std::string::npos) return;
  std::uint64_t number = 0;
  if (parse_number(text.substr(colon + 1), number)) {
    line_number_ = number;
  } else if (text.find('/', colon) != std::string::npos) {
    file_ = text;  // it is a folder that has the colon
  } else {
    throw Failure(fmt::format("--line {}: not file.py:12, nor file.py", escape_text(text)));
  }
}

bool Filter::region(std::uint32_t scope) {
  if (!by_region_) return true;
  if (scope == 0) return false;
  if (region_number_ != 0) return numbers_.number(scope) == region_number_;
  const trace::Scope& found = input_.scope(scope);
  return matches(options_.region, found.name) || matches(options_.region, found.type);
}

bool Filter::kernel(std::uint32_t function) {
  if (!by_kernel_) return true;
  if (function >= kernels_.size()) kernels_.resize(function + 1, Known::kNot);
  if (kernels_[function] == Known::kNot) {
    const bool found = kernel_pattern_.matches(input_.demangled(function));
    kernels_[function] = found ? Known::kYes : Known::kNo;
  }
  return kernels_[function] == Known::kYes;
}

bool Filter::matches_line(const trace::Frame& frame) const {
  if (line_number_.has_value() && frame.line != *line_number_) return false;
  const auto& codes = input_.tables().codes;
  if (frame.code >= codes.size()) return false;
  const std::string& path = codes[frame.code].file;
  if (path.size() < file_.size() || path.compare(path.size() - file_.size(), file_.size(), file_) != 0) return false;
  return path.size() == file_.size() || file_[0] == '/' || path[path.size() - file_.size() - 1] == '/';
}

bool Filter::line(std::uint32_t id) {
  if (!by_line_) return true;
  const auto& frames = input_.tables().frames;
  if (frames_.size() < frames.size()) frames_.resize(frames.size(), Known::kNot);
  std::vector<std::uint32_t> path;
  Known result = Known::kNo;
  for (; id != 0 && id < frames.size() && path.size() < frames.size(); id = frames[id].parent) {
    if (frames_[id] != Known::kNot) {
      result = frames_[id];
      break;
    }
    path.push_back(id);
    if (!matches_line(frames[id])) continue;
    result = Known::kYes;
    break;
  }
  for (const std::uint32_t frame : path) frames_[frame] = result;
  return result == Known::kYes;
}

bool Filter::event(const Step& step) {
  if (!active()) return true;
  if (!region(step.region)) return false;
  if (step.event.header->kind == trace::EventKind::kLaunch) {
    const trace::LaunchView launch(step.event);
    const std::uint64_t stream_handle = record::normal_stream(input_.apis()[launch.api()], launch.stream());
    return stream(stream_handle) && kernel(launch.function()) && line(launch.frame());
  }
  if (step.event.header->kind == trace::EventKind::kCall) {
    const record::CallView call(step.event);
    const record::ApiLayout& layout = input_.apis()[call.api()];
    std::optional<std::uint64_t> about;
    if (layout.stream >= 0) about = record::stream_of(layout, call);
    return between_nodes(about, call.frame());
  }
  if (step.event.header->kind == trace::EventKind::kBlockAlloc) {
    return between_nodes(std::nullopt, trace::low(step.event.words()[2]));
  }
  return !by_kernel_ && !by_stream_ && !by_line_;
}

bool Filter::block(const Step& step) {
  if (!active()) return true;
  const std::uint64_t* words = step.event.words();
  const std::pair<std::uint32_t, std::uint64_t> key(trace::high(words[2]), words[0]);
  if (step.event.header->kind == trace::EventKind::kBlockFree) return live_blocks_.erase(key) != 0;
  live_blocks_.erase(key);  // its end may have been lost
  const bool passes = event(step);
  if (passes) live_blocks_.insert(key);
  return passes;
}

bool Filter::tells_of_graphs(const Step& step) {
  if (!active() || step.event.header->kind != trace::EventKind::kCall) return true;
  const record::CallView call(step.event);
  const record::ApiLayout& layout = input_.apis()[call.api()];
  if (layout.exec < 0 || layout.api_class != trace::ApiClass::kGraphLaunch) return true;
  return region(step.region) && line(call.frame()) && stream(record::stream_of(layout, call));
}

bool Filter::node(std::uint32_t function, bool is_kernel, std::uint64_t stream_handle, std::uint32_t frame) {
  return stream(stream_handle) && (is_kernel ? kernel(function) : !by_kernel_) && line(frame);
}

bool Filter::between_nodes(const std::optional<std::uint64_t>& about, std::uint32_t frame) {
  return !by_kernel_ && (about.has_value() ? stream(*about) : !by_stream_) && line(frame);
}

}  // namespace grape::tools
