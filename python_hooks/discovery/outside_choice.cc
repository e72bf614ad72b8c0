#include "python_hooks/discovery/outside_choice.h"

#include <algorithm>

#include "python_hooks/replay/look_limits.h"

namespace grape::python::discovery {
namespace {

bool holds_nearly_all(std::uint64_t part, std::uint64_t whole) { return part * 10 > whole * 9; }
bool is_worth_naming(std::uint64_t part, std::uint64_t whole) {
  return part >= replay::g_look_limits.least_weight && part * replay::g_look_limits.least_share >= whole;
}

class Chooser {
 public:
  Chooser(const std::vector<CalledCode>& codes, const std::vector<CallNode>& nodes)
      : nodes_(nodes), codes_(codes.begin(), codes.end()) {
    count();
  }

  std::vector<Choice> choices(bool callers_known) {
    for (Code& code : codes_) {
      const bool main_loop = callers_known ? code.calls_modules : holds_nearly_all(code.held, all_);
      code.eligible = code.candidate && !main_loop;
    }
    pick();
    if (!callers_known) {
      add_main_loop();
      pick();
    }
    std::vector<Choice> chosen;
    for (std::uint32_t i = 0; i < codes_.size(); ++i) {
      if (!is_worth_naming(codes_[i].picked, all_)) continue;
      chosen.push_back({i, static_cast<double>(codes_[i].picked) / static_cast<double>(all_)});
    }
    const auto more = [](const Choice& a, const Choice& b) { return a.share > b.share; };
    std::stable_sort(chosen.begin(), chosen.end(), more);
    if (chosen.size() > replay::g_look_limits.most_chosen) chosen.resize(replay::g_look_limits.most_chosen);
    return chosen;
  }

 private:
  struct Code : CalledCode {
    explicit Code(const CalledCode& code) : CalledCode(code) {}
    bool eligible = false;
    bool beside_chosen = false;   // calls what is chosen, or is called by it
    bool several = false;         // does more than to call one function, or to launch one kernel
    std::uint64_t held = 0;       // launches in it and in what it calls
    std::uint64_t picked = 0;     // of them, in no eligible function farther out
    std::uint64_t innermost = 0;  // of them, with no other function farther in that may be the main loop
    std::size_t counted = 0;      // the last stack that it was met in
  };

  // Calls `visit(codes, weight)` for each stack: its functions, the outermost first.
  template <typename Visit>
  void each_stack(Visit visit) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].weight == 0) continue;
      stack_.clear();
      for (std::size_t at = i; at != 0; at = nodes_[at].parent) stack_.push_back(&codes_[nodes_[at].code]);
      std::reverse(stack_.begin(), stack_.end());
      visit(stack_, nodes_[i].weight);
    }
  }

  void count() {
    std::size_t stacks = 0;
    each_stack([&](const std::vector<Code*>& stack, std::uint64_t weight) {
      all_ += weight;
      ++stacks;
      bool trains = false;
      for (auto at = stack.rbegin(); at != stack.rend(); ++at) {
        Code& code = **at;
        trains = trains || code.training;
        if (trains) code.candidate = false;
        if (code.counted != stacks) code.held += weight;  // once, also where it calls itself
        code.counted = stacks;
      }
    });
  }

  void pick() {
    for (Code& code : codes_) code.picked = 0;
    each_stack([](const std::vector<Code*>& stack, std::uint64_t weight) {
      const auto found = std::find_if(stack.begin(), stack.end(), [](const Code* code) { return code->eligible; });
      if (found != stack.end()) (*found)->picked += weight;
    });
  }

  void add_main_loop() {
    each_stack([&](const std::vector<Code*>& stack, std::uint64_t) {
      const auto chosen = [&](const Code* code) { return is_worth_naming(code->picked, all_); };
      if (std::none_of(stack.begin(), stack.end(), chosen)) return;
      for (Code* code : stack) code->beside_chosen = true;
    });
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      if (nodes_[i].several) codes_[nodes_[i].code].several = true;
    }
    // Else what has one line that matters: a loop, or what all launches go through.
    if (!add_innermost(true)) add_innermost(false);
  }

  // False: there is none.
  bool add_innermost(bool several) {
    each_stack([&](const std::vector<Code*>& stack, std::uint64_t weight) {
      const auto found = std::find_if(stack.rbegin(), stack.rend(), [&](const Code* code) {
        const bool may_be_main_loop = code->candidate && !code->beside_chosen && holds_nearly_all(code->held, all_);
        return may_be_main_loop && code->several == several;
      });
      if (found != stack.rend()) (*found)->innermost += weight;
    });
    const auto less = [](const Code& a, const Code& b) { return a.innermost < b.innermost; };
    const auto most = std::max_element(codes_.begin(), codes_.end(), less);
    if (most == codes_.end() || most->innermost == 0) return false;
    most->eligible = true;
    return true;
  }

  const std::vector<CallNode>& nodes_;
  std::vector<Code> codes_;
  std::vector<Code*> stack_;
  std::uint64_t all_ = 0;
};

}  // namespace

std::vector<Choice> choose(const std::vector<CalledCode>& codes, const std::vector<CallNode>& nodes,
                           bool callers_known) {
  return Chooser(codes, nodes).choices(callers_known);
}

}  // namespace grape::python::discovery
