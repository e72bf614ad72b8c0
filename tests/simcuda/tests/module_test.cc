#include <cmath>
#include <cstring>

#include "fixture.h"

namespace simcuda_test {
namespace {

class Module : public Driver {};

struct AffineParams {
  char mode;
  double scale;
  short steps;
  float bias;
  char last;
};
struct GatherDesc {
  CUdeviceptr source;
  CUdeviceptr index;
  int source_count;
  int count;
};

TEST_F(Module, Kernels) {
  CUdeviceptr x = floats(4, 2.0F);
  CUdeviceptr y = floats(4, 1.0F);
  ASSERT_CU(launch("_Z4axpyPfPKffi", nullptr, y, x, 3.0F, 4));
  EXPECT_EQ(read(y, 3), 7.0F);
  CUdeviceptr c = floats(4);
  ASSERT_CU(launch("_Z6matmulPfPKfS1_iii", nullptr, c, x, y, 2, 2, 2));
  EXPECT_EQ(read(c, 3), 28.0F);
  CUdeviceptr sum = floats(1);
  ASSERT_CU(launch("_Z10reduce_sumPfPKfi", nullptr, sum, c, 4));
  EXPECT_EQ(read(sum), 112.0F);
  ASSERT_CU(launch("_Z9bias_reluPfPKfii", nullptr, c, x, 2, 2));
  EXPECT_EQ(read(c), 30.0F);
}

TEST_F(Module, StructParameterWithPadding) {
  CUdeviceptr x = floats(2, -4.0F);
  CUdeviceptr y = floats(2);
  AffineParams params;
  std::memset(&params, 0xAB, sizeof params);  // the holes keep rubbish, as in real programs
  params.mode = 'l';
  params.scale = 0.5;
  params.steps = 2;
  params.bias = 1;
  params.last = 0;
  ASSERT_CU(launch("_Z6affinePfPKf12AffineParamsi", nullptr, y, x, params, 2));
  EXPECT_EQ(read(y, 1), 0.5F);
  std::size_t offset = 0;
  std::size_t size = 0;
  CUfunction affine = function("_Z6affinePfPKf12AffineParamsi");
  ASSERT_CU(cuFuncGetParamInfo(affine, 2, &offset, &size));
  EXPECT_EQ(offset, 16U);
  EXPECT_EQ(size, 32U);
  ASSERT_CU(cuFuncGetParamInfo(affine, 3, &offset, &size));
  EXPECT_EQ(offset, 48U);
  EXPECT_RESULT(cuFuncGetParamInfo(affine, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, PointerInsideAStruct) {
  CUdeviceptr y = floats(2);
  CUdeviceptr x = floats(3);
  const float values[3] = {10, 20, 30};
  ASSERT_CU(cuMemcpyHtoD(x, values, sizeof values));
  const int picks[2] = {2, 0};
  CUdeviceptr index = number(0);
  ASSERT_CU(cuMemcpyHtoD(index, picks, sizeof picks));
  ASSERT_CU(launch("_Z6gatherPf10GatherDesc", nullptr, y, GatherDesc{x, index, 3, 2}));
  EXPECT_EQ(read(y, 0), 30.0F);
  EXPECT_EQ(read(y, 1), 10.0F);
}

TEST_F(Module, PackedParameters) {
  CUdeviceptr y = floats(2);
  struct {
    CUdeviceptr to;
    float value;
    int count;
  } packed = {y, 4.0F, 2};
  std::size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  ASSERT_CU(cuLaunchKernel(function("_Z4fillPffi"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(read(y, 1), 4.0F);
  size = 8;
  EXPECT_RESULT(cuLaunchKernel(function("_Z4fillPffi"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
                CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, LaunchChecksItsArguments) {
  CUfunction nothing = function("_Z7nothingv");
  EXPECT_CU(cuLaunchKernel(nothing, 1, 1, 1, 1024, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_RESULT(cuLaunchKernel(nothing, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuLaunchKernel(nothing, 1, 1, 1, 1025, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_RESULT(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 50000, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  EXPECT_CU(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 50000, nullptr, nullptr, nullptr));
  EXPECT_RESULT(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
  CUlaunchAttribute cluster = {};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim.x = 2;
  cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
  CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 0, nullptr, &cluster, 1};
  EXPECT_CU(cuLaunchKernelEx(&config, nothing, nullptr, nullptr));
  config.gridDimX = 3;
  EXPECT_RESULT(cuLaunchKernelEx(&config, nothing, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuLaunchCooperativeKernel(nothing, 2, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
  EXPECT_RESULT(cuLaunchCooperativeKernel(nothing, 1 << 20, 1, 1, 32, 1, 1, 0, nullptr, nullptr),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(Module, NamesAndHandles) {
  CUfunction alias = function("an alias");
  const char* name = nullptr;
  EXPECT_CU(cuFuncGetName(&name, alias));
  EXPECT_STREQ(name, "an alias");
  CUmodule owner = nullptr;
  EXPECT_CU(cuFuncGetModule(&owner, alias));
  EXPECT_EQ(owner, module_);
  CUfunction missing = nullptr;
  EXPECT_RESULT(cuModuleGetFunction(&missing, module_, "nowhere"), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr global = 0;
  std::size_t bytes = 0;
  EXPECT_CU(cuModuleGetGlobal(&global, &bytes, module_, "counter"));
  EXPECT_EQ(bytes, 16U);
  EXPECT_EQ(read<std::uint64_t>(global), 0U);
  CUmodule bad = nullptr;
  EXPECT_RESULT(cuModuleLoadData(&bad,
                                 "\x7f"
                                 "ELF"),
                CUDA_ERROR_INVALID_IMAGE);
  EXPECT_RESULT(cuModuleLoadData(&bad, "SIMCUDA MODULE 1\nnone_such\n"), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(Module, HandlesComeBackAfterUnload) {
  CUmodule first = nullptr;
  ASSERT_CU(cuModuleLoadData(&first, "SIMCUDA MODULE 1\n_Z4copyPfPKfi\n"));
  CUfunction copy = nullptr;
  ASSERT_CU(cuModuleGetFunction(&copy, first, "_Z4copyPfPKfi"));
  ASSERT_CU(cuModuleUnload(first));
  const char* name = nullptr;
  EXPECT_RESULT(cuFuncGetName(&name, copy), CUDA_ERROR_INVALID_HANDLE);
  CUmodule second = nullptr;
  ASSERT_CU(cuModuleLoadData(&second, "SIMCUDA MODULE 1\n_Z4fillPffi\n"));
  CUfunction fill = nullptr;
  ASSERT_CU(cuModuleGetFunction(&fill, second, "_Z4fillPffi"));
  EXPECT_EQ(second, first);
  EXPECT_EQ(fill, copy);
  EXPECT_CU(cuFuncGetName(&name, fill));
  EXPECT_STREQ(name, "_Z4fillPffi");
}

TEST_F(Module, LibraryKernelsAreLaunchedAsFunctions) {
  CUlibrary library = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  EXPECT_CU(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 17U);
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "_Z4fillPffi"));
  CUdeviceptr y = floats(1);
  float value = 8;
  int n = 1;
  void* parameters[] = {&y, &value, &n};
  auto as_function = reinterpret_cast<CUfunction>(kernel);
  ASSERT_CU(cuLaunchKernel(as_function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_EQ(read(y), 8.0F);
  const char* name = nullptr;
  EXPECT_RESULT(cuFuncGetName(&name, as_function), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuKernelGetName(&name, kernel));
  EXPECT_STREQ(name, "_Z4fillPffi");
  std::size_t offset = 0;
  std::size_t size = 0;
  EXPECT_CU(cuKernelGetParamInfo(kernel, 1, &offset, &size));
  EXPECT_EQ(offset, 8U);
  EXPECT_EQ(size, 4U);
  CUfunction twin = nullptr;
  ASSERT_CU(cuKernelGetFunction(&twin, kernel));
  EXPECT_CU(cuFuncGetName(&name, twin));
  EXPECT_STREQ(name, "_Z4fillPffi");
  EXPECT_CU(cuLibraryUnload(library));
  EXPECT_RESULT(cuKernelGetName(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_RESULT(cuFuncGetName(&name, twin), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Module, TensorMapsCarryTheAddress) {
  CUdeviceptr x = floats(4, 9.0F);
  CUdeviceptr y = floats(4);
  CUtensorMap map;
  CUtensorMap twin;
  const cuuint64_t dimensions[1] = {4};
  const cuuint32_t box[1] = {4};
  const cuuint32_t steps[1] = {1};
  for (CUtensorMap* made : {&map, &twin}) {
    ASSERT_CU(cuTensorMapEncodeTiled(made, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, reinterpret_cast<void*>(x), dimensions,
                                     nullptr, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  }
  EXPECT_EQ(std::memcmp(&map, &twin, sizeof map), 0);
  ASSERT_CU(launch("_Z9tile_copyPf14CUtensorMap_sti", nullptr, y, map, 4));
  EXPECT_EQ(read(y, 3), 9.0F);
  CUdeviceptr z = floats(4, 1.0F);
  ASSERT_CU(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(z)));
  ASSERT_CU(launch("_Z9tile_copyPf14CUtensorMap_sti", nullptr, y, map, 4));
  EXPECT_EQ(read(y, 3), 1.0F);
}

TEST_F(Module, ParametersAreCopiedAtTheLaunch) {
  CUstream s = stream();
  CUdeviceptr y = floats(1);
  float value = 1;
  int n = 1;
  void* parameters[] = {&y, &value, &n};
  ASSERT_CU(launch("_Z5delayj", s, 5000U));
  ASSERT_CU(cuLaunchKernel(function("_Z4fillPffi"), 1, 1, 1, 1, 1, 1, 0, s, parameters, nullptr));
  value = 2;
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(read(y), 1.0F);
}

}  // namespace
}  // namespace simcuda_test
