#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <set>

#include "fixture.h"

namespace simcuda_test {
namespace {

class ProcAddress : public Driver {
 protected:
  // What is found must be the exported symbol itself, as with the real driver.
  static std::string resolve(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = cuGetProcAddress(name, &found, version, flags, &status);
    if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) return "not found";
    if (status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) return "too new";
    Dl_info info = {};
    if (result != CUDA_SUCCESS || dladdr(found, &info) == 0 || info.dli_sname == nullptr) return "?";
    return info.dli_sname;
  }
};

TEST_F(ProcAddress, PicksTheNewestSignatureThatIsOldEnough) {
  EXPECT_EQ(resolve("cuMemAlloc", 12000), "cuMemAlloc_v2");
  EXPECT_EQ(resolve("cuCtxSynchronize", 12090), "cuCtxSynchronize");
  EXPECT_EQ(resolve("cuCtxSynchronize", 13000), "cuCtxSynchronize_v2");
  EXPECT_EQ(resolve("cuGetProcAddress", 11030), "cuGetProcAddress");
  EXPECT_EQ(resolve("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(resolve("cuStreamGetCaptureInfo", 11030), "cuStreamGetCaptureInfo_v2");
  EXPECT_EQ(resolve("cuStreamGetCaptureInfo", 12030), "cuStreamGetCaptureInfo_v3");
  EXPECT_EQ(resolve("cuCtxCreate", 11040), "cuCtxCreate_v3");
  EXPECT_EQ(resolve("cuSimVersioned", 11080), "cuSimVersioned");
  EXPECT_EQ(resolve("cuSimVersioned", 12000), "cuSimVersioned_v2");
}

TEST_F(ProcAddress, SaysWhyNot) {
  EXPECT_EQ(resolve("cuKernelGetName", 12020), "too new");
  EXPECT_EQ(resolve("cuNoSuchFunction", 13000), "not found");
  EXPECT_EQ(resolve("cuMemAlloc_v2", 13000), "not found") << "names have no suffix";
  void* found = &found;
  EXPECT_RESULT(cuGetProcAddress("cuKernelGetName", &found, 12020, 0, nullptr), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
  EXPECT_RESULT(cuGetProcAddress("cuInit", &found, 12020, 64, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcAddress, EitherDefaultStream) {
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(resolve("cuLaunchKernel", 12000), "cuLaunchKernel");
  EXPECT_EQ(resolve("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM), "cuLaunchKernel");
  EXPECT_EQ(resolve("cuLaunchKernel", 12000, per_thread), "cuLaunchKernel_ptsz");
  EXPECT_EQ(resolve("cuMemcpyHtoD", 12000, per_thread), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(resolve("cuMemAlloc", 12000, per_thread), "cuMemAlloc_v2");
  EXPECT_EQ(resolve("cuLaunchKernel", 6050, per_thread), "cuLaunchKernel") << "the twin came with 7.0";
  EXPECT_EQ(resolve("cuStreamGetCaptureInfo", 12000, per_thread), "cuStreamGetCaptureInfo_v2_ptsz");
}

TEST_F(ProcAddress, EverySymbolCanBeHadByDlsym) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  std::set<std::string> seen;
  for (std::size_t i = 0; i < simcuda_symbol_count(); ++i) {
    const char* name = simcuda_symbol_name(i);
    EXPECT_NE(dlsym(library, name), nullptr) << name;
    EXPECT_TRUE(seen.insert(name).second) << name;
  }
  EXPECT_GT(seen.size(), 600U);
  dlclose(library);
}

TEST_F(ProcAddress, UnknownFunctionsPassArguments) {
  double result = 0;
  EXPECT_EQ(cuSimUnknown(&result, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "ab"), 0);
  EXPECT_EQ(result, 1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 81 + 100 + 2);
  EXPECT_EQ(simcuda_calls("cuSimUnknown"), 1U);
}

TEST_F(ProcAddress, WhatIsNotSimulatedSaysSo) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR descriptor = {};
  EXPECT_RESULT(cuArrayCreate(&array, &descriptor), CUDA_ERROR_NOT_SUPPORTED);
  const void* table = nullptr;
  CUuuid id = {};
  EXPECT_RESULT(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace simcuda_test
