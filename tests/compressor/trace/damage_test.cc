// Traces that are cut, changed, hostile, or of another version: an error or damage with its offset, never a crash.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

// Reads everything; what comes must be well-formed whatever the bytes are.
std::vector<OwnedEvent> read_whatever(const Bytes& bytes, std::unique_ptr<Reader>& reader, Error& error) {
  reader = Reader::from_bytes(bytes, error);
  if (reader == nullptr) {
    EXPECT_FALSE(error.message.empty());
    EXPECT_LE(error.offset, bytes.size());
    return {};
  }
  std::vector<OwnedEvent> events = read_all(*reader);
  EXPECT_LE(reader->damage().offset, bytes.size());
  return events;
}

bool is_prefix(const std::vector<OwnedEvent>& got, const std::vector<OwnedEvent>& whole) {
  if (got.size() > whole.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!got[i].same_content(whole[i])) return false;
  }
  return true;
}

std::vector<OwnedEvent> one_thread() {
  std::vector<OwnedEvent> events = every_kind();
  events.resize(events.size() / 2);
  return events;
}

TEST(Damage, CutAtEveryByte) {
  const std::vector<OwnedEvent> events = one_thread();
  const Bytes file = write_trace(events, 3);
  const std::vector<ChunkPlace> chunks = chunks_of(file);
  ASSERT_GT(chunks.size(), 6u);
  const std::size_t first_end = chunks[1].offset;
  for (std::size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(size);
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    std::unique_ptr<Reader> reader;
    Error error;
    const std::vector<OwnedEvent> got = read_whatever(cut, reader, error);
    if (size < kFileHeaderBytes) {
      ASSERT_EQ(reader, nullptr);
      continue;
    }
    ASSERT_NE(reader, nullptr) << error.message;
    ASSERT_FALSE(reader->complete());
    ASSERT_EQ(reader->end(), nullptr);
    ASSERT_EQ(reader->meta().command.empty(), size < first_end);
    std::size_t expected = 0;
    bool between_chunks = size == kFileHeaderBytes;
    std::uint64_t last_whole = kFileHeaderBytes;
    for (const ChunkPlace& chunk : chunks) {
      const std::size_t end = chunk.offset + kChunkHeaderBytes + chunk.header.stored;
      if (end <= size) expected += chunk.header.events;
      if (end <= size) last_whole = end;
      between_chunks = between_chunks || end == size;
    }
    ASSERT_EQ(got.size(), expected) << "up to the last whole chunk";
    ASSERT_TRUE(is_prefix(got, events));
    ASSERT_EQ(static_cast<bool>(reader->damage()), !between_chunks);
    if (!between_chunks) {
      ASSERT_EQ(reader->damage().offset, last_whole);
    }
  }
}

TEST(Damage, EveryBitFlipped) {
  const std::vector<OwnedEvent> events = one_thread();
  const Bytes file = write_trace(events, 5);
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      SCOPED_TRACE(at * 8 + static_cast<std::size_t>(bit));
      Bytes changed = file;
      changed[at] = static_cast<std::uint8_t>(changed[at] ^ (1 << bit));
      std::unique_ptr<Reader> reader;
      Error error;
      const std::vector<OwnedEvent> got = read_whatever(changed, reader, error);
      if (reader == nullptr) {
        ASSERT_LT(at, chunks_of(file)[1].offset);
        continue;
      }
      // The minor version, the reserved bytes of the file header: nothing depends on them.
      if (at >= 10 && at < kFileHeaderBytes) {
        ASSERT_TRUE(reader->complete());
        continue;
      }
      ASSERT_FALSE(reader->complete());
      ASSERT_TRUE(static_cast<bool>(reader->damage()));
      ASSERT_LE(reader->damage().offset, at);
    }
  }
}

// With checksums made right again, changes reach the decoder.
TEST(Damage, EveryByteChangedBehindTheChecksums) {
  const Bytes file = without_compression(write_trace(one_thread(), 9));
  for (std::size_t at = kFileHeaderBytes; at < file.size(); ++at) {
    for (const int change : {0x01, 0x02, 0x04, 0x80, 0x7F, 0xFF}) {
      SCOPED_TRACE(at);
      Bytes changed = file;
      changed[at] = static_cast<std::uint8_t>(changed[at] ^ change);
      std::unique_ptr<Reader> reader;
      Error error;
      const std::vector<OwnedEvent> got = read_whatever(with_right_checksums(changed), reader, error);
      ASSERT_LE(got.size(), 1000u);
    }
  }
}

TEST(Damage, LostChunkLeavesAGap) {
  const std::vector<OwnedEvent> events = one_thread();
  Bytes file = write_trace(events, 6);
  const std::vector<ChunkPlace> chunks = chunks_of(file);
  file[chunks[1].offset + kChunkHeaderBytes + 3] ^= 1;  // the first events chunk: all definitions
  std::unique_ptr<Reader> reader;
  Error error;
  const std::vector<OwnedEvent> got = read_whatever(file, reader, error);
  ASSERT_NE(reader, nullptr);
  ASSERT_EQ(got.size(), events.size() - 6 + 1);
  EXPECT_EQ(got[0].header.kind, EventKind::kLost);
  EXPECT_EQ(got[0].words[0], 6u);
  EXPECT_EQ(got[0].header.sequence, 1u);
  EXPECT_EQ(reader->damage().offset, chunks[1].offset);
  EXPECT_FALSE(reader->complete());
  EXPECT_NE(reader->end(), nullptr) << "chunks after the lost one are read";
  // What the lost definitions defined is "none" now.
  const OwnedEvent& after = got[3];
  ASSERT_EQ(after.header.kind, EventKind::kLaunch);
  EXPECT_EQ(low(after.words[kLaunchFunction]), 0u);
  EXPECT_EQ(high(after.words[kLaunchFunction]), 1u) << "the api id stays";
  EXPECT_EQ(after.words[kLaunchStack], 0u);
}

TEST(Damage, BytesAfterTheEnd) {
  Bytes file = write_trace(one_thread());
  const std::size_t whole = file.size();
  file.push_back(0);
  std::unique_ptr<Reader> reader;
  Error error;
  EXPECT_EQ(read_whatever(file, reader, error).size(), one_thread().size());
  EXPECT_FALSE(reader->complete());
  EXPECT_EQ(reader->damage().offset, whole);
}

TEST(Damage, ChunksOutOfOrder) {
  const Bytes file = write_trace(one_thread(), 6);
  const std::vector<ChunkPlace> chunks = chunks_of(file);
  Bytes twice(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(chunks[2].offset));
  const std::size_t again = twice.size();
  twice.insert(twice.end(), file.begin() + static_cast<std::ptrdiff_t>(chunks[1].offset), file.end());
  std::unique_ptr<Reader> reader;
  Error error;
  EXPECT_EQ(read_whatever(twice, reader, error).size(), one_thread().size());
  EXPECT_EQ(reader->damage().offset, again);
}

// ---- Hostile files ----

Bytes file_with_meta() {
  const Bytes file = write_trace({}, 1, false);
  return file;
}

ChunkHeader events_header(std::uint32_t events, std::uint64_t event_bytes) {
  ChunkHeader header;
  header.type = static_cast<std::uint16_t>(ChunkType::kEvents);
  header.thread = 1;
  header.first_sequence = 1;
  header.last_sequence = events;
  header.events = events;
  header.event_bytes = event_bytes;
  return header;
}

TEST(Hostile, ClaimsBeyondTheLimits) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    Bytes file = file_with_meta();
    const std::size_t at = file.size();
    append_chunk(file, events_header(1, bytes), {{0}});
    std::unique_ptr<Reader> reader;
    Error error;
    EXPECT_TRUE(read_whatever(file, reader, error).empty());
    EXPECT_EQ(reader->damage().offset, at);
  }
}

TEST(Hostile, ChunkNumbersThatContradict) {
  const auto damaged = [](ChunkHeader header) {
    Bytes file = file_with_meta();
    append_chunk(file, header, {{0}});
    std::unique_ptr<Reader> reader;
    Error error;
    EXPECT_TRUE(read_whatever(file, reader, error).empty());
    return static_cast<bool>(reader->damage());
  };
  ChunkHeader header = events_header(2, 64);
  header.thread = 0;
  EXPECT_TRUE(damaged(header));
  header.thread = 0xFFFFFFFF;
  EXPECT_TRUE(damaged(header));
  header = events_header(0, 0);
  EXPECT_TRUE(damaged(header));
  header = events_header(0xFFFFFFFF, 64);
  header.last_sequence = 5;
  EXPECT_TRUE(damaged(header));
  header = events_header(2, 64);
  header.first_sequence = 0;
  EXPECT_TRUE(damaged(header));
}

// 64 chunks that overlap, each small in the file but large in memory.
TEST(Hostile, OverlappingChunksStayWithinMemory) {
  std::vector<OwnedEvent> events;
  for (std::uint64_t i = 0; i < 64; ++i) {
    for (std::uint64_t j = 0; j < 40; ++j) {
      events.push_back(launch(0, 0, std::vector<std::uint64_t>(10000, 7)));
      events.back().thread = static_cast<std::uint32_t>(i + 1);
      events.back().header.sequence = 1 + i + j * 64;
    }
  }
  const Bytes file = write_trace(events);
  Error error;
  auto reader = Reader::from_bytes(file, error);
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(read_all(*reader).size(), events.size());
  ReaderLimits limits;
  limits.max_active_bytes = 64u << 20;
  reader = Reader::from_bytes(file, error, limits);
  ASSERT_NE(reader, nullptr);
  const std::size_t got = read_all(*reader).size();
  EXPECT_GT(got, 0u);
  EXPECT_LT(got, events.size());
  EXPECT_NE(reader->damage().message.find("overlap"), std::string::npos);
}

TEST(Hostile, LimitsOfDefinitions) {
  std::vector<OwnedEvent> events;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    events.push_back(define_frame(i + 1, i, 0, i));
    events.back().header.sequence = i + 1;
  }
  const Bytes file = write_trace(events);
  ReaderLimits limits;
  limits.max_stack_depth = 100;
  Error error;
  auto reader = Reader::from_bytes(file, error, limits);
  EXPECT_EQ(read_all(*reader).size(), events.size());
  const std::vector<Frame>& frames = reader->tables().frames;
  for (std::size_t i = 1; i < frames.size(); ++i) {
    ASSERT_LT(frames[i].parent, i);
    std::size_t depth = 0;
    for (std::uint32_t f = static_cast<std::uint32_t>(i); f != 0; f = frames[f].parent) ++depth;
    ASSERT_LE(depth, 100u);
  }
  limits.max_definitions = 20000;
  reader = Reader::from_bytes(file, error, limits);
  EXPECT_LT(read_all(*reader).size(), events.size());
  EXPECT_TRUE(static_cast<bool>(reader->damage()));
  EXPECT_LE(reader->tables().frames.size(), 20000u / 24 + 1);
}

TEST(Hostile, IdsOutsideTheLimits) {
  for (const std::uint32_t id : {0u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    std::vector<OwnedEvent> events = {define_function(id, "x", 1), launch(id, id, {})};
    events[0].header.sequence = 1;
    events[1].header.sequence = 2;
    Error error;
    auto reader = Reader::from_bytes(write_trace(events), error);
    EXPECT_TRUE(read_all(*reader).empty());
    EXPECT_TRUE(static_cast<bool>(reader->damage()));
  }
}

TEST(Hostile, PayloadsThatDoNotFit) {
  const std::vector<OwnedEvent> bad = {
      make_event(EventKind::kLaunch, std::vector<std::uint64_t>(7, 0)),
      make_event(EventKind::kLaunch, {0, 0, 0, 0, 0, 0, 0, pack(0xFFFFFFFF, 0)}),
      make_event(EventKind::kLaunch, {0, 0, 0, 0, 0, 0, 0, pack(0, 0xFFFFFFFF)}),
      make_event(EventKind::kLaunch, {0, 0, 0, 0, 0, 0, 0, 0, 1}),
      make_event(EventKind::kDefFunction, {1, 0, 0, pack(0xFFFFFFFF, 1)}),
      make_event(EventKind::kDefCode, {1, 0, pack(0xFFFFFFFF, 0xFFFFFFFF)}),
      make_event(EventKind::kDefFrame, {1, 0}),
      make_event(EventKind::kCall, {1, 0, pack(1, 0)}),
      make_event(EventKind::kCall, {1, 0, pack(1, 8), 5, pack(0, 8)}),
      make_event(EventKind::kCall, {1, 0, pack(1, 8), 5, pack(1, 0)}),
      make_event(EventKind::kExecEdges, {1, 2, 3}),
      make_event(EventKind::kExecNode, {1, 0, pack(0, 9), 0, 0, 0, 0, 0}),
      make_event(EventKind::kLost, {}),
      make_event(EventKind::kNone, {}),
      make_event(static_cast<EventKind>(999), {1}),
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<OwnedEvent> events = {make_event(EventKind::kScopeAttach, {1}), bad[i],
                                      make_event(EventKind::kScopeAttach, {2})};
    for (std::size_t j = 0; j < 3; ++j) events[j].header.sequence = j + 1;
    Error error;
    const Bytes file = write_trace(events);
    auto reader = Reader::from_bytes(file, error);
    EXPECT_EQ(read_all(*reader).size(), 1u) << "up to the bad event";
    EXPECT_EQ(reader->damage().offset, chunks_of(file)[1].offset);
  }
}

// Found by the fuzzer: a reference without payload, where no event before it has one either.
TEST(Hostile, EventsWithoutPayload) {
  std::vector<OwnedEvent> events(3, make_event(static_cast<EventKind>(77), {}));
  for (std::size_t i = 0; i < 3; ++i) events[i].header.sequence = i + 1;
  Bytes file = write_trace(events);
  std::unique_ptr<Reader> reader;
  Error error;
  EXPECT_TRUE(read_whatever(file, reader, error).empty());
  EXPECT_FALSE(reader->complete());
  file[10] = kFormatMinor + 1;  // of a newer minor version, an unknown kind is no damage
  EXPECT_TRUE(read_whatever(file, reader, error).empty());
  EXPECT_TRUE(reader->complete());
}

// ---- Versions ----

TEST(Versions, ANewerMajorIsRefusedNamingBoth) {
  Bytes file = write_trace(one_thread());
  file[8] = 2;
  file[10] = 7;
  Error error;
  EXPECT_EQ(Reader::from_bytes(file, error), nullptr);
  EXPECT_NE(error.message.find("2.7"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("up to " + std::to_string(kFormatMajor) + "." + std::to_string(kFormatMinor)),
            std::string::npos)
      << error.message;
  EXPECT_EQ(error.offset, 8u);
}

TEST(Versions, ANewerMinorIsReadWithoutWhatIsUnknown) {
  std::vector<OwnedEvent> events = one_thread();
  std::vector<OwnedEvent> more = events;
  more.insert(more.begin() + 3, make_event(static_cast<EventKind>(77), {1, 2, 3}));
  more[12].words.push_back(99);  // a payload that has grown: kExecEdges
  more[12].header.bytes += 8;
  ASSERT_EQ(more[12].header.kind, EventKind::kExecEdges);
  for (std::size_t i = 0; i < more.size(); ++i) more[i].header.sequence = i + 1;
  Bytes file = write_trace(more, 1000, false);
  file[10] = kFormatMinor + 1;
  ChunkHeader unknown;
  unknown.type = 500;
  append_chunk(file, unknown, {{1, 2, 3}});
  append_chunk(file, unknown, {});
  const Bytes end = write_trace({}, 1, true);
  file.insert(file.end(), end.begin() + static_cast<std::ptrdiff_t>(chunks_of(end)[1].offset), end.end());
  Error error;
  auto reader = Reader::from_bytes(file, error);
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->format_version(), (kFormatMajor << 16) + kFormatMinor + 1u);
  const std::vector<OwnedEvent> got = read_all(*reader);
  EXPECT_EQ(got.size(), events.size());
  EXPECT_TRUE(reader->complete()) << reader->damage().message;
}

// Written by version 1.0, never to be changed: it reads for ever.
TEST(Versions, TheFirstVersionStaysReadable) {
  Error error;
  auto reader = Reader::open(GRAPE_TRACE_DATA "/version-1.0.grape", error);
  ASSERT_NE(reader, nullptr) << error.message;
  EXPECT_EQ(reader->meta().command, "python train.py --name 'a b'");
  const std::vector<OwnedEvent> got = read_all(*reader);
  EXPECT_TRUE(reader->complete()) << reader->damage().message;
  const std::vector<OwnedEvent> expected = every_kind();
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_TRUE(is_prefix(got, expected));
  EXPECT_EQ(reader->tables().functions[1].name, "_Z4fillPfi");
}

// ---- Files ----

TEST(Files, WhatIsNoTrace) {
  Error error;
  EXPECT_EQ(Reader::from_bytes({}, error), nullptr);
  EXPECT_EQ(error.message, "the file is empty");
  EXPECT_EQ(Reader::from_bytes({'e', 'l', 'f'}, error), nullptr);
  EXPECT_EQ(error.message, "not a Grape trace");
  EXPECT_EQ(Reader::from_bytes({0x89, 'G'}, error), nullptr);
  EXPECT_EQ(error.message, "the file ends within its header");
  EXPECT_EQ(Reader::open("/nonexistent/x.grape", error), nullptr);
  EXPECT_EQ(error.message, "No such file or directory");
  EXPECT_EQ(Reader::open("/", error), nullptr);
  EXPECT_EQ(error.message, "not a regular file");
}

TEST(Files, AFifoDoesNotBlock) {
  const std::string path = testing::TempDir() + "grape_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Error error;
  EXPECT_EQ(Reader::open(path, error), nullptr);
  EXPECT_EQ(error.message, "not a regular file");
  unlink(path.c_str());
}

TEST(Files, AFileThatShrinksWhileItIsRead) {
  const std::string path = testing::TempDir() + "grape_shrink_" + std::to_string(getpid());
  const Bytes file = write_trace(every_kind(), 2);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  Error error;
  auto reader = Reader::open(path, error);
  ASSERT_NE(reader, nullptr) << error.message;
  EXPECT_EQ(reader->file_bytes(), file.size());
  EXPECT_TRUE(reader->complete());
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(file.size() / 2)), 0);
  EXPECT_LT(read_all(*reader).size(), every_kind().size());
  EXPECT_FALSE(reader->complete());
  unlink(path.c_str());
}

}  // namespace
}  // namespace grape::trace
