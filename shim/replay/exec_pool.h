// A region's execs: few, for many programs. A program that no exec holds takes one of its own shape over, by setting
// the nodes that differ; only where there is none, or few, a new one is built. One thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shim/replay/graph_exec.h"

namespace grape::replay {

class ExecPool {
 public:
  // An exec that holds the program's segment, bound to `bindings`: valid until the pool is asked for another program's.
  // Null and one line in `error` if the driver refuses. `program` and `plan` must stay as they are until forget().
  GraphExec* take(const program::Program& program, program::Segment segment, const program::ArenaPlan& plan,
                  const program::Bindings& bindings, std::string& error) noexcept;
  // The program is about to go: so do the execs that hold it.
  void forget(const program::Program& program) noexcept;

  std::size_t size() const noexcept { return entries_.size(); }
  std::uint64_t built() const noexcept { return built_; }
  std::uint64_t adopted() const noexcept { return adopted_; }
  // Estimate of what the driver keeps on the device for all execs of all pools, in bytes.
  static std::uint64_t device_bytes() noexcept;
  ~ExecPool();

 private:
  struct Entry {
    std::unique_ptr<GraphExec> exec;
    std::uint64_t used = 0;  // when last, by clock_
  };
  void drop(std::size_t index) noexcept;
  GraphExec* build(const program::Program& program, program::Segment segment, const program::ArenaPlan& plan,
                   const program::Bindings& bindings, std::string& error);

  std::vector<Entry> entries_;
  std::uint32_t module_epoch_ =
      0;  // record::g_module_epoch: execs from before an unload may name kernels that are gone
  std::uint64_t clock_ = 0, built_ = 0, adopted_ = 0;
};

}  // namespace grape::replay
