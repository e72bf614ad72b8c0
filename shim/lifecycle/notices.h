// The notices given so far, for the trace's end chunk. Any thread.
#pragma once

#include <cstddef>

namespace grape {

std::size_t notice_count() noexcept;                  // slots to ask for, not all of them used
const char* notice_text(std::size_t index) noexcept;  // null: none in this slot

}  // namespace grape
