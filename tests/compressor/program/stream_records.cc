#include "tests/compressor/program/stream_records.h"

#include <cstring>
#include <fstream>
#include <map>
#include <unordered_map>

#include "tests/compressor/trace/convert_stream.h"
#include "tests/compressor/trace/trace_builder.h"

namespace grape::program {
namespace {

using trace::high;
using trace::low;

class Collector {
 public:
  Collector(trace::Reader& reader, std::vector<StreamRegion>& regions, RegionEnd end)
      : reader_(reader), regions_(regions), end_(end) {}

  void run() {
    trace::EventView event;
    std::uint32_t thread = 0;
    while (reader_.next(event, thread)) add(event);
  }

 private:
  void add(const trace::EventView& event) {
    const std::uint64_t* words = event.words();
    switch (event.header->kind) {
      case trace::EventKind::kBlockAlloc:
        live_[words[0]] = {words[0], words[1], ++serial_};
        if (region_ != nullptr) add_block_event(true, live_[words[0]]);
        break;
      case trace::EventKind::kBlockFree:
        if (region_ != nullptr && live_.count(words[0]) != 0) add_block_event(false, live_[words[0]]);
        live_.erase(words[0]);
        break;
      case trace::EventKind::kScopeBegin:
        begin(reader_.tables().scopes[low(words[0])].name);
        break;
      case trace::EventKind::kScopeEnd:
        if (end_ == RegionEnd::kAtItsMark) region_ = nullptr;
        break;
      case trace::EventKind::kLaunch:
        if (region_ != nullptr) add_launch(trace::LaunchView(event));
        break;
      case trace::EventKind::kCall:
        if (region_ != nullptr) add_call(reader_.meta().apis[low(words[0]) - 1].api_class, words + 3);
        break;
      default:
        break;
    }
  }

  void begin(const std::string& name) {
    regions_.push_back({name, {}});
    region_ = &regions_.back().record;
    function_of_.clear();
    stream_of_.clear();
    for (const auto& block : live_) region_->before.push_back(block.second);
  }

  void add_block_event(bool alloc, const LiveBlock& block) {
    region_->block_events.push_back(
        {alloc, static_cast<std::uint32_t>(region_->nodes.size()), block.address, block.bytes, block.serial});
  }

  void add_node(RecordedNode node, std::uint64_t stream, const std::uint64_t* words, std::size_t count) {
    const auto number = stream_of_.emplace(stream, static_cast<std::uint32_t>(region_->streams.size()));
    if (number.second) region_->streams.push_back(stream);
    node.stream = number.first->second;
    node.words_at = static_cast<std::uint32_t>(region_->words.size());
    node.word_count = static_cast<std::uint32_t>(count);
    region_->words.insert(region_->words.end(), words, words + count);
    // The streams have one stream of the device's, and so one line of nodes.
    node.after_at = static_cast<std::uint32_t>(region_->after.size());
    node.after_count = region_->nodes.empty() ? 0 : 1;
    if (node.after_count != 0) region_->after.push_back(static_cast<std::uint32_t>(region_->nodes.size() - 1));
    region_->nodes.push_back(node);
  }

  void add_launch(const trace::LaunchView& launch) {
    RecordedNode node;
    node.function = function(launch.function());
    node.grid = {launch.grid(0), launch.grid(1), launch.grid(2)};
    node.block = {launch.block(0), launch.block(1), launch.block(2)};
    node.shared_bytes = launch.shared_bytes();
    node.parameter_bytes = launch.parameter_bytes();
    std::vector<std::uint64_t> words(trace::words_for(node.parameter_bytes));
    if (!words.empty()) std::memcpy(words.data(), launch.parameters(), node.parameter_bytes);
    add_node(node, launch.stream(), words.data(), words.size());
  }

  void add_call(trace::ApiClass api, const std::uint64_t* arguments) {
    RecordedNode node;
    if (api == trace::ApiClass::kCopy) {
      node.kind = NodeKind::kCopy;
      add_node(node, arguments[3], arguments, 3);
    } else if (api == trace::ApiClass::kMemset) {
      node.kind = NodeKind::kMemset;
      const std::uint64_t words[] = {arguments[0], arguments[1], 1, arguments[2], 1, arguments[2]};
      add_node(node, arguments[3], words, 6);
    }
  }

  std::uint32_t function(std::uint32_t id) {
    const auto number = function_of_.emplace(id, static_cast<std::uint32_t>(region_->functions.size()));
    if (!number.second) return number.first->second;
    const trace::Function& known = reader_.tables().functions[id];
    FunctionInfo info;
    info.handle = known.handle;
    info.name = known.name;
    info.has_layout = true;
    for (const trace::Parameter& parameter : known.parameters) {
      info.parameters.push_back({parameter.offset, parameter.size});
    }
    region_->functions.push_back(std::move(info));
    return number.first->second;
  }

  trace::Reader& reader_;
  std::vector<StreamRegion>& regions_;
  const RegionEnd end_;
  RegionRecord* region_ = nullptr;
  std::map<std::uint64_t, LiveBlock> live_;
  std::uint64_t serial_ = 0;
  std::unordered_map<std::uint32_t, std::uint32_t> function_of_;
  std::unordered_map<std::uint64_t, std::uint32_t> stream_of_;
};

bool collect(std::unique_ptr<trace::Reader> reader, const trace::Error& open_error, std::vector<StreamRegion>& regions,
             std::string& error, RegionEnd end = RegionEnd::kAtItsMark) {
  if (reader == nullptr) {
    error = open_error.message;
    return false;
  }
  Collector(*reader, regions, end).run();
  error = reader->damage().message;
  return reader->complete();
}

}  // namespace

bool read_stream(const std::string& base, std::vector<StreamRegion>& regions, std::string& error, RegionEnd end) {
  trace::Bytes stream;
  trace::ConvertOptions options;
  trace::ConvertCounts counts;
  trace::MemorySink sink;
  const bool has_blocks = std::ifstream(base + ".blocks.json").is_open();
  if (!trace::read_gzip(base + ".bin.gz", stream, error) ||
      (has_blocks && !trace::read_blocks(base + ".blocks.json", options.blocks, error)) ||
      !trace::convert_stream(stream, options, sink, counts, error)) {
    return false;
  }
  trace::Error open_error;
  return collect(trace::Reader::from_bytes(std::move(sink.bytes), open_error), open_error, regions, error, end);
}

bool read_converted(const std::string& path, std::vector<StreamRegion>& regions, std::string& error) {
  trace::Error open_error;
  return collect(trace::Reader::open(path, open_error), open_error, regions, error);
}

void find_random_state(RegionRecord& record) {
  constexpr std::uint32_t kStateBytes = 32;  // of at::PhiloxCudaState
  constexpr std::uint64_t kOneDraw = 4;      // what each of the probe's kernels takes
  for (const RecordedNode& node : record.nodes) {
    if (node.kind != NodeKind::kKernel) continue;
    const FunctionInfo& function = record.functions[node.function];
    if (function.name.find("PhiloxCudaState") == std::string::npos) continue;
    for (const Parameter& parameter : function.parameters) {
      if (parameter.bytes != kStateBytes) continue;
      const std::uint64_t* words = record.words.data() + node.words_at + parameter.offset / 8;
      if (!record.random.known) record.random = {true, words[0], words[1], words[1]};
      record.random.offset_after = words[1] + kOneDraw;
    }
  }
}

}  // namespace grape::program
