// Which line of the source an instruction belongs to, by the tables of the CPython versions. Pure; reads only the given
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grape::python::scopes {

enum class LineFormat { kRanges, kLocations };  // 3.10 (PEP 626); from 3.11

// The line of the instruction at `offset` bytes in the code; -1: it belongs to none. A negative offset (nothing was
// executed yet) gives the first line.
int line_of(LineFormat format, const std::uint8_t* table, std::size_t bytes, int first_line,
            std::int64_t offset) noexcept;

}  // namespace grape::python::scopes
