// Temps in memory of inputs and outputs: never while that is in use, in whatever order the device runs what it may.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "compressor/program/plan.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/random_programs.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kTop = 0x7f0000000000, kApart = 16384;

// Where a block lies, and which nodes use it. `from_begin`: an input; `to_end`: an output.
struct Place {
  std::uint64_t begin, end;
  bool lent, from_begin, to_end;
  std::vector<std::uint32_t> users;
};

std::vector<std::uint32_t> users_of(const Program& program, Role role, std::uint32_t block) {
  std::vector<std::uint32_t> users;
  for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
    const RecordedNode& node = program.nodes[i];
    for (const Reference& reference : program.references) {
      const bool here = reference.word >= node.words_at && reference.word < node.words_at + node.word_count;
      if (here && reference.role == role && reference.block == block) users.push_back(i);
    }
  }
  return users;
}

std::vector<Place> places_of(const Program& program, const LentMemory& lent, const ArenaPlan& plan) {
  std::vector<Place> places;
  for (std::uint32_t i = 0; i < program.temps.size(); ++i) {
    const std::uint64_t begin = plan.offsets[i];
    places.push_back(
        {begin, begin + program.temps[i].bytes, plan.in_lent(i), false, false, users_of(program, Role::kTemp, i)});
  }
  for (const LentMemory::Block& block : lent.blocks) {
    const bool input = block.role == Role::kInput;
    const std::uint64_t bytes = input ? program.input_bytes[block.block] : program.outputs[block.block].bytes;
    places.push_back({block.at, block.at + bytes, true, input, !input, users_of(program, block.role, block.block)});
  }
  return places;
}

// In this order of execution, is any byte of two blocks that are in use?
::testing::AssertionResult fits(const std::vector<Place>& places, const std::vector<std::uint32_t>& order) {
  std::vector<int> time(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) time[order[i]] = static_cast<int>(i);
  const auto begin = [&](const Place& place) {
    int first = place.from_begin ? -1 : static_cast<int>(order.size());
    for (const std::uint32_t user : place.users) first = std::min(first, time[user]);
    return first;
  };
  const auto end = [&](const Place& place) {
    int last = place.to_end ? static_cast<int>(order.size()) : -1;
    for (const std::uint32_t user : place.users) last = std::max(last, time[user]);
    return last;
  };
  for (std::size_t a = 0; a < places.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Place &one = places[a], &other = places[b];
      const bool used = (!one.users.empty() || one.to_end) && (!other.users.empty() || other.to_end);
      if (!used || one.lent != other.lent || one.begin >= other.end || other.begin >= one.end) continue;
      if (begin(one) <= end(other) && begin(other) <= end(one))
        return ::testing::AssertionFailure() << "blocks " << a << " and " << b << " meet";
    }
  }
  return ::testing::AssertionSuccess();
}

// One of the orders that the edges allow.
std::vector<std::uint32_t> some_order(const Program& program, std::mt19937& random) {
  std::vector<std::uint32_t> order;
  std::vector<bool> done(program.nodes.size(), false);
  while (order.size() < program.nodes.size()) {
    const auto node = static_cast<std::uint32_t>(random() % program.nodes.size());
    const std::vector<std::uint32_t> after = edges_of(program, node);
    if (done[node] || !std::all_of(after.begin(), after.end(), [&](std::uint32_t each) { return done[each]; }))
      continue;
    done[node] = true;
    order.push_back(node);
  }
  return order;
}

// Some of its inputs, or outputs, side by side; at times with room in between that is not lent.
LentMemory lent_of(const Program& program, Role role, std::mt19937& random) {
  LentMemory lent;
  std::uint64_t at = 0;
  const std::size_t count = role == Role::kInput ? program.input_bytes.size() : program.outputs.size();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = role == Role::kInput ? program.input_bytes[i] : program.outputs[i].bytes;
    if (random() % 4 != 0) lent.blocks.push_back({role, i, at});
    at += aligned(bytes);
  }
  std::shuffle(lent.blocks.begin(), lent.blocks.end(), random);
  return lent;
}

// The places between lent blocks are somebody else's.
void expect_within(const std::vector<Place>& places, const LentMemory& lent, const Program& program) {
  for (std::size_t i = 0; i < program.temps.size(); ++i) {
    if (!places[i].lent || places[i].users.empty()) continue;
    std::uint64_t covered = 0;
    for (std::size_t k = 0; k < lent.blocks.size(); ++k) {
      const Place& block = places[program.temps.size() + k];
      const std::uint64_t begin = std::max(block.begin, places[i].begin);
      const std::uint64_t end = std::min(aligned(block.end), places[i].end);
      covered += end > begin ? end - begin : 0;
    }
    EXPECT_EQ(covered, places[i].end - places[i].begin);
  }
}

TEST(LentMemory, NoTempMeetsABlockThatIsInUseInAnyOrderThatTheEdgesAllow) {
  std::mt19937 random(1);
  std::size_t lent_temps = 0, larger_than_one = 0;
  for (int round = 0; round < 4000; ++round) {
    const Program program = random_program(random, 3 + random() % 12, 1 + random() % 3, {6, true});
    const LentMemory lent = lent_of(program, round % 2 == 0 ? Role::kInput : Role::kOutput, random);
    const ArenaPlan plan = plan_arena(program, lent);
    const std::vector<Place> places = places_of(program, lent, plan);
    expect_within(places, lent, program);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(fits(places, some_order(program, random))) << "in round " << round;
    EXPECT_LE(plan.bytes, plan_arena(program).bytes * 2);
    EXPECT_EQ(plan.offsets, plan_arena(program, lent).offsets);
    for (std::size_t i = 0; i < program.temps.size(); ++i) {
      if (!places[i].lent || places[i].users.empty()) continue;
      ++lent_temps;
      larger_than_one += std::none_of(
          places.begin() + static_cast<std::ptrdiff_t>(program.temps.size()), places.end(),
          [&](const Place& block) { return block.begin <= places[i].begin && places[i].end <= aligned(block.end); });
    }
  }
  EXPECT_GT(lent_temps, 2000u);  // or there was nothing to check
  EXPECT_GT(larger_than_one, 100u);
}

std::uint32_t part_of(const ArenaPlan& plan, std::uint32_t node) {
  return static_cast<std::uint32_t>(
      std::count_if(plan.cuts.begin(), plan.cuts.end(), [node](std::uint32_t cut) { return cut <= node; }));
}

// The nodes of a part come behind those of the part before it.
std::vector<std::uint32_t> some_order_of_parts(const Program& program, const ArenaPlan& plan, std::mt19937& random) {
  std::vector<std::uint32_t> order = some_order(program, random);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return part_of(plan, a) < part_of(plan, b); });
  return order;
}

// In these parts the place's memory is there.
void expect_there(const Place& place, const ArenaPlan& plan, const Parts& parts) {
  const std::uint32_t piece = piece_of(place.begin);
  const auto [first, last] = std::minmax_element(place.users.begin(), place.users.end());
  if (piece < kMostPieces) {
    EXPECT_LE(part_of(plan, *last), parts.pieces[piece]);
    return;
  }
  const Parts::Room& room = parts.rooms[piece - kMostPieces];
  EXPECT_GE(part_of(plan, *first), room.first);
  EXPECT_LE(part_of(plan, *last), room.last);
  EXPECT_LE(offset_in_piece(place.end), room.bytes);
}

TEST(LentMemory, PartsUsePiecesRoomsAndOutputsWhileTheyAreThere) {
  std::mt19937 random(2);
  std::size_t cuts = 0, late_outputs = 0, rooms = 0;
  for (int round = 0; round < 2000; ++round) {
    const Program program = random_program(random, 3 + random() % 12, 1 + random() % 3, {6, true});
    LentMemory lent = lent_of(program, Role::kInput, random);
    for (LentMemory::Block& block : lent.blocks) block.at = place_in(random() % 3, block.at);
    Parts parts;
    const std::uint64_t most = random() % 4 * 512;
    const ArenaPlan plan = plan_parts(program, lent, most, parts);
    ASSERT_EQ(parts.outputs.size(), program.outputs.size());
    EXPECT_TRUE(std::is_sorted(plan.cuts.begin(), plan.cuts.end()));
    for (const std::uint32_t cut : plan.cuts) EXPECT_TRUE(cut != 0 && cut < program.nodes.size());
    for (std::uint32_t i = 0; i < program.outputs.size(); ++i) {
      late_outputs += parts.outputs[i] != 0;
      for (const std::uint32_t user : users_of(program, Role::kOutput, i))
        EXPECT_GE(part_of(plan, user), parts.outputs[i]);
    }
    const std::vector<Place> places = places_of(program, lent, plan);
    for (const Place& place : places) {
      if (place.lent && !place.users.empty()) expect_there(place, plan, parts);
    }
    for (int i = 0; i < 10; ++i)
      EXPECT_TRUE(fits(places, some_order_of_parts(program, plan, random))) << "in round " << round;
    cuts += plan.cuts.size();
    rooms += parts.rooms.size();
  }
  EXPECT_GT(cuts, 600u);  // or there was nothing to check
  EXPECT_GT(late_outputs, 200u);
  EXPECT_GT(rooms, 200u);
}

TEST(LentMemory, ATempKeepsNoPieceLonger) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 2);
  r.before(kTop, 1024).input(kTop, 1024);
  r.launch(kernel, {kTop, 0});
  for (const std::uint64_t at : {kTop + kApart, kTop + 2 * kApart}) r.alloc(at, 1024).launch(kernel, {at, 0}).free(at);
  const Program program = symbolise(r.record());
  const LentMemory lent = {{{Role::kInput, 0, 0}}};
  EXPECT_TRUE(plan_arena(program, lent).in_lent(0));
  Parts parts;
  ArenaPlan plan = plan_parts(program, lent, 1024, parts);
  EXPECT_EQ(plan.cuts, std::vector<std::uint32_t>{1});
  EXPECT_FALSE(plan.in_lent(0));
  EXPECT_EQ(plan.bytes, 1024u);
  EXPECT_TRUE(parts.rooms.empty());
  parts = {};
  plan = plan_parts(program, lent, 512, parts);  // the arena may not have as much
  EXPECT_EQ(plan.bytes, 0u);
  ASSERT_EQ(parts.rooms.size(), 1u);
  EXPECT_EQ(plan.offsets[0], place_in(kMostPieces, 0));
  EXPECT_EQ(parts.rooms[0].first, 1u);
  EXPECT_EQ(parts.rooms[0].bytes, 1024u);
}

TEST(LentMemory, ATempLiesInInputsThatAreReadNoMore) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 2);
  for (const std::uint64_t input : {kTop, kTop + kApart}) r.before(input, 1024).input(input, 1024);
  r.launch(kernel, {kTop, kTop + kApart});
  r.alloc(kTop + 2 * kApart, 2048).launch(kernel, {kTop + 2 * kApart, 0}).free(kTop + 2 * kApart);
  const Program program = symbolise(r.record());
  const LentMemory lent = {{{Role::kInput, 0, 0}, {Role::kInput, 1, 1024}}};
  const ArenaPlan plan = plan_arena(program, lent);
  EXPECT_TRUE(plan.in_lent(0));
  EXPECT_EQ(plan.offsets[0], 0u);
  EXPECT_EQ(plan.bytes, 0u);
  Bindings bindings;
  bindings.arena = 0x10000;
  bindings.lent = {0x20000};
  bindings.inputs = {0x20000, 0x20400};
  std::vector<std::uint64_t> words(program.words.size());
  bind(program, plan, bindings, words.data());
  EXPECT_EQ(words, (std::vector<std::uint64_t>{0x20000, 0x20400, 0x20000, 0}));
}

TEST(LentMemory, ATempLiesInAnOutputThatIsNotWrittenYet) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 2);
  r.alloc(kTop, 512).launch(kernel, {kTop, 0}).free(kTop);
  r.alloc(kTop + kApart, 512).launch(kernel, {kTop + kApart, 0});
  r.alloc(kTop + 2 * kApart, 512).launch(kernel, {kTop + kApart, kTop + 2 * kApart}).free(kTop + 2 * kApart);
  const Program program = symbolise(r.record());
  const ArenaPlan plan = plan_arena(program, {{{Role::kOutput, 0, 0}}});
  EXPECT_TRUE(plan.in_lent(0));
  EXPECT_FALSE(plan.in_lent(1));
  EXPECT_EQ(plan.bytes, 512u);
}

}  // namespace
}  // namespace grape::program
