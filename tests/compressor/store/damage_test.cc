// Files that are cut, changed, made up, or of another version.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "compressor/store/difference.h"
#include "compressor/store/parts.h"
#include "compressor/store/record.h"
#include "compressor/store/store.h"
#include "tests/compressor/store/programs.h"
#include "tests/compressor/store/store_file.h"

namespace grape::store {
namespace {

using program::Program;

Program member(std::uint64_t id) { return relative_of(made_program(id % 2, 8), id); }

Bytes small_file(std::uint64_t programs = 24) {
  Options options;
  options.dictionary_after = 10;
  Store store(options);
  std::string error;
  for (std::uint64_t i = 0; i < programs; ++i) EXPECT_TRUE(store.put(i, member(i), error)) << error;
  Bytes file;
  store.save(file);
  return file;
}

// How many programs a file gives; all that it gives are right.
std::size_t sound_programs(const Store& store) {
  std::size_t count = 0;
  Program program;
  std::string error;
  for (const std::uint64_t id : store.ids()) {
    if (!store.get(id, program, error)) continue;
    EXPECT_TRUE(equal(program, member(id))) << id;
    ++count;
  }
  return count;
}

TEST(StoreDamage, AFileCutAtAnyByteGivesWhatComesBefore) {
  const Bytes file = small_file();
  std::size_t most = 0;
  for (std::size_t size = 0; size < file.size(); ++size) {
    std::string error;
    const auto store = Store::open(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)), error);
    ASSERT_NE(error, "") << size;
    if (size < 16) {
      ASSERT_EQ(store, nullptr) << size;
      continue;
    }
    ASSERT_NE(store, nullptr) << size << ": " << error;
    const std::size_t count = sound_programs(*store);
    ASSERT_EQ(count, store->ids().size()) << "a program that is there cannot be read, of a file cut at " << size;
    ASSERT_GE(count, most) << size;
    most = count;
  }
  EXPECT_EQ(most, 24u) << "only the end record was missing";
}

TEST(StoreDamage, AFlippedBitIsSeen) {
  const Bytes file = small_file();
  for (std::size_t at = 0; at < file.size(); ++at) {
    Bytes changed = file;
    changed[at] ^= static_cast<std::uint8_t>(1u << at % 8);
    std::string error;
    const auto store = Store::open(changed, error);
    const bool ignored = at >= 10 && at < 16;  // the minor version and the reserved bytes
    ASSERT_EQ(error.empty(), ignored) << at;
    if (store != nullptr) {
      ASSERT_EQ(sound_programs(*store), store->ids().size()) << at;
    }
  }
}

// Checksums say nothing against whoever makes them: what is behind them must hold by itself.
TEST(StoreDamage, ChangedBytesWithRightChecksumsGiveErrorsOrThePrograms) {
  const Bytes file = small_file();
  std::mt19937 random(1);
  std::size_t unread = 0;
  for (int round = 0; round < 2000; ++round) {
    Bytes changed = file;
    for (int i = 0; i < 1 + round % 3; ++i)
      changed[16 + random() % (file.size() - 16)] = static_cast<std::uint8_t>(random());
    repair_checksums(changed);
    std::string error;
    const auto store = Store::open(changed, error);
    ASSERT_NE(store, nullptr);
    Program program;
    for (const std::uint64_t id : store->ids()) unread += store->get(id, program, error) ? 0 : 1;
    Bytes saved;
    store->save(saved);
  }
  EXPECT_GT(unread, 0u) << "no change got behind the checksums";
}

TEST(StoreDamage, VersionsAreToldApart) {
  Bytes file = small_file();
  std::string error;
  file[10] = 9;  // minor: readable
  auto store = Store::open(file, error);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(error, "");
  EXPECT_EQ(sound_programs(*store), 24u);
  file[8] = 2;  // major
  EXPECT_EQ(Store::open(file, error), nullptr);
  EXPECT_EQ(error, "the store has format version 2.9; this reads versions 1.x");
  file[0] = 'x';
  EXPECT_EQ(Store::open(file, error), nullptr);
  EXPECT_EQ(error, "this is no store of programs");
  EXPECT_EQ(Store::open({}, error), nullptr);
}

// The file was written by version 1.0 (make_store_corpus, "dictionary"), and must stay readable.
TEST(StoreDamage, TheFirstVersionStaysReadable) {
  std::ifstream stream(GRAPE_STORE_DATA "/version-1.0.store", std::ios::binary);
  const Bytes file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::string error;
  const auto store = Store::open(file, error);
  ASSERT_NE(store, nullptr) << error;
  EXPECT_EQ(error, "");
  const std::vector<std::uint64_t> ids = store->ids();
  EXPECT_EQ(ids.size(), 32u);
  Program program;
  for (const std::uint64_t id : ids) {
    const Program relative = relative_of(made_program(id % 100 % 2, 6), id % 100);
    ASSERT_TRUE(store->get(id, program, error)) << id << ": " << error;
    EXPECT_TRUE(equal(program, id < 200 ? relative : with_node_inserted(relative))) << id;
  }
}

TEST(StoreDamage, RecordsOfANewerMinorVersionArePassedOver) {
  Bytes file = small_file();
  Bytes record(16 + 3, 0);
  record[8] = 9;   // type
  record[12] = 3;  // bytes
  file.insert(file.begin() + 16, record.begin(), record.end());
  repair_checksums(file);
  std::string error;
  ASSERT_NE(Store::open(file, error), nullptr);
  EXPECT_EQ(error, "a record of an unknown type, at byte 16");
  file[10] = 2;
  const auto store = Store::open(file, error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(sound_programs(*store), 24u);
}

TEST(StoreDamage, NotesComeBackAndOldFilesHaveNone) {
  Store store;
  std::string error;
  ASSERT_TRUE(store.put(1, made_program(1, 4), error)) << error;
  const std::vector<Note> notes = {{0, {1, 2, 3}}, {7, {}}, {0, Bytes(100'000, 5)}};
  Bytes file;
  store.save(file, notes);
  std::vector<Note> found;
  auto again = Store::open(file, error, {}, &found);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(error, "");
  EXPECT_EQ(again->ids().size(), 1u);
  ASSERT_EQ(found.size(), notes.size());
  for (std::size_t i = 0; i < notes.size(); ++i) {
    EXPECT_EQ(found[i].type, notes[i].type);
    EXPECT_EQ(found[i].bytes, notes[i].bytes);
  }
  ASSERT_NE(Store::open(file, error), nullptr);  // whoever does not ask passes them over
  EXPECT_EQ(error, "");
  // Version 1.0 knew no such records: damage.
  file[10] = 0;
  again = Store::open(file, error, {}, &found);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(error.rfind("a record of an unknown type", 0), 0u) << error;
  EXPECT_EQ(again->ids().size(), 1u);
}

TEST(StoreDamage, ASizeThatIsNotThereIsNotAllocated) {
  Parts parts;
  Image image;
  Bytes huge;
  for (std::size_t i = 0; i < kSections; ++i) trace::put_varint(huge, i == kScalars ? 4 : 1u << 20);
  EXPECT_FALSE(take_image(huge, image));
  EXPECT_EQ(image.words.capacity(), 0u);
  const Image base = to_image(made_program(1, 4), parts);
  Bytes grows;
  for (const std::uint64_t part : {std::uint64_t{1}, std::uint64_t{kWords}, std::uint64_t{1} << 23}) {
    trace::put_varint(grows, part);
  }
  grows.insert(grows.end(), 6, 0);  // no splice, no cells, no streams
  Counts counts{};
  std::vector<std::uint64_t> structure, words;
  EXPECT_FALSE(apply_difference(base, grows, counts, structure, words));
  EXPECT_EQ(words.capacity(), 0u);
}

TEST(StoreDamage, ManyZerosAreStoredAllTheSame) {
  Program small = made_program(1, 30), large = small;
  large.host_data.assign(8u << 20, 0);
  large.words.resize(large.words.size() + 4'000'000, 0);
  Store store;
  std::string error;
  ASSERT_TRUE(store.put(1, small, error)) << error;
  ASSERT_TRUE(store.put(2, large, error)) << error;
  Bytes file;
  store.save(file);
  const auto again = Store::open(file, error);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(error, "");
  Program program;
  ASSERT_TRUE(again->get(2, program, error)) << error;
  EXPECT_TRUE(equal(program, large));
}

}  // namespace
}  // namespace grape::store
