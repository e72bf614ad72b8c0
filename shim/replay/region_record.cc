#include "shim/replay/region_record.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "shim/record/graph.h"

namespace grape::replay {
namespace {

using program::NodeKind;
using program::RecordedNode;
using program::RegionRecord;
using record::ApiLayout;
using record::CallView;
using trace::ApiClass;
using trace::EventKind;

// Launch attributes, as CUlaunchAttributeID numbers them.
constexpr std::uint32_t kAccessPolicyWindow = 1;
constexpr std::uint32_t kProgrammaticEvent = 7;
constexpr std::uint32_t kLaunchCompletionEvent = 12;
constexpr std::uint32_t kDeviceUpdatableNode = 13;
constexpr std::uint32_t kLastKnownAttribute = 18;

// "cuMemcpyDtoHAsync" of "cuMemcpyDtoHAsync_v2_ptsz".
std::string plain_name(const std::string& symbol) { return symbol.substr(0, symbol.find('_')); }

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

const program::LiveBlock* block_at(const std::vector<program::LiveBlock>& blocks, std::uint64_t address) {
  auto next = std::upper_bound(blocks.begin(), blocks.end(), address,
                               [](std::uint64_t at, const program::LiveBlock& block) { return at < block.address; });
  if (next == blocks.begin()) return nullptr;
  --next;
  return address - next->address < next->bytes ? &*next : nullptr;
}

struct Refusal {
  std::string reason;  // empty: none
  std::uint32_t frame = 0;
  bool again = false;
};

// Calls about modules that load none: what they ask for or set stays as it is for the replays.
bool keeps_modules(const std::string& name) {
  static const char* const kNames[] = {"cuKernelGetFunction",    "cuKernelSetAttribute", "cuKernelSetCacheConfig",
                                       "cuFuncSetAttribute",     "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig",
                                       "cuModuleGetFunction",    "cuLibraryGetKernel",   "cuModuleGetGlobal",
                                       "cuLibraryGetGlobal",     "cuFuncGetModule",      "cuKernelGetLibrary",
                                       "cuModuleGetLoadingMode", "cuFuncLoad",           "cuFuncIsLoaded"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// First pass: what no program can hold, event by event.
class Screen {
 public:
  explicit Screen(const RegionEvents& events) : events_(events) {}

  void add(const trace::EventView& event) {
    if (event.header->kind == EventKind::kLaunch) {
      add_launch(trace::LaunchView(event));
    } else if (event.header->kind == EventKind::kCall) {
      add_call(CallView(event));
    } else if (event.header->kind == EventKind::kBlockAlloc) {
      born_.push_back({event.words()[0], event.words()[1], 0});
      serials_.push_back(0);
    } else if (event.header->kind == EventKind::kBlockFree) {
      serials_.push_back(0);
    } else if (event.header->kind == kSerialNote && !serials_.empty()) {
      serials_.back() = event.words()[0];
    } else if (event.header->kind == kValueNote) {
      ++values_;
    } else if (event.header->kind == EventKind::kLost) {
      refuse_again("was not recorded whole: the buffers were full");
    }
  }

  // What matters most of all that was found. Lasting reasons come before passing ones.
  Refusal finish() {
    if (lasting_.reason.empty() && !recorded_.empty()) {
      lasting_ = {"records an event that may be waited for after the call (cuEventRecord)", event_frame_, false};
    }
    if (lasting_.reason.empty() && values_ != reads_) {
      lasting_ = {"reads device memory to the host without waiting for it, or more than Grape keeps", read_frame_,
                  false};
    }
    if (lasting_.reason.empty()) find_streams();
    return lasting_.reason.empty() ? passing_ : lasting_;
  }

  const record::StreamModes& modes() const { return modes_; }
  std::uint64_t serial(std::size_t block_event) const {
    return block_event < serials_.size() ? serials_[block_event] : 0;
  }

 private:
  void refuse(const std::string& reason, std::uint32_t frame = 0) {
    if (lasting_.reason.empty()) lasting_ = {reason, frame, false};
  }
  void refuse_again(const std::string& reason, std::uint32_t frame = 0) {
    if (passing_.reason.empty()) passing_ = {reason, frame, true};
  }

  void add_launch(const trace::LaunchView& launch) {
    const ApiLayout& layout = (*events_.apis)[launch.api()];
    const std::uint16_t flags = launch.header->flags;
    const std::string name = " (" + plain_name(layout.symbol) + ")";
    if (launch.result() != 0) return refuse("a kernel launch failed" + name, launch.frame());
    if ((flags & trace::kFlagCaptured) != 0) return refuse("captures a CUDA graph of its own" + name, launch.frame());
    if (contains(layout.symbol, "MultiDevice")) return refuse("uses more than one device" + name, launch.frame());
    const bool unreadable = (flags & trace::kFlagNoLayout) != 0 && (flags & trace::kFlagPackedExtra) == 0;
    if ((flags & trace::kFlagTruncated) != 0 || unreadable || launch.function() == 0) {
      return refuse("launches a kernel whose parameters cannot be read" + name, launch.frame());
    }
    for (std::uint32_t i = 0; i < launch.attribute_count(); ++i) check_attribute(launch, i);
    note_stream(record::normal_stream(layout, launch.stream()));
    check_host_memory(launch);
  }

  void check_attribute(const trace::LaunchView& launch, std::uint32_t index) {
    std::uint32_t id = 0;
    std::uint64_t value = 0;
    std::memcpy(&id, launch.attribute(index), sizeof id);
    std::memcpy(&value, launch.attribute(index) + 8, sizeof value);
    if (id == kProgrammaticEvent || id == kLaunchCompletionEvent) {
      refuse("records an event from inside a kernel", launch.frame());
    } else if (id == kDeviceUpdatableNode || id > kLastKnownAttribute || (id == kAccessPolicyWindow && value != 0)) {
      refuse("launches a kernel with an attribute that Grape cannot replay (number " + std::to_string(id) + ")",
             launch.frame());
    }
  }

  void check_host_memory(const trace::LaunchView& launch) {
    if (events_.host.empty()) return;
    for (std::uint32_t at = 0; at + 8 <= launch.parameter_bytes(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, launch.parameters() + at, sizeof word);
      if (block_at(events_.host, word) != nullptr) {
        return refuse("launches a kernel on memory of the host (pinned or managed)", launch.frame());
      }
    }
  }

  void add_call(const CallView& call) {
    const ApiLayout& layout = (*events_.apis)[call.api()];
    const std::string name = " (" + plain_name(layout.symbol) + ")";
    if (layout.api_class == ApiClass::kQuery) return;  // may say "not ready"
    if (layout.api_class == ApiClass::kModule) {
      return keeps_modules(plain_name(layout.symbol)) ? void()
                                                      : refuse_again("kernels were loaded" + name, call.frame());
    }
    if (call.result() != 0) return refuse("a driver call failed" + name, call.frame());
    if ((call.header->flags & trace::kFlagCaptured) != 0) {
      return refuse("captures a CUDA graph of its own" + name, call.frame());
    }
    switch (layout.api_class) {
      case ApiClass::kCopy:
        return add_copy(layout, call, name);
      case ApiClass::kCopyToHost:
        return add_host_read(layout, call, name);
      case ApiClass::kCopyToDevice:
        return refuse("copies host memory to the device" + name, call.frame());
      case ApiClass::kMemset:
        check_device_memory(call.argument(layout.dst), call.frame());
        return note_stream(record::stream_of(layout, call));
      case ApiClass::kHostFunction:
        return refuse("calls back into the host" + name, call.frame());
      case ApiClass::kStreamSync:
        // The wait for what was read is part of the read.
        if (reads_ != waited_ && plain_name(layout.symbol) == "cuStreamSynchronize") {
          waited_ = reads_;
          return;
        }
        return refuse("waits for the device" + name, call.frame());
      case ApiClass::kMemoryOp:
        return refuse("has the device wait for memory, or moves memory" + name, call.frame());
      case ApiClass::kGraphLaunch:
        return refuse("launches a graph of the application's own" + name, call.frame());
      case ApiClass::kGraph:
        if (contains(layout.symbol, "ExchangeStreamCaptureMode")) return;
        return refuse("builds or captures a CUDA graph of its own" + name, call.frame());
      case ApiClass::kEventRecord:
      case ApiClass::kEventWait:
      case ApiClass::kEvent:
        return add_event_call(layout, call, name);
      case ApiClass::kContext:
        return add_context_call(layout, call, name);
      case ApiClass::kAlloc:
        // The framework's blocks in it are known each by itself; what is used beside them is found as a stray.
        if (plain_name(layout.symbol) == "cuMemAlloc") return;
        return refuse_again("memory was allocated from the driver" + name, call.frame());
      case ApiClass::kFree:
        return refuse_again("memory was given back to the driver" + name, call.frame());
      case ApiClass::kStream:
        return refuse_again("streams were made or changed" + name, call.frame());
      case ApiClass::kTensorMap:
        return;  // host only: what it makes goes into a kernel's parameters
      default:
        return refuse("makes a driver call that Grape cannot replay" + name, call.frame());
    }
  }

  void add_copy(const ApiLayout& layout, const CallView& call, const std::string& name) {
    const std::string plain = plain_name(layout.symbol);
    const bool unified = plain == "cuMemcpy" || plain == "cuMemcpyAsync";
    if (!unified && plain != "cuMemcpyDtoD" && plain != "cuMemcpyDtoDAsync") {
      return refuse("copies memory in a way that Grape cannot replay" + name, call.frame());
    }
    const std::uint64_t to = call.argument(layout.dst), from = call.argument(layout.src);
    // A unified copy may be one from or to the host: only known device memory is on the device.
    if (unified && (!on_device(to) || !on_device(from))) {
      return refuse("copies between the device and memory that may be the host's" + name, call.frame());
    }
    check_device_memory(to, call.frame());
    check_device_memory(from, call.frame());
    note_stream(record::stream_of(layout, call));
  }

  void add_host_read(const ApiLayout& layout, const CallView& call, const std::string& name) {
    if (plain_name(layout.symbol) != "cuMemcpyDtoHAsync") {
      return refuse("reads device memory to the host" + name, call.frame());
    }
    ++reads_;
    read_frame_ = call.frame();
    note_stream(record::stream_of(layout, call));
  }

  bool on_device(std::uint64_t address) const {
    if (block_at(events_.before, address) != nullptr) return true;
    return std::any_of(born_.begin(), born_.end(),
                       [address](const program::LiveBlock& block) { return address - block.address < block.bytes; });
  }

  void check_device_memory(std::uint64_t address, std::uint32_t frame) {
    if (block_at(events_.host, address) != nullptr) {
      refuse("copies or sets memory of the host (pinned or managed)", frame);
    }
  }

  void add_event_call(const ApiLayout& layout, const CallView& call, const std::string& name) {
    const std::uint64_t event = call.argument(layout.event);
    if (layout.api_class == ApiClass::kEvent) {
      if (layout.destroys) recorded_.erase(event);
      return;
    }
    if (layout.stream < 0) return refuse("orders whole contexts" + name, call.frame());
    note_stream(record::stream_of(layout, call));
    if (layout.api_class == ApiClass::kEventRecord) {
      recorded_.insert(event);
      event_frame_ = call.frame();
    } else if (recorded_.count(event) == 0) {
      refuse("waits for work of another stream from before the call" + name, call.frame());
    }
  }

  void add_context_call(const ApiLayout& layout, const CallView& call, const std::string& name) {
    const std::string plain = plain_name(layout.symbol);
    if (plain == "cuDevicePrimaryCtxRetain" || plain == "cuCtxPopCurrent") return;
    if (plain == "cuCtxSetCurrent" || plain == "cuCtxPushCurrent") {
      if (call.argument(0) != events_.context) refuse("uses more than one device or context" + name, call.frame());
      return;
    }
    refuse_again("contexts were made or changed" + name, call.frame());
  }

  void note_stream(std::uint64_t stream) {
    if (stream != record::kLegacyStream && stream != record::kPerThreadStream) streams_.insert(stream);
  }

  void find_streams() {
    for (const std::uint64_t handle : streams_) {
      RegionEvents::Stream stream;
      if (!events_.stream(handle, stream)) return refuse_again("a stream is gone");
      if (stream.context != events_.context) return refuse("uses more than one device or context");
      modes_.set(handle, stream.non_blocking);
    }
  }

  const RegionEvents& events_;
  Refusal lasting_, passing_;
  std::size_t reads_ = 0, waited_ = 0, values_ = 0;  // by the host: begun, waited for, known by value
  std::uint32_t read_frame_ = 0, event_frame_ = 0;
  std::vector<program::LiveBlock> born_;
  std::vector<std::uint64_t> serials_;          // per block event
  std::unordered_set<std::uint64_t> recorded_;  // events recorded and not destroyed
  std::unordered_set<std::uint64_t> streams_;   // that work was put on
  record::StreamModes modes_;
};

// What the host read, in the order of the reads: words each.
using HostValues = std::vector<std::vector<std::uint64_t>>;

// Second pass: the graph becomes a record.
class Conversion {
 public:
  Conversion(const RegionEvents& events, const record::Graph& graph, const Screen& screen, HostValues values)
      : events_(events),
        graph_(graph),
        screen_(screen),
        values_(std::move(values)),
        record_(std::make_unique<RegionRecord>()) {}

  RegionSink::Result run(std::vector<program::LiveBlock> before) {
    RegionSink::Result result;
    record_->after = graph_.after;
    record_->nodes.reserve(graph_.nodes.size());
    for (const record::Node& node : graph_.nodes) {
      if (!add(node)) {
        result.reason = reason_;
        result.frame = node.frame;
        result.again = true;
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
      const ApiLayout& layout = (*events_.apis)[node.api];
      const std::uint64_t bytes = argument(node, layout.bytes);
      record_->words.push_back(argument(node, layout.src));
      record_->words.push_back(bytes);
      if (value_ == values_.size() || values_[value_].size() != trace::words_for(bytes)) {
        reason_ = "what the host read was not kept";
        return false;
      }
      record_->words.insert(record_->words.end(), values_[value_].begin(), values_[value_].end());
      ++value_;
    } else if (node.kind == record::NodeKind::kCopy) {
      out.kind = NodeKind::kCopy;
      const ApiLayout& layout = (*events_.apis)[node.api];
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

  bool add_kernel(const record::Node& node, RecordedNode& out) {
    const std::uint64_t* words = graph_.words_of(node);
    if (!function_index(node.function, out.function)) {
      reason_ = "kernels were unloaded";
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
    const ApiLayout& layout = (*events_.apis)[node.api];
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
    if (!events_.function(id, info, events_.user)) return false;
    index = static_cast<std::uint32_t>(record_->functions.size());
    functions_[id] = index;
    record_->functions.push_back(std::move(info));
    return true;
  }

  const RegionEvents& events_;
  const record::Graph& graph_;
  const Screen& screen_;
  const HostValues values_;
  std::size_t value_ = 0;  // the next read's
  std::unique_ptr<RegionRecord> record_;
  std::unordered_map<std::uint32_t, std::uint32_t> functions_;  // id → index
  std::string reason_;
};

template <class Use>
void for_each_event(const RegionEvents& events, const Use& use) {
  for (std::size_t at = 0; at + sizeof(trace::EventHeader) <= events.bytes;) {
    const auto* header = reinterpret_cast<const trace::EventHeader*>(events.data + at);
    use(trace::EventView{header});
    at += header->bytes;
  }
}

// Only for a hash that is of no interest here.
const std::string& no_name(std::uint32_t, void*) {
  static const std::string none;
  return none;
}

}  // namespace

RegionSink::Result make_region_record(RegionEvents events) {
  RegionSink::Result result;
  Screen screen(events);
  for_each_event(events, [&](const trace::EventView& event) { screen.add(event); });
  const Refusal refusal = screen.finish();
  if (!refusal.reason.empty()) {
    result.reason = refusal.reason;
    result.frame = refusal.frame;
    result.again = refusal.again;
    return result;
  }
  record::GraphBuilder builder(*events.apis, no_name, nullptr, &screen.modes());
  for_each_event(events, [&](const trace::EventView& event) { builder.add(event, 1, 0); });
  const record::Graph graph = builder.finish();
  if (graph.dropped_edges != 0) {
    result.reason = "has one stream wait for too many others";
    return result;
  }
  std::vector<program::LiveBlock> before = std::move(events.before);
  HostValues values;
  for_each_event(events, [&](const trace::EventView& event) {
    if (event.header->kind == kValueNote) values.emplace_back(event.words(), event.words() + event.word_count());
  });
  return Conversion(events, graph, screen, std::move(values)).run(std::move(before));
}

}  // namespace grape::replay
