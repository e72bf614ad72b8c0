// A region's executable graphs (execs). A program without an exec takes over one of its own shape: the nodes that
// differ are set, which takes some hundred microseconds for hundreds of nodes. Building takes milliseconds, and memory.
// A program that comes again and again gets its own exec, as long as the budget lasts. One thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "compressor/store/kept_program.h"
#include "shim/graphs/graph_exec.h"

namespace grape::graphs {

class ExecPool {
 public:
  // Returns an exec that holds the program's segment, bound to `bindings`. It is valid until the pool is asked for
  // another program. Null and one line in `error` if the driver refuses. `program` and `plan` must stay where they are
  // until forget(). The whole program is loaded only if no exec holds it.
  GraphExec* take(const store::KeptProgram& program, program::Segment segment, const program::ArenaPlan& plan,
                  const program::Bindings& bindings, refusal::Refusal& error) noexcept;
  // `to` is `from` with other words. Moves the execs of `from` to `to`, bound. Where that fails, take() builds later.
  void hand_over(const store::KeptProgram& from, const store::KeptProgram& to, const program::ArenaPlan& plan,
                 const program::Bindings& bindings) noexcept;
  // The program is about to go: so do the execs that hold it.
  void forget(const store::KeptProgram& program) noexcept;

  std::size_t size() const noexcept { return entries_.size(); }
  std::uint64_t built() const noexcept { return built_; }
  std::uint64_t adopted() const noexcept { return adopted_; }
  // Estimate of what the driver keeps on the device for all execs of all pools, in bytes.
  static std::uint64_t device_bytes() noexcept;
  ~ExecPool();

 private:
  struct Part {
    const store::KeptProgram* program = nullptr;
    std::uint32_t first_node = 0;
    bool operator==(const Part& other) const noexcept {
      return program == other.program && first_node == other.first_node;
    }
  };
  struct Entry {
    std::unique_ptr<GraphExec> exec;
    std::uint64_t used = 0;   // when last, by clock_
    Part part = {};           // what it holds
    std::uint32_t shape = 0;  // equal for those that could adopt each other's programs
  };
  struct PartHash {
    std::size_t operator()(const Part& part) const noexcept {
      return std::hash<const void*>()(part.program) * 31 + part.first_node;
    }
  };

  void drop(std::size_t index) noexcept;
  using Whole = std::shared_ptr<const program::Program>;
  bool adopt(std::size_t index, const store::KeptProgram& program, Whole whole, program::Segment segment,
             const program::ArenaPlan& plan, const program::Bindings& bindings);
  void drop_all() noexcept;
  std::uint32_t shape_of(const program::Program& program, program::Segment segment) const;
  Entry* to_adopt(const store::KeptProgram& program, program::Segment segment, std::uint32_t shape) noexcept;
  GraphExec* build(const store::KeptProgram& program, Whole whole, program::Segment segment, std::uint32_t shape,
                   const program::ArenaPlan& plan, const program::Bindings& bindings, refusal::Refusal& error);

  std::vector<Entry> entries_;
  std::unordered_map<Part, std::size_t, PartHash> holders_;   // indices into entries_
  std::unordered_map<Part, std::uint32_t, PartHash> missed_;  // how often a part found no exec that holds it
  std::uint32_t shapes_ = 0;                                  // numbers given out
  // record::g_module_epoch: execs from before an unload may name kernels that are gone.
  std::uint32_t module_epoch_ = 0;
  std::uint64_t clock_ = 0, built_ = 0, adopted_ = 0;
};

}  // namespace grape::graphs
