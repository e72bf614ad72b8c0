// What the user reads of replay: reasons counted, the report's JSON, the lines at the end.
#include "python_hooks/report/report_text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <string>

#include "compressor/refusal/refusal.h"
#include "python_hooks/report/statistics.h"

namespace grape::python::report {
namespace {

using refusal::make;
using refusal::Refusal;

Refusal waits(std::string place) {
  Refusal refusal = make(refusal::waits_for_device, "cuCtxSynchronize");
  refusal.place = std::move(place);
  return refusal;
}

Refusal too_large(const char* bytes) { return make(refusal::large_on_cpu, "argument", bytes); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Reasons, CountsDistinctOnes) {
  Reasons reasons;
  EXPECT_TRUE(reasons.empty());
  EXPECT_EQ(reasons.last(), nullptr);
  reasons.add(make(refusal::draws_on_host));
  reasons.add(waits("net.py:12 in Net.forward"));
  reasons.add(waits("net.py:14 in Net.forward"));
  reasons.add(waits("net.py:12 in Net.forward"));
  ASSERT_EQ(reasons.all().size(), 3u);
  EXPECT_EQ(reasons.all()[1].count, 2u);
  EXPECT_EQ(reasons.all()[1].id, refusal::RefusalId::waits_for_device);
  EXPECT_EQ(refusal::in_words(*reasons.last()), "waits for the device (cuCtxSynchronize), at net.py:12 in Net.forward");
}

TEST(Reasons, NumbersAloneMakeNoNewOne) {
  Reasons reasons;
  reasons.add(too_large("16 (0x7f00a)"));
  reasons.add(too_large("2048 (0x7fbbbb12)"));
  ASSERT_EQ(reasons.all().size(), 1u);
  EXPECT_EQ(reasons.all()[0].count, 2u);
  EXPECT_EQ(reasons.all()[0].text, "argument: a tensor on the CPU of 16 (0x7f00a) bytes, too many to compare");
  reasons.add(too_large("16 (0x7f00a) x"));
  reasons.add(too_large("16 (0x7f00a) 3"));
  EXPECT_EQ(reasons.all().size(), 3u);
}

TEST(Reasons, TheSameTextOfAnotherRowIsAnother) {
  Reasons reasons;
  reasons.add(make(refusal::calls, "f()"));
  reasons.add(make(refusal::calls_generator, "f()"));
  EXPECT_EQ(reasons.all().size(), 2u);
}

TEST(Reasons, WithoutARefusalThereWasNoMemoryForOne) {
  Reasons reasons;
  reasons.add({});
  ASSERT_EQ(reasons.all().size(), 1u);
  EXPECT_EQ(reasons.all()[0].text, "no memory");
}

TEST(Reasons, IsBounded) {
  Reasons reasons;
  for (char c = 'a'; c <= 'z'; ++c) reasons.add(make(refusal::imports, std::string(1, c)));
  reasons.add(make(refusal::imports, "a"));
  EXPECT_EQ(reasons.all().size(), Reasons::kMost);
  EXPECT_EQ(reasons.others(), 26 - Reasons::kMost);
  EXPECT_EQ(reasons.all()[0].count, 2u);
  EXPECT_FALSE(reasons.empty());

  Reasons one;
  const std::size_t before = std::string("imports ").size();
  one.add(make(refusal::imports, std::string(Reasons::kMostBytes - before - 1, 'x') + "\xc3\xa4"));
  EXPECT_EQ(one.all()[0].text.size(), Reasons::kMostBytes - 1) << "no half of a character";
}

TEST(Times, IntervalsBelongToTheCallThatBegins) {
  Times times;
  const double begins[] = {10, 11, 13, 13.5, 14};
  const Times::Kind kinds[] = {Times::Kind::kOther, Times::Kind::kEager, Times::Kind::kReplay, Times::Kind::kReplay,
                               Times::Kind::kReplay};
  for (int i = 0; i < 5; ++i) {
    times.begin(begins[i]);
    times.kind = kinds[i];
  }
  EXPECT_DOUBLE_EQ(times.eager_intervals.median(), 2);
  EXPECT_DOUBLE_EQ(times.replay_intervals.median(), 0.5);
  for (int i = 1; i <= 100; ++i) times.replay_intervals.add(3);
  EXPECT_DOUBLE_EQ(times.replay_intervals.median(), 3) << "the latest count";
  EXPECT_DOUBLE_EQ(Latest().median(), 0);
}

RunReport sample() {
  RunReport report;
  report.seconds = 12.5;
  report.region_seconds = 10;
  RegionReport replayed;
  replayed.name = "app:Net";
  replayed.state = "replayed";
  replayed.calls = 1000;
  replayed.replayed = 990;
  replayed.seconds = 2.5;
  replayed.eager_ms = 5;
  replayed.replay_ms = 0.25;
  replayed.eager_interval_ms = 5.5;
  replayed.replay_interval_ms = 1.1;
  replayed.first_calls = 8;
  replayed.signatures.proven = 9;
  report.regions.push_back(replayed);
  RegionReport eager;
  eager.name = "app:Head\n\x1b\"\\\xff";
  eager.state = "given up";
  eager.calls = 4;
  eager.seconds = 7.5;
  eager.reasons = {{make(refusal::unloads_kernels, "cuModuleUnload"), 1}, {waits("app.py:3 in f"), 3}};
  eager.last_reason = refusal::in_words(eager.reasons.back());
  report.regions.push_back(eager);
  RegionReport idle;
  idle.name = "app:Tokens";
  idle.state = "no GPU work";
  idle.calls = 1;
  report.regions.push_back(idle);
  return report;
}

TEST(ReportText, Json) {
  const std::string json = to_json(sample());
  EXPECT_LT(json.find("app:Head"), json.find("app:Net")) << "the one with more time first";
  for (
      const char* part : {
          R"("version": 1)",
          R"("seconds": 12.500000)",
          R"("region": "app:Head\u000a\u001b\"\\)"
          "\xef\xbf\xbd\"",
          R"("share": 0.7500)",
          R"("share_of_run": 0.6000)",
          R"("gain": 5.0000)",
          R"("gain": null)",
          R"("reasons": [)",
          R"x({"count": 3, "id": "waits_for_device", "kind": "host_read", "text": "waits for the device )x"
          R"x((cuCtxSynchronize)", "place": "app.py:3 in f", "advice": "Python looks at a value that is on the GPU )x",
          R"("place": null)",
          R"x("id": "first_calls", "kind": "new_arguments", "text": "its arguments had not come often enough yet (9 different)x",
          R"("reason": "waits for the device (cuCtxSynchronize), at app.py:3 in f")",
          R"("reason": null)",
      }) {
    EXPECT_TRUE(contains(json, part)) << part << " in\n" << json;
  }
  EXPECT_LT(json.find("waits_for_device"), json.find("unloads_kernels")) << "the most frequent first";
}

// A user's names have the words of other rows.
TEST(ReportText, KindAndAdviceAreThoseOfTheRowWhateverTheNames) {
  RunReport report = sample();
  Refusal refusal = make(refusal::opaque, "module.profiler", "debugger.CUDA graph");
  refusal.place = "waits for the device/another thread.py:3";
  report.regions[1].reasons = {{refusal, 1},
                               {make(refusal::not_made_again, "argument Net.imports no memory", "lock"), 1}};
  const std::string json = to_json(report);
  EXPECT_TRUE(contains(json, R"("id": "opaque", "kind": "argument", "text": "module.profiler: a debugger.CUDA graph")"))
      << json;
  EXPECT_TRUE(contains(json, R"("advice": "Only what can be compared between calls can be guarded)")) << json;
  EXPECT_TRUE(contains(json, R"("id": "not_made_again", "kind": "result")")) << json;
  EXPECT_TRUE(contains(summary_of(report, "")[3], "Only what can be compared")) << "the lines at the end as well";
}

TEST(ReportText, CallsThatAreStillWatchedHaveAReason) {
  RunReport report = sample();
  RegionReport& region = report.regions[1];
  region.state = "observing";
  region.calls = 64;
  region.signatures.observed = 32;
  region.reasons = {{make(refusal::unloads_kernels, "cuLibraryUnload"), 2}};
  EXPECT_TRUE(contains(summary_of(report, "")[2], "not replayed: its arguments had not come often enough yet (32"));
  EXPECT_TRUE(contains(to_json(report), R"({"count": 62, "id": "first_calls", "kind": "new_arguments")"));
  region.state = "given up";  // then calls are passed on, and it is known why
  EXPECT_TRUE(contains(summary_of(report, "")[2], "kernels were unloaded"));
  EXPECT_FALSE(contains(to_json(report), R"("count": 62)"));
}

TEST(ReportText, WhatTheStoreHolds) {
  RunReport report = sample();
  EXPECT_FALSE(contains(to_json(report), "store"));
  EXPECT_FALSE(contains(to_json(report), R"("cache": )"));
  report.cache = {"a/b.grape-cache", 10, 9, 1};
  EXPECT_TRUE(
      contains(to_json(report), R"("cache": {"file": "a/b.grape-cache", "programs": 10, "used": 9, "added": 1})"));
  report.programs.programs = 1000;
  report.programs.families = 14;
  report.programs.compressed = 910'000;
  EXPECT_TRUE(contains(to_json(report), R"("store": {"programs": 1000, "unique": 0, "families": 14,)"));
  EXPECT_TRUE(contains(to_json(report), R"("stored_bytes": 910000)"));
}

TEST(ReportText, NoLocaleChangesTheNumbers) {
  const std::string plain = to_json(sample());
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    EXPECT_EQ(to_json(sample()), plain);
  }
  std::setlocale(LC_ALL, "C");
}

TEST(ReportText, ASummaryOfFewLines) {
  const auto lines = summary_of(sample(), "");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "replay: 2 modules called, for 80.0% of 12.5 s; of that time:");
  EXPECT_TRUE(contains(lines[1], "75.0%")) << lines[1];
  EXPECT_TRUE(contains(lines[1], "0 of 4 calls replayed")) << lines[1];
  EXPECT_TRUE(contains(lines[2], "not replayed: waits for the device (cuCtxSynchronize), at app.py:3 in f"))
      << lines[2];
  EXPECT_TRUE(contains(lines[3], ".item()")) << lines[3];
  EXPECT_TRUE(contains(lines[4], "app:Net: 990 of 1000 calls replayed, 1.10 ms from call to call, 5.50 without"))
      << lines[4];
  EXPECT_TRUE(contains(lines[5], "GRAPE_REPORT=FILE")) << lines[5];
  EXPECT_TRUE(contains(summary_of(sample(), "r.json").back(), "`grape report r.json` shows all"));

  RunReport many = sample();
  for (int i = 0; i < 50; ++i) many.regions.push_back(many.regions[1]);
  many.regions[1].reasons = {{make(refusal::imports, std::string(5000, 'x')), 1}};
  const auto most = summary_of(many, "");
  EXPECT_LE(most.size(), 10u);
  EXPECT_TRUE(contains(most.back(), "49 more")) << most.back();
  for (const std::string& line : most) EXPECT_LT(line.size(), 900u);
  EXPECT_TRUE(summary_of(RunReport(), "").empty());
}

TEST(ReportText, LaunchesOutsideOfRegions) {
  RunReport report = sample();
  EXPECT_FALSE(contains(to_json(report), R"("outside")"));
  report.outside = {3000,  4000, "app:*",
                    false, "",   {{"app.search:top", "app/search.py:12", 0.41}, {"app:f", "app.py:3", 0.25}}};
  EXPECT_TRUE(contains(to_json(report),
                       R"("outside": {"launches": 3000, "share": 0.7500, "named": "app:*", "found": null, "functions": [
    {"region": "app.search:top", "share": 0.4100, "place": "app/search.py:12"},
    {"region": "app:f", "share": 0.2500, "place": "app.py:3"}]})"))
      << to_json(report);
  auto lines = summary_of(report, "");
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[5],
            "  75.0% of the launches come from outside of modules, 41.0% of these from app.search:top: see "
            "GRAPE_REPORT");
  for (int i = 0; i < 50; ++i) report.regions.push_back(report.regions[1]);
  report.graphs.any = true;
  EXPECT_EQ(summary_of(report, "").size(), 11u) << "not one more";
  report.graphs.any = false;
  report.regions.clear();
  lines = summary_of(report, "");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "replay: no module called; 75.0% of the launches")) << lines[0];
  report.outside.all = 30'000;
  EXPECT_TRUE(summary_of(report, "").empty()) << "a tenth is not worth a line";
  report.outside.all = 4000;
  report.outside.functions.clear();
  EXPECT_TRUE(summary_of(report, "").empty()) << "nor is what nobody can name";
}

TEST(ReportText, GraphsOfTheProgram) {
  RunReport report;
  EXPECT_FALSE(contains(to_json(report), "graphs"));
  EXPECT_TRUE(summary_of(report, "").empty());
  report.graphs.any = true;
  report.graphs.made = 1000;
  report.graphs.launches = 5000;
  report.graphs.left = {{3, make(refusal::graph_size)}, {1, make(refusal::graph_with_array)}};
  EXPECT_TRUE(contains(to_json(report), "\"graphs\": {\"virtual\": 1000,"));
  EXPECT_TRUE(contains(to_json(report), R"({"count": 3, "id": "graph_size", "reason": "has no nodes, or very many"})"));
  const std::vector<std::string> lines = summary_of(report, "");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "graphs of the program: 1000 virtual, 5000 launches of them; 4 left to the driver: the first has no "
            "nodes, or very many");
}

}  // namespace
}  // namespace grape::python::report
