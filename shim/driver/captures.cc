#include "shim/driver/captures.h"

#include "shim/lifecycle/hot.h"

namespace grape::driver {

GRAPE_HOT std::atomic<int> g_captures{0};

}  // namespace grape::driver
