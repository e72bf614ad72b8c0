// A program as an executable graph of the driver: built node by node, bound to addresses, launched. Calls the driver's
// real functions (shim/driver/real_driver.h), never our wrappers. One thread at a time per object. The context is
// PyTorch's: the device's primary one, current on the calling thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/program.h"
#include "compressor/refusal/refusal.h"
#include "shim/graphs/host_buffer.h"

namespace grape::graphs {

class GraphExec {
 public:
  // Builds and instantiates with the given addresses. Null and one line in `error` if the driver refuses anything;
  // nothing is left behind then. `program`, not null, is shared. `plan` and the modules of the kernels must outlive the
  // result, unchanged (record::g_module_epoch tells of unloads). Copies and memsets become kernels of our own: a chain
  // of kernel nodes launches faster. Only the nodes of `segment` are built; earlier segments were launched before.
  static std::unique_ptr<GraphExec> build(std::shared_ptr<const program::Program> program, program::Segment segment,
                                          const program::ArenaPlan& plan, const program::Bindings& bindings,
                                          refusal::Refusal& error) noexcept;
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  // Sets the parameters of the nodes in which a word changed since the last bind, and no others. On an error the exec
  // is unusable and must be dropped; nothing was launched. Launches that are under way keep what they were bound to.
  CUresult bind(const program::Bindings& bindings) noexcept;
  // Takes another program of the same shape (nodes, edges, attributes; kernels, grids and words may differ) in place of
  // the one it holds, so that thousands of programs share a few execs: sets the nodes that differ from what the driver
  // has, and no others. False: not the same shape, and nothing was done; or an error, and the exec is unusable (then
  // usable() is false). The rules of build() hold for the new program from then on; the old one may go.
  bool adopt(std::shared_ptr<const program::Program> program, program::Segment segment, const program::ArenaPlan& plan,
             const program::Bindings& bindings) noexcept;
  bool fits(const program::Program& program, program::Segment segment) const noexcept;  // could it adopt it?
  bool usable() const noexcept;
  const program::Program* holds() const noexcept;
  // The place of the value that the host reads behind the segment; the same after each launch. Null: the value is to be
  // copied. A caller that gives up waiting abandons the place.
  std::shared_ptr<HostBuffer> value() const noexcept;
  // Sends what was set since the last launch to the device, beside the work that is under way.
  void upload() noexcept;
  // `stream`: 0 and 1 are the legacy default stream, 2 the thread's own. Not one under capture.
  CUresult launch(CUstream stream) noexcept;
  // The same, for work that was on other streams besides: it follows what they had, and they wait for it.
  CUresult launch(CUstream stream, const std::vector<CUstream>& others) noexcept;

  std::uint32_t patched() const noexcept;       // nodes set by the last bind()
  std::uint64_t device_bytes() const noexcept;  // estimate of what the driver keeps for it
  // After the context is gone: forget the handles without a driver call.
  void abandon() noexcept;

 private:
  GraphExec();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::graphs
