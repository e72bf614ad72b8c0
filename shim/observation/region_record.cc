#include "shim/observation/region_record.h"

#include <algorithm>
#include <unordered_map>

#include "compressor/program/stack_addresses.h"
#include "shim/observation/region_screen.h"
#include "shim/record/graph.h"

namespace grape::observation {
namespace {

using program::NodeKind;
using program::RecordedNode;
using program::RegionRecord;
using record::ApiLayout;
using trace::EventKind;

// What the host read, in the order of the reads: words each.
using HostValues = std::vector<std::vector<std::uint64_t>>;
// What copies from the host brought, in their order: where it lies among the events.
using HostData = std::vector<trace::EventView>;

// Second pass: the graph becomes a record.
class Conversion {
 public:
  Conversion(const RegionEvents& events, const record::Graph& graph, const RegionScreen& screen, HostValues values,
             HostData data)
      : events_(events),
        graph_(graph),
        screen_(screen),
        values_(std::move(values)),
        data_(std::move(data)),
        record_(std::make_unique<RegionRecord>()) {}

  RegionSink::Result run(std::vector<program::LiveBlock> before) {
    RegionSink::Result result;
    record_->after = graph_.after;
    record_->nodes.reserve(graph_.nodes.size());
    for (const record::Node& node : graph_.nodes) {
      if (!add(node)) {
        result.refusal = std::move(refusal_);
        result.frame = node.frame;
        return result;
      }
    }
    std::size_t block_event = 0;
    for (const record::HostEvent& event : graph_.host_events) {
      if (event.kind != EventKind::kBlockAlloc && event.kind != EventKind::kBlockFree) continue;
      const std::uint64_t* words = graph_.words_of(event);
      record_->block_events.push_back(
          {event.kind == EventKind::kBlockAlloc, event.before_node, words[0], words[1], screen_.serial(block_event++)});
    }
    record_->before = std::move(before);
    record_->segments = events_.segments;
    if (!add_handles()) {
      result.refusal = std::move(refusal_);
      return result;
    }
    result.record = std::move(record_);
    return result;
  }

 private:
  bool add(const record::Node& node) {
    RecordedNode out;
    out.frame = node.frame;
    out.stream = stream_index(node.stream);
    out.after_at = node.after_at;
    out.after_count = node.after_count;
    out.words_at = static_cast<std::uint32_t>(record_->words.size());
    if (node.kind == record::NodeKind::kKernel) {
      if (!add_kernel(node, out)) return false;
    } else if (node.kind == record::NodeKind::kCopy && node.direction == record::CopyDirection::kToHost) {
      out.kind = NodeKind::kHostRead;
      const ApiLayout& layout = driver_calls()[node.api];
      const std::uint64_t bytes = argument(node, layout.bytes);
      record_->words.push_back(argument(node, layout.src));
      record_->words.push_back(bytes);
      if (value_ == values_.size() || values_[value_].size() != trace::words_for(bytes)) {
        refusal_ = refusal::make(refusal::not_recorded_whole);
        return false;
      }
      record_->words.insert(record_->words.end(), values_[value_].begin(), values_[value_].end());
      ++value_;
    } else if (node.kind == record::NodeKind::kCopy && screen_.brings_host_data(node.sequence)) {
      if (!add_host_copy(node, out)) return false;
    } else if (node.kind == record::NodeKind::kCopy) {
      out.kind = NodeKind::kCopy;
      const ApiLayout& layout = driver_calls()[node.api];
      for (const int index : {layout.dst, layout.src, layout.bytes}) {
        record_->words.push_back(argument(node, index));
      }
    } else {
      out.kind = NodeKind::kMemset;
      add_memset(node);
    }
    out.word_count = static_cast<std::uint32_t>(record_->words.size()) - out.words_at;
    record_->nodes.push_back(out);
    return true;
  }

  bool add_host_copy(const record::Node& node, RecordedNode& out) {
    out.kind = NodeKind::kHostCopy;
    const ApiLayout& layout = driver_calls()[node.api];
    const std::uint64_t bytes = argument(node, layout.bytes);
    if (datum_ == data_.size() || data_[datum_].word_count() != trace::words_for(bytes)) {
      refusal_ = refusal::make(refusal::not_recorded_whole);
      return false;
    }
    std::vector<std::uint8_t>& all = record_->host_data;
    for (const std::uint64_t word : {argument(node, layout.dst), std::uint64_t{all.size()}, bytes}) {
      record_->words.push_back(word);
    }
    const auto* begin = reinterpret_cast<const std::uint8_t*>(data_[datum_++].words());
    all.insert(all.end(), begin, begin + bytes);
    constexpr std::size_t kAlignment = 16;
    all.resize((all.size() + kAlignment - 1) / kAlignment * kAlignment, 0);
    return true;
  }

  bool add_kernel(const record::Node& node, RecordedNode& out) {
    const std::uint64_t* words = graph_.words_of(node);
    if (!function_index(node.function, out.function)) {
      refusal_ = refusal::make(refusal::kernels_unloaded);
      return false;
    }
    out.cooperative = (node.flags & trace::kFlagCooperative) != 0;
    out.packed = (node.flags & trace::kFlagPackedExtra) != 0;
    out.grid = {trace::low(words[trace::kLaunchGridXY]), trace::high(words[trace::kLaunchGridXY]),
                trace::low(words[trace::kLaunchGridZ])};
    out.block = {trace::high(words[trace::kLaunchGridZ]), trace::low(words[trace::kLaunchBlock]),
                 trace::high(words[trace::kLaunchBlock])};
    out.shared_bytes = trace::low(words[trace::kLaunchShared]);
    out.attribute_count = trace::low(words[trace::kLaunchSizes]);
    out.parameter_bytes = trace::high(words[trace::kLaunchSizes]);
    out.attributes_at = static_cast<std::uint32_t>(record_->attributes.size() / program::kAttributeBytes);
    const auto* attributes = reinterpret_cast<const std::uint8_t*>(words + trace::kLaunchFixed);
    const std::size_t attribute_bytes = out.attribute_count * program::kAttributeBytes;
    record_->attributes.insert(record_->attributes.end(), attributes, attributes + attribute_bytes);
    const std::uint64_t* parameters = words + trace::kLaunchFixed + attribute_bytes / 8;
    record_->words.insert(record_->words.end(), parameters, parameters + trace::words_for(out.parameter_bytes));
    return true;
  }

  void add_memset(const record::Node& node) {
    const ApiLayout& layout = driver_calls()[node.api];
    const bool rows = layout.height >= 0;
    record_->words.push_back(argument(node, layout.dst));
    record_->words.push_back(argument(node, layout.value));
    record_->words.push_back(layout.element_bytes);
    record_->words.push_back(argument(node, rows ? layout.width : layout.count));
    record_->words.push_back(rows ? argument(node, layout.height) : 1);
    record_->words.push_back(rows ? argument(node, 1) : 0);  // dstPitch
  }

  // Of a call: w2 has the number of arguments, which begin at w3.
  std::uint64_t argument(const record::Node& node, int index) const {
    const std::uint64_t* words = graph_.words_of(node);
    return index >= 0 && static_cast<std::uint32_t>(index) < trace::low(words[2]) ? words[3 + index] : 0;
  }

  std::uint32_t stream_index(std::uint64_t stream) {
    auto& streams = record_->streams;
    const auto found = std::find(streams.begin(), streams.end(), stream);
    const auto index = static_cast<std::uint32_t>(found - streams.begin());
    if (found == streams.end()) streams.push_back(stream);
    return index;
  }

  bool function_index(std::uint32_t id, std::uint32_t& index) {
    const auto found = functions_.find(id);
    if (found != functions_.end()) {
      index = found->second;
      return true;
    }
    program::FunctionInfo info;
    if (!events_.function(id, info)) return false;
    index = static_cast<std::uint32_t>(record_->functions.size());
    functions_[id] = index;
    record_->functions.push_back(std::move(info));
    return true;
  }

  // A stream that only events were put on is joined by the replay's launch like one with work.
  bool add_handles() {
    for (const std::uint64_t stream : screen_.event_streams()) stream_index(stream);
    for (const std::uint64_t stream : record_->streams) {
      record_->stream_serials.push_back(screen_.stream_serial(stream));
    }
    record_->waited_events = screen_.waited_events();
    record_->recorded_events = screen_.recorded_events();
    record_->waited_streams = screen_.waited_streams();
    record_->host_words = screen_.host_words();
    // Where nothing is launched nothing joins them.
    const bool launches = std::any_of(record_->nodes.begin(), record_->nodes.end(),
                                      [](const RecordedNode& node) { return node.kind != NodeKind::kHostRead; });
    if (launches || screen_.event_streams().empty()) return true;
    refusal_ = refusal::make(refusal::orders_idle_streams);
    return false;
  }

  const RegionEvents& events_;
  const record::Graph& graph_;
  const RegionScreen& screen_;
  const HostValues values_;
  const HostData data_;
  std::size_t value_ = 0;  // the next read's
  std::size_t datum_ = 0;  // the next host copy's
  std::unique_ptr<RegionRecord> record_;
  std::unordered_map<std::uint32_t, std::uint32_t> functions_;  // id → index
  refusal::Refusal refusal_;
};

// Of those that are the call's own.
template <class Use>
void for_each_event(const RegionEvents& events, const Use& use) {
  bool outside = false;
  for (std::size_t at = 0; at + sizeof(trace::EventHeader) <= events.bytes;) {
    const auto* header = reinterpret_cast<const trace::EventHeader*>(events.data + at);
    const trace::EventView event{header};
    if (header->kind == kOutsideNote) {
      outside = event.words()[0] != 0;
    } else if (!outside || header->kind == kContextNote || header->kind == EventKind::kBlockFree ||
               (trace::is_definition(header->kind) && header->kind != kSerialNote)) {
      use(event);
    }
    at += header->bytes;
  }
}

// Only for a hash that is of no interest here.
const std::string& no_name(std::uint32_t, void*) {
  static const std::string none;
  return none;
}

}  // namespace

const record::ApiTable& driver_calls() {
  static const record::ApiTable& table = []() -> const record::ApiTable& {
    std::uint32_t count = 0;
    const record::ApiRow* rows = record::api_table(count);
    std::vector<trace::ApiInfo> infos;
    for (std::uint32_t i = 0; rows != nullptr && i < count; ++i) {
      infos.push_back({rows[i].symbol, static_cast<trace::ApiClass>(rows[i].api_class), rows[i].arguments});
    }
    return *new record::ApiTable(infos);
  }();
  return table;
}

RegionSink::Result make_region_record(RegionEvents& events) {
  RegionSink::Result result;
  RegionScreen screen(events);
  for_each_event(events, [&](const trace::EventView& event) { screen.add(event); });
  RegionScreen::Found found = screen.finish();
  result.loaded = screen.loaded();
  result.set_up = screen.set_up().refusal;
  result.set_up_frame = screen.set_up().frame;
  if (found.refusal) {
    result.refusal = std::move(found.refusal);
    result.frame = found.frame;
    return result;
  }
  record::GraphBuilder builder(driver_calls(), no_name, nullptr, &screen.modes());
  for_each_event(events, [&](const trace::EventView& event) { builder.add(event, 1, 0); });
  const record::Graph graph = builder.finish();
  if (graph.dropped_edges != 0) {
    result.refusal = refusal::make(refusal::too_many_waits);
    return result;
  }
  HostValues values;
  HostData data;
  for_each_event(events, [&](const trace::EventView& event) {
    if (event.header->kind == kValueNote) values.emplace_back(event.words(), event.words() + event.word_count());
    if (event.header->kind == kHostDataNote) data.push_back(event);
  });
  RegionSink::Result converted =
      Conversion(events, graph, screen, std::move(values), std::move(data)).run(std::move(events.before));
  if (converted.record != nullptr) program::clear_stack_addresses(*converted.record, events.stacks);
  converted.loaded = result.loaded;
  converted.set_up = std::move(result.set_up);
  converted.set_up_frame = result.set_up_frame;
  return converted;
}

}  // namespace grape::observation
