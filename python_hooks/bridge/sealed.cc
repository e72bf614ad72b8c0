// A call that has returned results whose graph it had freed itself. Each pass over it is an error of PyTorch's, which
// is raised where eager raises it. Nothing but that is left of the call's nodes.
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {
namespace {

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

// Those that would have run have kept nothing any more, but for the one that failed.
void free_parts(Cut& cut, const std::vector<std::uint64_t>& from, std::size_t failed) {
  for (std::size_t i = 0; i < failed && i < cut.parts.size(); ++i) {
    Cut::Part& part = cut.parts[i];
    if (!cut.is_used(part, from) || part.node == cut.parts[failed].node) continue;
    part.freed = true;
    part.tensor = part.itself = at::Tensor();
  }
}

}  // namespace

void Cut::fail(bool waits) {
  find_running();
  const bool asks_for_results =
      std::all_of(running.begin(), running.end(), [](std::uint64_t bits) { return bits == 0; });
  if (asks_for_results) running.assign(running.size(), ~std::uint64_t{0});
  const std::vector<std::uint64_t> from = tops_that_came();
  std::exception_ptr error;
  std::size_t failed = kNowhere;
  for (std::size_t i = 0; i < parts.size() && failed == kNowhere; ++i) {
    if (!is_used(parts[i], from)) continue;
    try {
      check(parts[i]);
    } catch (const std::exception&) {
      error = std::current_exception();
      failed = i;
    }
  }
  TORCH_CHECK(failed != kNowhere, autograd::ERR_BACKWARD_TWICE);
  const std::uint64_t fails = form.numbers[parts[failed].node];
  for (std::uint32_t i = 0; i < form.top_count && waits; ++i) {
    const std::shared_ptr<autograd::Node> top = came[i] || form.tops[i].sequence < fails ? nullptr : tops[i].lock();
    if (top != nullptr && will_run(top.get())) return;
  }
  if (!autograd::get_current_graph_task_keep_graph()) free_parts(*this, from, failed);
  std::rethrow_exception(error);
}

}  // namespace grape::python::bridge
