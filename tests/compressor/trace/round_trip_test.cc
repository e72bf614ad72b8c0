// What is written comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

std::unique_ptr<Reader> open(const Bytes& bytes) {
  Error error;
  auto reader = Reader::from_bytes(bytes, error);
  EXPECT_NE(reader, nullptr) << error.message << " at " << error.offset;
  return reader;
}

void expect_same(const std::vector<OwnedEvent>& got, const std::vector<OwnedEvent>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].same_content(expected[i])) << "event " << i << ", kind " << static_cast<int>(got[i].header.kind);
  }
}

// Ticks lose at most a quantum of 64 ns (64 ticks here), rounded down; durations half of one.
void expect_times_close(const std::vector<OwnedEvent>& got, const std::vector<OwnedEvent>& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const EventKind kind = expected[i].header.kind;
    if (kind != EventKind::kLaunch && kind != EventKind::kCall && kind != EventKind::kScopeBegin) continue;
    ASSERT_EQ(got[i].header.ticks, expected[i].header.ticks / 64 * 64) << "event " << i;
    ASSERT_NEAR(got[i].header.duration, expected[i].header.duration, 32) << "event " << i;
  }
}

TEST(RoundTrip, MetaAndEnd) {
  auto reader = open(write_trace(every_kind()));
  const Meta expected = test_meta();
  const Meta& meta = reader->meta();
  EXPECT_EQ(meta.ticks_per_second, expected.ticks_per_second);
  EXPECT_EQ(meta.start_ticks, expected.start_ticks);
  EXPECT_EQ(meta.start_unix_ns, expected.start_unix_ns);
  EXPECT_EQ(meta.pid, expected.pid);
  EXPECT_EQ(meta.host, expected.host);
  EXPECT_EQ(meta.command, expected.command);
  EXPECT_EQ(meta.grape_version, expected.grape_version);
  EXPECT_EQ(meta.python_version, expected.python_version);
  EXPECT_EQ(meta.driver_version, expected.driver_version);
  EXPECT_TRUE(meta.ranges);
  ASSERT_EQ(meta.apis.size(), 2u);
  EXPECT_EQ(meta.apis[1].symbol, "cuMemcpyHtoDAsync_v2");
  EXPECT_EQ(meta.apis[1].api_class, ApiClass::kCopyToDevice);
  EXPECT_EQ(meta.apis[1].arguments, "dst:d,src:h,bytes:u,stream:s");
  ASSERT_NE(reader->end(), nullptr);
  EXPECT_EQ(reader->end()->events, every_kind().size());
  EXPECT_EQ(reader->end()->ticks_per_second, 1'000'000'100u);
  ASSERT_EQ(reader->end()->unhandled.size(), 1u);
  EXPECT_EQ(reader->end()->unhandled[0].name, "cuSomethingNew");
  EXPECT_EQ(reader->end()->unhandled[0].count, 3u);
  EXPECT_EQ(reader->end()->notices, std::vector<std::string>{"no block-level allocator events"});
  EXPECT_TRUE(reader->complete());
  EXPECT_EQ(reader->format_version(), 0x10001u);
  ASSERT_EQ(reader->threads().size(), 2u);
  EXPECT_EQ(reader->threads()[1].os_thread, 1002u);
  EXPECT_EQ(reader->threads()[1].events, every_kind().size() / 2);
}

TEST(RoundTrip, EveryKind) {
  const std::vector<OwnedEvent> events = every_kind();
  for (const std::size_t chunk_events : {1u, 3u, 1000u}) {
    auto reader = open(write_trace(events, chunk_events));
    const std::vector<OwnedEvent> got = read_all(*reader);
    EXPECT_TRUE(reader->complete()) << reader->damage().message;
    // The two threads define the same things with the same ids, so file-wide ids are the threads' own.
    expect_same(got, events);
    expect_times_close(got, events);
    const Tables& tables = reader->tables();
    ASSERT_EQ(tables.functions.size(), 2u);
    EXPECT_EQ(tables.functions[1].name, "_Z4fillPfi");
    EXPECT_EQ(tables.functions[1].handle, 0xF1u);
    EXPECT_EQ(tables.functions[1].module, 0x77u);
    ASSERT_EQ(tables.functions[1].parameters.size(), 2u);
    EXPECT_EQ(tables.functions[1].parameters[1].offset, 8u);
    EXPECT_EQ(tables.functions[1].parameters[1].size, 4u);
    ASSERT_EQ(tables.codes.size(), 2u);
    EXPECT_EQ(tables.codes[1].file, "/home/user/train.py");
    EXPECT_EQ(tables.codes[1].qualname, "main");
    EXPECT_EQ(tables.codes[1].first_line, 7u);
    ASSERT_EQ(tables.frames.size(), 3u);
    EXPECT_EQ(tables.frames[2].parent, 1u);
    EXPECT_EQ(tables.frames[2].line, 12u);
    ASSERT_EQ(tables.native_frames.size(), 2u);
    EXPECT_EQ(tables.native_frames[1].object, "libx.so.1");
    EXPECT_EQ(tables.native_frames[1].symbol, "main");
    ASSERT_EQ(tables.scopes.size(), 2u);
    EXPECT_EQ(tables.scopes[1].name, "transformer.h.0");
    EXPECT_EQ(tables.scopes[1].type, "a:B.c");
  }
}

TEST(RoundTrip, Rewind) {
  auto reader = open(write_trace(every_kind(), 4));
  const std::vector<OwnedEvent> first = read_all(*reader);
  reader->rewind();
  expect_same(read_all(*reader), first);
  reader->rewind();
  EventView view;
  std::uint32_t thread = 0;
  ASSERT_TRUE(reader->next(view, thread));
  reader->rewind();
  expect_same(read_all(*reader), first);
  EXPECT_EQ(reader->tables().frames.size(), 3u);
}

TEST(RoundTrip, ThreadsDefineInDifferentOrder) {
  std::vector<OwnedEvent> events = {define_function(1, "a", 1), define_function(2, "b", 2), define_function(1, "b", 2),
                                    define_function(2, "a", 1), launch(2, 0, {}),           launch(2, 0, {}),
                                    define_function(3, "a", 9)};
  for (const std::size_t i : {2u, 3u, 5u}) events[i].thread = 2;
  for (std::size_t i = 0; i < events.size(); ++i) events[i].header.sequence = i + 1;
  auto reader = open(write_trace(events));
  const std::vector<OwnedEvent> got = read_all(*reader);
  ASSERT_EQ(got.size(), events.size());
  const Tables& tables = reader->tables();
  ASSERT_EQ(tables.functions.size(), 4u) << "the same name at another handle is another function";
  EXPECT_EQ(tables.functions[low(got[4].words[0])].name, "b");
  EXPECT_EQ(tables.functions[low(got[5].words[0])].name, "a");
  EXPECT_EQ(low(got[2].words[0]), low(got[1].words[0]));
}

// Streams like those of programs: repeated steps with insertions, deletions, and words that move in several ways.
std::vector<OwnedEvent> random_program(std::uint32_t seed, std::uint32_t threads, std::size_t steps) {
  std::mt19937_64 random(seed);
  auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::vector<OwnedEvent> step;
  for (int i = 0; i < 40; ++i) {
    const auto function = static_cast<std::uint32_t>(1 + below(6));
    std::vector<std::uint64_t> parameters(function * 3 % 11 + (i == 7 ? 90 : 0));
    for (auto& word : parameters) word = below(3) == 0 ? random() : 0x7f0000000000 + below(64) * 512;
    step.push_back(launch(function, 0, parameters));
    if (below(2) == 0) step.push_back(make_event(EventKind::kBlockAlloc, {0x7f0000000000 + below(64) * 512, 512, 0}));
    if (below(4) == 0) step.push_back(make_event(EventKind::kCall, {pack(2, 0), 0, pack(1, 0), random()}, 2));
  }
  std::vector<OwnedEvent> events;
  std::uint64_t sequence = below(1000), ticks = below(1u << 30);
  for (std::size_t s = 0; s < steps; ++s) {
    const std::uint64_t move = below(3) * 4096;
    for (const OwnedEvent& model : step) {
      if (below(50) == 0) continue;
      OwnedEvent event = model;
      event.thread = static_cast<std::uint32_t>(1 + below(threads));
      for (auto& word : event.words) {
        const bool payload = &word - event.words.data() >= static_cast<std::ptrdiff_t>(kLaunchFixed);
        if (event.header.kind != EventKind::kLaunch || !payload) continue;
        if (word >= 0x7f0000000000 && word < 0x7f0000010000) word += move;
        if (below(40) == 0) word += below(300);
        if (below(60) == 0) word += below(300) << 32;
        if (below(60) == 0) word = pack(low(word) + static_cast<std::uint32_t>(below(40)), high(word) - 3);
        if (below(100) == 0) word = s * 24;
        if (below(200) == 0) word = random();
      }
      if (below(300) == 0) {
        for (auto& word : event.words) word ^= event.header.kind == EventKind::kBlockAlloc ? random() << 32 : 0;
        if (event.header.kind == EventKind::kBlockAlloc) event.words[2] = pack(0, high(event.words[2]));
      }
      sequence += 1 + (below(9) == 0 ? below(1000) : 0);
      ticks += below(100) == 0 ? below(1u << 30) : below(30000);
      event.header.sequence = sequence;
      event.header.ticks = ticks;
      event.header.duration = static_cast<std::uint32_t>(below(100) == 0 ? random() : below(6000));
      if (event.header.duration > 0xFFFFFF00) event.header.duration = 0xFFFFFF00;
      events.push_back(event);
    }
  }
  return events;
}

class RandomPrograms : public testing::TestWithParam<std::uint32_t> {};

TEST_P(RandomPrograms, ComeBack) {
  const std::uint32_t seed = GetParam();
  std::vector<OwnedEvent> events = random_program(seed, 1 + seed % 9, 60);
  std::vector<OwnedEvent> definitions;
  std::uint32_t threads = 1 + seed % 9;
  // Function ids must be known, or they would read as 0.
  for (OwnedEvent& event : events) event.header.sequence += 6 * threads;
  std::uint64_t sequence = 0;
  for (std::uint32_t t = 1; t <= threads; ++t) {
    for (std::uint32_t id = 1; id <= 6; ++id) {
      definitions.push_back(define_function(id, "kernel" + std::to_string(id), id));
      definitions.back().thread = t;
      definitions.back().header.sequence = ++sequence;
    }
  }
  events.insert(events.begin(), definitions.begin(), definitions.end());
  auto reader = open(write_trace(events, seed % 2 == 0 ? 100 : 100000));
  const std::vector<OwnedEvent> got = read_all(*reader);
  EXPECT_TRUE(reader->complete()) << reader->damage().message;
  expect_same(got, events);
  expect_times_close(got, events);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, testing::Range(1u, 25u));

TEST(RoundTrip, BeyondTheWindow) {
  // 24 MiB of one thread in one chunk: references must not reach out of the window.
  std::mt19937_64 random(1);
  std::vector<OwnedEvent> events;
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<std::uint64_t> parameters(15000 + i % 3);
    for (auto& word : parameters) word = i < 100 ? random() : events[i - 100].words[8] + i;
    events.push_back(launch(0, 0, parameters));
    events.back().header.sequence = i + 1;
  }
  auto reader = open(write_trace(events));
  expect_same(read_all(*reader), events);
  EXPECT_TRUE(reader->complete());
}

TEST(RoundTrip, ManySmallEvents) {
  // More events than the window holds, all alike: the file must not break the ratio limit.
  std::vector<OwnedEvent> events(300000, make_event(EventKind::kScopeAttach, {0}));
  for (std::size_t i = 0; i < events.size(); ++i) events[i].header.sequence = i + 1;
  const Bytes file = write_trace(events, events.size());
  auto reader = open(file);
  expect_same(read_all(*reader), events);
  EXPECT_TRUE(reader->complete()) << reader->damage().message;
  EXPECT_LT(file.size(), 20000u);
}

TEST(RoundTrip, LargestEvent) {
  std::vector<OwnedEvent> events = {launch(0, 0, std::vector<std::uint64_t>((kMaxEventBytes - 96) / 8, 3))};
  events[0].header.sequence = 1;
  ASSERT_EQ(events[0].header.bytes, kMaxEventBytes);
  auto reader = open(write_trace(events));
  expect_same(read_all(*reader), events);
}

TEST(RoundTrip, TicksThatStepBack) {
  std::vector<OwnedEvent> events;
  for (std::uint64_t i = 0; i < 100; ++i) {
    events.push_back(launch(0, 0, {}));
    events.back().header.sequence = i + 1;
    events.back().header.ticks = i % 3 == 0 ? ~std::uint64_t{0} - i : i;
  }
  auto reader = open(write_trace(events));
  expect_times_close(read_all(*reader), events);
}

TEST(RoundTrip, SequencesThatDoNotAscendAreRaised) {
  std::vector<OwnedEvent> events(3, make_event(EventKind::kScopeAttach, {0}));
  const std::uint64_t given[] = {5, 5, 2};
  for (std::size_t i = 0; i < 3; ++i) events[i].header.sequence = given[i];
  auto reader = open(write_trace(events));
  const std::vector<OwnedEvent> got = read_all(*reader);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[1].header.sequence, 6u);
  EXPECT_EQ(got[2].header.sequence, 7u);
  EXPECT_TRUE(reader->complete());
}

TEST(RoundTrip, NothingButMetaAndEnd) {
  auto reader = open(write_trace({}));
  EXPECT_TRUE(read_all(*reader).empty());
  EXPECT_TRUE(reader->complete());
  EXPECT_TRUE(reader->threads().empty());
}

TEST(Writer, StopsAtTheFirstFailedWrite) {
  const std::vector<OwnedEvent> events = every_kind();
  const auto write_into = [&events](MemorySink& sink, Writer& writer) {
    EventEncoder encoder;
    for (const OwnedEvent& event : events) {
      encoder.add(*reinterpret_cast<const EventHeader*>(event.flat().data()));
    }
    writer.write_events(1, 1, encoder);
    EXPECT_EQ(encoder.events(), 0u) << "the encoder is emptied in any case";
    const bool ended = writer.write_end(End());
    EXPECT_EQ(ended, writer.ok());
    EXPECT_EQ(writer.bytes_written(), sink.bytes.size());
    return ended;
  };
  MemorySink whole;
  Writer whole_writer(whole, test_meta());
  EXPECT_TRUE(write_into(whole, whole_writer));
  EXPECT_EQ(whole_writer.events_written(), events.size());
  for (std::size_t capacity = 0; capacity < whole.bytes.size(); capacity += 7) {
    MemorySink sink;
    sink.capacity = capacity;
    Writer writer(sink, test_meta());
    EXPECT_FALSE(write_into(sink, writer));
    sink.capacity = SIZE_MAX;
    const std::size_t before = sink.bytes.size();
    EXPECT_FALSE(writer.write_end(End()));
    EXPECT_EQ(sink.bytes.size(), before) << "nothing is written after a failure";
  }
}

}  // namespace
}  // namespace grape::trace
