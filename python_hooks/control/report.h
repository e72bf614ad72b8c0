// What became of each region, in words for the user: at exit to GRAPE_REPORT (JSON), and in a few lines on stderr where
// GRAPE_LOG=info asks for them.
#pragma once

namespace grape::python::replay {

// And what GRAPE_CACHE is to have, which the report tells of. With the GIL; once, when the interpreter goes.
void write_report() noexcept;

}  // namespace grape::python::replay
