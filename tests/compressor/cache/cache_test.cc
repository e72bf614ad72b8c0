// The cache's file: round trips, and files that are cut, changed, made up, or of another version.
#include <gtest/gtest.h>

#include "compressor/trace/chunk.h"
#include "tests/compressor/cache/caches.h"
#include "tests/compressor/store/store_file.h"

namespace grape::cache {
namespace {

using store::made_program;
using Bytes = std::vector<std::uint8_t>;

// The notes' types, in the file's numbers.
enum NoteType : std::uint32_t { kEntry = 1, kPadding = 2 };

// What open() says of a file that it must refuse, and it leaves nothing behind.
std::string refusal(const Bytes& file) {
  Cache cache = made_cache(1, 1);
  std::string error;
  EXPECT_FALSE(open(file, cache, error));
  EXPECT_TRUE(cache.environment.empty() && cache.entries.empty() && cache.padding.empty() && cache.places.empty());
  EXPECT_EQ(cache.programs, nullptr);
  return error;
}

TEST(Cache, EveryFieldComesBack) {
  const std::string environment("driver=13000\nname=\xff\0 of bytes\n", 30);
  Builder builder(environment);
  const program::Program first = made_program(1, 12), second = made_program(2, 5);
  const Entry one = made_entry(40, 1'700'000'000);
  Entry other = made_entry(50, ~std::uint64_t{0});
  other.call.region = "";
  ASSERT_TRUE(builder.add(one, first, place_text));
  ASSERT_TRUE(builder.add(other, second, place_text));
  builder.add_padding({{1, 2}, ~0u, {1, 2, 3, 4, 5, 6, 7, 255}, 0xf0, 0x81});
  const Cache cache = builder.take();
  ASSERT_EQ(cache.entries.size(), 2u);
  EXPECT_EQ(cache.entries[0].id, 1u);
  EXPECT_EQ(cache.entries[1].id, 2u);

  Cache read;
  std::string error = "of before";
  ASSERT_TRUE(open(file_of(cache), read, error)) << error;
  EXPECT_EQ(error, "");
  EXPECT_EQ(read.environment, environment);
  ASSERT_EQ(read.entries.size(), 2u);
  const Entry* given[] = {&one, &other};
  for (std::size_t i = 0; i < 2; ++i) {
    Entry expected = *given[i];
    expected.id = i + 1;
    EXPECT_TRUE(equal(read.entries[i], expected)) << i;
  }
  ASSERT_EQ(read.padding.size(), 1u);
  EXPECT_TRUE(equal(read.padding[0], {{1, 2}, ~0u, {1, 2, 3, 4, 5, 6, 7, 255}, 0xf0, 0x81}));
  EXPECT_EQ(read.places, cache.places);
  EXPECT_TRUE(equal(read, cache));
}

TEST(Cache, ProgramsComeBackButForTheNumbersOfFrames) {
  program::Program program = made_program(1, 12);
  Builder builder("");
  ASSERT_TRUE(builder.add(made_entry(1, 1), program, place_text));
  Cache cache;
  std::string error;
  ASSERT_TRUE(open(file_of(builder.take()), cache, error)) << error;
  program::Program read;
  ASSERT_TRUE(cache.programs->get(1, read, error)) << error;
  ASSERT_EQ(read.nodes.size(), program.nodes.size());
  for (std::size_t i = 0; i < read.nodes.size(); ++i) {
    ASSERT_LE(read.nodes[i].frame, cache.places.size());
    const std::string text = read.nodes[i].frame != 0 ? cache.places[read.nodes[i].frame - 1] : "";
    EXPECT_EQ(text, program.nodes[i].frame != 0 ? place_text(program.nodes[i].frame) : "") << i;
    program.nodes[i].frame = read.nodes[i].frame;
  }
  EXPECT_TRUE(store::equal(read, program));
}

TEST(Cache, AnEmptyOneComesBack) {
  Cache read;
  std::string error;
  ASSERT_TRUE(open(file_of(Builder("").take()), read, error)) << error;
  EXPECT_TRUE(equal(read, Builder("").take()));
}

TEST(Cache, NotesOfANewerVersionArePassedOver) {
  store::Store store;
  Bytes file;
  store.save(file, {{0, {'a'}}, {9, {1, 2, 3}}});
  Cache cache;
  std::string error;
  ASSERT_TRUE(open(file, cache, error)) << error;
  EXPECT_EQ(cache.environment, "a");
}

TEST(Cache, AnotherMajorVersionAndOtherFilesAreRefused) {
  Bytes file = file_of(made_cache(1, 2));
  file[8] = 2;
  EXPECT_EQ(refusal(file), "the store has format version 2.1; this reads versions 1.x");
  file[0] = 'x';
  EXPECT_EQ(refusal(file), "this is no store of programs");
  EXPECT_EQ(refusal({}), "this is no store of programs");
}

TEST(Cache, AFileCutAtAnyByteIsRefused) {
  const Bytes file = file_of(made_cache(4, 3));
  for (std::size_t size = 0; size < file.size(); ++size) {
    ASSERT_NE(refusal(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size))), "") << size;
  }
  Bytes longer = file;
  longer.push_back(0);
  EXPECT_NE(refusal(longer), "");
}

TEST(Cache, AFlippedBitIsRefusedOrChangesNothing) {
  const Cache cache = made_cache(2, 2);
  const Bytes file = file_of(cache);
  std::size_t ignored = 0;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    Bytes changed = file;
    changed[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    Cache read;
    std::string error;
    if (!open(changed, read, error)) {
      ASSERT_NE(error, "") << bit;
      continue;
    }
    ASSERT_TRUE(equal(read, cache)) << bit;
    ++ignored;
  }
  // The reserved bytes, and the minor version as long as it stays one that has notes.
  EXPECT_EQ(ignored, 32u + 15u);
}

// Checksums say nothing against whoever makes them.
TEST(Cache, ADamagedNoteIsRefusedWhateverItsChecksum) {
  std::vector<store::Note> notes;
  std::string error;
  const Bytes file = file_of(made_cache(1, 2));
  const auto store = store::Store::open(file, error, {}, &notes);
  ASSERT_NE(store, nullptr) << error;
  std::size_t tried = 0;
  for (store::Note& note : notes) {
    if (note.type != kEntry && note.type != kPadding) continue;
    const Bytes whole = note.bytes;
    const auto refused = [&] {
      Bytes changed;
      store->save(changed, notes);
      ++tried;
      return refusal(changed) == (note.type == kEntry ? "an entry is damaged" : "what it says of padding is damaged");
    };
    for (note.bytes.clear(); note.bytes.size() < whole.size(); note.bytes.push_back(whole[note.bytes.size()])) {
      // Padding may end after a kernel, or after any of its words.
      const bool sound = note.type == kPadding && (note.bytes.size() == 16 || note.bytes.size() == 27);
      if (!sound) {
        ASSERT_TRUE(refused()) << note.type << " cut at " << note.bytes.size();
      }
    }
    note.bytes.push_back(0);
    ASSERT_TRUE(refused()) << note.type << " with a byte more";
    note.bytes = whole;
  }
  EXPECT_GT(tried, 100u);
}

TEST(Cache, AnEntryWithoutProgramIsRefused) {
  Cache cache = made_cache(1, 2);
  cache.entries.push_back(made_entry(8, 1));
  cache.entries.back().id = 77;
  EXPECT_EQ(refusal(file_of(cache)), "an entry has no program");
}

TEST(Cache, TwoEntriesOfOneCallAreRefused) {
  Cache cache = made_cache(3, 2);
  cache.entries[2].call = cache.entries[0].call;
  EXPECT_EQ(refusal(file_of(cache)), "two entries have the same call");
  cache.entries[2].call.code.high ^= 1;
  Cache read;
  std::string error;
  EXPECT_TRUE(open(file_of(cache), read, error)) << error;
}

TEST(Cache, PaddingOutOfOrderOrTwiceIsRefused) {
  const char* const fault = "what it says of padding is out of order";
  Cache cache = made_cache(1, 2);
  ASSERT_EQ(cache.padding.size(), 3u);
  std::swap(cache.padding[0], cache.padding[1]);
  EXPECT_EQ(refusal(file_of(cache)), fault);
  std::swap(cache.padding[0], cache.padding[1]);
  // A kernel whose words stand in two notes, the same word in both.
  std::vector<store::Note> notes;
  std::string error;
  const auto store = store::Store::open(file_of(cache), error, {}, &notes);
  ASSERT_NE(store, nullptr) << error;
  notes.push_back(notes.back());
  ASSERT_EQ(notes.back().type, kPadding);
  Bytes file;
  store->save(file, notes);
  EXPECT_EQ(refusal(file), fault);
}

TEST(Cache, NoHandleIsNobodys) {
  EXPECT_NE(handle_of({0, 5}), 0u);
  EXPECT_EQ(handle_of({4, 0}), handle_of({4, 9}));
  EXPECT_NE(handle_of({4, 0}), handle_of({6, 0}));
}

}  // namespace
}  // namespace grape::cache
