// Graphs that a program makes itself, on the simulated driver. The tests that use it run several times: without Grape,
// to see that they say what the driver does, and with GRAPE_GRAPHS=virtual.
#pragma once

#include <atomic>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/fixture.h"

namespace grape::virtual_execs_test {

// Are the program's graphs virtual, with a budget of kResident of those that make_graph() makes?
inline bool is_virtual() {
  const char* graphs = std::getenv("GRAPE_GRAPHS");
  return graphs != nullptr && std::string(graphs) == "virtual";
}
constexpr std::uint64_t kResident = 2;

// As long as it lives another thread of the process has put work on a stream: graphs are launched on execs, and none
// node by node.
class AnotherThread {
 public:
  explicit AnotherThread(CUcontext context) {
    std::promise<CUresult> launched;
    std::future<CUresult> result = launched.get_future();
    thread_ = std::thread([this, context, &launched] {
      CUevent event = nullptr;
      const bool made = cuCtxSetCurrent(context) == CUDA_SUCCESS && cuEventCreate(&event, 0) == CUDA_SUCCESS;
      launched.set_value(made ? cuEventRecord(event, CU_STREAM_PER_THREAD) : CUDA_ERROR_UNKNOWN);
      end_.get_future().wait();
    });
    EXPECT_CU(result.get());
  }
  ~AnotherThread() {
    end_.set_value();
    thread_.join();
  }
  AnotherThread(const AnotherThread&) = delete;
  AnotherThread& operator=(const AnotherThread&) = delete;

 private:
  std::promise<void> end_;
  std::thread thread_;
};

class Graphs : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    simcuda_reset();
    state_ = number(1);
    copies_ = floats(2 * kCopies);
    stream_ = stream();
    ASSERT_CU(cuStreamSynchronize(nullptr));  // copies from pageable memory return before they are done
  }

  // For the rest of the test.
  void launch_on_execs() { another_.emplace(context_); }

  // From then on no graph is on an exec, but for those that run.
  static void free_execs() {
    CUdeviceptr made = 0;
    simcuda_set_fault("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    if (cuMemAlloc(&made, 64) == CUDA_SUCCESS) {
      EXPECT_CU(cuMemFree(made));
    }
  }

  // Kernels of graphs that were launched node by node.
  static std::uint64_t launched_alone() { return simcuda_calls("cuLaunchKernelEx"); }

  // A thread that adds one to `counter`, in stream_.
  std::thread add_one_elsewhere(CUdeviceptr counter, std::atomic<int>& failures) {
    return std::thread([this, counter, &failures, add = function("_Z10atomic_addPmm")] {
      if (cuCtxSetCurrent(context_) != CUDA_SUCCESS) ++failures;
      CUdeviceptr where = counter;
      std::uint64_t one = 1;
      void* parameters[] = {&where, &one};
      if (cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr) != CUDA_SUCCESS) ++failures;
    });
  }

  // Execs that the driver has. Only of use as long as simcuda_reset() is not called.
  static std::uint64_t live() {
    return simcuda_calls("cuGraphInstantiate") + simcuda_calls("cuGraphInstantiate_v2") +
           simcuda_calls("cuGraphInstantiateWithFlags") + simcuda_calls("cuGraphInstantiateWithParams") -
           simcuda_calls("cuGraphExecDestroy");
  }

  template <typename... P>
  CUgraphNode add_kernel(CUgraph graph, const std::vector<CUgraphNode>& after, CUfunction kernel, P... parameters) {
    void* pointers[] = {static_cast<void*>(&parameters)..., nullptr};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel;
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 32;
    params.kernelParams = pointers;
    CUgraphNode node = nullptr;
    EXPECT_CU(cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }

  CUgraphNode add_copy(CUgraph graph, const std::vector<CUgraphNode>& after, CUdeviceptr to, CUdeviceptr from,
                       std::size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    CUgraphNode node = nullptr;
    EXPECT_CU(cuGraphAddMemcpyNode(&node, graph, after.data(), after.size(), &copy, context_));
    return node;
  }

  CUgraphNode add_memset(CUgraph graph, const std::vector<CUgraphNode>& after, CUdeviceptr at, unsigned value) {
    CUDA_MEMSET_NODE_PARAMS memset{};
    memset.dst = at;
    memset.value = value;
    memset.elementSize = 4;
    memset.width = memset.height = 1;
    CUgraphNode node = nullptr;
    EXPECT_CU(cuGraphAddMemsetNode(&node, graph, after.data(), after.size(), &memset, context_));
    return node;
  }

  static constexpr std::size_t kCopies = 1024;
  static std::uint64_t factor(std::size_t i) { return 2 * i + 3; }
  static std::uint64_t step(std::size_t i, std::uint64_t state) { return state * factor(i) + i; }

  // state = state * factor(i) + i, in two steps; where copies_[i] gets the state before the second, and its neighbour
  // 17 + i. Copy and memset lie side by side, or one behind the other where graphs are to be `chains_`. `nodes`: those
  // that it has, in this order: first kernel, copy, memset, empty, second kernel.
  CUgraph make_graph(std::size_t i, std::vector<CUgraphNode>* nodes = nullptr) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    const CUfunction mix = function("_Z3mixPmmm");
    const CUgraphNode first = add_kernel(graph, {}, mix, state_, factor(i), std::uint64_t{0});
    const CUgraphNode copy = add_copy(graph, {first}, copies_ + (i % kCopies) * 8, state_, 4);
    const CUgraphNode set =
        add_memset(graph, {chains_ ? copy : first}, copies_ + (i % kCopies) * 8 + 4, static_cast<unsigned>(17 + i));
    CUgraphNode join = nullptr;
    const CUgraphNode joined[] = {copy, set};
    EXPECT_CU(cuGraphAddEmptyNode(&join, graph, joined, 2));
    // Every other graph has another function in that place.
    const CUgraphNode last = i % 2 == 0
                                 ? add_kernel(graph, {join}, mix, state_, std::uint64_t{1}, std::uint64_t{i})
                                 : add_kernel(graph, {join}, function("_Z10atomic_addPmm"), state_, std::uint64_t{i});
    if (nodes != nullptr) *nodes = {first, copy, set, join, last};
    return graph;
  }

  // state = 2 * state + 4 at `where`, in two kernels with a while between them: launches of one such graph that run
  // side by side give something else.
  static std::uint64_t slowly(std::uint64_t state) { return 2 * state + 4; }
  CUgraph make_slow_graph(CUdeviceptr where, unsigned microseconds) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    const CUfunction mix = function("_Z3mixPmmm");
    const CUgraphNode first = add_kernel(graph, {}, mix, where, std::uint64_t{2}, std::uint64_t{1});
    const CUgraphNode slept = add_kernel(graph, {first}, function("_Z5delayj"), microseconds);
    add_kernel(graph, {slept}, mix, where, std::uint64_t{1}, std::uint64_t{3});
    return graph;
  }

  // As PyTorch does: the graph is gone when its exec is launched.
  CUgraphExec exec_of(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_CU(cuGraphDestroy(graph));
    return exec;
  }
  CUgraphExec make_exec(std::size_t i) { return exec_of(make_graph(i)); }

  std::vector<CUgraphExec> make_execs(std::size_t count) {
    std::vector<CUgraphExec> execs;
    for (std::size_t i = 0; i < count; ++i) execs.push_back(make_exec(i));
    return execs;
  }

  // Launches all in turn, from state 1, and looks at what they left. The graph at i does step(i).
  void expect_steps(const std::vector<CUgraphExec>& execs, std::size_t launches) {
    std::uint64_t expected = 1;
    for (std::size_t i = 0; i < launches; ++i) {
      ASSERT_CU(cuGraphLaunch(execs[i % execs.size()], stream_));
      expected = step(i % execs.size(), expected);
    }
    synchronize();
    EXPECT_EQ(state(), expected);
  }

  void synchronize() { ASSERT_CU(cuStreamSynchronize(stream_)); }
  std::uint64_t state() { return read<std::uint64_t>(state_); }
  void set_state(std::uint64_t value) {
    ASSERT_CU(cuMemcpyHtoD(state_, &value, sizeof value));
    ASSERT_CU(cuStreamSynchronize(nullptr));
  }

  bool chains_ = false;
  CUdeviceptr state_ = 0, copies_ = 0;
  CUstream stream_ = nullptr;

 private:
  std::optional<AnotherThread> another_;
};

}  // namespace grape::virtual_execs_test
