#include "tools/inputs/store_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "compressor/program/padding.h"
#include "compressor/trace/file_bytes.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

std::vector<std::uint8_t> read_file(const std::string& path) {
  std::string message;
  const auto file = trace::FileBytes::open(path, message);
  std::vector<std::uint8_t> bytes(file != nullptr ? file->size() : 0);
  if (file != nullptr && !file->read(0, bytes.data(), bytes.size())) message = "it shrinks while it is read";
  if (!message.empty()) throw Failure(fmt::format("{}: {}", escape_text(path), message));
  return bytes;
}

}  // namespace

bool is_store(const std::string& path) {
  std::string message;
  const auto file = trace::FileBytes::open(path, message);
  std::uint8_t begin[sizeof store::kMagic];
  return file != nullptr && file->read(0, begin, sizeof begin) && std::memcmp(begin, store::kMagic, sizeof begin) == 0;
}

StoreInput::StoreInput(const std::string& path) : path_(path) {
  const std::vector<std::uint8_t> file = read_file(path);
  file_bytes_ = file.size();
  std::string error;
  if (!cache::open(file, cache_, error)) throw Failure(fmt::format("{}: {}", escape_text(path), error));
  ids_ = cache_.programs->ids();
  families_ = cache_.programs->families();
  for (std::size_t i = 0; i < cache_.entries.size(); ++i) entries_.emplace(cache_.entries[i].id, i);
  for (std::size_t i = 0; i < families_.size(); ++i) family_order_.emplace(families_[i].shape, i + 1);
  for (const cache::Padding& padding : cache_.padding) {
    padding_.emplace(std::make_pair(cache::handle_of(padding.kernel), padding.word), padding.seen);
  }
}

std::uint64_t StoreInput::find(const std::string& number) const {
  std::uint64_t id = 0;
  if (parse_number(number, id) && cache_.programs->contains(id)) return id;
  throw Failure(fmt::format("no program {}; the cache has {}, which the view programs lists with their numbers",
                            escape_text(number), ids_.size()));
}

const cache::Entry& StoreInput::entry(std::uint64_t id) const {
  static const cache::Entry none;
  const auto found = entries_.find(id);
  return found == entries_.end() ? none : cache_.entries[found->second];
}

program::Program StoreInput::program(std::uint64_t id) const {
  program::Program program;
  std::string error;
  if (!cache_.programs->get(id, program, error)) {
    throw Failure(fmt::format("{}: program {}: {}", escape_text(path_), id, error));
  }
  return program;
}

std::size_t StoreInput::family(std::uint64_t id) const {
  store::ProgramStatistics statistics;
  cache_.programs->statistics(id, statistics);
  const auto found = family_order_.find(statistics.shape);
  return found == family_order_.end() ? 0 : found->second;
}

std::uint64_t StoreInput::raw_bytes(std::uint64_t id) const {
  store::ProgramStatistics statistics;
  cache_.programs->statistics(id, statistics);
  return statistics.raw;
}

const std::string& StoreInput::position(const program::RecordedNode& node) const {
  static const std::string none;
  return node.frame == 0 || node.frame > cache_.places.size() ? none : cache_.places[node.frame - 1];
}

bool StoreInput::is_padding(std::uint64_t handle, std::uint32_t word, std::uint64_t bits) const {
  const auto found = padding_.find({handle, word});
  if (found == padding_.end()) return false;
  for (std::size_t byte = 0; byte < 8; ++byte) {
    const bool asked = (bits >> (byte * 8) & 0xFF) != 0;
    if (asked && found->second[byte] < program::PaddingKnowledge::kEnough) return false;
  }
  return true;
}

bool KernelFilter::node(StoreInput& input, const program::Program& program, const program::RecordedNode& node) {
  if (!active_) return true;
  if (node.kind != program::NodeKind::kKernel) return false;
  const std::string& kernel = program.functions[node.function].name;
  const auto known = known_.try_emplace(kernel);
  if (known.second) known.first->second = pattern_.matches(input.demangled(kernel));
  return known.first->second;
}

bool KernelFilter::program(StoreInput& input, const program::Program& program) {
  return !active_ || std::any_of(program.nodes.begin(), program.nodes.end(),
                                 [&](const auto& each) { return node(input, program, each); });
}

std::string utc_text(std::time_t seconds) {
  std::tm parts{};
  char text[48];
  const bool sound =
      gmtime_r(&seconds, &parts) != nullptr && std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) != 0;
  return sound ? text : "unknown";
}

std::string time_text(std::uint64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  return seconds > 0 ? utc_text(seconds) : "unknown";
}

std::string digest_text(const cache::Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

}  // namespace grape::tools
