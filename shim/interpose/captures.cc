#include "shim/interpose/captures.h"

#include "shim/lifecycle/hot.h"

namespace grape::interpose {

GRAPE_HOT std::atomic<int> g_captures{0};

}  // namespace grape::interpose
