// torch's switches that at::Context and c10 keep: benchmarks, precisions, attention's backends, the default dtype, ...
#pragma once

#include "python_hooks/torch/dispatch_writer.h"

namespace grape::python::torch {

// With the GIL, and no exception set; leaves none. `by_python` (tests): the same bytes, by torch's own functions alone.
void put_switches(DispatchWriter& writer, bool by_python = false) noexcept;

// Does the program ask for deterministic algorithms, be it with warnings only? With the GIL; keeps the exception.
bool asks_for_determinism() noexcept;

// Has what put_switches() will ask for fetched ahead.
void fetch_switches() noexcept;

// Tests: how many of them a call of Python's tells, as nothing else was found to tell the same.
std::size_t switches_asked_of_python() noexcept;

}  // namespace grape::python::torch
