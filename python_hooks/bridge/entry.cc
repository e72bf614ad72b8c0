// What a bridge exports.
#include <torch/version.h>

#include "python_hooks/bridge/nodes.h"

#define GRAPE_TEXT_OF(x) #x
#define GRAPE_VERSION_TEXT(major, minor) GRAPE_TEXT_OF(major) "." GRAPE_TEXT_OF(minor)

extern "C" __attribute__((visibility("default"))) const grape::python::bridge::Bridge* grape_bridge(
    std::uint32_t version) {
  namespace bridge = grape::python::bridge;
  static constexpr bridge::Bridge kBridge = {bridge::kVersion,
                                             GRAPE_VERSION_TEXT(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR),
                                             bridge::hold_targets,
                                             bridge::release_targets,
                                             bridge::find_border,
                                             bridge::free_border,
                                             bridge::at_node,
                                             bridge::watch,
                                             bridge::make_blocks,
                                             bridge::free_blocks,
                                             bridge::keep_casts,
                                             bridge::cut,
                                             bridge::looks_for_anomalies,
                                             bridge::take_modes,
                                             bridge::release_modes,
                                             bridge::enter_modes,
                                             bridge::leave_modes,
                                             bridge::run_again,
                                             bridge::was_run_again,
                                             bridge::fail_for_memory,
                                             bridge::make_contributions,
                                             bridge::relate_contributions,
                                             bridge::give_back,
                                             bridge::make_room,
                                             bridge::drop_room,
                                             bridge::is_inner_pass,
                                             bridge::make_inner_nodes,
                                             bridge::free_inner_nodes,
                                             bridge::do_beside,
                                             bridge::who_waits};
  return version == bridge::kVersion ? &kBridge : nullptr;
}
