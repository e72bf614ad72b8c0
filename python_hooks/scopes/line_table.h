// Which line of the source an instruction belongs to, by the tables of the CPython versions. Pure; reads only the given
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// The line of the instruction at `offset` bytes in the code; -1: it belongs to none. A negative offset (nothing was
// executed yet) gives the first line.
int line_of(LineFormat format, const std::uint8_t* table, std::size_t bytes, int first_line,
            std::int64_t offset) noexcept;

}  // namespace grape::python
