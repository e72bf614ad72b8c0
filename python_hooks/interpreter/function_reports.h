// Reports of changed functions: from 3.12 on the interpreter calls a C function before a Python function gets other
// code or other defaults (PyFunction_AddWatcher). Without a report only the closures of functions need to be read. With
// the GIL.
#pragma once

#include <cstdint>

namespace grape::python {

// Are such changes reported? Not before 3.12, nor if the last watcher is taken, nor once a second interpreter was made.
// The first call runs Python code of Grape's: make it before anything is read.
bool functions_report() noexcept;
// How many changes were reported, of all functions of the process.
std::uint64_t function_changes() noexcept;

}  // namespace grape::python
