// Calls whose events the test knows word by word.
#include "shim/driver/driver_api.h"
#include "tests/shim/interpose/program.h"

using grape::interpose::test::fake_state_of;
using grape::interpose::test::FakeFunction;
using grape::interpose::test::FakeGraph;
using grape::interpose::test::FakeNode;
using grape::interpose::test::FakeState;
using grape::interpose::test::finish;
using grape::interpose::test::get;
using grape::interpose::test::open_driver;

namespace {

// The kernels: one with a gap after a 4-byte parameter, one known as a CUkernel, one that has no parameters.
FakeFunction g_gap{"_Z3gapPfi5Three", false, 3, {{0, 8}, {8, 4}, {16, 3}}};
FakeFunction g_kernel{"kernel_handle", true, 1, {{0, 8}}};
FakeFunction g_bare{"bare", false, 0, {}};

CUfunction handle(FakeFunction& function) { return reinterpret_cast<CUfunction>(&function); }

void launches(void* driver, FakeState& state) {
  auto launch = get<PFN_cuLaunchKernel_v4000>(driver, "cuLaunchKernel");
  auto launch_ex = get<PFN_cuLaunchKernelEx_v11060>(driver, "cuLaunchKernelEx");
  auto cooperative = get<PFN_cuLaunchCooperativeKernel_v9000>(driver, "cuLaunchCooperativeKernel");
  auto multi = get<PFN_cuLaunchCooperativeKernelMultiDevice_v9000>(driver, "cuLaunchCooperativeKernelMultiDevice");
  std::uint64_t pointer = 0x1122334455667788;
  std::uint32_t number = 0xaabbccdd;
  char three[3] = {1, 2, 3};
  void* parameters[] = {&pointer, &number, three};
  const auto stream = reinterpret_cast<CUstream>(0x50);
  launch(handle(g_gap), 1, 2, 3, 4, 5, 6, 7, stream, parameters, nullptr);
  launch(handle(g_gap), 1, 2, 3, 4, 5, 6, 7, stream, parameters, nullptr);
  EXPECT(state.names_asked == 1, "the name is asked once");

  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.clusterDim.x = 2;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  CUlaunchConfig config = {};
  config.gridDimX = 8;
  config.blockDimX = 9;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  unsigned char packed[11] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 42};
  std::size_t packed_bytes = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes,
                   CU_LAUNCH_PARAM_END};
  launch_ex(&config, handle(g_kernel), nullptr, extra);
  cooperative(handle(g_bare), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr);
  CUDA_LAUNCH_PARAMS list[2] = {};
  for (auto& one : list) {
    one.function = handle(g_kernel);
    one.gridDimX = one.gridDimY = one.gridDimZ = one.blockDimX = one.blockDimY = one.blockDimZ = 1;
    one.kernelParams = parameters;
  }
  multi(list, 2, 0);
  // A launch that the driver refuses: nothing that it points to is read.
  *state.result = CUDA_ERROR_INVALID_VALUE;
  EXPECT(launch(handle(g_gap), 1, 1, 1, 1, 1, 1, 0, stream, reinterpret_cast<void**>(8), nullptr) ==
             CUDA_ERROR_INVALID_VALUE,
         "the launch's result");
  EXPECT(launch_ex(reinterpret_cast<CUlaunchConfig*>(8), handle(g_gap), nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE,
         "the launch's result");
  *state.result = CUDA_SUCCESS;
  // The handle comes back with another module: another function.
  get<PFN_cuModuleUnload_v2000>(driver, "cuModuleUnload")(nullptr);
  FakeFunction before = g_gap;
  g_gap = g_bare;
  g_gap.name = "reused";
  launch(handle(g_gap), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  g_gap = before;
  get<PFN_cuLibraryUnload_v12000>(driver, "cuLibraryUnload")(nullptr);
}

void captures(void* driver, FakeState& state) {
  auto launch = get<PFN_cuLaunchKernel_v4000>(driver, "cuLaunchKernel");
  auto begin = get<PFN_cuStreamBeginCapture_v10010>(driver, "cuStreamBeginCapture_v2");
  auto end = get<PFN_cuStreamEndCapture_v10000>(driver, "cuStreamEndCapture");
  auto copy = get<PFN_cuMemcpyDtoDAsync_v3020>(driver, "cuMemcpyDtoDAsync_v2");
  const auto stream = reinterpret_cast<CUstream>(0x60);
  EXPECT(state.captures_asked == 0, "no capture: the driver is not asked");
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  state.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  launch(handle(g_bare), 2, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  copy(0x100, 0x200, 16, stream);
  const std::uint64_t asked = state.captures_asked;
  EXPECT(asked == 2, "asked for each");
  launch(handle(g_bare), 3, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  EXPECT(state.captures_asked == asked, "the legacy default stream is not asked about");
  CUgraph graph = nullptr;
  end(stream, &graph);
  launch(handle(g_bare), 4, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  EXPECT(state.captures_asked == asked, "the capture is over");
  state.capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
}

void calls(void* driver, FakeState& state) {
  state.out_handle = reinterpret_cast<void*>(0xbeef);
  CUstream stream = nullptr;
  get<PFN_cuStreamCreate_v2000>(driver, "cuStreamCreate")(&stream, 1);
  *state.result = CUDA_ERROR_OUT_OF_MEMORY;
  stream = reinterpret_cast<CUstream>(0x7777);
  get<PFN_cuStreamCreate_v2000>(driver, "cuStreamCreate")(&stream, 1);
  *state.result = CUDA_SUCCESS;
  CUfunction function = nullptr;
  get<PFN_cuModuleGetFunction_v2000>(driver, "cuModuleGetFunction")(&function, nullptr, "a_name");
  CUDA_MEMCPY2D_v2 copy = {};
  copy.WidthInBytes = 123;
  get<PFN_cuMemcpy2D_v3020>(driver, "cuMemcpy2D_v2")(&copy);
  const cuuint64_t dims[5] = {11, 12, 13, 14, 15};
  const cuuint64_t strides[4] = {21, 22, 23, 24};
  const cuuint32_t box[5] = {1, 1, 1, 1, 1};
  CUtensorMap map = {};
  map.opaque[0] = 99;
  get<PFN_cuTensorMapEncodeTiled_v12000>(driver, "cuTensorMapEncodeTiled")(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, nullptr, dims, strides, box, box, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {5}};
  get<PFN_cuMemPrefetchAsync_v12020>(driver, "cuMemPrefetchAsync_v2")(0x900, 64, location, 0, nullptr);
  get<PFN_cuMemSetMemPool_v13000>(driver, "cuMemSetMemPool")(&location, CU_MEM_ALLOCATION_TYPE_PINNED, nullptr);
  std::uint64_t parameter = 0x77;
  void* parameters[] = {&parameter};
  CUDA_KERNEL_NODE_PARAMS_v2 node = {};
  node.kern = reinterpret_cast<CUkernel>(&g_kernel);
  node.kernelParams = parameters;
  get<PFN_cuGraphExecKernelNodeSetParams_v12000>(driver, "cuGraphExecKernelNodeSetParams_v2")(nullptr, nullptr, &node);
}

// memset → child(kernel a → kernel b) → kernel c, and a lone kernel.
void graph(void* driver, FakeState& state) {
  std::uint64_t parameter = 0x4242;
  void* parameters[] = {&parameter};
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  kernel.kern = reinterpret_cast<CUkernel>(&g_kernel);
  kernel.gridDimX = 6;
  kernel.kernelParams = parameters;
  CUDA_MEMSET_NODE_PARAMS_v1 memset_params = {};
  memset_params.value = 17;
  FakeNode a{CU_GRAPH_NODE_TYPE_KERNEL, &kernel, sizeof(kernel)};
  FakeNode b = a;
  FakeNode c = a;
  FakeNode lone = a;
  FakeNode* inner[] = {&a, &b};
  FakeNode* inner_from[] = {&a};
  FakeNode* inner_to[] = {&b};
  FakeGraph child{2, inner, 1, inner_from, inner_to};
  FakeNode fill{CU_GRAPH_NODE_TYPE_MEMSET, &memset_params, sizeof(memset_params)};
  FakeNode child_node{CU_GRAPH_NODE_TYPE_GRAPH, &child, sizeof(child)};
  FakeNode* outer[] = {&fill, &child_node, &c, &lone};
  FakeNode* from[] = {&fill, &child_node};
  FakeNode* to[] = {&child_node, &c};
  FakeGraph whole{4, outer, 2, from, to};
  state.out_handle = reinterpret_cast<void*>(0xe4ec);
  CUgraphExec exec = nullptr;
  get<PFN_cuGraphInstantiateWithFlags_v11040>(driver, "cuGraphInstantiateWithFlags")(
      &exec, reinterpret_cast<CUgraph>(&whole), 0);
}

}  // namespace

int main() {
  void* driver = open_driver();
  FakeState& state = fake_state_of(driver);
  launches(driver, state);
  captures(driver, state);
  calls(driver, state);
  graph(driver, state);
  return finish();
}
