#include "tools/inputs/trace_input.h"

#include <fmt/format.h>

#include "tools/text/escape.h"
#include "tools/text/failure.h"

namespace grape::tools {
namespace {

using trace::EventKind;

constexpr std::size_t kDeepest = 4096;  // scopes open at once on a thread; deeper ones count for the outer
constexpr std::size_t kLongestStack = 4096;

// What `text` says of each frame, from the innermost one to the one without a parent.
template <class Frames, class Text>
std::vector<std::string> outwards(const Frames& frames, std::uint32_t id, const Text& text) {
  std::vector<std::string> lines;
  for (; id != 0 && id < frames.size() && lines.size() < kLongestStack; id = frames[id].parent) {
    lines.push_back(text(id));
  }
  return lines;
}

std::unique_ptr<trace::Reader> open(const std::string& path) {
  trace::Error error;
  auto reader = trace::Reader::open(path, error);
  if (reader == nullptr) {
    // The reader may name the file itself.
    const bool named = error.message.find(path) != std::string::npos;
    throw Failure(fmt::format("{}{}{}", named ? "" : escape_text(path) + ": ", escape_text(error.message),
                              error.offset != 0 ? fmt::format(" (byte {})", error.offset) : ""));
  }
  return reader;
}

}  // namespace

TraceInput::TraceInput(const std::string& path)
    : path_(path), reader_(open(path)), apis_(reader_->meta().apis, reader_->meta().ranges) {
  std::uint64_t rate = meta().ticks_per_second;
  if (reader_->end() != nullptr && reader_->end()->ticks_per_second != 0) rate = reader_->end()->ticks_per_second;
  ticks_per_second_ = rate == 0 ? 1e9 : static_cast<double>(rate);
}

const trace::Function& TraceInput::function(std::uint32_t id) const {
  static const trace::Function none = [] {
    trace::Function function;
    function.name = "(unknown kernel)";
    return function;
  }();
  const auto& functions = tables().functions;
  return id == 0 || id >= functions.size() ? none : functions[id];
}

const trace::Scope& TraceInput::scope(std::uint32_t id) const {
  static const trace::Scope none;
  const auto& scopes = tables().scopes;
  return id >= scopes.size() ? none : scopes[id];
}

const std::string& TraceInput::function_name(std::uint32_t id, void* input) {
  return static_cast<TraceInput*>(input)->function(id).name;
}

std::string TraceInput::position(std::uint32_t id) const {
  if (id == 0 || id >= tables().frames.size()) return "";
  const trace::Frame& frame = tables().frames[id];
  if (frame.code >= tables().codes.size()) return "";
  const trace::Code& code = tables().codes[frame.code];
  std::string_view file = code.file;
  if (!names_.full()) {
    const std::size_t last = file.rfind('/');
    const std::size_t before = last == std::string_view::npos || last == 0 ? last : file.rfind('/', last - 1);
    if (before != std::string_view::npos) file.remove_prefix(before + 1);
  }
  return fmt::format("{}:{} in {}", file, frame.line, code.qualname);
}

std::string TraceInput::native_position(std::uint32_t id) const {
  if (id == 0 || id >= tables().native_frames.size()) return "";
  const trace::NativeFrame& frame = tables().native_frames[id];
  std::string_view object = frame.object;
  if (!names_.full()) object.remove_prefix(object.rfind('/') + 1);  // npos + 1 is 0
  std::string place = fmt::format("{}+{:#x}", object, frame.offset);
  if (frame.symbol.empty()) return place;
  const std::string name = demangle(frame.symbol);
  return fmt::format("{} ({})", names_.full() ? name : short_name(name), place);
}

std::vector<std::string> TraceInput::stack(std::uint32_t id) const {
  return outwards(tables().frames, id, [this](std::uint32_t frame) { return position(frame); });
}

std::vector<std::string> TraceInput::native_stack(std::uint32_t id) const {
  return outwards(tables().native_frames, id, [this](std::uint32_t frame) { return native_position(frame); });
}

std::string TraceInput::scope_name(std::uint32_t id) const {
  if (id == 0) return "";
  const trace::Scope& found = scope(id);
  return found.name.empty() ? found.type : found.name;
}

std::string TraceInput::stream_name(std::uint64_t stream) const {
  if (stream == record::kLegacyStream) return "default";
  if (stream == record::kPerThreadStream) return "per-thread";
  return fmt::format("{:#x}", stream);
}

void TraceInput::rewind() {
  reader_->rewind();
  threads_.clear();
  call_regions_.clear();
  events_read_ = 0;
}

bool TraceInput::next(Step& step) {
  if (!reader_->next(step.event, step.thread)) return false;
  ++events_read_;
  place(step);
  return true;
}

void TraceInput::place(Step& step) {
  if (step.thread >= threads_.size()) threads_.resize(step.thread + 1);
  Thread& thread = threads_[step.thread];
  switch (step.event.header->kind) {
    case EventKind::kScopeBegin:
      return begin_scope(thread, step);
    case EventKind::kScopeEnd:
      return end_scope(thread, step);
    case EventKind::kScopeAttach:
      thread.attached = step.event.words()[0];
      break;
    default:
      break;
  }
  if (!thread.open.empty()) {
    const Open& top = thread.open.back();
    step.scope = top.scope;
    step.region = top.region;
    step.call = top.call;
    if (step.call != 0) return;
  } else {
    step.scope = 0;
  }
  step.call = thread.attached;
  const auto found = step.call == 0 ? call_regions_.end() : call_regions_.find(step.call);
  step.region = found == call_regions_.end() ? 0 : found->second;
  // A region call that has ended takes in nothing more.
  if (step.region == 0) step.call = 0;
}

void TraceInput::begin_scope(Thread& thread, Step& step) {
  Open open;
  open.scope = trace::low(step.event.words()[0]);
  open.call = step.event.words()[1];
  if (open.call != 0) {
    open.region = open.scope;
    call_regions_[open.call] = open.scope;
  } else if (!thread.open.empty()) {
    open.region = thread.open.back().region;
    open.call = thread.open.back().call;
  }
  step.scope = open.scope;
  step.region = open.region;
  step.call = open.call;
  if (thread.open.size() < kDeepest) thread.open.push_back(open);
}

void TraceInput::end_scope(Thread& thread, Step& step) {
  const std::uint32_t scope = trace::low(step.event.words()[0]);
  step.scope = scope;
  step.region = 0;
  step.call = 0;
  // Scopes whose end is missing (lost events) end with the one around them.
  std::size_t at = thread.open.size();
  while (at > 0 && thread.open[at - 1].scope != scope) --at;
  if (at == 0) return;
  const Open& open = thread.open[at - 1];
  step.region = open.region;
  step.call = open.call;
  if (step.event.words()[1] != 0) call_regions_.erase(open.call);
  thread.open.resize(at - 1);
}

void TraceInput::drain() {
  Step step;
  while (next(step)) {
  }
}

std::uint32_t RegionNumbers::begin(const Step& step, std::uint32_t& ordinal) {
  const auto [found, fresh] = numbers_.emplace(step.region, static_cast<std::uint32_t>(numbers_.size() + 1));
  if (fresh) calls_.push_back(0);
  ordinal = ++calls_[found->second - 1];
  return found->second;
}

}  // namespace grape::tools
