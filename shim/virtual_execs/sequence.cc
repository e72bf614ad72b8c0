#include "shim/virtual_execs/sequence.h"

#include <algorithm>
#include <array>
#include <functional>

#include "shim/virtual_execs/shape.h"

namespace grape::virtual_execs {
namespace {

// By lane, how many of its steps certainly lie before something.
using Clock = std::array<std::uint32_t, kMostLanes>;

void join(Clock& clock, const Clock& other) noexcept {
  for (std::uint32_t lane = 0; lane < kMostLanes; ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

// Are there few enough events and waits for so many nodes?
bool is_worth_it(const Sequence& sequence, std::size_t working) noexcept {
  return sequence.waits.size() + sequence.events <= working && sequence.events <= kMostEvents;
}

// Nodes with what depends on them, in one array.
class Followers {
 public:
  explicit Followers(const Shape& shape) : first_(shape.nodes.size() + 1), next_(shape.edges.size()) {
    for (const EdgeShape& edge : shape.edges) ++first_[edge.from + 1];
    for (std::size_t i = 0; i + 1 < first_.size(); ++i) first_[i + 1] += first_[i];
    std::vector<std::uint32_t> filled = first_;
    for (const EdgeShape& edge : shape.edges) next_[filled[edge.from]++] = edge.to;
  }
  const std::uint32_t* begin(std::uint32_t node) const noexcept { return next_.data() + first_[node]; }
  const std::uint32_t* end(std::uint32_t node) const noexcept { return next_.data() + first_[node + 1]; }

 private:
  std::vector<std::uint32_t> first_, next_;
};

// Each behind those that it depends on, and one branch to its end before the next one: so that a lane gets whole ones.
// Less than all: there is a circle.
std::vector<std::uint32_t> in_topological_order(const Shape& shape, const Followers& followers) {
  std::vector<std::uint32_t> missing(shape.nodes.size()), order, ready;
  for (const EdgeShape& edge : shape.edges) ++missing[edge.to];
  for (auto i = static_cast<std::uint32_t>(missing.size()); i-- > 0;) {
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const std::uint32_t* next = followers.end(node); next != followers.begin(node);) {
      if (--missing[*--next] == 0) ready.push_back(*next);
    }
  }
  return order;
}

// Puts steps onto lanes, one after the other. Sets of steps are in descending order, and none of them lies before
// another one: so they are one for each lane at most.
class Planner {
 public:
  using ProgramRun = std::vector<std::uint32_t>;

  // Before all others a step for what the application's stream had before.
  Planner() { put(Step::kNone, {}, 0); }

  // Of them those that do not lie before others of them.
  ProgramRun last_of(ProgramRun steps) const {
    std::sort(steps.begin(), steps.end(), std::greater<>());
    ProgramRun last;
    Clock before{};
    for (const std::uint32_t step : steps) {
      if (is_in(before, step)) continue;
      last.push_back(step);
      join(before, clocks_[step]);
    }
    return last;
  }

  // Behind `after`, which may be nothing but the start.
  std::uint32_t add(std::uint32_t node, const ProgramRun& after) { return put(node, after, lane_for(after)); }

  // All lanes lead back to the first one.
  Sequence end() {
    ProgramRun ends;
    for (std::uint32_t lane = 0; lane < sequence_.lanes; ++lane) ends.push_back(lanes_[lane].last);
    const std::uint32_t start = 0, end = put(Step::kNone, last_of(std::move(ends)), 0);
    // Branches that lie side by side in turn, so that the device gets something of each early.
    ProgramRun order;
    for (std::uint32_t step = 0; step <= end; ++step) {
      const Step& added = sequence_.steps[step];
      const bool idle = (step == start && added.event == Step::kNone) || (step == end && added.wait_count == 0);
      if (!idle) order.push_back(step);
    }
    std::stable_sort(order.begin(), order.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return depths_[a] < depths_[b]; });
    std::vector<Step> steps;
    for (const std::uint32_t step : order) steps.push_back(sequence_.steps[step]);
    sequence_.steps = std::move(steps);
    return std::move(sequence_);
  }

  const Sequence& sequence() const noexcept { return sequence_; }

 private:
  struct Lane {
    std::uint32_t steps = 0, last = 0;
    std::uint32_t depth = 0;  // of the last one, if all steps took equally long
  };

  bool is_in(const Clock& clock, std::uint32_t step) const noexcept {
    const std::uint32_t lane = sequence_.steps[step].lane;
    return clock[lane] >= clocks_[step][lane];
  }

  std::uint32_t lane_for(const ProgramRun& after) const {
    Clock before{};
    std::uint32_t lane = kMostLanes;
    for (const std::uint32_t step : after) {
      const std::uint32_t of = sequence_.steps[step].lane;
      if (lanes_[of].last == step) lane = std::min(lane, of);
      join(before, clocks_[step]);
    }
    if (lane < kMostLanes) return lane;
    // Where nothing comes behind what it need not wait for: on lanes that others have left, or on a new one.
    for (lane = 0; lane < kMostLanes; ++lane) {
      if (lanes_[lane].steps <= before[lane]) return lane;
    }
    const auto shallower = [](const Lane& a, const Lane& b) { return a.depth < b.depth; };
    return static_cast<std::uint32_t>(std::min_element(lanes_.begin(), lanes_.end(), shallower) - lanes_.begin());
  }

  std::uint32_t event_of(std::uint32_t step) {
    std::uint32_t& event = sequence_.steps[step].event;
    if (event == Step::kNone) event = sequence_.events++;
    return event;
  }

  std::uint32_t put(std::uint32_t node, const ProgramRun& after, std::uint32_t lane_number) {
    Lane& lane = lanes_[lane_number];
    Step step;
    step.node = node;
    step.lane = lane_number;
    step.waits_at = static_cast<std::uint32_t>(sequence_.waits.size());
    Clock clock = lane.steps != 0 ? clocks_[lane.last] : Clock{};
    std::uint32_t depth = lane.depth;
    for (const std::uint32_t other : after) {
      depth = std::max(depth, depths_[other]);
      if (is_in(clock, other)) continue;
      sequence_.waits.push_back(event_of(other));
      ++step.wait_count;
      join(clock, clocks_[other]);
    }
    const auto number = static_cast<std::uint32_t>(sequence_.steps.size());
    clock[lane_number] = ++lane.steps;
    lane.last = number;
    lane.depth = depth + 1;
    sequence_.steps.push_back(step);
    sequence_.lanes = std::max(sequence_.lanes, lane_number + 1);
    clocks_.push_back(clock);
    depths_.push_back(lane.depth);
    return number;
  }

  Sequence sequence_;
  std::array<Lane, kMostLanes> lanes_{};
  std::vector<Clock> clocks_;          // by step: what certainly lies before its end, with itself
  std::vector<std::uint32_t> depths_;  // by step
};

}  // namespace

Sequence sequence_of(const Shape& shape) {
  const Followers followers(shape);
  const std::vector<std::uint32_t> order = in_topological_order(shape, followers);
  if (order.size() != shape.nodes.size()) return {};
  const auto working = static_cast<std::size_t>(std::count_if(shape.nodes.begin(), shape.nodes.end(), does_work));
  Planner planner;
  std::vector<Planner::ProgramRun> before(order.size());  // by node: the ends of those that it depends on
  for (const std::uint32_t node : order) {
    Planner::ProgramRun ends = planner.last_of(std::move(before[node]));
    if (ends.empty()) ends.push_back(0);
    const auto count = followers.end(node) - followers.begin(node);
    // An empty node is what it depends on; but several that wait for several wait for one step instead.
    if (does_work(shape.nodes[node]) || (ends.size() > 1 && count > 1)) ends = {planner.add(node, ends)};
    for (const std::uint32_t* next = followers.begin(node); next != followers.end(node); ++next) {
      before[*next].insert(before[*next].end(), ends.begin(), ends.end());
    }
    if (!is_worth_it(planner.sequence(), working)) return {};
  }
  Sequence sequence = planner.end();
  return is_worth_it(sequence, working) ? sequence : Sequence{};
}

}  // namespace grape::virtual_execs
