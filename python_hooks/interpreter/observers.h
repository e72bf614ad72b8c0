// Who else looks on as Python code runs? With the GIL.
#pragma once

#include <string>

namespace grape::python::state {

// Does somebody trace or profile this thread, or is a debugger or a coverage tool registered? Calls into `sys`.
bool others_observe() noexcept;

// Are there other threads that run Python code? They may have, while a call gave the interpreter's lock away.
bool other_threads() noexcept;

// "model.py:12": where the innermost code that is not the standard library's stands; empty: nowhere.
std::string current_place();

}  // namespace grape::python::state
