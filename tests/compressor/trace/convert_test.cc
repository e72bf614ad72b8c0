// The probe streams, which are real PyTorch, through converter, writer and reader.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "tests/compressor/trace/convert_stream.h"
#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

struct Expected {
  const char* name;
  std::uint64_t launches;
  std::uint64_t regions;
};

// Names the test; without it, the parameter's bytes would.
void PrintTo(const Expected& expected, std::ostream* out) { *out << expected.name; }

class Streams : public testing::TestWithParam<Expected> {};

TEST_P(Streams, ConvertAndReadBack) {
  const std::string base = std::string(GRAPE_TRACE_DATA "/") + GetParam().name;
  std::string message;
  Bytes stream;
  ConvertOptions options;
  ASSERT_TRUE(read_gzip(base + ".bin.gz", stream, message)) << message;
  ASSERT_TRUE(read_blocks(base + ".blocks.json", options.blocks, message)) << message;
  ASSERT_GT(options.blocks.size(), 10u);
  MemorySink sink;
  ConvertCounts counts;
  ASSERT_TRUE(convert_stream(stream, options, sink, counts, message)) << message;
  EXPECT_EQ(counts.launches, GetParam().launches);
  EXPECT_LT(sink.bytes.size() * 10, counts.event_bytes);

  Error error;
  auto reader = Reader::from_bytes(sink.bytes, error);
  ASSERT_NE(reader, nullptr) << error.message;
  EventView view;
  std::uint32_t thread = 0;
  std::uint64_t events = 0, launches = 0, begins = 0, ends = 0, sequence = 0, bytes = 0;
  while (reader->next(view, thread)) {
    ++events;
    EXPECT_EQ(view.header->sequence, ++sequence);
    begins += view.header->kind == EventKind::kScopeBegin;
    ends += view.header->kind == EventKind::kScopeEnd;
    if (view.header->kind != EventKind::kLaunch) continue;
    ++launches;
    const LaunchView launch(view);
    bytes += launch.parameter_bytes();
    ASSERT_NE(launch.function(), 0u);
    ASSERT_LT(launch.function(), reader->tables().functions.size());
    // The parameters stand in the stream as they were: look for them there.
    if (launches % 100 == 1 && launch.parameter_bytes() >= 24) {
      EXPECT_NE(memmem(stream.data(), stream.size(), launch.parameters(), launch.parameter_bytes()), nullptr);
    }
  }
  EXPECT_TRUE(reader->complete()) << reader->damage().message;
  EXPECT_EQ(events, counts.events);
  EXPECT_EQ(launches, counts.launches);
  EXPECT_EQ(bytes, counts.parameter_bytes);
  EXPECT_EQ(begins, GetParam().regions);
  EXPECT_EQ(ends, GetParam().regions);
}
INSTANTIATE_TEST_SUITE_P(Moved, Streams,
                         testing::Values(Expected{"gpt2-moved-5x", 1415, 5}, Expected{"bert-moved-5x", 825, 5},
                                         Expected{"resnet-moved-5x", 1090, 5}),
                         [](const auto& each) {
                           return std::string(each.param.name, std::strchr(each.param.name, '-'));
                         });

TEST(Streams, ADamagedStreamIsAnError) {
  std::string message;
  Bytes stream;
  ASSERT_TRUE(read_gzip(GRAPE_TRACE_DATA "/gpt2-moved-5x.bin.gz", stream, message));
  stream.resize(stream.size() / 2);
  stream.push_back('?');
  MemorySink sink;
  ConvertCounts counts;
  EXPECT_FALSE(convert_stream(stream, ConvertOptions(), sink, counts, message));
  EXPECT_NE(message.find("damaged at byte"), std::string::npos);
}

}  // namespace
}  // namespace grape::trace
