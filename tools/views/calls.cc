// The view "calls": all events, one after the other. Written as it is read; nothing is kept.
#include "tools/inputs/event_text.h"
#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

void print_row(Output& out, TraceInput& input, const Step& step, const DumpOptions& options, bool first) {
  const Format format = options.format;
  const trace::EventHeader& header = *step.event.header;
  const double seconds = input.seconds_since_start(header.ticks);
  const double microseconds = input.seconds(header.duration) * 1e6;
  const std::string name = event_name(input, step), detail = event_detail(input, step);
  const std::string line = input.position(event_frame(step.event));
  if (format == Format::kText) {
    out.print("{:>8} {:>12.6f} {:>3} {:>5} {:>8.1f}  {:<11}  {}{}{}{}{}\n", header.sequence, seconds, step.thread,
              step.call == 0 ? "" : fmt::format("{}", step.call), microseconds, event_kind_name(header.kind),
              escape_text(name), name.empty() || detail.empty() ? "" : "  ", escape_text(detail),
              line.empty() ? "" : "  at ", escape_text(line));
    if (options.stacks) print_stacks(out, input, event_frame(step.event), event_native_frame(step.event));
  } else if (format == Format::kCsv) {
    out.print("{},{:.9f},{},{},{:.3f},{},{},{},{}\n", header.sequence, seconds, step.thread, step.call, microseconds,
              event_kind_name(header.kind), escape_csv(name), escape_csv(detail), escape_csv(line));
  } else {
    Json json;
    json["sequence"] = header.sequence;
    json["seconds"] = seconds;
    json["thread"] = step.thread;
    json["call"] = step.call;
    json["microseconds"] = microseconds;
    json["kind"] = event_kind_name(header.kind);
    json["name"] = text_value(name);
    json["detail"] = text_value(detail);
    json["line"] = text_value(line);
    if (options.stacks) {
      json["stack"] = text_list(input.stack(event_frame(step.event)));
      json["native_stack"] = text_list(input.native_stack(event_native_frame(step.event)));
    }
    out.print("{}\n    {}", first ? "" : ",", dump_json(json));
  }
}

}  // namespace

void print_stacks(Output& out, const TraceInput& input, std::uint32_t frame, std::uint32_t native_frame) {
  const auto& frames = input.tables().frames;
  if (frame < frames.size()) {
    for (const std::string& line : input.stack(frames[frame].parent)) out.print("        from {}\n", escape_text(line));
  }
  for (const std::string& line : input.native_stack(native_frame)) out.print("        native {}\n", escape_text(line));
}

int view_calls(TraceInput& input, const DumpOptions& options, Output& out) {
  Filter filter(options.filter, input);
  if (options.format == Format::kText) {
    out.print("{:>8} {:>12} {:>3} {:>5} {:>8}  {:<11}  what\n", "sequence", "seconds", "thr", "call", "us", "event");
  } else if (options.format == Format::kCsv) {
    out.write("sequence,seconds,thread,call,microseconds,kind,name,detail,line\n");
  } else {
    out.print("{{\n  \"file\": {},\n  \"view\": \"calls\",\n  \"calls\": [", dump_json(text_value(input.path())));
  }
  std::size_t printed = 0;
  Step step;
  input.rewind();
  while (input.next(step)) {
    filter.see(step);
    if (is_definition(step.event.header->kind) || !filter.event(step)) continue;
    if (options.limit != 0 && printed == options.limit) {
      if (options.format == Format::kText) out.write("… and more\n");  // how many only the whole trace tells
      break;
    }
    print_row(out, input, step, options, printed++ == 0);
  }
  if (options.format == Format::kJson) {
    input.drain();
    out.print("\n  ],\n  \"records\": {},\n  \"complete\": {}\n}}\n", input.events_read(),
              input.reader().complete() ? "true" : "false");
  }
  return 0;
}

}  // namespace grape::tools
