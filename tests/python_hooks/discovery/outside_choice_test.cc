// Which functions the report names of those that launch outside of regions, by the shapes that programs have.
#include "python_hooks/discovery/outside_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace grape::python::discovery {
namespace {

// Stacks as in "main > run > step*", made into what choose() gets; the star: seen at several instructions.
class Stacks {
 public:
  Stacks& add(const std::string& stack, std::uint64_t weight) {
    std::uint32_t node = 0;
    for (std::size_t at = 0; at < stack.size();) {
      const std::size_t end = std::min(stack.find(" > ", at), stack.size());
      std::string name = stack.substr(at, end - at);
      const bool several = name.back() == '*';
      if (several) name.pop_back();
      node = child(node, code(name));
      nodes_[node].several = nodes_[node].several || several;
      at = end + 3;
    }
    nodes_[node].weight += weight;
    return *this;
  }

  // In brackets: no candidate. With an exclamation mark: training. With an at sign: calls modules.
  std::string chosen(bool callers_known = false) {
    std::string text;
    for (const Choice& choice : choose(codes_, nodes_, callers_known)) {
      text += (text.empty() ? "" : ", ") + names_[choice.code] + " " + std::to_string(std::lround(choice.share * 100));
    }
    return text;
  }

 private:
  std::uint32_t code(const std::string& name) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return static_cast<std::uint32_t>(i);
    }
    names_.push_back(name);
    codes_.push_back({name[0] != '(' && name[0] != '!', name[0] == '!', name[0] == '@'});
    return static_cast<std::uint32_t>(names_.size() - 1);
  }
  std::uint32_t child(std::uint32_t parent, std::uint32_t code) {
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      if (nodes_[i].parent == parent && nodes_[i].code == code) return static_cast<std::uint32_t>(i);
    }
    nodes_.push_back({parent, code, 0, false});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  std::vector<std::string> names_;
  std::vector<CalledCode> codes_;
  std::vector<CallNode> nodes_{1};
};

TEST(OutsideChoice, NothingSampled) {
  EXPECT_EQ(Stacks().chosen(), "");
  EXPECT_TRUE(choose({}, {}).empty());
  EXPECT_EQ(Stacks().add("(module) > step", 3).chosen(), "") << "too few to tell";
  EXPECT_EQ(Stacks().add("", 10).chosen(), "") << "stacks that are not known";
}

TEST(OutsideChoice, ABeamSearch) {
  const std::string loop = "(module) > generate > (no_grad) > _beam_search > ";
  Stacks stacks;
  stacks.add(loop + "_get_top_k", 20).add(loop + "_get_top_k > _gather_beams", 20);
  stacks.add(loop + "_update_finished > _gather_beams", 25).add(loop + "Cache.reorder_cache > Layer.reorder_cache", 25);
  stacks.add("(module) > generate > (no_grad) > _beam_search", 10);
  EXPECT_EQ(stacks.chosen(), "_get_top_k 40, _update_finished 25, Cache.reorder_cache 25");
  stacks.add(loop + "_gather_beams", 100);
  EXPECT_EQ(stacks.chosen(), "_gather_beams 50, _get_top_k 20, _update_finished 13, Cache.reorder_cache 13")
      << "what is in another choice counts there";
}

TEST(OutsideChoice, ADiffusionLoop) {
  Stacks stacks;
  stacks.add("(module) > main > Pipeline.__call__ > Scheduler.step", 60).add("(module) > main > Pipeline.__call__", 40);
  EXPECT_EQ(stacks.chosen(), "Scheduler.step 60") << "the loop itself is none";
}

TEST(OutsideChoice, ModuleLevelAlone) { EXPECT_EQ(Stacks().add("(module)", 100).chosen(), ""); }

TEST(OutsideChoice, OneFunctionThatHoldsAll) {
  EXPECT_EQ(Stacks().add("(module) > step", 100).chosen(), "step 100");
  EXPECT_EQ(Stacks().add("(module) > main > run > step", 100).chosen(), "step 100") << "what is called most often";
  EXPECT_EQ(Stacks().add("(module) > main > step", 95).add("(module) > main > log", 5).chosen(), "step 95, log 5");
  EXPECT_EQ(Stacks().add("(module) > main > (closure)", 100).chosen(), "main 100") << "nothing below can be named";
  EXPECT_EQ(Stacks().add("(module) > main > step", 99).add("(module) > main > rare", 1).chosen(), "step 99");
}

TEST(OutsideChoice, WhatAllLaunchesGoThrough) {
  EXPECT_EQ(Stacks().add("(module) > main > step* > launch", 100).chosen(), "step 100");
  EXPECT_EQ(Stacks().add("(module) > main > launch", 100).chosen(), "launch 100") << "as good as main";
  Stacks stacks;
  stacks.add("main* > search* > top* > launch", 40).add("main > search > finish* > launch", 40);
  stacks.add("main > search > launch", 20);
  EXPECT_EQ(stacks.chosen(), "top 40, finish 40") << "not what they call";
}

TEST(OutsideChoice, RecursionCountsOnce) {
  Stacks stacks;
  stacks.add("(module) > walk > walk > walk", 50).add("(module) > other", 50);
  EXPECT_EQ(stacks.chosen(), "walk 50, other 50");
  EXPECT_EQ(Stacks().add("a > b > a", 60).add("b > a > b", 40).chosen(), "a 100")
      << "both hold all: the one that is innermost in most";
}

TEST(OutsideChoice, WhatTrainsIsNoCandidate) {
  Stacks stacks;
  stacks.add("(module) > train > train_step > !Adam.step > (foreach)", 60);
  stacks.add("(module) > train > train_step > loss_of", 30).add("(module) > train > augment", 10);
  EXPECT_EQ(stacks.chosen(), "loss_of 30, augment 10");
}

TEST(OutsideChoice, FewAndLarge) {
  Stacks stacks;
  for (int i = 0; i < 12; ++i) stacks.add("(module) > main > f" + std::to_string(i), 10 + i);
  stacks.add("(module) > main > tiny", 3);
  const std::string chosen = stacks.chosen();
  EXPECT_EQ(chosen.substr(0, 6), "f11 11");
  EXPECT_EQ(std::count(chosen.begin(), chosen.end(), ','), 7);
}

TEST(OutsideChoice, WhereItIsKnownWhoCallsModules) {
  Stacks stacks;
  stacks.add("@main > @generate > sample > top", 60).add("@main > @generate > sample > draw", 37);
  stacks.add("@main > @generate", 3);
  EXPECT_EQ(stacks.chosen(true), "sample 97");
  EXPECT_EQ(stacks.chosen(), "top 60, draw 37");
  EXPECT_EQ(Stacks().add("@main > @step", 100).chosen(true), "") << "a loop that calls modules, and nothing else";
  EXPECT_EQ(Stacks().add("@main > @step > !backward > work", 100).chosen(true), "work 100");
  EXPECT_EQ(Stacks().add("@main > train > !backward", 100).chosen(true), "");
}

}  // namespace
}  // namespace grape::python::discovery
