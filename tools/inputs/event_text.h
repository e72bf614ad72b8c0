// Describes one event of a trace as text.
#pragma once

#include <string>

#include "tools/inputs/trace_input.h"

namespace grape::tools {

const char* event_kind_name(trace::EventKind kind);
// What happened to what: a kernel's name, a driver function, a scope.
std::string event_name(TraceInput& input, const Step& step);
// Arguments, dimensions, sizes, result.
std::string event_detail(TraceInput& input, const Step& step);
std::uint32_t event_frame(const trace::EventView& event);
std::uint32_t event_native_frame(const trace::EventView& event);

}  // namespace grape::tools
