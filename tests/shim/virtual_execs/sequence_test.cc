// How graphs are laid out on lanes. Each sequence is followed step by step, as streams and events would do it.
#include "shim/virtual_execs/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {
namespace {

using Set = std::vector<bool>;  // of nodes

void add(Set& to, const Set& other) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] || other[i];
}

Shape shape_of(std::size_t nodes, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges,
               const std::set<std::uint32_t>& empty = {}) {
  Shape shape;
  shape.nodes.resize(nodes);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    shape.nodes[i].type = empty.count(i) != 0 ? CU_GRAPH_NODE_TYPE_EMPTY : CU_GRAPH_NODE_TYPE_KERNEL;
  }
  for (const auto& [from, to] : edges) shape.edges.push_back({from, to, {}});
  return shape;
}

bool works(const Shape& shape, std::size_t node) { return shape.nodes[node].type != CU_GRAPH_NODE_TYPE_EMPTY; }

// By node: those before it. A graph's start stands for a node more, which lies before all.
std::vector<Set> demanded(const Shape& shape) {
  const std::size_t count = shape.nodes.size();
  std::vector<Set> before(count, Set(count + 1));
  for (Set& set : before) set[count] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (const EdgeShape& edge : shape.edges) {
      const Set known = before[edge.to];
      add(before[edge.to], before[edge.from]);
      before[edge.to][edge.from] = true;
      changed = changed || known != before[edge.to];
    }
  }
  return before;
}

// What lies before a node's launch, or before what the stream gets behind the graph.
struct Outcome {
  std::vector<Set> before;
  Set at_end;
  std::vector<std::uint32_t> steps_on;  // by lane, those with a node
};

Outcome follow(const Shape& shape, const Sequence& sequence) {
  const std::size_t count = shape.nodes.size();
  Outcome outcome{std::vector<Set>(count), Set(), std::vector<std::uint32_t>(sequence.lanes)};
  EXPECT_GT(sequence.lanes, 0u) << "it is not to be launched so";
  if (sequence.lanes == 0) return outcome;
  std::vector<Set> lanes(sequence.lanes, Set(count + 1)), events(sequence.events);
  std::vector<int> waited(sequence.events);
  lanes[0][count] = true;
  for (const Step& step : sequence.steps) {
    EXPECT_LT(step.lane, sequence.lanes);
    Set& lane = lanes[step.lane];
    for (std::uint32_t i = 0; i < step.wait_count; ++i) {
      const std::uint32_t event = sequence.waits[step.waits_at + i];
      EXPECT_FALSE(events[event].empty()) << "it has yet to be recorded";
      if (events[event].empty()) return outcome;
      Set without = lane;
      for (std::uint32_t k = 0; k < step.wait_count; ++k) {
        if (k != i) add(without, events[sequence.waits[step.waits_at + k]]);
      }
      const Set known = without;
      add(without, events[event]);
      EXPECT_NE(without, known) << "a wait that changes nothing";
      ++waited[event];
    }
    for (std::uint32_t i = 0; i < step.wait_count; ++i) add(lane, events[sequence.waits[step.waits_at + i]]);
    if (step.node != Step::kNone) {
      EXPECT_TRUE(outcome.before[step.node].empty()) << "it is there twice";
      outcome.before[step.node] = lane;
      lane[step.node] = true;
      ++outcome.steps_on[step.lane];
    }
    if (step.event == Step::kNone) continue;
    EXPECT_TRUE(events[step.event].empty()) << "recorded twice";
    events[step.event] = lane;
  }
  EXPECT_EQ(std::count(waited.begin(), waited.end(), 0), 0) << "an event that nobody waits for";
  outcome.at_end = lanes[0];
  return outcome;
}

// Is all that the graph demands met, of a sequence that there is?
Outcome expect_exact(const Shape& shape, const Sequence& sequence) {
  const std::size_t count = shape.nodes.size();
  const Outcome outcome = follow(shape, sequence);
  const std::vector<Set> before = demanded(shape);
  std::size_t working = 0;
  for (std::size_t node = 0; node < count; ++node) {
    if (!works(shape, node)) continue;
    ++working;
    EXPECT_FALSE(outcome.before[node].empty()) << node << " is left out";
    if (outcome.before[node].empty()) return outcome;
    for (std::size_t other = 0; other <= count; ++other) {
      if (other < count && !works(shape, other)) continue;
      EXPECT_TRUE(!before[node][other] || outcome.before[node][other]) << other << " before " << node;
    }
    EXPECT_TRUE(outcome.at_end[node]) << node << " may come behind the end";
  }
  EXPECT_LE(sequence.lanes, kMostLanes);
  EXPECT_LE(sequence.events, kMostEvents);
  EXPECT_LE(sequence.waits.size() + sequence.events, working);
  return outcome;
}

// Branches of `length` nodes side by side, from one node to another.
Shape fork_of(std::uint32_t branches, std::uint32_t length) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  const std::uint32_t last = branches * length + 1;
  for (std::uint32_t branch = 0; branch < branches; ++branch) {
    const std::uint32_t first = branch * length + 1;
    edges.emplace_back(0, first);
    for (std::uint32_t i = 1; i < length; ++i) edges.emplace_back(first + i - 1, first + i);
    edges.emplace_back(first + length - 1, last);
  }
  return shape_of(last + 1, edges);
}

TEST(Sequence, AChainHasOneLaneAndNoEvents) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    // In any order, with edges that say nothing new, and with empty nodes beside.
    const std::uint32_t count = 1 + random() % 40;
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    for (std::uint32_t i = 1; i < count; ++i) {
      edges.emplace_back(order[i - 1], order[i]);
      if (i > 2 && random() % 2 == 0) edges.emplace_back(order[random() % (i - 1)], order[i]);
    }
    std::set<std::uint32_t> empty;
    std::uint32_t nodes = count;
    for (std::uint32_t i = 0; i < count / 3; ++i, ++nodes) {
      const std::uint32_t from = random() % count;
      empty.insert(nodes);
      if (random() % 4 != 0) edges.emplace_back(order[from], nodes);
      if (random() % 2 == 0) edges.emplace_back(order[from / 2], nodes);
      for (std::uint32_t to = from + 1; to < count; ++to) {
        if (random() % 3 == 0) edges.emplace_back(nodes, order[to]);
      }
    }
    const Shape shape = shape_of(nodes, edges, empty);
    const Sequence sequence = sequence_of(shape);
    EXPECT_EQ(sequence.lanes, 1u);
    EXPECT_EQ(sequence.events, 0u);
    EXPECT_EQ(sequence.steps.size(), count);
    expect_exact(shape, sequence);
  }
}

TEST(Sequence, BranchesGetLanesOfTheirOwn) {
  for (std::uint32_t branches = 2; branches <= kMostLanes; ++branches) {
    const Shape shape = fork_of(branches, 4);
    const Sequence sequence = sequence_of(shape);
    const Outcome outcome = expect_exact(shape, sequence);
    ASSERT_EQ(sequence.lanes, branches);
    // One for the fork, and one at each end but that of the lane which goes on.
    EXPECT_EQ(sequence.events, branches);
    EXPECT_EQ(sequence.waits.size(), 2 * (branches - 1));
    for (std::uint32_t lane = 1; lane < branches; ++lane) EXPECT_EQ(outcome.steps_on[lane], 4u);
    for (std::uint32_t a = 0; a < branches; ++a) {
      for (std::uint32_t b = 0; b < branches; ++b) {
        for (std::uint32_t i = 0; a != b && i < 4; ++i) EXPECT_FALSE(outcome.before[1 + a * 4 + i][4 + b * 4]);
      }
    }
  }
}

// So that each of them begins early.
TEST(Sequence, BranchesAreLaunchedInTurn) {
  const Sequence sequence = sequence_of(fork_of(8, 5));
  ASSERT_EQ(sequence.lanes, 8u);
  std::vector<std::uint32_t> on(8);
  for (std::size_t i = 1; i + 1 < sequence.steps.size(); ++i) {
    const std::uint32_t lane = sequence.steps[i].lane;
    ++on[lane];
    EXPECT_LE(*std::max_element(on.begin(), on.end()), *std::min_element(on.begin(), on.end()) + 1);
  }
}

TEST(Sequence, MoreBranchesThanLanesShareThemEvenly) {
  const Shape shape = fork_of(40, 4);
  const Sequence sequence = sequence_of(shape);
  const Outcome outcome = expect_exact(shape, sequence);
  EXPECT_EQ(sequence.lanes, kMostLanes);
  EXPECT_EQ(sequence.events, kMostLanes);
  for (const std::uint32_t steps : outcome.steps_on) EXPECT_LE(steps, 3 * 4 + 2u);
}

TEST(Sequence, LanesAreUsedAgainBehindAJoin) {
  // Forks one behind the other.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  std::uint32_t last = 0;
  for (int fork = 0; fork < 10; ++fork) {
    for (std::uint32_t branch = 0; branch < 3; ++branch) {
      const std::uint32_t first = last + 1 + branch * 3;
      edges.insert(edges.end(), {{last, first}, {first, first + 1}, {first + 1, first + 2}, {first + 2, last + 10}});
    }
    last += 10;
  }
  const Shape shape = shape_of(last + 1, edges);
  const Sequence sequence = sequence_of(shape);
  expect_exact(shape, sequence);
  EXPECT_EQ(sequence.lanes, 3u);
}

// Also where another lane could be had.
TEST(Sequence, ANodeGoesOnBehindOneThatItDependsOn) {
  // Three branches; two of them meet, and what follows there comes before the end of the third one, too.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges{{3, 9}, {6, 9}, {9, 10}, {9, 14}, {13, 14}};
  for (const std::uint32_t first : {1u, 4u, 11u}) {
    edges.insert(edges.end(), {{0, first}, {first, first + 1}, {first + 1, first + 2}});
  }
  edges.insert(edges.end(), {{14, 15}, {10, 7}, {7, 8}, {15, 16}, {8, 16}});
  const Shape shape = shape_of(17, edges);
  const Sequence sequence = sequence_of(shape);
  expect_exact(shape, sequence);
  std::vector<std::uint32_t> lane(17);
  for (const Step& step : sequence.steps) {
    if (step.node != Step::kNone) lane[step.node] = step.lane;
  }
  EXPECT_EQ(lane[14], lane[13]);
  EXPECT_EQ(sequence.waits.size(), 2u + 1 + 1 + 1);
}

// Several that depend on the same several: through an empty node they need fewer events.
TEST(Sequence, EmptyNodesJoinAndFork) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  const std::uint32_t width = 6, length = 6, empty = 2 * width * length;
  for (std::uint32_t branch = 0; branch < 2 * width; ++branch) {
    for (std::uint32_t i = 1; i < length; ++i) edges.emplace_back(branch * length + i - 1, branch * length + i);
    if (branch < width) edges.emplace_back(branch * length + length - 1, empty);
    if (branch >= width) edges.emplace_back(empty, branch * length);
  }
  const Shape shape = shape_of(empty + 1, edges, {empty});
  const Sequence sequence = sequence_of(shape);
  expect_exact(shape, sequence);
  EXPECT_EQ(sequence.lanes, width);
  EXPECT_EQ(sequence.waits.size(), 4 * (width - 1));
}

TEST(Sequence, NoneWhereEventsAreMoreThanWork) {
  EXPECT_EQ(sequence_of(fork_of(16, 1)).lanes, 0u);
  EXPECT_NE(sequence_of(fork_of(16, 3)).lanes, 0u);
  // Two rows in which each depends on all of the other one.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (std::uint32_t from = 0; from < 10; ++from) {
    for (std::uint32_t to = 10; to < 20; ++to) edges.emplace_back(from, to);
  }
  EXPECT_EQ(sequence_of(shape_of(20, edges)).lanes, 0u);
}

TEST(Sequence, NoneWithTooManyEvents) {
  for (const std::uint32_t forks : {100u, 200u}) {
    // Two events each: at the fork, and at the end of the second branch.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    std::uint32_t last = 0;
    for (std::uint32_t fork = 0; fork < forks; ++fork, last += 7) {
      for (const std::uint32_t first : {last + 1, last + 4}) {
        edges.insert(edges.end(), {{last, first}, {first, first + 1}, {first + 1, first + 2}, {first + 2, last + 7}});
      }
    }
    const Sequence sequence = sequence_of(shape_of(last + 1, edges));
    EXPECT_EQ(sequence.lanes, forks == 100 ? 2u : 0u);
    if (forks == 100) {
      EXPECT_EQ(sequence.events, 200u);
    }
  }
}

TEST(Sequence, WithoutNodesOrWork) {
  EXPECT_EQ(sequence_of(shape_of(0, {})).lanes, 1u);
  const Sequence sequence = sequence_of(shape_of(4, {{0, 2}, {1, 2}, {1, 3}}, {0, 1, 2, 3}));
  EXPECT_EQ(sequence.lanes, 1u);
  EXPECT_TRUE(sequence.steps.empty());
  EXPECT_EQ(sequence_of(shape_of(3, {{0, 1}, {1, 2}, {2, 1}})).lanes, 0u) << "a circle";
}

// Chains with edges between them.
TEST(Sequence, AtRandom) {
  int laid_out = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t chains = 1 + random() % 24, length = 1 + random() % 12, count = chains * length;
    std::vector<std::uint32_t> name(count);
    std::iota(name.begin(), name.end(), 0);
    std::shuffle(name.begin(), name.end(), random);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    std::set<std::uint32_t> empty;
    for (std::uint32_t at = 0; at < count; ++at) {
      // One step of all chains after the other: an edge leads to a later one.
      if (at >= chains && random() % 8 != 0) edges.emplace_back(name[at - chains], name[at]);
      if (at >= chains && random() % 10 == 0) edges.emplace_back(name[random() % (at - chains + 1)], name[at]);
      if (random() % 12 == 0) empty.insert(name[at]);
    }
    const Shape shape = shape_of(count, edges, empty);
    const Sequence sequence = sequence_of(shape);
    if (sequence.lanes == 0) continue;
    ++laid_out;
    expect_exact(shape, sequence);
    ASSERT_FALSE(HasFailure()) << seed;
  }
  EXPECT_GT(laid_out, 150);
}

}  // namespace
}  // namespace grape::virtual_execs
