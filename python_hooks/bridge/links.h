// Links of a replayed call: nodes that stand for its inner nodes with edges that leave it.
#pragma once

#include <memory>
#include <vector>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {

// One node a link, or one for several that follow each other and lead to leaves alone. `targets`: as in CallTensors;
// `like`: a result, which tells device and stream. Whoever leads to the nodes keeps them.
std::vector<std::shared_ptr<autograd::Node>> make_links(const std::shared_ptr<Cut>& cut, const Tensor* targets,
                                                        const at::Tensor& like);

// Per link: its edges. Empty: nothing leads there any more.
std::vector<autograd::edge_list> edges_of_links(const Cut& cut);

// Was a hook added behind the call, on one of several leaves of a node? The engine would call it in another order.
bool has_late_hooks(const Cut& cut);

}  // namespace grape::python::bridge
