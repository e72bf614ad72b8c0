// Hashes of device memory on the simulated driver, and the PTX behind them.
#include "shim/device/device_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "shim/device/own_kernels.h"
#include "tests/simcuda/fixture.h"

namespace grape::device {
namespace {

class DeviceHashTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    forget_own_kernels(context_);  // as the wrappers do it
    Driver::TearDown();
  }

  CUdeviceptr bytes(const std::vector<std::uint8_t>& content, std::size_t offset = 0) {
    CUdeviceptr made = 0;
    EXPECT_CU(cuMemAlloc(&made, content.size() + offset + 1));
    if (!content.empty()) {
      EXPECT_CU(cuMemcpyHtoD(made + offset, content.data(), content.size()));
    }
    return made + offset;
  }
  std::uint64_t hash(CUdeviceptr address, std::size_t size) {
    refusal::Refusal error;
    DeviceHash* device_hash = DeviceHash::of_current_context(error);
    EXPECT_NE(device_hash, nullptr) << error.text;
    std::vector<std::uint64_t> out;
    EXPECT_CU(device_hash->hash(nullptr, {{address, size}}, out));
    EXPECT_EQ(out.size(), 1u);
    return out.empty() ? 0 : out[0];
  }
};

TEST_F(DeviceHashTest, EqualMemoryHasEqualHashesWhereverItLies) {
  std::vector<std::uint8_t> content(1000);
  std::iota(content.begin(), content.end(), std::uint8_t{3});
  const std::uint64_t expected = hash(bytes(content), content.size());
  for (std::size_t offset = 1; offset < 9; ++offset) {
    EXPECT_EQ(hash(bytes(content, offset), content.size()), expected) << offset;
  }
}

TEST_F(DeviceHashTest, EveryByteAndItsPlaceCount) {
  for (std::size_t size = 1; size < 40; ++size) {
    std::set<std::uint64_t> seen;
    std::vector<std::uint8_t> content(size, 7);
    seen.insert(hash(bytes(content), size));
    for (std::size_t i = 0; i < size; ++i) {
      content[i] = 8;
      seen.insert(hash(bytes(content), size));
      content[i] = 7;
    }
    EXPECT_EQ(seen.size(), size + 1) << size;
  }
}

TEST_F(DeviceHashTest, ManyRangesAtOnceAlsoEmptyOnes) {
  constexpr std::size_t kRanges = 2500;
  std::vector<std::uint8_t> content(kRanges + 64);
  std::iota(content.begin(), content.end(), std::uint8_t{0});
  const CUdeviceptr address = bytes(content);
  std::vector<DeviceHash::Range> ranges;
  for (std::size_t i = 0; i < kRanges; ++i) ranges.push_back({address + i, i % 60});
  refusal::Refusal error;
  std::vector<std::uint64_t> out;
  ASSERT_CU(DeviceHash::of_current_context(error)->hash(stream(), ranges, out));
  ASSERT_EQ(out.size(), kRanges);
  EXPECT_EQ(out[0], 0u);
  for (const std::size_t i : {1u, 59u, 1023u, 1024u, 2048u, 2499u}) {
    EXPECT_EQ(out[i], hash(ranges[i].address, ranges[i].bytes)) << i;
  }
}

// What is cut into chunks has the hash that it has in one piece, and is copied to the last byte.
TEST_F(DeviceHashTest, LargeRangesAndTheirCopies) {
  std::vector<std::uint8_t> content((std::size_t{5} << 20) + 13);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::uint8_t>(i * i >> 9);
  const CUdeviceptr address = bytes(content), odd = bytes(content, 3);
  const CUdeviceptr copies = bytes(std::vector<std::uint8_t>(3 * content.size(), 0x5A));
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i * 8 < content.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, &content[i * 8], std::min<std::size_t>(8, content.size() - i * 8));
    word ^= (i + 1) * 0x9E3779B97F4A7C15;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    expected += word ^ (word >> 31);
  }
  refusal::Refusal error;
  DeviceHash* device_hash = DeviceHash::of_current_context(error);
  ASSERT_NE(device_hash, nullptr) << error.text;
  const std::uint64_t launches = simcuda_calls("cuLaunchKernel");
  std::vector<std::uint64_t> out;
  const std::vector<std::uint64_t> to = {copies, copies + content.size() + 1};
  ASSERT_CU(device_hash->hash_and_copy(nullptr, {{address, content.size()}, {odd, content.size()}}, to, out));
  EXPECT_EQ(simcuda_calls("cuLaunchKernel"), launches + 1);
  EXPECT_EQ(out, (std::vector<std::uint64_t>{expected, expected}));
  std::vector<std::uint8_t> copied(2 * content.size() + 2);
  ASSERT_CU(cuMemcpyDtoH(copied.data(), copies, copied.size()));
  EXPECT_TRUE(std::equal(content.begin(), content.end(), copied.begin()));
  EXPECT_EQ(copied[content.size()], 0x5A);
  EXPECT_TRUE(std::equal(content.begin(), content.end(), copied.begin() + static_cast<long>(content.size()) + 1));
  EXPECT_EQ(copied.back(), 0x5A);
  EXPECT_RESULT(device_hash->hash_and_copy(nullptr, {{address, 8}}, {}, out), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(out.empty());
}

TEST_F(DeviceHashTest, WaitsForItsStream) {
  const CUdeviceptr p = number(0);
  const CUstream slow = stream();
  ASSERT_CU(launch("_Z5delayj", slow, 30000u));
  ASSERT_CU(launch("_Z3mixPmmm", slow, p, std::uint64_t{1}, std::uint64_t{5}));
  refusal::Refusal error;
  std::vector<std::uint64_t> out;
  ASSERT_CU(DeviceHash::of_current_context(error)->hash(slow, {{p, 8}}, out));
  EXPECT_EQ(out, std::vector<std::uint64_t>{hash(number(5), 8)});
}

TEST_F(DeviceHashTest, AnErrorGivesNoHashes) {
  refusal::Refusal error;
  DeviceHash* device_hash = DeviceHash::of_current_context(error);
  ASSERT_NE(device_hash, nullptr) << error.text;
  for (const char* symbol :
       {"cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    ASSERT_EQ(simcuda_set_fault(symbol, 1, CUDA_ERROR_LAUNCH_FAILED), 0);
    std::vector<std::uint64_t> out = {1};
    EXPECT_RESULT(device_hash->hash(nullptr, {{number(5), 8}}, out), CUDA_ERROR_LAUNCH_FAILED) << symbol;
    EXPECT_TRUE(out.empty());
    simcuda_reset();
  }
}

TEST_F(DeviceHashTest, LoadsOnceForAContextAndAgainForTheNext) {
  refusal::Refusal error;
  ASSERT_NE(DeviceHash::of_current_context(error), nullptr) << error.text;
  const std::uint64_t before = simcuda_calls("cuModuleLoadData");
  ASSERT_NE(DeviceHash::of_current_context(error), nullptr);
  EXPECT_EQ(simcuda_calls("cuModuleLoadData"), before);
  forget_own_kernels(context_);
  ASSERT_CU(cuDevicePrimaryCtxReset_v2(0));
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_NE(hash(number(5), 8), 0u);
  EXPECT_EQ(simcuda_calls("cuModuleLoadData"), before + 1);
}

TEST_F(DeviceHashTest, WithoutAContextIsAnError) {
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  refusal::Refusal error;
  EXPECT_EQ(DeviceHash::of_current_context(error), nullptr);
  EXPECT_EQ(error.text, "no context is current");
}

// NVIDIA's assembler takes the text, for what is in use today.
TEST(OwnKernels, Assemble) {
#ifdef PTXAS
  const std::string file = testing::TempDir() + "grape_own_kernels.ptx";
  std::ofstream(file) << kOwnKernels;
  for (const char* architecture : {"sm_75", "sm_80", "sm_90", "sm_100"}) {
    const std::string command = std::string(PTXAS) + " -arch=" + architecture + " -o /dev/null '" + file + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << architecture;  // NOLINT(cert-env33-c): a fixed command
  }
  std::remove(file.c_str());
#else
  GTEST_SKIP() << "no ptxas here";
#endif
}

}  // namespace
}  // namespace grape::device
