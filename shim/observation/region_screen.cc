#include "shim/observation/region_screen.h"

#include <algorithm>
#include <cstring>

#include "shim/driver/driver_api.h"
#include "shim/driver/real_driver.h"
#include "shim/memory/live_blocks.h"

namespace grape::observation {
namespace {

using driver::InCall;
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

const program::LiveBlock* block_at(const std::vector<program::LiveBlock>& blocks, std::uint64_t address) {
  auto next = std::upper_bound(blocks.begin(), blocks.end(), address,
                               [](std::uint64_t at, const program::LiveBlock& block) { return at < block.address; });
  if (next == blocks.begin()) return nullptr;
  --next;
  return address - next->address < next->bytes ? &*next : nullptr;
}

// Ascending by serial, each once.
void add_handle(std::vector<program::LiveHandle>& handles, program::LiveHandle handle) {
  const auto at = std::lower_bound(handles.begin(), handles.end(), handle,
                                   [](const auto& a, const auto& b) { return a.serial < b.serial; });
  if (at == handles.end() || at->serial != handle.serial) handles.insert(at, handle);
}

// Of a stream that is no default stream. False: the driver does not know it.
bool stream_of_driver(std::uint64_t handle, bool& non_blocking, std::uint64_t& context) {
  auto* stream = reinterpret_cast<CUstream>(handle);
  auto* get_flags = driver::real::get_cuStreamGetFlags();
  auto* get_context = driver::real::get_cuStreamGetCtx();
  unsigned flags = 0;
  CUcontext its = nullptr;
  if (get_flags == nullptr || get_flags(stream, &flags) != CUDA_SUCCESS || get_context == nullptr ||
      get_context(stream, &its) != CUDA_SUCCESS) {
    return false;
  }
  non_blocking = (flags & CU_STREAM_NON_BLOCKING) != 0;
  context = reinterpret_cast<std::uint64_t>(its);
  return true;
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
  if (event.header->kind == kThreadNote) {
    attached_ = event.words()[0] != 0;
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
    refuse(refusal::not_recorded_whole, 0);
  }
}

RegionScreen::Found RegionScreen::finish() {
  take_due_data();
  // A thread that had none has got one, as its first work does.
  if (events_.began_context != 0 && events_.ended_context != events_.began_context) {
    refuse(refusal::changes_device, 0);
  }
  // Written to, though it was believed to be never.
  if (!memory::LiveBlocks::instance().hold(host_words_)) refuse(refusal::kernel_on_host_memory, 0);
  find_trailing_events();
  if (values_ != reads_) refuse(refusal::reads_without_wait, read_frame_);
  if (!lasting_.refusal) find_streams();
  return lasting_.refusal ? lasting_ : passing_;
}

void RegionScreen::note_set_up(refusal::Form<1> form, const CallView& call, const std::string& name) {
  if (!set_up_.refusal) set_up_ = {refusal::make(form, name), call.frame()};
}

void RegionScreen::add_launch(const trace::LaunchView& launch) {
  const ApiLayout& layout = driver_calls()[launch.api()];
  const std::uint16_t flags = launch.header->flags;
  const std::string name = plain_name(layout.symbol);
  if (launch.result() != 0) return refuse(refusal::launch_failed, launch.frame(), name);
  if ((flags & trace::kFlagCaptured) != 0) return refuse(refusal::captures_graph, launch.frame(), name);
  if (layout.in_call == InCall::kSeveralDevices) return refuse(refusal::several_devices, launch.frame(), name);
  const bool unreadable = (flags & trace::kFlagNoLayout) != 0 && (flags & trace::kFlagPackedExtra) == 0;
  if ((flags & trace::kFlagTruncated) != 0 || unreadable || launch.function() == 0) {
    return refuse(refusal::unreadable_parameters, launch.frame(), name);
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
    refuse(refusal::event_in_kernel, launch.frame());
  } else if (id == kDeviceUpdatableNode || id > kLastKnownAttribute || (id == kAccessPolicyWindow && value != 0)) {
    refuse(refusal::unknown_attribute, launch.frame(), std::to_string(id));
  }
}

// Then it is noted.
bool RegionScreen::is_of_library(std::uint64_t word) {
  const auto named = [word](const program::HostWord& known) { return known.address == word; };
  const auto at = std::find_if(events_.library.begin(), events_.library.end(), named);
  if (at == events_.library.end()) return false;
  if (std::none_of(host_words_.begin(), host_words_.end(), named)) host_words_.push_back(*at);
  return true;
}

// A library's word is the host's as well.
bool RegionScreen::is_of_host(std::uint64_t address) const {
  const auto inside = [address](const program::HostWord& word) { return address - word.address < word.bytes; };
  return block_at(events_.host, address) != nullptr ||
         std::any_of(events_.library.begin(), events_.library.end(), inside);
}

void RegionScreen::check_host_memory(const trace::LaunchView& launch) {
  if (events_.host.empty() && events_.library.empty()) return;
  for (std::uint32_t at = 0; at + 8 <= launch.parameter_bytes(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, launch.parameters() + at, sizeof word);
    if (word != 0 && !is_of_library(word) && is_of_host(word)) {
      return refuse(refusal::kernel_on_host_memory, launch.frame());
    }
  }
}

void RegionScreen::add_call(const CallView& call) {
  const ApiLayout& layout = driver_calls()[call.api()];
  const std::string name = plain_name(layout.symbol);
  if (layout.api_class == ApiClass::kQuery) return;  // may say "not ready"
  if (layout.api_class == ApiClass::kModule) {
    if (layout.in_call == InCall::kUnloads) return refuse(refusal::unloads_kernels, call.frame(), name);
    loaded_ = loaded_ || layout.in_call != InCall::kAsksOfCode;
    return;
  }
  if (call.result() != 0) return refuse(refusal::driver_call_failed, call.frame(), name);
  if ((call.header->flags & trace::kFlagCaptured) != 0) {
    return refuse(refusal::captures_graph, call.frame(), name);
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
      return refuse(refusal::calls_back, call.frame(), name);
    case ApiClass::kStreamSync:
      return add_wait(layout, call, name);
    case ApiClass::kMemoryOp:
      return refuse(refusal::memory_operation, call.frame(), name);
    case ApiClass::kGraphLaunch:
      return refuse(refusal::launches_graph, call.frame(), name);
    case ApiClass::kGraph:
      if (layout.in_call == InCall::kHarmless) return;
      return refuse(refusal::builds_graph, call.frame(), name);
    case ApiClass::kEventRecord:
    case ApiClass::kEventWait:
    case ApiClass::kEvent:
      return add_event_call(layout, call, name);
    case ApiClass::kContext:
      // Which one is current is known from the driver itself (kContextNote), and matters where there is work in it.
      if (layout.in_call == InCall::kHarmless) return;
      return refuse(refusal::makes_contexts, call.frame(), name);
    case ApiClass::kAlloc:
      // The framework's blocks in it are known each by itself; what is used beside them is found as a stray.
      if (layout.in_call != InCall::kHarmless) note_set_up(refusal::allocates, call, name);
      return;
    case ApiClass::kFree:
      return note_set_up(refusal::gives_back, call, name);
    case ApiClass::kStream:
      return note_set_up(refusal::makes_streams, call, name);
    case ApiClass::kTensorMap:
      return;  // host only: what it makes goes into a kernel's parameters
    default:
      return refuse(refusal::unknown_call, call.frame(), name);
  }
}

void RegionScreen::add_copy(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const bool unified = layout.in_call == InCall::kUnifiedCopy;
  if (!unified && layout.in_call != InCall::kDeviceCopy) {
    return refuse(refusal::unknown_copy, call.frame(), name);
  }
  const std::uint64_t to = call.argument(layout.dst), from = call.argument(layout.src);
  // A unified copy may be one from or to the host: only known device memory is on the device.
  if (unified && on_device(to) && !on_device(from)) return add_host_copy(layout, call, name);
  if (unified && (!on_device(to) || !on_device(from))) {
    return refuse(refusal::copies_between, call.frame(), name);
  }
  check_device_memory(to, call.frame());
  check_device_memory(from, call.frame());
  note_stream(record::stream_of(layout, call), call.frame());
}

// Its bytes come with the next event.
void RegionScreen::add_host_copy(const ApiLayout& layout, const CallView& call, const std::string& name) {
  if (layout.in_call == InCall::kArrayCopy) {
    return refuse(refusal::unknown_copy, call.frame(), name);
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
    refuse(refusal::copies_too_much, call.frame(), name);
  } else if (is_of_host(call.argument(layout.src))) {
    // The device may be writing to it, in the order of its stream.
    refuse(refusal::copies_pinned, call.frame(), name);
  }
  data_due_ = {refusal::make(refusal::copies_others_memory, name), call.frame()};
}

void RegionScreen::take_due_data() {
  if (data_due_.refusal && !lasting_.refusal) lasting_ = std::move(data_due_);
  data_due_ = {};
}

// The wait for what was read is part of the read; one for what was copied from the host is made ahead of a replay.
void RegionScreen::add_wait(const ApiLayout& layout, const CallView& call, const std::string& name) {
  const std::uint64_t stream = record::stream_of(layout, call);
  check_default_stream(stream, call.frame());
  const bool fed = fed_.erase(stream) != 0;
  if (layout.in_call != InCall::kWait || (reads_ == waited_for_ && !fed)) {
    return refuse(refusal::waits_for_device, call.frame(), name);
  }
  waited_for_ = reads_;
  if (fed) note_wait(stream);
}

void RegionScreen::note_wait(std::uint64_t stream) {
  const auto at = std::lower_bound(waited_streams_.begin(), waited_streams_.end(), stream);
  if (at == waited_streams_.end() || *at != stream) waited_streams_.insert(at, stream);
}

void RegionScreen::add_host_read(const ApiLayout& layout, const CallView& call, const std::string& name) {
  if (layout.in_call != InCall::kRead) {
    return refuse(refusal::reads_memory, call.frame(), name);
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
  if (is_of_host(address)) refuse(refusal::writes_host_memory, frame);
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
  if (layout.stream < 0) return refuse(refusal::orders_contexts, call.frame(), name);
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
  program::LiveBlock known;
  if (!memory::LiveBlocks::instance().find(memory::BlockSource::kEvent, event, known)) {
    return refuse(refusal::unknown_event, call.frame(), name);
  }
  // The handle is another event's by now.
  if (known.serial > events_.serial) return refuse(refusal::event_from_before, call.frame(), name);
  add_handle(waited_, {event, known.serial});
}

// Who waits for one of these later must find it recorded behind the replay's work.
void RegionScreen::find_trailing_events() {
  constexpr std::uint32_t kHarmless = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  for (const auto& recorded : recorded_) {
    const std::uint64_t event = recorded.first;
    const std::uint32_t frame = recorded.second;
    program::LiveBlock known;
    if (!memory::LiveBlocks::instance().find(memory::BlockSource::kEvent, event, known)) {
      return refuse(refusal::leaves_event, frame);
    }
    if ((known.bytes & CU_EVENT_DISABLE_TIMING) == 0) {
      refuse(refusal::times_event, frame);
    } else if ((known.bytes & ~kHarmless) != 0) {
      refuse(refusal::event_of_processes, frame);
    } else if (known.serial > events_.serial) {
      refuse(refusal::makes_event, frame);
    } else {
      add_handle(trailing_, {event, known.serial});
    }
  }
}

// Those of the context that is current; of any other stream find_streams() asks.
void RegionScreen::check_default_stream(std::uint64_t stream, std::uint32_t frame) {
  const bool is_default = stream == record::kLegacyStream || stream == record::kPerThreadStream;
  if (is_default && context_ != events_.context) refuse(refusal::other_device, frame);
  // Each thread has one of its own.
  if (stream == record::kPerThreadStream && attached_) refuse(refusal::stream_of_other_thread, frame);
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
    bool non_blocking = false;
    std::uint64_t context = 0;
    if (!stream_of_driver(handle, non_blocking, context)) return refuse(refusal::stream_is_gone, 0);
    if (context != events_.context) return refuse(refusal::other_device, 0);
    modes_.set(handle, non_blocking);
    program::LiveBlock made;
    stream_serials_[handle] =
        memory::LiveBlocks::instance().find(memory::BlockSource::kStream, handle, made) ? made.serial : 0;
  }
}

}  // namespace grape::observation
