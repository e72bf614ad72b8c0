#include "shim/interpose/captures.h"

namespace grape::interpose {

std::atomic<int> g_captures{0};

}  // namespace grape::interpose
