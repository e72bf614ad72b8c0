// Included by assembly too: nothing but numbers.
#pragma once

#define GRAPE_UNHANDLED_SLOTS 512
#define GRAPE_UNHANDLED_THUNK_BYTES 32
