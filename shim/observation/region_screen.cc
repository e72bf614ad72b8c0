#include "shim/observation/region_screen.h"

#include <algorithm>
#include <cstring>

#include "shim/driver/driver_api.h"

namespace grape::replay {
namespace {

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
constexpr char kOtherDevice[] = "works on several devices, or on one that neither its arguments nor its module are on";

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

// Calls about modules that load none: what they ask for or set stays as it is for the replays, as does what others
// load.
bool asks_of_modules(const std::string& name) {
  static const char* const kNames[] = {"cuKernelGetFunction",    "cuKernelSetAttribute", "cuKernelSetCacheConfig",
                                       "cuFuncSetAttribute",     "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig",
                                       "cuModuleGetFunction",    "cuLibraryGetKernel",   "cuModuleGetGlobal",
                                       "cuLibraryGetGlobal",     "cuFuncGetModule",      "cuKernelGetLibrary",
                                       "cuModuleGetLoadingMode", "cuFuncLoad",           "cuFuncIsLoaded"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Ascending by serial, each once.
void add_handle(std::vector<program::LiveHandle>& handles, program::LiveHandle handle) {
  const auto at = std::lower_bound(handles.begin(), handles.end(), handle,
                                   [](const auto& a, const auto& b) { return a.serial < b.serial; });
  if (at == handles.end() || at->serial != handle.serial) handles.insert(at, handle);
}

}  // namespace

void RegionScreen::add(const trace::EventView& event) {
  if (event.header->kind == kHostDataNote) {
    data_due_ = {};
    return;
  }
  if (event.header->kind == kContextNote) {
    context_ = event.words()[0];
    return;
  }
  take_due_data();
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

RegionScreen::Refusal RegionScreen::finish() {
  take_due_data();
  check_context();
  find_trailing_events();
  if (lasting_.reason.empty() && values_ != reads_) {
    lasting_ = {"reads device memory to the host without waiting for it, or more than Grape keeps", read_frame_, false};
  }
  if (lasting_.reason.empty()) find_streams();
  return lasting_.reason.empty() ? passing_ : lasting_;
}

void RegionScreen::refuse(const std::string& reason, std::uint32_t frame) {
  if (lasting_.reason.empty()) lasting_ = {reason, frame, false};
}

void RegionScreen::refuse_again(const std::string& reason, std::uint32_t frame) {
  if (passing_.reason.empty()) passing_ = {reason, frame, true};
}

void RegionScreen::note_set_up(const std::string& reason, const CallView& call) {
  if (set_up_.reason.empty()) set_up_ = {reason, call.frame(), true};
}

void RegionScreen::add_launch(const trace::LaunchView& launch) {
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
  note_stream(record::normal_stream(layout, launch.stream()), launch.frame());
  check_host_memory(launch);
}

void RegionScreen::check_attribute(const trace::LaunchView& launch, std::uint32_t index) {
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

void RegionScreen::check_host_memory(const trace::LaunchView& launch) {
  if (events_.host.empty()) return;
  for (std::uint32_t at = 0; at + 8 <= launch.parameter_bytes(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, launch.parameters() + at, sizeof word);
    if (block_at(events_.host, word) != nullptr) {
      return refuse("launches a kernel on memory of the host (pinned or managed)", launch.frame());
    }
  }
}

void RegionScreen::add_call(const CallView& call) {
  const ApiLayout& layout = (*events_.apis)[call.api()];
  const std::string name = " (" + plain_name(layout.symbol) + ")";
  if (layout.api_class == ApiClass::kQuery) return;  // may say "not ready"
  if (layout.api_class == ApiClass::kModule) {
    if (contains(layout.symbol, "Unload")) return refuse_again("kernels were unloaded" + name, call.frame());
    loaded_ = loaded_ || !asks_of_modules(plain_name(layout.symbol));
    return;
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
      return add_host_copy(layout, call, name);
    case ApiClass::kMemset:
      check_device_memory(call.argument(layout.dst), call.frame());
      return note_stream(record::stream_of(layout, call), call.frame());
    case ApiClass::kHostFunction:
      return refuse("calls back into the host" + name, call.frame());
    case ApiClass::kStreamSync:
      return add_wait(layout, call, name);
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
      if (plain_name(layout.symbol) != "cuMemAlloc") note_set_up("memory was allocated from the driver" + name, call);
      return;
    case ApiClass::kFree:
      return note_set_up("memory was given back to the driver" + name, call);
    case ApiClass::kStream:
      return note_set_up("streams were made or changed" + name, call);
    case ApiClass::kTensorMap:
      return;  // host only: what it makes goes into a kernel's parameters
    default:
      return refuse("makes a driver call that Grape cannot replay" + name, call.frame());
  }
}

void RegionScreen::add_copy(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const std::string plain = plain_name(layout.symbol);
  const bool unified = plain == "cuMemcpy" || plain == "cuMemcpyAsync";
  if (!unified && plain != "cuMemcpyDtoD" && plain != "cuMemcpyDtoDAsync") {
    return refuse("copies memory in a way that Grape cannot replay" + name, call.frame());
  }
  const std::uint64_t to = call.argument(layout.dst), from = call.argument(layout.src);
  // A unified copy may be one from or to the host: only known device memory is on the device.
  if (unified && on_device(to) && !on_device(from)) return add_host_copy(layout, call, name);
  if (unified && (!on_device(to) || !on_device(from))) {
    return refuse("copies between the device and memory that may be the host's" + name, call.frame());
  }
  check_device_memory(to, call.frame());
  check_device_memory(from, call.frame());
  note_stream(record::stream_of(layout, call), call.frame());
}

// Its bytes come with the next event.
void RegionScreen::add_host_copy(const ApiLayout& layout, const CallView& call, const std::string& name) {
  if (plain_name(layout.symbol).compare(0, 12, "cuMemcpyHtoA") == 0) {
    return refuse("copies memory in a way that Grape cannot replay" + name, call.frame());
  }
  const std::uint64_t stream = record::stream_of(layout, call), bytes = call.argument(layout.bytes);
  check_device_memory(call.argument(layout.dst), call.frame());
  note_stream(stream, call.frame());
  host_copies_.insert(call.header->sequence);
  if (layout.stream >= 0) {
    fed_.insert(stream);
  } else {
    note_wait(stream);
  }
  host_bytes_ += bytes;
  if (bytes > kMostHostData || host_bytes_ > kMostHostDataInAll) {
    refuse("copies more host memory to the device than Grape keeps" + name, call.frame());
  } else if (block_at(events_.host, call.argument(layout.src)) != nullptr) {
    // The device may be writing to it, in the order of its stream.
    refuse("copies pinned memory of the host to the device" + name, call.frame());
  }
  data_due_ = {"copies memory to the device that may not be the host's own" + name, call.frame(), false};
}

void RegionScreen::take_due_data() {
  if (!data_due_.reason.empty()) refuse(data_due_.reason, data_due_.frame);
  data_due_ = {};
}

// The wait for what was read is part of the read; one for what was copied from the host is made ahead of a replay.
void RegionScreen::add_wait(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const std::uint64_t stream = record::stream_of(layout, call);
  check_default_stream(stream, call.frame());
  const bool fed = fed_.erase(stream) != 0;
  if (plain_name(layout.symbol) != "cuStreamSynchronize" || (reads_ == waited_for_ && !fed)) {
    return refuse("waits for the device" + name, call.frame());
  }
  waited_for_ = reads_;
  if (fed) note_wait(stream);
}

void RegionScreen::note_wait(std::uint64_t stream) {
  const auto at = std::lower_bound(waited_streams_.begin(), waited_streams_.end(), stream);
  if (at == waited_streams_.end() || *at != stream) waited_streams_.insert(at, stream);
}

void RegionScreen::add_host_read(const ApiLayout& layout, const CallView& call, const std::string& name) {
  if (plain_name(layout.symbol) != "cuMemcpyDtoHAsync") {
    return refuse("reads device memory to the host" + name, call.frame());
  }
  ++reads_;
  read_frame_ = call.frame();
  note_stream(record::stream_of(layout, call), call.frame());
}

bool RegionScreen::on_device(std::uint64_t address) const {
  if (block_at(events_.before, address) != nullptr) return true;
  return std::any_of(born_.begin(), born_.end(),
                     [address](const program::LiveBlock& block) { return address - block.address < block.bytes; });
}

void RegionScreen::check_device_memory(std::uint64_t address, std::uint32_t frame) {
  if (block_at(events_.host, address) != nullptr) {
    refuse("copies or sets memory of the host (pinned or managed)", frame);
  }
}

void RegionScreen::add_event_call(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const std::uint64_t event = call.argument(layout.event);
  if (layout.api_class == ApiClass::kEvent) {
    if (layout.destroys) {
      recorded_.erase(event);
      made_.erase(event);
    } else {
      made_.insert(event);
    }
    return;
  }
  if (layout.stream < 0) return refuse("orders whole contexts" + name, call.frame());
  const std::uint64_t stream = record::stream_of(layout, call);
  note_stream(stream, call.frame());
  if (std::find(event_streams_.begin(), event_streams_.end(), stream) == event_streams_.end()) {
    event_streams_.push_back(stream);
  }
  if (layout.api_class == ApiClass::kEventRecord) {
    recorded_[event] = call.frame();
  } else if (recorded_.count(event) == 0 && made_.count(event) == 0) {
    wait_from_before(event, call, name);
  }
}

// What the event had recorded before the call is what the whole replay waits for: later than any stream did.
void RegionScreen::wait_from_before(std::uint64_t event, const CallView& call, const std::string& name) {
  RegionEvents::Event known;
  if (events_.event == nullptr || !events_.event(event, known)) {
    return refuse("waits for work from before the call by an event that Grape does not know" + name, call.frame());
  }
  // The handle is another event's by now.
  if (known.serial > events_.serial)
    return refuse_again("waits for an event from before the call" + name, call.frame());
  add_handle(waited_, {event, known.serial});
}

// Who waits for one of these later must find it recorded behind the replay's work.
void RegionScreen::find_trailing_events() {
  constexpr std::uint32_t kHarmless = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  for (const auto& recorded : recorded_) {
    const std::uint64_t event = recorded.first;
    const std::uint32_t frame = recorded.second;
    RegionEvents::Event known;
    if (events_.event == nullptr || !events_.event(event, known)) {
      return refuse("records an event that may be waited for after the call (cuEventRecord)", frame);
    }
    if ((known.flags & CU_EVENT_DISABLE_TIMING) == 0) {
      refuse("records an event that a time may be taken with (cuEventRecord)", frame);
    } else if ((known.flags & ~kHarmless) != 0) {
      refuse("records an event of other processes as well (cuEventRecord)", frame);
    } else if (known.serial > events_.serial) {
      refuse_again("makes an event that may be waited for after the call (cuEventRecord)", frame);
    } else {
      add_handle(trailing_, {event, known.serial});
    }
  }
}

void RegionScreen::add_context_call(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const std::string plain = plain_name(layout.symbol);
  // Which one is current is known from the driver itself (kContextNote), and matters where there is work in it.
  static const char* const kHarmless[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuCtxPushCurrent",
                                          "cuCtxPopCurrent"};
  if (std::find(std::begin(kHarmless), std::end(kHarmless), plain) != std::end(kHarmless)) return;
  refuse_again("contexts were made or changed" + name, call.frame());
}

// A thread that had none has got one, as its first work does.
void RegionScreen::check_context() {
  if (events_.began_context != 0 && events_.ended_context != events_.began_context) {
    refuse("makes another device the current one");
  }
}

// Those of the context that is current; of any other stream find_streams() asks.
void RegionScreen::check_default_stream(std::uint64_t stream, std::uint32_t frame) {
  const bool is_default = stream == record::kLegacyStream || stream == record::kPerThreadStream;
  if (is_default && context_ != events_.context) refuse(kOtherDevice, frame);
}

void RegionScreen::note_stream(std::uint64_t stream, std::uint32_t frame) {
  check_default_stream(stream, frame);
  if (stream != record::kLegacyStream && stream != record::kPerThreadStream) streams_.insert(stream);
}

std::uint64_t RegionScreen::stream_serial(std::uint64_t stream) const {
  const auto found = stream_serials_.find(stream);
  return found != stream_serials_.end() ? found->second : 0;
}

void RegionScreen::find_streams() {
  for (const std::uint64_t handle : streams_) {
    RegionEvents::Stream stream;
    if (!events_.stream(handle, stream)) return refuse_again("a stream is gone");
    if (stream.context != events_.context) return refuse(kOtherDevice);
    modes_.set(handle, stream.non_blocking);
    stream_serials_[handle] = stream.serial;
  }
}

}  // namespace grape::replay
