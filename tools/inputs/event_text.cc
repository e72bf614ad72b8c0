#include "tools/inputs/event_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/inputs/attributes.h"
#include "tools/inputs/exec_graphs.h"

namespace grape::tools {
namespace {

using trace::EventKind;
using trace::high;
using trace::low;

constexpr std::size_t kLongestText = 200;

std::string argument_text(const record::CallView& call, const record::Argument& argument, int index) {
  const std::uint64_t value = call.argument(index);
  switch (argument.kind) {
    case 'u':
      return std::to_string(value);
    case 'i':
      return std::to_string(static_cast<std::int64_t>(value));
    case 'f': {
      double number = 0;
      std::memcpy(&number, &value, sizeof number);
      return fmt::format("{}", number);
    }
    case 't': {
      std::uint32_t bytes = 0;
      const std::uint8_t* text = call.blob(index, bytes);
      if (text == nullptr) return fmt::format("{:#x}", value);
      const std::string_view shown(reinterpret_cast<const char*>(text), std::min<std::size_t>(bytes, kLongestText));
      return fmt::format("\"{}\"", shown.substr(0, shown.find('\0')));
    }
    default:
      return fmt::format("{:#x}", value);
  }
}

std::string call_detail(const TraceInput& input, const record::CallView& call) {
  const record::ApiLayout& layout = input.apis()[call.api()];
  std::string text;
  for (std::uint32_t i = 0; i < call.argument_count() && i < 64; ++i) {
    static const record::Argument unknown;
    const record::Argument& argument = i < layout.arguments.size() ? layout.arguments[i] : unknown;
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", argument.name.empty() ? "?" : argument.name,
                        argument_text(call, argument, static_cast<int>(i)));
  }
  if (call.result() != 0) text += fmt::format("{}failed with CUresult {}", text.empty() ? "" : "  ", call.result());
  return text;
}

std::string launch_detail(const TraceInput& input, const trace::LaunchView& launch) {
  std::string text =
      fmt::format("grid {}x{}x{} block {}x{}x{} shared {} stream {}", launch.grid(0), launch.grid(1), launch.grid(2),
                  launch.block(0), launch.block(1), launch.block(2), launch.shared_bytes(),
                  input.stream_name(normal_stream(input.apis()[launch.api()], launch.stream())));
  for (const std::string& attribute : launch_attributes(launch)) text += fmt::format(" [{}]", attribute);
  if (launch.result() != 0) text += fmt::format("  failed with CUresult {}", launch.result());
  return text;
}

}  // namespace

const char* event_kind_name(EventKind kind) {
  constexpr const char* kNames[] = {"launch", "call",   "block alloc", "block free",  "begin",
                                    "end",    "attach", "graph node",  "graph edges", "lost"};
  const auto number = static_cast<std::size_t>(kind) - static_cast<std::size_t>(EventKind::kLaunch);
  return number < std::size(kNames) ? kNames[number] : "definition";
}

std::string event_name(TraceInput& input, const Step& step) {
  const std::uint64_t* words = step.event.words();
  switch (step.event.header->kind) {
    case EventKind::kLaunch:
      return input.shown(low(words[trace::kLaunchFunction]));
    case EventKind::kCall:
      return input.apis()[low(words[0])].symbol;
    case EventKind::kScopeBegin:
    case EventKind::kScopeEnd:
      return input.scope_name(low(words[0]));
    case EventKind::kExecNode:
      return high(words[1]) == kKernelNode ? input.shown(low(words[2])) : graph_node_type_name(high(words[1]));
    default:
      return "";
  }
}

std::string event_detail(TraceInput& input, const Step& step) {
  const std::uint64_t* words = step.event.words();
  const bool captured = (step.event.header->flags & trace::kFlagCaptured) != 0;
  switch (step.event.header->kind) {
    case EventKind::kLaunch:
      return launch_detail(input, trace::LaunchView(step.event)) + (captured ? "  captured" : "");
    case EventKind::kCall:
      return call_detail(input, record::CallView(step.event)) + (captured ? "  captured" : "");
    case EventKind::kBlockAlloc:
    case EventKind::kBlockFree:
      return fmt::format("{:#x}, {} B, device {}", words[0], words[1], high(words[2]));
    case EventKind::kScopeBegin:
      return input.scope(low(words[0])).type;
    case EventKind::kScopeEnd:
      return high(words[0]) != 0 ? "raised" : "returned";
    case EventKind::kScopeAttach:
      return words[0] == 0 ? "to no region call" : fmt::format("to region call {}", words[0]);
    case EventKind::kExecNode:
      return fmt::format("exec {:#x}, node {}", words[0], low(words[1]));
    case EventKind::kExecEdges:
      return fmt::format("exec {:#x}, {} edges", words[0], low(words[1]));
    case EventKind::kLost:
      return fmt::format("{} events", words[0]);
    default:
      return "";
  }
}

std::uint32_t event_frame(const trace::EventView& event) {
  const std::uint64_t* words = event.words();
  switch (event.header->kind) {
    case EventKind::kLaunch:
      return low(words[trace::kLaunchStack]);
    case EventKind::kCall:
      return low(words[1]);
    case EventKind::kBlockAlloc:
      return low(words[2]);
    case EventKind::kScopeBegin:
      return high(words[0]);
    default:
      return 0;
  }
}

std::uint32_t event_native_frame(const trace::EventView& event) {
  const std::uint64_t* words = event.words();
  switch (event.header->kind) {
    case EventKind::kLaunch:
      return high(words[trace::kLaunchStack]);
    case EventKind::kCall:
      return high(words[1]);
    default:
      return 0;
  }
}

}  // namespace grape::tools
