// Included by assembly too: nothing but numbers.
#pragma once

#define GRAPE_UNHANDLED_SLOTS 512
#define GRAPE_UNHANDLED_THUNK_BYTES 32
#define GRAPE_HANDLE_RANGE_BYTES 0x4000000
