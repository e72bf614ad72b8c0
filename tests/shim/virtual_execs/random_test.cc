// Everything that can be done to an exec, in any order, beside a model of what comes out.
#include <algorithm>
#include <array>
#include <random>

#include "tests/shim/virtual_execs/graphs.h"

namespace grape::virtual_execs_test {
namespace {

// A graph of Graphs::make_graph() as it is now.
struct Model {
  CUgraphExec exec = nullptr;
  CUgraph graph = nullptr;  // null: gone
  std::vector<CUgraphNode> nodes;
  std::array<std::uint64_t, 2> factor{}, summand{};  // of its kernels
  std::size_t place = 0;                             // of the copy
  std::size_t place_of_set = 0;
  std::uint32_t set_to = 0;
  std::array<bool, 5> enabled{true, true, true, true, true};
};

class Random : public Graphs, public testing::WithParamInterface<int> {
 protected:
  Model made(std::size_t i) {
    Model model;
    model.graph = make_graph(i, &model.nodes);
    model.factor = {factor(i), 1};
    model.summand = {0, i};
    model.place = model.place_of_set = i % kCopies;
    model.set_to = static_cast<std::uint32_t>(17 + i);
    return model;
  }

  void instantiate() {
    Model model = made(random_() % 40);
    EXPECT_CU(cuGraphInstantiateWithFlags(&model.exec, model.graph, 0));
    if (random_() % 2 == 0) drop_graph(model);
    models_.push_back(std::move(model));
  }

  void drop_graph(Model& model) {
    if (model.graph != nullptr) {
      EXPECT_CU(cuGraphDestroy(model.graph));
    }
    model.graph = nullptr;
    model.nodes.clear();
  }

  void launch(Model& model, CUstream where) {
    ASSERT_CU(cuGraphLaunch(model.exec, where));
    if (model.enabled[0]) state_now_ = state_now_ * model.factor[0] + model.summand[0];
    if (model.enabled[1]) copied_[model.place] = static_cast<std::uint32_t>(state_now_);
    if (model.enabled[2]) set_[model.place_of_set] = model.set_to;
    if (model.enabled[4]) state_now_ = state_now_ * model.factor[1] + model.summand[1];
  }

  void set_kernel(Model& model, int which) {
    std::uint64_t a = 2 * (random_() % 50) + 1, b = random_() % 1000;
    const bool adds = random_() % 2 == 0;
    void* mixed[] = {&state_, &a, &b};
    void* added[] = {&state_, &b};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function(adds ? "_Z10atomic_addPmm" : "_Z3mixPmmm");
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = adds ? added : mixed;
    ASSERT_CU(cuGraphExecKernelNodeSetParams(model.exec, model.nodes[which == 0 ? 0 : 4], &params));
    model.factor[which] = adds ? 1 : a;
    model.summand[which] = b;
  }

  void set_memset(Model& model) {
    CUDA_MEMSET_NODE_PARAMS memset{};
    model.place_of_set = random_() % 40;
    model.set_to = static_cast<std::uint32_t>(random_());
    memset.dst = copies_ + model.place_of_set * 8 + 4;
    memset.value = model.set_to;
    memset.elementSize = 4;
    memset.width = memset.height = 1;
    ASSERT_CU(cuGraphExecMemsetNodeSetParams(model.exec, model.nodes[2], &memset, context_));
  }

  void set_copy(Model& model) {
    CUDA_MEMCPY3D copy{};
    model.place = random_() % 40;
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = state_;
    copy.dstDevice = copies_ + model.place * 8;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    ASSERT_CU(cuGraphExecMemcpyNodeSetParams(model.exec, model.nodes[1], &copy, context_));
  }

  void enable(Model& model) {
    constexpr std::size_t kNodes[] = {0, 1, 2, 4};
    const std::size_t node = kNodes[random_() % 4];
    unsigned enabled = 7;
    ASSERT_CU(cuGraphNodeGetEnabled(model.exec, model.nodes[node], &enabled));
    EXPECT_EQ(enabled, model.enabled[node] ? 1u : 0u);
    model.enabled[node] = random_() % 2 == 0;
    ASSERT_CU(cuGraphNodeSetEnabled(model.exec, model.nodes[node], model.enabled[node] ? 1 : 0));
  }

  void update(Model& model) {
    if (std::count(model.enabled.begin(), model.enabled.end(), false) != 0) return;
    Model next = made(random_() % 40);
    CUgraphExecUpdateResultInfo info{};
    ASSERT_CU(cuGraphExecUpdate(model.exec, next.graph, &info));
    drop_graph(next);
    next.exec = model.exec;
    next.graph = model.graph;
    next.nodes = model.nodes;
    model = next;
  }

  CUstream go_on(CUstream from, CUstream to) {
    const CUevent done = event();
    EXPECT_CU(cuEventRecord(done, from));
    EXPECT_CU(cuStreamWaitEvent(to, done, 0));
    return to;
  }

  void check(CUstream where) {
    ASSERT_CU(cuStreamSynchronize(where));
    ASSERT_CU(cuCtxSynchronize());
    ASSERT_EQ(state(), state_now_);
    for (std::size_t i = 0; i < 40; ++i) {
      ASSERT_EQ(read<std::uint32_t>(copies_, 2 * i), copied_[i]) << i;
      ASSERT_EQ(read<std::uint32_t>(copies_, 2 * i + 1), set_[i]) << i;
    }
  }

  void step(CUstream where) {
    if (models_.empty() || (models_.size() < 30 && random_() % 8 == 0)) return instantiate();
    Model& model = models_[random_() % models_.size()];
    const unsigned what = random_() % 32;
    if (what == 0) {
      ASSERT_CU(cuGraphExecDestroy(model.exec));
      drop_graph(model);
      std::swap(model, models_.back());
      models_.pop_back();
    } else if (what == 1) {
      drop_graph(model);
    } else if (what == 2) {
      ASSERT_CU(cuGraphUpload(model.exec, where));
    } else if (what == 3 && updates_) {
      update(model);
    } else if (what < 10 && model.graph != nullptr) {
      if (what < 6) set_kernel(model, static_cast<int>(what % 2));
      if (what == 6) set_memset(model);
      if (what == 7) set_copy(model);
      if (what > 7) enable(model);
    } else {
      launch(model, where);
    }
  }

  std::mt19937 random_;
  std::vector<Model> models_;
  std::uint64_t state_now_ = 1;
  std::array<std::uint32_t, 40> copied_{}, set_{};
  bool updates_ = false;
};

TEST_P(Random, AsTheModel) {
  random_.seed(static_cast<unsigned>(GetParam()));
  updates_ = GetParam() % 2 == 1;  // execs that were updated are few ever after
  chains_ = GetParam() >= 10 && GetParam() < 20;
  if (GetParam() < 10) launch_on_execs();
  const CUstream streams[] = {stream_, nullptr, CU_STREAM_PER_THREAD, stream()};
  const bool moves = GetParam() % 4 >= 2;
  for (int part = 0; part < 30; ++part) {
    // On another stream now and then: what was launched before is done then, or comes first by an event.
    CUstream where = streams[random_() % 4];
    for (int i = 0; i < 50; ++i) {
      step(where);
      if (HasFatalFailure()) return;
      if (moves && random_() % 3 == 0) where = go_on(where, streams[random_() % 4]);
    }
    check(where);
    if (HasFatalFailure()) return;
  }
  for (const Model& model : models_) EXPECT_CU(cuGraphExecDestroy(model.exec));
  EXPECT_EQ(live(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Random, testing::Range(0, 30));

}  // namespace
}  // namespace grape::virtual_execs_test
