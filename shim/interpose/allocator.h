// PyTorch's allocator, observed through the function to which it reports each block.
#pragma once

namespace grape::interpose {

// Says once, where PyTorch is loaded and has no such function, that there will be no block events. Cheap afterwards.
void check_allocator() noexcept;

}  // namespace grape::interpose
