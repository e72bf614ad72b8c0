// libgrape.so is made of its rooms; this file only gives the linker something to start from.
#include "shim/lifecycle/hot.h"

namespace grape {
extern const char kVersion[];
const char kVersion[] = GRAPE_VERSION;

namespace {
// The first of its kind in what is linked: all of them lie in two cache lines side by side.
alignas(128) GRAPE_HOT __attribute__((used, retain)) char g_first = 0;
}  // namespace
}  // namespace grape
