// Events and streams that reach beyond a call: waited for before a replay, recorded behind it, and known when they go.
#include <functional>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "shim/graphs/exec_pool.h"
#include "shim/replay/program_run.h"
#include "tests/shim/observation/region_fixture.h"

namespace grape::replay_test {
namespace {

using memory::BlockSource;
using memory::LiveBlocks;
using program::LiveHandle;
using program::Program;

constexpr unsigned kLong = 30'000;  // microseconds: any order that is not kept shows

std::uint64_t handle(const void* of) { return reinterpret_cast<std::uint64_t>(of); }

std::uint64_t serial_of(BlockSource source, const void* of) {
  program::LiveBlock block;
  return LiveBlocks::instance().find(source, handle(of), block) ? block.serial : 0;
}

class EventsTest : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    copy_ = function("_Z4copyPfPKfi");
    delay_ = function("_Z5delayj");
    main_ = stream();
    side_ = stream();
    other_ = stream();
    forked_ = untimed();
    joined_ = untimed();
    input_ = torch_alloc(4);
    middle_ = torch_alloc(4);
    output_ = torch_alloc(4);
  }
  void TearDown() override {
    device::forget_own_kernels(context_);
    RegionTest::TearDown();
  }

  CUevent untimed() {
    CUevent made = nullptr;
    EXPECT_CU(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    return made;
  }

  // As cuDNN does: to a stream of its own and back, by events that it keeps.
  void fork_and_join() {
    ASSERT_CU(cuEventRecord(forked_, main_));
    ASSERT_CU(cuStreamWaitEvent(side_, forked_, 0));
    ASSERT_CU(run(copy_, side_, middle_, input_, 1));
    ASSERT_CU(cuEventRecord(joined_, side_));
    ASSERT_CU(cuStreamWaitEvent(main_, joined_, 0));
    ASSERT_CU(run(delay_, main_, kLong));
    ASSERT_CU(run(copy_, main_, output_, middle_, 1));
  }

  Program observed(const std::function<void()>& work) {
    auto result = observe(work);
    EXPECT_NE(result.record, nullptr) << result.refusal.text;
    if (result.record == nullptr) return {};
    streams_.clear();
    for (const std::uint64_t stream : result.record->streams) {
      if (stream != handle(main_)) streams_.push_back(reinterpret_cast<CUstream>(stream));
    }
    return program::symbolise(std::move(*result.record));
  }

  void replay(const Program& program) {
    const program::ArenaPlan plan = program::plan_arena(program);
    const store::KeptProgram kept(program);
    refusal::Refusal error;
    ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
    ASSERT_EQ(steps_.run(main_, streams_), replay::ProgramRun::Result::kDone);
    EXPECT_CU(cuCtxSynchronize());
  }

  void refused(const std::string& reason, bool again, const std::function<void()>& work) {
    const auto result = observe(work);
    EXPECT_EQ(result.record, nullptr) << reason;
    EXPECT_EQ(result.refusal.text, reason);
    EXPECT_EQ(result.again, again) << reason;
  }

  void set(CUdeviceptr at, float value) { ASSERT_CU(cuMemcpyHtoD(at, &value, 4)); }

  CUfunction copy_ = nullptr, delay_ = nullptr;
  CUstream main_ = nullptr, side_ = nullptr, other_ = nullptr;
  CUevent forked_ = nullptr, joined_ = nullptr;
  CUdeviceptr input_ = 0, middle_ = 0, output_ = 0;
  std::vector<CUstream> streams_;  // besides main_
  graphs::ExecPool pool_;
  replay::ProgramRun steps_;
};

TEST_F(EventsTest, EventsThatOutliveTheCallAndTheStreamsAreNamed) {
  const Program program = observed([&] { fork_and_join(); });
  ASSERT_EQ(program.nodes.size(), 3u);
  EXPECT_TRUE(program.waited_events.empty());
  EXPECT_EQ(program.recorded_events,
            (std::vector<LiveHandle>{{handle(forked_), serial_of(BlockSource::kEvent, forked_)},
                                     {handle(joined_), serial_of(BlockSource::kEvent, joined_)}}));
  EXPECT_EQ(program.streams, (std::vector<LiveHandle>{{handle(side_), serial_of(BlockSource::kStream, side_)},
                                                      {handle(main_), serial_of(BlockSource::kStream, main_)}}));
}

// Who waits for it later waits for the replay.
TEST_F(EventsTest, AnEventThatOutlivesTheCallIsRecordedBehindTheReplay) {
  set(input_, 1);
  const Program program = observed([&] { fork_and_join(); });
  ASSERT_CU(cuCtxSynchronize());
  set(input_, 2);
  const program::ArenaPlan plan = program::plan_arena(program);
  const store::KeptProgram kept(program);
  refusal::Refusal error;
  ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
  ASSERT_EQ(steps_.run(main_, {}), replay::ProgramRun::Result::kDone);
  for (const CUevent event : {forked_, joined_}) EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  const CUdeviceptr seen = torch_alloc(4);
  ASSERT_CU(cuStreamWaitEvent(other_, joined_, 0));
  ASSERT_CU(run(copy_, other_, seen, output_, 1));
  ASSERT_CU(cuStreamSynchronize(other_));
  EXPECT_EQ(read(seen), 2);
}

// An event that cannot be recorded any more must not say that all is done while it is not.
TEST_F(EventsTest, WhereAnEventCannotBeRecordedTheReplayIsWaitedFor) {
  const Program program = observed([&] { fork_and_join(); });
  ASSERT_CU(cuCtxSynchronize());
  const program::ArenaPlan plan = program::plan_arena(program);
  const store::KeptProgram kept(program);
  refusal::Refusal error;
  ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
  simcuda_set_fault("cuEventRecord", 1, CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(steps_.run(main_, {}), replay::ProgramRun::Result::kDone);
  simcuda_reset();
  EXPECT_EQ(cuStreamQuery(main_), CUDA_SUCCESS);
}

TEST_F(EventsTest, AnEventFromBeforeTheCallIsWaitedForBeforeTheReplay) {
  const CUevent ready = untimed();
  const CUdeviceptr made = torch_alloc(4), source = torch_alloc(4);
  const auto make = [&](float value) {
    set(source, value);
    ASSERT_CU(run(delay_, other_, kLong));
    ASSERT_CU(run(copy_, other_, made, source, 1));
    ASSERT_CU(cuEventRecord(ready, other_));
  };
  make(1);
  const Program program = observed([&] {
    ASSERT_CU(cuStreamWaitEvent(main_, ready, 0));
    ASSERT_CU(run(copy_, main_, output_, made, 1));
  });
  EXPECT_EQ(program.waited_events, (std::vector<LiveHandle>{{handle(ready), serial_of(BlockSource::kEvent, ready)}}));
  EXPECT_TRUE(program.recorded_events.empty());
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(read(output_), 1);
  make(2);
  replay(program);
  EXPECT_EQ(read(output_), 2);
}

// Waited for as it was recorded by the call before, and recorded anew.
TEST_F(EventsTest, AnEventMayBeWaitedForAndRecordedAgain) {
  const CUevent last = untimed();
  const Program program = observed([&] {
    ASSERT_CU(cuStreamWaitEvent(main_, last, 0));
    ASSERT_CU(run(copy_, main_, output_, input_, 1));
    ASSERT_CU(cuEventRecord(last, main_));
    ASSERT_CU(cuStreamWaitEvent(main_, last, 0));  // of the call's own
  });
  EXPECT_EQ(program.waited_events.size(), 1u);
  EXPECT_EQ(program.recorded_events, program.waited_events);
  replay(program);
}

// A stream without work that waited inside, or whose event was waited for: what it has before and gets later keeps its
// place.
TEST_F(EventsTest, AStreamThatOnlyEventsWerePutOnIsJoined) {
  const CUdeviceptr source = torch_alloc(4);
  const Program program = observed([&] {
    ASSERT_CU(cuEventRecord(forked_, side_));
    ASSERT_CU(cuStreamWaitEvent(main_, forked_, 0));
    ASSERT_CU(run(delay_, main_, kLong));
    ASSERT_CU(run(copy_, main_, output_, input_, 1));
    ASSERT_CU(cuEventRecord(joined_, main_));
    ASSERT_CU(cuStreamWaitEvent(other_, joined_, 0));
  });
  EXPECT_EQ(program.stream_count, 1u);
  EXPECT_EQ(streams_, (std::vector<CUstream>{side_, other_}));
  ASSERT_CU(cuCtxSynchronize());
  set(source, 5);
  ASSERT_CU(run(delay_, side_, kLong));
  ASSERT_CU(run(copy_, side_, input_, source, 1));
  const program::ArenaPlan plan = program::plan_arena(program);
  const store::KeptProgram kept(program);
  refusal::Refusal error;
  ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
  ASSERT_EQ(steps_.run(main_, streams_), replay::ProgramRun::Result::kDone);
  ASSERT_CU(run(copy_, other_, middle_, output_, 1));
  ASSERT_CU(cuStreamSynchronize(other_));
  EXPECT_EQ(read(middle_), 5);
}

TEST_F(EventsTest, EventsOfTheCallsOwnLeaveNoTrace) {
  const Program program = observed([&] {
    const CUevent own = untimed(), never = untimed();
    ASSERT_CU(cuStreamWaitEvent(main_, never, 0));  // was not recorded: no wait
    ASSERT_CU(run(copy_, main_, output_, input_, 1));
    ASSERT_CU(cuEventRecord(own, main_));
    ASSERT_CU(cuEventDestroy(own));
    ASSERT_CU(cuEventDestroy(never));
  });
  EXPECT_TRUE(program.waited_events.empty());
  EXPECT_TRUE(program.recorded_events.empty());
}

TEST_F(EventsTest, OtherEventsAreAnotherProgram) {
  const Program first = observed([&] { fork_and_join(); });
  EXPECT_EQ(program::compare(first, observed([&] { fork_and_join(); })).difference, program::Difference::kNone);
  joined_ = untimed();
  const Program second = observed([&] { fork_and_join(); });
  const program::Comparison comparison = program::compare(first, second);
  EXPECT_EQ(comparison.difference, program::Difference::kEvents);
  EXPECT_EQ(program::describe(comparison, first, second, nullptr).text,
            "the calls record other CUDA events that outlive them");
}

TEST_F(EventsTest, AProgramKnowsWhenAnEventOrAStreamIsGone) {
  LiveBlocks& blocks = LiveBlocks::instance();
  for (int what = 0; what < 3; ++what) {
    const CUevent ready = untimed();
    ASSERT_CU(cuEventRecord(ready, other_));
    const Program program = observed([&] {
      ASSERT_CU(cuStreamWaitEvent(main_, ready, 0));
      fork_and_join();
    });
    ASSERT_CU(cuCtxSynchronize());
    ASSERT_TRUE(blocks.refer(program));
    const std::uint32_t epoch = blocks.epoch();
    torch_free(torch_alloc(512), 512);
    EXPECT_EQ(blocks.epoch(), epoch);
    EXPECT_TRUE(blocks.alive(program));
    if (what == 0) {
      ASSERT_CU(cuEventDestroy(ready));
    } else if (what == 1) {
      ASSERT_CU(cuEventDestroy(joined_));
      joined_ = untimed();  // perhaps by the same handle
    } else {
      ASSERT_CU(cuStreamDestroy(side_));
    }
    EXPECT_NE(blocks.epoch(), epoch) << what;
    EXPECT_FALSE(blocks.alive(program)) << what;
    blocks.release(program);
    EXPECT_FALSE(blocks.refer(program)) << what;
  }
}

TEST_F(EventsTest, ARunUsesNoEventThatIsGone) {
  const CUevent ready = untimed();
  ASSERT_CU(cuEventRecord(ready, other_));
  const Program program = observed([&] {
    ASSERT_CU(cuStreamWaitEvent(main_, ready, 0));
    fork_and_join();
  });
  const program::ArenaPlan plan = program::plan_arena(program);
  const store::KeptProgram kept(program);
  refusal::Refusal error;
  ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
  ASSERT_CU(cuEventDestroy(joined_));
  simcuda_set_fault("cuEventRecord", 2, CUDA_ERROR_INVALID_HANDLE);  // the other one is the only one
  ASSERT_EQ(steps_.run(main_, {}), replay::ProgramRun::Result::kDone);
  simcuda_reset();
  EXPECT_EQ(cuStreamQuery(main_), CUDA_ERROR_NOT_READY) << "not waited for";
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuEventDestroy(ready));
  ASSERT_TRUE(steps_.prepare(pool_, kept, plan, {}, error)) << error.text;
  EXPECT_EQ(steps_.run(main_, {}), replay::ProgramRun::Result::kFailed);
  EXPECT_FALSE(steps_.launched());
}

// A program that was refused has taken no reference, and gives none up.
TEST_F(EventsTest, ReferencesAreTakenAllOrNone) {
  LiveBlocks& blocks = LiveBlocks::instance();
  const Program program = observed([&] { fork_and_join(); });
  ASSERT_CU(cuEventDestroy(joined_));
  EXPECT_FALSE(blocks.refer(program));
  const std::uint32_t epoch = blocks.epoch();
  ASSERT_CU(cuEventDestroy(forked_));
  EXPECT_EQ(blocks.epoch(), epoch);
}

TEST_F(EventsTest, WhatIsRefused) {
  const CUevent timed = event(), foreign = untimed(), shared = untimed();
  const auto recorded = [&](CUevent event) {
    return [this, event] {
      ASSERT_CU(run(copy_, main_, output_, input_, 1));
      ASSERT_CU(cuEventRecord(event, main_));
    };
  };
  LiveBlocks& blocks = LiveBlocks::instance();
  refused("records an event that a time may be taken with (cuEventRecord)", false, recorded(timed));
  blocks.remove(BlockSource::kEvent, handle(foreign));  // made by cuIpcOpenEventHandle, say
  refused("records an event that may be waited for after the call (cuEventRecord)", false, recorded(foreign));
  refused("waits for work from before the call by an event that Grape does not know (cuStreamWaitEvent)", false,
          [&] { ASSERT_CU(cuStreamWaitEvent(main_, foreign, 0)); });
  blocks.add(BlockSource::kEvent, handle(shared), CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  refused("records an event of other processes as well (cuEventRecord)", false, recorded(shared));
  refused("makes an event that may be waited for after the call (cuEventRecord)", true, [&] { recorded(untimed())(); });
  refused("orders streams without any work on them", false, [&] {
    ASSERT_CU(cuEventRecord(forked_, main_));
    ASSERT_CU(cuStreamWaitEvent(side_, forked_, 0));
  });
  refused("a stream is gone", true, [&] {
    const CUstream brief = stream();
    ASSERT_CU(run(copy_, brief, output_, input_, 1));
    ASSERT_CU(cuStreamDestroy(brief));
  });
  ASSERT_CU(cuEventRecord(forked_, side_));
  refused("waits for an event from before the call (cuStreamWaitEvent)", true, [&] {
    ASSERT_CU(cuStreamWaitEvent(main_, forked_, 0));
    ASSERT_CU(cuEventDestroy(forked_));
    blocks.add(BlockSource::kEvent, handle(forked_), CU_EVENT_DISABLE_TIMING);  // the same handle again
  });
}

}  // namespace
}  // namespace grape::replay_test
