#include "shim/interpose/wrapper.h"

#define GRAPE_HOOK GRAPE_DEFINE_ROW
#include "shim/interpose/hooks_context.def"
#undef GRAPE_HOOK
