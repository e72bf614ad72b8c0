// The trace as Chrome trace events, for Perfetto or chrome://tracing: driver calls and module scopes per thread, a
// track per stream that shows the order of issue, and the memory of live allocator blocks. Written as it is read.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "tools/inputs/event_text.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using trace::EventKind;

class ChromeWriter {
 public:
  ChromeWriter(TraceInput& input, Output& out) : input_(input), out_(out), pid_(input.meta().pid) {}

  void begin() {
    out_.write("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
    name("process_name", pid_, 0, input_.meta().command);
    name("process_name", stream_pid(), 0, "streams, in order of issue (not of execution)");
    for (const trace::ThreadInfo& thread : input_.reader().threads()) {
      os_threads_[thread.thread] = thread.os_thread;
      name("thread_name", pid_, thread.os_thread, fmt::format("thread {}", thread.thread));
    }
  }

  void see(const Step& step) {
    const trace::EventHeader& header = *step.event.header;
    switch (header.kind) {
      case EventKind::kLaunch: {
        const trace::LaunchView launch(step.event);
        Json json = slice(step);
        on_stream(json, step, normal_stream(input_.apis()[launch.api()], launch.stream()));
        return write(json);
      }
      case EventKind::kCall: {
        const record::CallView call(step.event);
        const record::ApiLayout& layout = input_.apis()[call.api()];
        if (layout.ends_range) live_.clear();  // what is freed from now on is not seen
        Json json = slice(step);
        if (layout.stream >= 0 && call.result() == 0) on_stream(json, step, stream_of(layout, call));
        return write(json);
      }
      case EventKind::kScopeBegin:
        return write({{"ph", "B"},
                      {"pid", pid_},
                      {"tid", os_threads_[step.thread]},
                      {"ts", microseconds(header.ticks)},
                      {"cat", "scope"},
                      {"name", text_value(event_name(input_, step))},
                      {"args", {{"type", text_value(event_detail(input_, step))}, {"call", step.call}}}});
      case EventKind::kScopeEnd:
        return write(
            {{"ph", "E"}, {"pid", pid_}, {"tid", os_threads_[step.thread]}, {"ts", microseconds(header.ticks)}});
      case EventKind::kBlockAlloc:
      case EventKind::kBlockFree:
        return memory(step);
      default:
        return;
    }
  }

  void end() { out_.write("\n]}\n"); }

 private:
  // The streams' tracks stand as a process of their own, below the real one.
  std::uint64_t stream_pid() const { return std::uint64_t{pid_} + (1u << 24); }
  double microseconds(std::uint64_t ticks) const { return input_.seconds_since_start(ticks) * 1e6; }

  Json slice(const Step& step) {
    const trace::EventHeader& header = *step.event.header;
    Json json = {{"ph", "X"},
                 {"pid", pid_},
                 {"tid", os_threads_[step.thread]},
                 {"ts", microseconds(header.ticks)},
                 {"dur", input_.seconds(header.duration) * 1e6},
                 {"cat", event_kind_name(header.kind)},
                 {"name", text_value(event_name(input_, step))}};
    json["args"] = {{"detail", text_value(event_detail(input_, step))},
                    {"line", text_value(input_.position(event_frame(step.event)))},
                    {"sequence", header.sequence}};
    return json;
  }

  void on_stream(Json json, const Step& step, std::uint64_t stream) {
    // A thread's own default stream is another one on each thread.
    const std::uint64_t key = stream == record::kPerThreadStream ? (1ull << 63) | step.thread : stream;
    const auto [found, fresh] = streams_.emplace(key, streams_.size() + 1);
    if (fresh) name("thread_name", stream_pid(), found->second, "stream " + input_.stream_name(stream));
    json["pid"] = stream_pid();
    json["tid"] = found->second;
    write(json);
  }

  void memory(const Step& step) {
    const std::uint64_t* words = step.event.words();
    const bool alloc = step.event.header->kind == EventKind::kBlockAlloc;
    std::uint64_t& live = live_[trace::high(words[2])];
    live = alloc ? live + words[1] : live - std::min(live, words[1]);
    write({{"ph", "C"},
           {"pid", pid_},
           {"ts", microseconds(step.event.header->ticks)},
           {"name", fmt::format("allocator blocks, device {}", trace::high(words[2]))},
           {"args", {{"bytes", live}}}});
  }

  void name(const char* what, std::uint64_t pid, std::uint64_t tid, const std::string& text) {
    write({{"ph", "M"}, {"pid", pid}, {"tid", tid}, {"name", what}, {"args", {{"name", text_value(text)}}}});
  }

  void write(const Json& json) {
    out_.print("{}\n{}", first_ ? "" : ",", dump_json(json));
    first_ = false;
  }

  TraceInput& input_;
  Output& out_;
  std::uint32_t pid_;
  bool first_ = true;
  std::unordered_map<std::uint32_t, std::uint32_t> os_threads_;
  std::unordered_map<std::uint64_t, std::size_t> streams_;
  std::map<std::uint32_t, std::uint64_t> live_;  // device → bytes
};

}  // namespace

int view_chrome(TraceInput& input, const DumpOptions& options, Output& out) {
  Filter filter(options.filter, input);
  ChromeWriter writer(input, out);
  writer.begin();
  Step step;
  std::size_t written = 0;
  input.rewind();
  while (input.next(step)) {
    filter.see(step);
    const EventKind kind = step.event.header->kind;
    const bool block = kind == EventKind::kBlockAlloc || kind == EventKind::kBlockFree;
    if (is_definition(kind) || !(block ? filter.block(step) : filter.event(step))) continue;
    if (options.limit != 0 && written++ == options.limit) break;
    writer.see(step);
  }
  writer.end();
  return 0;
}

}  // namespace grape::tools
