// Who waits for a proof, and what a proof waits for.
#include "shim/observation/device_exclusion.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

#include "shim/driver/captures.h"
#include "shim/memory/live_blocks.h"
#include "tests/simcuda/fixture.h"

namespace grape::observation {
namespace {

using std::chrono::milliseconds;

class DeviceExclusionTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    memory::LiveBlocks::instance().clear();
    Driver::TearDown();
  }

  // As the wrapper makes one.
  static CUstream stream_as_made() {
    CUstream made = nullptr;
    EXPECT_CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    memory::LiveBlocks::instance().add(memory::BlockSource::kStream, reinterpret_cast<std::uint64_t>(made), 0);
    return made;
  }

  void delay(CUstream stream, unsigned microseconds) {
    void* parameters[] = {&microseconds, nullptr};
    EXPECT_CU(cuLaunchKernel(function("_Z5delayj"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
};

// Work of another thread, over and over, as the wrappers have it.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {
    while (done_.load() == 0) std::this_thread::yield();
  }
  ~Worker() {
    stop_.store(true);
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Since it was asked before.
  bool worked_on() {
    const int before = done_.load();
    std::this_thread::sleep_for(milliseconds(30));
    return done_.load() != before;
  }
  bool works_within(milliseconds most) {
    const auto until = std::chrono::steady_clock::now() + most;
    while (std::chrono::steady_clock::now() < until) {
      if (worked_on()) return true;
    }
    return false;
  }

 private:
  void work() {
    while (!stop_.load()) {
      const Work work;
      done_.fetch_add(1);
    }
  }
  std::atomic<bool> stop_{false};
  std::atomic<int> done_{0};
  std::thread thread_;
};

TEST_F(DeviceExclusionTest, IdleMeansAllStreams) {
  const CUstream one = stream_as_made(), other = stream_as_made();
  EXPECT_TRUE(streams_idle());
  for (CUstream stream : {one, other, CUstream{nullptr}}) {
    delay(stream, 200'000);
    EXPECT_FALSE(streams_idle());
    EXPECT_FALSE(idle_within(1e-3));
    EXPECT_TRUE(idle_within(100));
    EXPECT_CU(cuStreamQuery(stream));
  }
}

// One that waits for another stream's event has work, whatever there is of its own.
TEST_F(DeviceExclusionTest, AWaitIsWork) {
  const CUstream one = stream_as_made(), other = stream_as_made();
  CUevent event = nullptr;
  ASSERT_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  delay(one, 200'000);
  ASSERT_CU(cuEventRecord(event, one));
  ASSERT_CU(cuStreamWaitEvent(other, event, 0));
  memory::LiveBlocks::instance().remove(memory::BlockSource::kStream, reinterpret_cast<std::uint64_t>(one));
  EXPECT_FALSE(streams_idle());
  EXPECT_TRUE(idle_within(100));
}

TEST_F(DeviceExclusionTest, NobodyAsksAStreamThatIsGone) {
  const CUstream one = stream_as_made();
  delay(one, 200'000);
  memory::LiveBlocks::instance().remove(memory::BlockSource::kStream, reinterpret_cast<std::uint64_t>(one));
  stream_goes();
  EXPECT_TRUE(streams_idle());
}

TEST_F(DeviceExclusionTest, AStreamThatIsCapturedIsNotAsked) {
  const CUstream one = stream_as_made();
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  driver::g_captures.fetch_add(1);
  EXPECT_FALSE(streams_idle());
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(one, &graph));
  driver::g_captures.fetch_sub(1);
  EXPECT_TRUE(streams_idle());
}

TEST_F(DeviceExclusionTest, OthersWaitAsLongAsItLives) {
  Worker worker;
  EXPECT_TRUE(worker.works_within(milliseconds(10'000)));
  for (int i = 0; i < 3; ++i) {
    {
      const DeviceExclusion quiet;
      EXPECT_TRUE(quiet.reached(10));
      EXPECT_FALSE(worker.worked_on());
      const Work work;  // its own
    }
    EXPECT_TRUE(worker.works_within(milliseconds(10'000)));
  }
}

TEST_F(DeviceExclusionTest, IsNotReachedWhileThereIsWork) {
  const CUstream one = stream_as_made();
  delay(one, 300'000);
  const DeviceExclusion quiet;
  EXPECT_FALSE(quiet.reached(1e-3));
  EXPECT_TRUE(quiet.reached(100));
}

// Whoever has it may wait for what they have locked.
TEST_F(DeviceExclusionTest, OthersDoNotWaitForEver) {
  auto quiet = std::make_unique<DeviceExclusion>();
  Worker worker;  // returns once it has worked
  EXPECT_TRUE(worker.works_within(milliseconds(10'000)));
  quiet = nullptr;
  const DeviceExclusion next;
  EXPECT_TRUE(next.reached(10));
  EXPECT_FALSE(worker.worked_on());
}

TEST_F(DeviceExclusionTest, AnOnlookerSeesOthersWorkAlone) {
  const Onlooker before;
  for (int i = 0; i < 3; ++i) const Work work;
  EXPECT_FALSE(before.others_worked());
  std::thread([] {
    const Onlooker other;
    const Work work;
    EXPECT_FALSE(other.others_worked());
  }).join();
  EXPECT_TRUE(before.others_worked());
  EXPECT_FALSE(Onlooker().others_worked());
}

// What is in the driver already cannot be held up.
TEST_F(DeviceExclusionTest, WorkThatIsUnderWayIsWaitedFor) {
  std::atomic<int> stage{0};
  std::thread other([&] {
    const Work outer, inner;  // a wrapper inside of another one
    stage.store(1);
    while (stage.load() != 2) std::this_thread::yield();
  });
  while (stage.load() != 1) std::this_thread::yield();
  EXPECT_TRUE(Onlooker().others_worked());
  const DeviceExclusion quiet;
  EXPECT_FALSE(quiet.reached(20e-3));
  stage.store(2);
  EXPECT_TRUE(quiet.reached(10));
  other.join();
}

// Such a call is never over, and no new thread takes it over.
TEST_F(DeviceExclusionTest, AThreadThatEndsInsideOfACallIsForgotten) {
  pthread_t ending;
  ASSERT_EQ(pthread_create(
                &ending, nullptr,
                [](void*) -> void* {
                  alignas(Work) static unsigned char place[sizeof(Work)];
                  ::new (static_cast<void*>(place)) Work;  // never destroyed
                  return nullptr;
                },
                nullptr),
            0);
  ASSERT_EQ(pthread_join(ending, nullptr), 0);
  EXPECT_FALSE(Onlooker().others_worked());
  const DeviceExclusion quiet;
  EXPECT_TRUE(quiet.reached(1));
  std::thread([] { EXPECT_FALSE(Onlooker().others_worked()); }).join();
}

TEST_F(DeviceExclusionTest, OneAtATime) {
  const DeviceExclusion quiet;
  std::thread([] {
    const DeviceExclusion other;
    EXPECT_FALSE(other.reached(1));
  }).join();
  EXPECT_TRUE(quiet.reached(1));
}

}  // namespace
}  // namespace grape::observation
