// The patterns of GRAPE_REGIONS and GRAPE_EXCLUDE: comma-separated, "package.module:Qualified.name", each part with
// shell wildcards.
#pragma once

namespace grape::python {

// Does any pattern of `list` match "package.module:Qualified.name"? Any thread.
bool matches(const char* list, const char* qualified_name) noexcept;

// Does the part of any pattern before the colon match the name of a module?
bool may_match_module(const char* list, const char* module) noexcept;

}  // namespace grape::python
