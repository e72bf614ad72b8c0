// The environment: garbage in it never stops the program.
#include <gtest/gtest.h>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

struct Setting {
  const char* title;
  const char* name;
  std::string value;
  const char* said;  // part of the one warning
  bool recorded;     // with the safe default
};

std::ostream& operator<<(std::ostream& stream, const Setting& setting) { return stream << setting.title; }

class Row25_Garbage : public testing::TestWithParam<Setting> {};

TEST_P(Row25_Garbage, GivesOneWarningAndTheSafeDefault) {
  const Setting& setting = GetParam();
  Folder folder;
  Command command(folder, "job");
  command.with_grape().set(setting.name, setting.value);
  const Result plain = Command(folder, "job").run(), result = command.run();
  EXPECT_EQ(result.status, plain.status) << result;
  EXPECT_EQ(result.out, plain.out);
  ASSERT_EQ(result.notices().size(), 1u) << result;
  EXPECT_EQ(result.err, result.notices()[0] + "\n");
  EXPECT_LT(result.err.size(), 400u);
  EXPECT_NE(result.err.find(setting.said), std::string::npos) << result;
  for (const char c : result.err) EXPECT_TRUE((c >= 0x20 && c < 0x7f) || c == '\n') << static_cast<int>(c);
  EXPECT_EQ(folder.traces().size(), setting.recorded ? 1u : 0u);
  for (const std::string& path : folder.traces()) EXPECT_TRUE(read_trace(path).complete);
}

// One string of the environment can have 128 KiB; a value of a megabyte is tried in tests/shim/record.
const std::string kLong(131'000, 'x');

INSTANTIATE_TEST_SUITE_P(
    Values, Row25_Garbage,
    testing::Values(Setting{"mode_typo", "GRAPE_MODE", "obsrve", "GRAPE_MODE", true},
                    Setting{"mode_minus_one", "GRAPE_MODE", "-1", "GRAPE_MODE", true},
                    Setting{"mode_empty", "GRAPE_MODE", "", "GRAPE_MODE", true},
                    Setting{"mode_long", "GRAPE_MODE", kLong, "GRAPE_MODE", true},
                    Setting{"mode_not_utf8", "GRAPE_MODE", "\xff\xfe\x80obs\x1b[31m", "GRAPE_MODE", true},
                    Setting{"mode_newline", "GRAPE_MODE", "off\nobserve", "GRAPE_MODE", true},
                    Setting{"stacks", "GRAPE_STACKS", "2", "GRAPE_STACKS", true},
                    Setting{"log", "GRAPE_LOG", "loud", "GRAPE_LOG", true},
                    Setting{"disable", "GRAPE_DISABLE", "maybe", "GRAPE_DISABLE", false},
                    Setting{"disable_minus_one", "GRAPE_DISABLE", "-1", "GRAPE_DISABLE", false},
                    Setting{"replace", "GRAPE_TRACE_REPLACE", "-1", "GRAPE_TRACE_REPLACE", true},
                    Setting{"regions", "GRAPE_REGIONS", "no colon", "GRAPE_REGIONS", true},
                    Setting{"regions_long", "GRAPE_REGIONS", kLong, "GRAPE_REGIONS", true},
                    Setting{"exclude_not_utf8", "GRAPE_EXCLUDE", "a\x01\xff", "GRAPE_EXCLUDE", true},
                    Setting{"typo", "GRAPE_TRACES", "x", "did you mean GRAPE_TRACE?", true},
                    Setting{"unknown", "GRAPE_WINE_COLOUR", "x", "GRAPE_WINE_COLOUR", true},
                    Setting{"lower_case", "GRAPE_mode", "off", "GRAPE_mode", true},
                    Setting{"name_long",
                            "GRAPE_"
                            "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
                            "x", "GRAPE_", true}),
    [](const auto& one) { return std::string(one.param.title); });

TEST(Row25_TracePath, ThatCannotBeUsedGivesOneWarningAndTheDefaultName) {
  for (const std::string& value : {kLong,
                                   std::string("a\x01"
                                               "b.grape"),
                                   std::string(5000, '/')}) {
    Folder folder;
    const Result result = Command(folder, "job").set("GRAPE_TRACE", value).with_grape().run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.notices().size(), 1u) << result;
    ASSERT_EQ(folder.traces().size(), 1u);
    EXPECT_EQ(fs::path(folder.traces()[0]).filename().string().rfind("grape-", 0), 0u);
  }
}

// A job's shells and helpers have the same environment, and no use for the driver.
TEST(Row25_OtherPrograms, SayNothingOfSettingsThatAreNotTheirs) {
  for (const auto& [name, value] : {std::pair{"GRAPE_MODE", "obsrve"}, {"GRAPE_TRACES", "x"}}) {
    Folder folder;
    const Result alone = Command(folder, "/bin/true").with_grape().set(name, value).run();
    EXPECT_TRUE(alone.exited(0)) << alone;
    EXPECT_EQ(alone.err, "");
    const std::string script = "for i in 1 2 3; do /bin/true; done; " FAULT_PROGRAMS "/job; exit $?";
    const Result job = Command(folder, "/bin/sh", {"-c", script}).with_grape().set(name, value).run();
    EXPECT_TRUE(job.exited(0)) << job;
    EXPECT_EQ(job.notices().size(), 1u) << job;
  }
}

// Without a trace that is asked for.
TEST(Row25_Mode, OneThatIsNotUnderstoodGivesOneWarningAndNothingElse) {
  for (const char* mode : {"reply", "Replay", "-1"}) {
    Folder folder;
    const Result result = same_as_without(
        folder, "job", {"calls"}, [&](Command& command) { command.set("GRAPE_TRACE", "").set("GRAPE_MODE", mode); });
    EXPECT_TRUE(result.exited(0)) << result;
    ASSERT_EQ(result.notices().size(), 1u) << result;
    EXPECT_NE(result.err.find("using off"), std::string::npos) << result;
    EXPECT_TRUE(folder.traces().empty());
  }
}

// Mode replay, in a program without Python.
TEST(Row25_Defaults, SayNothingAndLeaveNothing) {
  Folder folder;
  const Result result = same_as_without(folder, "job", {}, [&](Command& command) { command.set("GRAPE_TRACE", ""); });
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(folder.traces().empty());
}

TEST(Row25_Disabled, MeansAsIfItWereNotThere) {
  for (const auto& [name, value] : {std::pair{"GRAPE_DISABLE", "1"}, {"GRAPE_MODE", "off"}}) {
    Folder folder;
    const Result result =
        same_as_without(folder, "job", {"calls"}, [&, n = name, v = value](Command& command) { command.set(n, v); });
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.err, "");
    EXPECT_TRUE(folder.traces().empty());
  }
}

// Of the processes of a job only the one that `grape run` became says why it left no trace.
TEST(NoTrace, TheProgramThatNeverAsksForTheDriverSaysSo) {
  const Folder folder;
  const std::string job = "GRAPE_RUN_PID=$$; export GRAPE_RUN_PID; /bin/true; (/bin/true); exec /bin/true";
  Command command(folder, "/bin/sh", {"-c", job});
  const Result result = command.with_grape().set("GRAPE_LOG", "info").run();
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.notices(), std::vector<std::string>{"grape: no trace: the program made no call to the CUDA driver"});
  EXPECT_TRUE(folder.traces().empty());
}

}  // namespace
}  // namespace grape::faults
