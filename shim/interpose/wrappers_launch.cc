#include "shim/interpose/wrapper.h"

#define GRAPE_HOOK GRAPE_DEFINE_ROW
#include "shim/interpose/hooks_launch.def"
#undef GRAPE_HOOK
