// The application's graphs behind handles of ours. A store holds the contents of all graphs. A few real execs, within
// the budget, hold the graphs that are launched. Launching a graph that is on an exec costs a look-up. Another graph is
// launched node by node; or it takes over the exec of its shape that was unused for longest, by setting the nodes that
// differ.
//
// Any thread, at any time. `table_` is held for moments, never across a driver call. `work_` is held while an exec is
// made or changed, and across a launch only for the rest of one that broke off. Where memory runs out, the driver's own
// error comes back.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compressor/store/store.h"
#include "shim/graphs/device_budget.h"
#include "shim/virtual_execs/change.h"
#include "shim/virtual_execs/functions.h"
#include "shim/virtual_execs/lanes.h"
#include "shim/virtual_execs/read_graph.h"
#include "shim/virtual_execs/real_exec.h"
#include "shim/virtual_execs/report.h"
#include "shim/virtual_execs/shape.h"
#include "shim/virtual_execs/tails.h"

namespace grape::virtual_execs {

struct Virtual {
  std::uint64_t id = 0;  // in the store
  std::shared_ptr<Shape> shape;
  std::vector<std::uint32_t> functions;  // numbers of those that it runs
  // The graph that it was made of, and that graph's nodes in the program's order: calls for single nodes name them.
  // Null and empty once the application destroyed the graph.
  CUgraph source = nullptr;
  std::vector<CUgraphNode> source_nodes;
  // The graph as the application changed it by node, while it is on its exec. Null: as in the store.
  std::unique_ptr<program::Program> changed;
  std::vector<std::uint32_t> disabled;  // nodes, ascending
  cuuint64_t flags = 0;                 // as the driver tells them
  RealExec* exec = nullptr;             // that it is on; guarded by the table's lock
  bool pinned = false;  // it stays on its exec: the application changed it in a way that is not followed
  bool context_gone = false;
  std::uint32_t missed = 0;       // launches for which it was on no exec and got one
  std::uint32_t missed_soon = 0;  // launches by node, one soon after the other
  // Guarded by the table's lock:
  std::uint64_t launched_at = 0;   // how many launches there were, of all graphs; 0: never
  std::shared_ptr<Tail> tail;      // where its last launch ends that was not on the exec that it is on now
  CUgraphExec follower = nullptr;  // launched after it the last time, by the same thread
};

// Counts of graphs and launches since the start.
struct Counters {
  std::atomic<std::uint64_t> made{0}, destroyed{0};  // virtual execs
  std::atomic<std::uint64_t> refused[refusal::kRefusals] = {};
  std::atomic<std::uint64_t> pinned{0};
  std::atomic<std::uint64_t> taken_over{0}, ahead{0}, built{0}, evicted{0};  // real execs
  std::atomic<std::uint64_t> by_node{0};                                     // launches
};

class VirtualExecs {
 public:
  // Makes the one instance, before any other call. It is never destroyed: threads may launch until the very end. False:
  // no memory.
  static bool start() noexcept;
  static VirtualExecs& instance() noexcept { return *g_instance; }
  // Is the handle one of ours? Also in the child of a fork.
  static bool ours(CUgraphExec handle) noexcept;

  // Before and after a successful instantiation. instantiated() returns the handle for the application: `exec` itself
  // if the graph stays with the driver.
  void instantiating(CUgraph graph) noexcept;
  CUgraphExec instantiated(CUgraphExec exec, CUgraph graph, cuuint64_t flags) noexcept;
  // The driver had no memory. True: there may be some now.
  bool make_room() noexcept;

  // A real exec that stands for a handle of ours, from begin...() to end(). If there is none, `result` is the error for
  // the application. For an unknown handle `result` is CUDA_SUCCESS, and the driver is asked with null.
  static constexpr std::size_t kNoIndex = ~std::size_t{0};
  struct Use {
    RealExec* held = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    std::size_t index = kNoIndex;  // of the node in the program
    CUresult result = CUDA_SUCCESS;
    bool launched = false;       // by node: there is no more to be done; `result` is the application's
    CUgraphExec next = nullptr;  // is likely to be launched after this one, and on no exec
  };
  Use begin_launch(CUgraphExec handle, CUstream stream, bool per_thread) noexcept;
  // Called after a launch, while the device works on it. Puts `next` on an exec that can be taken over at once.
  void prepare(CUgraphExec next, CUstream stream, bool per_thread) noexcept;
  Use begin(CUgraphExec handle) noexcept;
  // For calls that change the exec as a whole: the graph stays on it from now on.
  Use begin_pinned(CUgraphExec handle) noexcept;
  // For a call that names one node. changed() is called before end() if the call succeeded. A graph whose change cannot
  // be followed stays on its exec from then on.
  Use begin_node(CUgraphExec handle, CUgraphNode node) noexcept;
  void changed(CUgraphExec handle, const Use& use, const Change& change) noexcept;
  void end(const Use& use) noexcept;

  // The answer of cuGraphExecGetFlags. False: no such handle.
  bool flags(CUgraphExec handle, cuuint64_t& flags) noexcept;
  using DestroyExec = CUresult (*)(CUgraphExec);
  CUresult destroy(CUgraphExec handle, DestroyExec destroy_exec) noexcept;

  // The application's other calls for graphs, code, contexts and streams. before_...(): the call has yet to be made.
  void graph_gone(CUgraph graph) noexcept;
  void node_gone(CUgraphNode node) noexcept;
  void keeps_objects(CUgraph graph) noexcept;
  void cloned(CUgraph from, CUgraph to) noexcept;
  void before_unload(std::uint64_t owner) noexcept;
  void context_gone(CUcontext context) noexcept;
  void before_stream_goes(CUstream stream) noexcept;

  static GraphsReport report();  // may throw std::bad_alloc
  // Estimate of what the driver keeps on the device for all real execs, in bytes.
  static std::uint64_t device_bytes() noexcept {
    return graphs::g_device_bytes.program.load(std::memory_order_relaxed);
  }

 private:
  // So many of one shape are needed to set one for the next graph while another runs: with one, that would wait for it.
  static constexpr std::size_t kExecsAhead = 2;

  VirtualExecs() = default;
  using Lock = std::lock_guard<std::mutex>;

  template <class Act>
  void note_change(const Act& act) noexcept;

  // With table_ held.
  Virtual* find(CUgraphExec handle) const noexcept;
  Use use(RealExec* exec) noexcept;
  CUgraphExec foresee(CUgraphExec handle, Virtual& launched) noexcept;
  static bool foreseen(CUgraphExec handle) noexcept;
  std::unique_ptr<RealExec> remove(RealExec& exec) noexcept;
  std::unique_ptr<RealExec> release(Virtual& v) noexcept;
  std::unique_ptr<Virtual> take_out(CUgraphExec handle, std::unique_ptr<RealExec>& held) noexcept;
  void attach(Virtual& to, RealExec& exec) noexcept;

  // With work_ held.
  Virtual* look_up(CUgraphExec handle) const noexcept;
  void pin(Virtual& v) noexcept;
  bool follow(Virtual& v, const Use& use, const Change& change);
  bool follow_kernel(Virtual& v, std::size_t index, const CUDA_KERNEL_NODE_PARAMS_v2& params);
  bool follow_words(Virtual& v, std::size_t index, const Change& change);
  bool settle(Virtual& v, RealExec* exec);
  bool load(Virtual& v);
  refusal::Form<0> read(CUgraph graph, cuuint64_t flags, GraphReading& reading, std::shared_ptr<Shape>& shape);
  CUgraphExec add(CUgraphExec exec, CUgraph graph, GraphReading& reading, const std::shared_ptr<Shape>& shape);
  CUgraphExec new_handle(Virtual* made);
  RealExec* bring(Virtual& v, const Place* place, bool pristine, CUresult& result);
  RealExec* take_over(Virtual& v, const Place* place, bool ahead);
  void bring_ahead(Virtual& v, const Place& place);
  RealExec* build(const std::shared_ptr<Shape>& shape, const std::vector<std::uint32_t>& disabled, CUresult& result);
  RealExec* to_recycle(Virtual& v, const Place* place, bool ahead);
  bool claim(RealExec& exec, Virtual** holder) noexcept;
  bool claim_idle(RealExec& exec, const Place* place);
  bool evict_oldest();
  void evict_to(std::uint64_t bytes);
  void drop(RealExec& exec);
  RealExec* insert(std::unique_ptr<RealExec> exec);
  template <class Wanted>
  std::vector<RealExec*> select(const Wanted& wanted) const {
    std::vector<RealExec*> result;
    Lock table(table_);
    for (const auto& exec : execs_) {
      if (wanted(*exec)) result.push_back(exec.get());
    }
    return result;
  }
  void forget_unused_functions();  // and table_
  std::vector<RealExec*> of_shape(const Virtual& v) const;
  bool code_gone(const Virtual& v) const noexcept;
  bool comes_again_soon(Virtual& v);
  bool is_worth_going_ahead(const Virtual& v) const;
  bool can_go_by_node(Virtual& v);
  bool launch_by_node(CUgraphExec handle, const Place& place, std::unique_lock<std::mutex>& work, Use& launched);
  CUresult launch_rest(const std::shared_ptr<Shape>& shape, std::size_t done, std::vector<std::uint32_t> disabled,
                       const Place& place);
  void stay_in_order(Virtual& v, const Place& place);
  bool leave_behind(Virtual& v, const Place& place);
  static std::uint64_t limit() noexcept;

  static VirtualExecs* g_instance;

  std::mutex work_;
  mutable std::mutex table_;
  // Guarded by table_:
  std::vector<Virtual*> slots_;
  std::deque<std::uint32_t> free_slots_;
  std::vector<std::unique_ptr<RealExec>> execs_;
  std::uint64_t clock_ = 0, launches_ = 0;
  // Guarded by work_:
  store::Store store_;
  Shapes shapes_;
  Functions functions_;
  program::Program scratch_;
  Tails tails_;     // places are changed with table_ held, too
  AllLanes lanes_;  // which there are; what goes onto them is their one thread's, which is Alone
  std::uint64_t last_id_ = 0;
  std::unordered_map<CUgraph, std::vector<CUgraphExec>> made_of_;  // while the graph is there
  std::unordered_set<CUgraph> keeping_objects_;

  program::Program by_node_;  // that is launched; its one thread is Alone
  Counters counters_;
};

}  // namespace grape::virtual_execs
