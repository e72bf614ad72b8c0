// Where temps lie: never two at one place at one time, in whatever order the device runs what it may reorder.
#include "compressor/program/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "compressor/program/symbolise.h"
#include "tests/compressor/program/random_programs.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kTop = 0x7f0000000000;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

std::uint64_t sum_of_all(const Program& program) {
  std::uint64_t sum = 0;
  for (const BornBlock& temp : program.temps) sum += rounded(temp.bytes);
  return sum;
}

// Per temp the nodes that use it, from the words alone.
std::vector<std::vector<std::uint32_t>> users_of(const Program& program) {
  std::vector<std::vector<std::uint32_t>> users(program.temps.size());
  for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
    const RecordedNode& node = program.nodes[i];
    for (const Reference& reference : program.references) {
      const bool here = reference.word >= node.words_at && reference.word < node.words_at + node.word_count;
      if (here && reference.role == Role::kTemp) users[reference.block].push_back(i);
    }
  }
  return users;
}

bool overlap(const Program& program, const ArenaPlan& plan, std::size_t a, std::size_t b) {
  return plan.offsets[a] < plan.offsets[b] + program.temps[b].bytes &&
         plan.offsets[b] < plan.offsets[a] + program.temps[a].bytes;
}

// In this order of execution, is any byte of two temps that are in use?
::testing::AssertionResult fits(const Program& program, const ArenaPlan& plan,
                                const std::vector<std::vector<std::uint32_t>>& users,
                                const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> time(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) time[order[i]] = i;
  const auto earlier = [&](std::uint32_t x, std::uint32_t y) { return time[x] < time[y]; };
  for (std::size_t a = 0; a < users.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (users[a].empty() || users[b].empty() || !overlap(program, plan, a, b)) continue;
      const auto [first_a, last_a] = std::minmax_element(users[a].begin(), users[a].end(), earlier);
      const auto [first_b, last_b] = std::minmax_element(users[b].begin(), users[b].end(), earlier);
      if (time[*first_a] <= time[*last_b] && time[*first_b] <= time[*last_a]) {
        return ::testing::AssertionFailure() << "temps " << a << " and " << b << " meet";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// All orders that the edges allow.
template <typename Check>
bool every_order(const Program& program, std::vector<std::uint32_t>& order, std::vector<bool>& done, Check check) {
  if (order.size() == program.nodes.size()) return check(order);
  for (std::uint32_t i = 0; i < program.nodes.size(); ++i) {
    const std::vector<std::uint32_t> after = edges_of(program, i);
    if (done[i] || !std::all_of(after.begin(), after.end(), [&](std::uint32_t each) { return done[each]; })) continue;
    done[i] = true;
    order.push_back(i);
    const bool good = every_order(program, order, done, check);
    order.pop_back();
    done[i] = false;
    if (!good) return false;
  }
  return true;
}

void expect_sound(const Program& program, const ArenaPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), program.temps.size());
  EXPECT_LE(plan.bytes, sum_of_all(program));
  for (std::size_t i = 0; i < plan.offsets.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kArenaAlignment, 0u);
  }
  const auto users = users_of(program);
  for (std::size_t i = 0; i < users.size(); ++i) {
    if (!users[i].empty()) {
      EXPECT_LE(plan.offsets[i] + program.temps[i].bytes, plan.bytes);
    }
  }
  EXPECT_EQ(plan_arena(program).offsets, plan.offsets);
}

TEST(Plan, NoTwoTempsMeetInAnyOrderThatTheEdgesAllow) {
  std::mt19937 random(1);
  std::size_t orders = 0, shared = 0;
  for (int round = 0; round < 2000; ++round) {
    const Program program = random_program(random, 3 + random() % 5, 1 + random() % 3);
    const ArenaPlan plan = plan_arena(program);
    expect_sound(program, plan);
    const auto users = users_of(program);
    std::vector<std::uint32_t> order;
    std::vector<bool> done(program.nodes.size(), false);
    EXPECT_TRUE(every_order(program, order, done, [&](const std::vector<std::uint32_t>& each) {
      ++orders;
      const auto result = fits(program, plan, users, each);
      EXPECT_TRUE(result) << "in round " << round;
      return static_cast<bool>(result);
    }));
    for (std::size_t a = 0; a < users.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        shared += !users[a].empty() && !users[b].empty() && overlap(program, plan, a, b);
      }
    }
  }
  EXPECT_GT(orders, 5000u);  // or there was nothing to check
  EXPECT_GT(shared, 1000u);
}

TEST(Plan, LargeProgramsToo) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    const Program program = random_program(random, 60, 1 + random() % 5);
    const auto nodes = static_cast<std::uint32_t>(program.nodes.size());
    std::vector<std::vector<bool>> comes_after(nodes, std::vector<bool>(nodes, false));
    for (std::uint32_t i = 0; i < nodes; ++i) {
      for (const std::uint32_t before : edges_of(program, i)) {
        comes_after[i][before] = true;
        for (std::uint32_t k = 0; k < nodes; ++k) {
          if (comes_after[before][k]) comes_after[i][k] = true;
        }
      }
    }
    const ArenaPlan plan = plan_arena(program);
    expect_sound(program, plan);
    const auto users = users_of(program);
    const auto all_after = [&](std::size_t later, std::size_t sooner) {
      return std::all_of(users[later].begin(), users[later].end(), [&](std::uint32_t x) {
        return std::all_of(users[sooner].begin(), users[sooner].end(),
                           [&](std::uint32_t y) { return comes_after[x][y]; });
      });
    };
    for (std::size_t a = 0; a < users.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (users[a].empty() || users[b].empty() || !overlap(program, plan, a, b)) continue;
        EXPECT_TRUE(all_after(a, b) || all_after(b, a)) << a << " and " << b << " in round " << round;
        const BornBlock &one = program.temps[a], &other = program.temps[b];
        EXPECT_TRUE(one.died <= other.born || other.died <= one.born);
      }
    }
  }
}

TEST(Plan, TempsOfOneStreamShareWhereOneIsDeadBeforeTheOtherIsBorn) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 2);
  r.alloc(kTop, 1000).launch(kernel, {kTop, 0});
  r.alloc(kTop + 4096, 2000).launch(kernel, {kTop, kTop + 4096});
  r.free(kTop).alloc(kTop + 8192, 900).launch(kernel, {kTop + 4096, kTop + 8192});
  r.free(kTop + 4096).free(kTop + 8192);
  const ArenaPlan plan = plan_arena(symbolise(r.record()));
  EXPECT_EQ(plan.bytes, 1024u + 2048u);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
}

// Two branches after a fork: dead before the other is born, as the host saw it, but the device runs both at once.
TEST(Plan, BranchesShareOnlyOnceTheyAreJoined) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 1);
  r.launch(kernel, {0});                                                                     // 0: the fork
  r.alloc(kTop, 512).launch(kernel, {kTop}).on(1, {0}).free(kTop);                           // 1
  r.alloc(kTop + 4096, 512).launch(kernel, {kTop + 4096}).on(2, {0}).free(kTop + 4096);      // 2
  r.alloc(kTop + 8192, 1024).launch(kernel, {kTop + 8192}).on(1, {1, 2}).free(kTop + 8192);  // 3: the join
  const ArenaPlan plan = plan_arena(symbolise(r.record()));
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.offsets[2], 0u);
  EXPECT_EQ(plan.bytes, 1024u);
}

TEST(Plan, WithoutEdgesNothingIsShared) {
  RecordBuilder r;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const std::uint64_t address = kTop + i * 4096;
    r.alloc(address, 512).launch(plain_kernel(1, 1), {address}).on(i, {}).free(address);
  }
  const Program program = symbolise(r.record());
  EXPECT_EQ(plan_arena(program).bytes, sum_of_all(program));
}

TEST(Plan, ATempThatNoWordRefersToTakesNoRoom) {
  RecordBuilder r;
  r.alloc(kTop, 1 << 30).alloc(kTop + (2ull << 30), 512).launch(plain_kernel(1, 1), {kTop + (2ull << 30)});
  r.free(kTop).free(kTop + (2ull << 30));
  const ArenaPlan plan = plan_arena(symbolise(r.record()));
  EXPECT_EQ(plan.bytes, 512u);
  EXPECT_EQ(plan.offsets, (std::vector<std::uint64_t>{0, 0}));
}

TEST(Plan, GapsAreFilledWithWhatFitsBest) {
  // Four side by side at first; then the second (2 KiB) and the fourth (1 KiB) are free, and 1 KiB is asked for.
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 5);
  const std::uint64_t a = kTop, b = a + 65536, c = b + 65536, d = c + 65536, e = d + 65536, f = e + 65536;
  r.alloc(a, 4096).alloc(b, 2048).alloc(c, 4096).alloc(d, 1024).alloc(e, 4096).launch(kernel, {a, b, c, d, e});
  r.free(b).free(d).alloc(f, 1024).launch(kernel, {a, c, e, f, 0});
  r.free(a).free(c).free(e).free(f);
  const ArenaPlan plan = plan_arena(symbolise(r.record()));
  EXPECT_EQ(plan.bytes, 3 * 4096u + 2048u + 1024u);
}

TEST(Plan, ATempThatNeverDiesSharesWithNone) {
  RecordBuilder r;
  const FunctionInfo kernel = plain_kernel(1, 1);
  r.alloc(kTop, 512).launch(kernel, {kTop}).free(kTop);
  r.alloc(kTop + 4096, 512).launch(kernel, {kTop + 4096}).free(kTop + 4096);
  Program program = symbolise(r.record());
  EXPECT_EQ(plan_arena(program).bytes, 512u);
  program.temps[0].died = kNever;
  EXPECT_EQ(plan_arena(program).bytes, 1024u);
}

TEST(Plan, NoTempsNoArena) {
  RecordBuilder r;
  r.launch(plain_kernel(1, 1), {1});
  EXPECT_EQ(plan_arena(symbolise(r.record())).bytes, 0u);
  EXPECT_EQ(plan_arena(Program()).bytes, 0u);
}

// More chains than anyone keeps numbers for: no sharing then, but still a plan, and soon.
TEST(Plan, ManyNodesWithoutAnyOrderAreStillPlanned) {
  RecordBuilder r;
  for (std::uint64_t i = 0; i < 6000; ++i) {
    if (i % 10 == 0) r.alloc(kTop + i * 4096, 512);
    r.launch(plain_kernel(1, 1), {i % 10 == 0 ? kTop + i * 4096 : 0}).on(i, {});
    if (i % 10 == 0) r.free(kTop + i * 4096);
  }
  const Program program = symbolise(r.record());
  EXPECT_EQ(plan_arena(program).bytes, sum_of_all(program));
}

TEST(Bind, EveryRoleGetsItsAddress) {
  RecordBuilder r;
  r.before(kTop, 512).before(kTop + 512, 512).input(kTop + 512, 512);
  r.alloc(kTop + 4096, 512).alloc(kTop + 8192, 512).alloc(kTop + 12288, 700);
  r.launch(plain_kernel(1, 6), {kTop + 1, kTop + 512 + 2, kTop + 4096 + 3, kTop + 8192 + 4, kTop + 12288 + 5, 6});
  r.free(kTop + 4096).free(kTop + 12288);
  const Program program = symbolise(r.record());
  const ArenaPlan plan = plan_arena(program);
  Bindings bindings;
  bindings.arena = 0x10000;
  bindings.inputs = {0x20000};
  bindings.outputs = {0x30000};
  std::vector<std::uint64_t> words(program.words.size() + 1, 77);
  bind(program, plan, bindings, words.data());
  EXPECT_EQ(words, (std::vector<std::uint64_t>{kTop + 1, 0x20002, 0x10000 + plan.offsets[0] + 3, 0x30004,
                                               0x10000 + plan.offsets[1] + 5, 6, 77}));
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

}  // namespace
}  // namespace grape::program
