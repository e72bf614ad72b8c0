// What our own driver calls need around them.
#pragma once

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"

namespace grape::virtual_execs {

using replay::ContextScope;
using replay::RelaxedCapture;

}  // namespace grape::virtual_execs
