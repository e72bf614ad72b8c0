#include "shim/lifecycle/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace grape {
namespace {

std::vector<std::string> g_warnings;

Config parse(std::vector<std::string> variables) {
  std::vector<const char*> environment;
  for (const std::string& variable : variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  g_warnings.clear();
  Config config;
  parse_environment(environment.data(), config, [](const char* line) { g_warnings.emplace_back(line); });
  return config;
}

TEST(Config, DefaultsWithoutVariables) {
  const Config config = parse({"PATH=/bin", "GRAPEFRUIT=1"});
  EXPECT_FALSE(config.disabled);
  EXPECT_EQ(config.mode, Mode::kReplay);
  EXPECT_FALSE(config.asked);
  EXPECT_FALSE(writes_trace(config));
  EXPECT_EQ(config.stacks, Stacks::kPython);
  EXPECT_TRUE(g_warnings.empty());
}

TEST(Config, ReadsEveryVariable) {
  const Config config =
      parse({"GRAPE_MODE=off", "GRAPE_STACKS=native", "GRAPE_LOG=debug", "GRAPE_DISABLE=yes",
             "GRAPE_TRACE=run-%h-%p.grape", "GRAPE_TRACE_REPLACE=1", "GRAPE_TRACE_RANGE=profiler", "GRAPE_RUN_PID=77",
             "GRAPE_REGIONS=my.models:Net.step, other:f*", "GRAPE_EXCLUDE=torch.nn:Linear"});
  EXPECT_TRUE(g_warnings.empty()) << g_warnings.front();
  EXPECT_TRUE(config.disabled);
  EXPECT_EQ(config.mode, Mode::kOff);
  EXPECT_EQ(config.stacks, Stacks::kNative);
  EXPECT_EQ(config.log, LogLevel::kDebug);
  EXPECT_STREQ(config.trace, "run-%h-%p.grape");
  EXPECT_TRUE(config.replace);
  EXPECT_EQ(config.range, Range::kProfiler);
  EXPECT_EQ(config.run_pid, 77u);
  EXPECT_STREQ(config.regions, "my.models:Net.step,other:f*");
  EXPECT_STREQ(config.exclude, "torch.nn:Linear");
}

TEST(Config, AModeThatIsNotUnderstoodNeverReplays) {
  for (const char* bad :
       {"GRAPE_MODE=-1", "GRAPE_MODE=", "GRAPE_MODE=Replay", "GRAPE_MODE=reply", "GRAPE_MODE=\xff\xfe"}) {
    EXPECT_EQ(parse({bad}).mode, Mode::kOff);
    ASSERT_EQ(g_warnings.size(), 1u) << bad;
    EXPECT_NE(g_warnings[0].find("off, observe, replay; using off"), std::string::npos) << g_warnings[0];
    for (const std::vector<std::string>& both :
         {std::vector<std::string>{bad, "GRAPE_TRACE=t.grape"}, std::vector<std::string>{"GRAPE_TRACE=t.grape", bad}}) {
      EXPECT_EQ(parse(both).mode, Mode::kObserve) << bad;
      ASSERT_EQ(g_warnings.size(), 1u) << bad;
      EXPECT_NE(g_warnings[0].find("using observe"), std::string::npos) << g_warnings[0];
    }
  }
}

TEST(Config, ATraceThatIsAskedForMakesTheModeObserve) {
  EXPECT_EQ(parse({"GRAPE_TRACE=t.grape"}).mode, Mode::kObserve);
  EXPECT_EQ(parse({"GRAPE_TRACE=t.grape", "GRAPE_MODE=replay"}).mode, Mode::kReplay);
  EXPECT_EQ(parse({"GRAPE_MODE=off", "GRAPE_TRACE=t.grape"}).mode, Mode::kOff);
  EXPECT_EQ(parse({"GRAPE_TRACE="}).mode, Mode::kReplay);
  EXPECT_EQ(parse({"GRAPE_TRACE_REPLACE=1", "GRAPE_LOG=info"}).mode, Mode::kReplay);
  EXPECT_TRUE(g_warnings.empty());
  // A path that cannot be used leaves the default name.
  EXPECT_EQ(parse({"GRAPE_TRACE=a\nb"}).mode, Mode::kObserve);
  EXPECT_EQ(g_warnings.size(), 1u);
}

TEST(Config, ARangeThatIsNotUnderstoodIsTheWholeProcess) {
  EXPECT_EQ(parse({"GRAPE_TRACE_RANGE=cudaProfilerApi"}).range, Range::kProcess);
  ASSERT_EQ(g_warnings.size(), 1u);
  EXPECT_NE(g_warnings[0].find("process, profiler; using process"), std::string::npos) << g_warnings[0];
}

TEST(Config, KnowsWhetherAnybodyAskedForSomething) {
  for (const char* asking : {"GRAPE_MODE=replay", "GRAPE_TRACE=t", "GRAPE_REPORT=r", "GRAPE_STRICT=1",
                             "GRAPE_VALIDATE=5", "GRAPE_REGIONS=a:b"}) {
    EXPECT_TRUE(parse({asking}).asked) << asking;
  }
  EXPECT_FALSE(parse({"GRAPE_LOG=info", "GRAPE_STACKS=off", "GRAPE_MEMORY_BUDGET=1G", "GRAPE_TRACE="}).asked);
}

TEST(Config, ModeReplayWritesATraceOnlyWhereOneIsNamed) {
  EXPECT_EQ(parse({"GRAPE_MODE=replay"}).mode, Mode::kReplay);
  EXPECT_TRUE(g_warnings.empty());
  EXPECT_FALSE(writes_trace(parse({"GRAPE_MODE=replay"})));
  EXPECT_TRUE(writes_trace(parse({"GRAPE_MODE=replay", "GRAPE_TRACE=t.grape"})));
  EXPECT_TRUE(writes_trace(parse({"GRAPE_MODE=observe"})));
  EXPECT_FALSE(writes_trace(parse({"GRAPE_MODE=off", "GRAPE_TRACE=t.grape"})));
}

TEST(Config, DisableThatIsNotUnderstoodDisables) {
  EXPECT_TRUE(parse({"GRAPE_DISABLE=please"}).disabled);
  EXPECT_EQ(g_warnings.size(), 1u);
  EXPECT_FALSE(parse({"GRAPE_DISABLE=0"}).disabled);
  EXPECT_FALSE(parse({"GRAPE_DISABLE="}).disabled);
}

TEST(Config, UnknownNameIsNamedWithASuggestion) {
  parse({"GRAPE_TRCE=x"});
  ASSERT_EQ(g_warnings.size(), 1u);
  EXPECT_NE(g_warnings[0].find("did you mean GRAPE_TRACE?"), std::string::npos) << g_warnings[0];
  parse({"GRAPE_SOMETHING_QUITE_ELSE=x"});
  ASSERT_EQ(g_warnings.size(), 1u);
  EXPECT_EQ(g_warnings[0].find("did you mean"), std::string::npos) << g_warnings[0];
}

TEST(Config, AMegabyteOfAnythingIsOneShortWarning) {
  const std::string huge(1 << 20, 'x');
  for (const char* name : {"GRAPE_MODE=", "GRAPE_TRACE=", "GRAPE_REGIONS=", "GRAPE_"}) {
    const Config config = parse({name + huge});
    ASSERT_EQ(g_warnings.size(), 1u) << name;
    EXPECT_LT(g_warnings[0].size(), 400u);
    EXPECT_STREQ(config.trace, "");
    EXPECT_STREQ(config.regions, "");
  }
}

TEST(Config, LongestValueThatFitsIsKept) {
  const std::string longest(sizeof(Config::trace) - 1, 'x');
  EXPECT_STREQ(parse({"GRAPE_TRACE=" + longest}).trace, longest.c_str());
  EXPECT_TRUE(g_warnings.empty());
}

TEST(Config, ControlCharactersNeverReachTheTerminal) {
  const Config config = parse({"GRAPE_TRACE=a\x1b[31mb", "GRAPE_MODE=\x1b[31m"});
  EXPECT_STREQ(config.trace, "");
  ASSERT_EQ(g_warnings.size(), 2u);
  for (const std::string& line : g_warnings) EXPECT_EQ(line.find('\x1b'), std::string::npos);
}

TEST(Config, GraphsAreTheDriversUnlessAskedOtherwise) {
  EXPECT_FALSE(parse({}).virtual_graphs);
  EXPECT_FALSE(parse({"GRAPE_GRAPHS=real"}).virtual_graphs);
  EXPECT_TRUE(parse({"GRAPE_GRAPHS=virtual"}).virtual_graphs);
  EXPECT_TRUE(parse({"GRAPE_GRAPHS=virtual"}).asked);
  EXPECT_TRUE(g_warnings.empty());
  EXPECT_FALSE(parse({"GRAPE_GRAPHS=vitrual"}).virtual_graphs);
  EXPECT_EQ(g_warnings.size(), 1u);
}

TEST(Config, SizesHaveUnitsAndBadOnesADefault) {
  EXPECT_EQ(parse({"GRAPE_MEMORY_BUDGET=64M"}).memory_budget, std::uint64_t{64} << 20);
  EXPECT_EQ(parse({"GRAPE_MEMORY_BUDGET=3G"}).memory_budget, std::uint64_t{3} << 30);
  EXPECT_EQ(parse({"GRAPE_MEMORY_BUDGET=512K"}).memory_budget, std::uint64_t{512} << 10);
  EXPECT_EQ(parse({"GRAPE_MEMORY_BUDGET=4096"}).memory_budget, 4096u);
  EXPECT_EQ(parse({"GRAPE_MEMORY_BUDGET=0"}).memory_budget, 0u);
  EXPECT_TRUE(g_warnings.empty());
  const std::uint64_t otherwise = parse({}).memory_budget;
  for (const char* bad : {"", "M", "-1", "1T", "12 M", "99999999999999999999", "1152921504606846976G", "64MB"}) {
    const std::string variable = std::string("GRAPE_MEMORY_BUDGET=") + bad;
    EXPECT_EQ(parse({variable}).memory_budget, otherwise) << bad;
    EXPECT_EQ(g_warnings.size(), 1u) << bad;
  }
}

TEST(Config, ReadsTheReportsPath) {
  EXPECT_STREQ(parse({"GRAPE_REPORT=report-%p.json"}).report, "report-%p.json");
  EXPECT_TRUE(g_warnings.empty());
  EXPECT_STREQ(parse({"GRAPE_REPORT=a\nb"}).report, "");
  EXPECT_EQ(g_warnings.size(), 1u);
}

TEST(Config, StrictIsASwitch) {
  EXPECT_FALSE(parse({}).strict);
  EXPECT_EQ(parse({"GRAPE_ALLOW_NONDETERMINISTIC=1"}).varying, Varying::kAlways);
  EXPECT_EQ(parse({"GRAPE_ALLOW_NONDETERMINISTIC=0"}).varying, Varying::kNever);
  EXPECT_EQ(parse({"GRAPE_ALLOW_NONDETERMINISTIC=spread"}).varying, Varying::kWithinSpread);
  EXPECT_EQ(parse({}).varying, Varying::kWithinSpread);
  EXPECT_TRUE(parse({"GRAPE_STRICT=1"}).strict);
  EXPECT_FALSE(parse({"GRAPE_STRICT=0"}).strict);
  EXPECT_TRUE(parse({"GRAPE_EARLY_REGIONS=1"}).early_regions);
  EXPECT_FALSE(parse({}).early_regions);
  EXPECT_TRUE(parse({"GRAPE_LOOK_BUDGET=unlimited"}).unlimited_looks);
  EXPECT_FALSE(parse({"GRAPE_LOOK_BUDGET=limited"}).unlimited_looks);
  EXPECT_FALSE(parse({}).unlimited_looks);
  EXPECT_TRUE(g_warnings.empty());
  EXPECT_FALSE(parse({"GRAPE_STRICT=perhaps"}).strict);
  ASSERT_EQ(g_warnings.size(), 1u);
  EXPECT_NE(g_warnings[0].find("using 0"), std::string::npos) << g_warnings[0];
}

TEST(Config, ValidateIsANumber) {
  EXPECT_EQ(parse({}).validate, 0u);
  EXPECT_EQ(parse({"GRAPE_VALIDATE=100"}).validate, 100u);
  EXPECT_EQ(parse({"GRAPE_VALIDATE=0"}).validate, 0u);
  EXPECT_EQ(parse({"GRAPE_VALIDATE=1000000000"}).validate, 1000000000u);
  EXPECT_TRUE(g_warnings.empty());
  for (const char* bad : {"", "-1", "often", "1.5", "10 ", "1000000001", "99999999999999999999"}) {
    EXPECT_EQ(parse({std::string("GRAPE_VALIDATE=") + bad}).validate, 0u) << bad;
    ASSERT_EQ(g_warnings.size(), 1u) << bad;
    EXPECT_NE(g_warnings[0].find("using 0"), std::string::npos) << g_warnings[0];
  }
}

TEST(Config, BadPatternsAreNamedAndTheRestKept) {
  const Config config = parse({"GRAPE_REGIONS=a.b:c,no_colon,two:co:lons,:x,y:,d.e:F.g*,,"});
  EXPECT_STREQ(config.regions, "a.b:c,d.e:F.g*");
  EXPECT_EQ(g_warnings.size(), 4u);
}

TEST(Config, RegionsThatAreFoundByThemselves) {
  const Config config = parse({"GRAPE_REGIONS=a.b:c, auto ,d.e:f"});
  EXPECT_TRUE(config.auto_regions);
  EXPECT_STREQ(config.regions, "a.b:c,d.e:f");
  EXPECT_TRUE(g_warnings.empty());
  EXPECT_TRUE(parse({"GRAPE_REGIONS=auto"}).auto_regions);
  EXPECT_FALSE(parse({"GRAPE_REGIONS=automatic"}).auto_regions);
  EXPECT_EQ(g_warnings.size(), 1u);
  EXPECT_FALSE(parse({"GRAPE_EXCLUDE=auto", "GRAPE_REGIONS=modules"}).auto_regions);
  EXPECT_EQ(g_warnings.size(), 1u);
  for (const char* against : {"GRAPE_STRICT=1", "GRAPE_STACKS=off"}) {
    EXPECT_FALSE(parse({"GRAPE_REGIONS=auto", against}).auto_regions);
    ASSERT_EQ(g_warnings.size(), 1u);
    EXPECT_NE(g_warnings[0].find(against), std::string::npos) << g_warnings[0];
  }
}

TEST(Config, RegionsAreFoundWhereNothingElseIsSaid) {
  EXPECT_TRUE(parse({}).auto_regions);
  EXPECT_FALSE(parse({}).asked);
  EXPECT_TRUE(parse({"GRAPE_REGIONS="}).auto_regions);
  EXPECT_TRUE(parse({"GRAPE_REGIONS=modules,auto"}).auto_regions);
  EXPECT_TRUE(parse({"GRAPE_TRACE=x", "GRAPE_MODE=replay"}).auto_regions);
  const Config modules = parse({"GRAPE_REGIONS= modules "});
  EXPECT_FALSE(modules.auto_regions);
  EXPECT_STREQ(modules.regions, "");
  EXPECT_TRUE(g_warnings.empty());
  for (const char* against : {"GRAPE_STRICT=1", "GRAPE_STACKS=off", "GRAPE_TRACE=x", "GRAPE_MODE=observe",
                              "GRAPE_MODE=off", "GRAPE_REGIONS=a:b", "GRAPE_REGIONS=modules,a:b"}) {
    EXPECT_FALSE(parse({against}).auto_regions) << against;
    EXPECT_TRUE(g_warnings.empty()) << against;
  }
  EXPECT_FALSE(parse({"GRAPE_REGIONS=no colon"}).auto_regions);
  EXPECT_EQ(g_warnings.size(), 1u);
}

}  // namespace
}  // namespace grape
