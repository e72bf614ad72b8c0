// A launch's attributes and flags as text.
#pragma once

#include <string>
#include <vector>

#include "compressor/trace/event.h"

namespace grape::tools {

// "cooperative", "cluster 2x1x1", "programmatic stream serialization", "priority -1", … in the launch's order.
std::vector<std::string> launch_attributes(const trace::LaunchView& launch);
// What the event's flags say of its parameters: "parameters unknown", "packed parameters", "cut".
std::vector<std::string> flag_notes(std::uint16_t flags);
// With commas between them; "none".
std::string attributes_text(const std::vector<std::string>& list);

}  // namespace grape::tools
