// A process that is its own preloaded library: all of Grape is linked into the test, before the simulated driver, so
// that every driver call of a test passes through the wrappers. GRAPE_MODE=replay.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/region_sink.h"
#include "tests/simcuda/fixture.h"

// PyTorch's allocator reports its blocks through this function of libc10, which Grape stands in front of.
struct TorchDevice {
  std::int8_t type;
  std::int8_t index;
};
void report_to_profiler(void* address, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                        TorchDevice device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

namespace grape::replay_test {

class RegionTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    segment_ = floats(kSegment / sizeof(float));
    torch_free(torch_alloc(512), 512);  // the allocator reports
    // Handles are looked up, and functions learned, before anything is observed, as in a second call of a module.
    for (const char* name : {"_Z4copyPfPKfi", "_Z4axpyPfPKffi", "_Z3mixPmmm", "_Z7nothingv"}) function(name);
  }
  void TearDown() override {
    sink_.cancel();
    Driver::TearDown();
    memory::LiveBlocks::instance().clear();
  }

  // As PyTorch's caching allocator: blocks inside the segment.
  CUdeviceptr torch_alloc(std::uint64_t bytes) {
    const CUdeviceptr address = segment_ + used_;
    used_ += (bytes + 511) / 512 * 512;
    EXPECT_LE(used_, kSegment);
    torch_alloc_at(address, bytes);
    return address;
  }
  static void torch_alloc_at(CUdeviceptr address, std::uint64_t bytes) {
    report_to_profiler(reinterpret_cast<void*>(address), static_cast<std::int64_t>(bytes), 0, 0, {1, 0});
  }
  static void torch_free(CUdeviceptr address, std::uint64_t bytes) {
    report_to_profiler(reinterpret_cast<void*>(address), -static_cast<std::int64_t>(bytes), 0, 0, {1, 0});
  }

  template <class Work>
  observation::RegionSink::Result observe(const Work& work, CUcontext context = nullptr) {
    EXPECT_TRUE(sink_.begin(reinterpret_cast<std::uint64_t>(context)));
    work();
    return sink_.end();
  }

  // A kernel by a handle that was looked up before.
  template <typename... P>
  static CUresult run(CUfunction kernel, CUstream stream, P... parameters) {
    void* pointers[] = {static_cast<void*>(&parameters)..., nullptr};
    return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, pointers, nullptr);
  }

  static constexpr std::uint64_t kSegment = 1 << 20;
  CUdeviceptr segment_ = 0;
  std::uint64_t used_ = 0;
  observation::RegionSink sink_;
};

}  // namespace grape::replay_test
