// Kernels that are handed a word of the host's memory which a library keeps for itself.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using memory::BlockSource;
using memory::LiveBlocks;
using program::HostWord;

constexpr char kOnHostMemory[] = "launches a kernel on memory of the host (pinned or managed)";
constexpr char kWritesHostMemory[] = "copies or sets memory of the host (pinned or managed)";

class LibraryMemoryTest : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    simcuda_set_null_launch(1);  // the simulated kernels take device memory only
    ASSERT_CU(cuMemAllocHost(&pinned_, 4096));
    copy_ = function("_Z4copyPfPKfi");
    x_ = torch_alloc(256);
    for (std::uint64_t& word : words_) word = 40 + static_cast<std::uint64_t>(&word - words_);
    first_ = add(words_[0]);
    second_ = add(words_[2]);
  }

  static std::uint64_t add(std::uint64_t& word) {
    return LiveBlocks::instance().add(BlockSource::kLibrary, address(word), sizeof word);
  }
  static CUdeviceptr address(const std::uint64_t& word) { return reinterpret_cast<CUdeviceptr>(&word); }
  // The driver's, as a library would have asked for it.
  static CUdeviceptr drivers_word() {
    void* word = nullptr;
    EXPECT_CU(cuMemAllocHost(&word, 8));
    const auto address = reinterpret_cast<CUdeviceptr>(word);
    EXPECT_NE(LiveBlocks::instance().remove(BlockSource::kHost, address), 0u);
    EXPECT_NE(LiveBlocks::instance().add(BlockSource::kLibrary, address, 8), 0u);
    return address;
  }
  void copy_from(CUdeviceptr from) { ASSERT_CU(run(copy_, nullptr, x_, from, 8)); }

  void expect_refusal(const std::string& reason, const std::function<void()>& work) {
    const auto result = observe(work);
    EXPECT_EQ(result.record, nullptr) << reason;
    EXPECT_EQ(result.refusal.text, reason);
    EXPECT_FALSE(result.again);
  }
  void expect_words(const std::vector<HostWord>& expected, const std::function<void()>& work) {
    const auto result = observe(work);
    ASSERT_NE(result.record, nullptr) << result.refusal.text;
    EXPECT_EQ(result.record->host_words, expected);
  }

  std::uint64_t words_[4] = {};  // the first and the third are a library's
  std::uint64_t first_ = 0, second_ = 0;
  void* pinned_ = nullptr;
  CUfunction copy_ = nullptr;
  CUdeviceptr x_ = 0;
};

TEST_F(LibraryMemoryTest, AWordThatAKernelIsHandedIsRecorded) {
  expect_words({{address(words_[0]), 8, first_, 40}}, [&] { copy_from(address(words_[0])); });
  words_[0] = 50;
  expect_words({{address(words_[0]), 8, first_, 50}}, [&] { copy_from(address(words_[0])); });
  expect_words({}, [&] { copy_from(x_); });
}

TEST_F(LibraryMemoryTest, EachIsRecordedOnce) {
  const HostWord first{address(words_[0]), 8, first_, 40}, second{address(words_[2]), 8, second_, 42};
  expect_words({second, first}, [&] {
    for (const int i : {2, 0, 2, 2, 0}) copy_from(address(words_[i]));
    ASSERT_CU(run(copy_, nullptr, address(words_[0]), address(words_[2]), 8));
  });
}

TEST_F(LibraryMemoryTest, OtherMemoryOfTheHostIsRefused) {
  const auto pinned = reinterpret_cast<CUdeviceptr>(pinned_);
  for (const CUdeviceptr from : {pinned, pinned + 64}) {
    expect_refusal(kOnHostMemory, [&] { copy_from(from); });
    expect_refusal(kOnHostMemory, [&] { ASSERT_CU(run(copy_, nullptr, from, address(words_[0]), 8)); });
    expect_refusal(kOnHostMemory, [&] { ASSERT_CU(run(copy_, nullptr, address(words_[0]), from, 8)); });
  }
}

TEST_F(LibraryMemoryTest, AnAddressInsideAWordIsRefused) {
  for (const unsigned inside : {1u, 4u, 7u}) {
    expect_refusal(kOnHostMemory, [&] { copy_from(address(words_[0]) + inside); });
  }
  expect_words({}, [&] { copy_from(address(words_[0]) + 8); });  // behind its end: nothing that the driver gave
}

TEST_F(LibraryMemoryTest, OneThatTheCallChangesIsRefused) {
  expect_refusal(kOnHostMemory, [&] {
    copy_from(address(words_[0]));
    words_[0] = 41;
  });
  expect_words({{address(words_[0]), 8, first_, 41}}, [&] {
    copy_from(address(words_[0]));
    words_[2] = 1;  // which no kernel is handed
  });
}

TEST_F(LibraryMemoryTest, OneThatTheCallFreesIsRefused) {
  expect_refusal(kOnHostMemory, [&] {
    copy_from(address(words_[0]));
    LiveBlocks::instance().remove(BlockSource::kLibrary, address(words_[0]));
    add(words_[0]);  // at the same place
  });
}

// By the driver's own call. One whose end the driver refuses counts as any other memory of the host's.
TEST_F(LibraryMemoryTest, OneThatIsFreedHoldsNoMore) {
  const CUdeviceptr flag = drivers_word();
  const auto result = observe([&] { copy_from(flag); });
  ASSERT_NE(result.record, nullptr) << result.refusal.text;
  ASSERT_EQ(result.record->host_words.size(), 1u);
  EXPECT_TRUE(LiveBlocks::instance().hold(result.record->host_words));
  ASSERT_EQ(simcuda_set_fault("cuMemFreeHost", 1, CUDA_ERROR_INVALID_VALUE), 0);
  EXPECT_RESULT(cuMemFreeHost(reinterpret_cast<void*>(flag)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(LiveBlocks::instance().hold(result.record->host_words));
  expect_refusal(kOnHostMemory, [&] { copy_from(flag); });
  ASSERT_CU(cuMemFreeHost(reinterpret_cast<void*>(flag)));
  expect_words({}, [&] { copy_from(flag); });
}

TEST_F(LibraryMemoryTest, CopyingAndSettingOneIsRefused) {
  const CUdeviceptr flag = drivers_word();
  expect_refusal(kWritesHostMemory, [&] { ASSERT_CU(cuMemcpyDtoDAsync(flag, x_, 8, nullptr)); });
  expect_refusal(kWritesHostMemory, [&] { ASSERT_CU(cuMemcpyDtoDAsync(x_, flag, 8, nullptr)); });
  expect_refusal(kWritesHostMemory, [&] { ASSERT_CU(cuMemsetD8Async(flag + 4, 0, 4, nullptr)); });
  expect_refusal("copies pinned memory of the host to the device (cuMemcpyHtoD)",
                 [&] { ASSERT_CU(cuMemcpyHtoD(x_, reinterpret_cast<void*>(flag), 8)); });
}

}  // namespace
}  // namespace grape::replay_test
