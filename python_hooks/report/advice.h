// What a reason for not replaying a call means for the user, and what to change in the program. One table; pure.
#pragma once

#include <string_view>

namespace grape::python::replay {

struct Advice {
  const char* kind;  // a word for programs that read the report: "host_read", "autograd", ...
  const char* text;  // what to change, in whole sentences; "": nothing is known
};

// By the reason's words. What is not in the table is of kind "other", without advice.
const Advice& advice_for(std::string_view reason) noexcept;

}  // namespace grape::python::replay
