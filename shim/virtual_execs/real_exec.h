// An exec of the driver that holds one of the application's graphs. Either the driver made it of the application's own
// graph; or it is ours, built from what was read. The nodes of ours can be set to another graph of the same shape.
// Calls the driver's real functions. One thread at a time per object; the right context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compressor/program/program.h"
#include "shim/graphs/device_budget.h"
#include "shim/graphs/node_parameters.h"
#include "shim/graphs/upload_ahead.h"
#include "shim/virtual_execs/read_graph.h"
#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {

struct Virtual;

// The stream that work went to; two launches into the same place are in order. Default streams have definite handles.
struct Place {
  CUstream stream = nullptr;
  std::uint64_t thread = 0;  // of a per-thread default stream; no two threads' are the same
  bool operator==(const Place& o) const noexcept { return stream == o.stream && thread == o.thread; }
};
Place place_of(CUstream stream, bool per_thread) noexcept;

// Builds a graph of our own with the contents of another. On an error of the driver nothing is left behind. `refusal`
// says so if the built graph does not read back as it should.
struct BuiltGraph {
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> nodes;
};
CUresult build_graph(const Shape& shape, const program::Program& program, Functions& functions, BuiltGraph& built,
                     refusal::Form<0>& refusal);
void destroy_graph(BuiltGraph& built) noexcept;

class RealExec {
 public:
  explicit RealExec(std::shared_ptr<Shape> shape);
  // Takes over the exec that the driver made of the application's graph.
  void adopt(CUgraphExec exec) noexcept { exec_ = exec; }
  // Null, with the driver's error in `result`.
  static std::unique_ptr<RealExec> build(const std::shared_ptr<Shape>& shape, program::Program& program,
                                         const std::vector<std::uint32_t>& disabled, Functions& functions,
                                         CUresult& result);
  ~RealExec();  // destroys the exec
  RealExec(const RealExec&) = delete;
  RealExec& operator=(const RealExec&) = delete;

  CUgraphExec exec() const noexcept { return exec_; }
  const std::shared_ptr<Shape>& shape() const noexcept { return shape_; }
  std::uint64_t bytes() const noexcept { return graphs::estimated_device_bytes(shape_->nodes.size()); }
  bool own() const noexcept { return built_.graph != nullptr; }
  CUgraphNode node(std::size_t index) const noexcept { return built_.nodes[index]; }

  // Of our own execs: does it hold a node whose function is gone? `gone` tells by handle.
  template <class Gone>
  bool runs(const Gone& gone) const {
    for (const program::FunctionInfo& function : held_.functions) {
      if (gone(function.handle)) return true;
    }
    return false;
  }
  // Of our own execs: sets the nodes in which `program`, of the same shape, differs from the held program, and swaps
  // both programs. Launches under way keep their parameters. After an error the exec is half of each program: drop it.
  CUresult take_over(program::Program& program, const std::vector<std::uint32_t>& disabled) noexcept;
  // The application changed the exec by calls for its nodes: it holds `program` now.
  void hold(program::Program&& program) noexcept { held_ = std::move(program); }
  void set_disabled(const std::vector<std::uint32_t>& disabled) { disabled_ = disabled; }
  // Is it as it was instantiated? A captured launch becomes that graph, whatever was set since.
  bool pristine() const noexcept { return pristine_; }
  void modified() noexcept { pristine_ = false; }

  // Sends the new parameters to the device, beside the work that is under way.
  void upload() noexcept { upload_.begin(exec_); }
  // To be called before a launch into that place.
  void launching(const Place& place) noexcept;
  // Are all its launches done, as far as the driver can say without waiting?
  bool finished() noexcept;
  const Place& place() const noexcept { return place_; }  // of its last launch; none: the stream is gone
  bool was_last_in(const Place& place) const noexcept { return !launched_ || place_ == place; }
  // The stream is about to be destroyed: its end can only be seen by an event from now on.
  void stream_goes(CUstream stream) noexcept;
  CUgraphExec give_exec() noexcept { return std::exchange(exec_, nullptr); }  // to be destroyed by the caller
  // The context is gone: forget the handles without a driver call.
  void abandon() noexcept;

  // Guarded by the table's lock.
  Virtual* holder = nullptr;
  int busy = 0;            // threads that are launching it, or something else with it
  std::uint64_t used = 0;  // when last

 private:
  CUresult disable(const std::vector<std::uint32_t>& disabled);
  CUresult set_node(const program::Program& program, std::size_t index) noexcept;
  bool mark() noexcept;

  CUgraphExec exec_ = nullptr;
  BuiltGraph built_;
  std::shared_ptr<Shape> shape_;
  program::Program held_;                // of own ones
  std::vector<std::uint32_t> disabled_;  // nodes, ascending
  graphs::NodeParameters parameters_;    // of the node that is set
  graphs::UploadAhead upload_;
  bool pristine_ = true;
  bool launched_ = false;
  bool marked_ = false;  // event_ was recorded behind the last launch
  Place place_;
  CUevent event_ = nullptr;
};

}  // namespace grape::virtual_execs
