// The dynamic loader: other preloaded libraries, plugins, late loading.
#include <gtest/gtest.h>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

constexpr char kAllocator[] = FAULT_PROGRAMS "/liballocator_preload.so";
constexpr char kDlsym[] = FAULT_PROGRAMS "/libdlsym_preload.so";
constexpr char kPlugin[] = FAULT_PROGRAMS "/libplugin.so";

struct Neighbour {
  const char* name;
  const char* library;  // null: none
  bool before;
};

std::ostream& operator<<(std::ostream& stream, const Neighbour& neighbour) { return stream << neighbour.name; }

class Row14_Reentry : public testing::TestWithParam<Neighbour> {};

TEST_P(Row14_Reentry, NeitherHangsNorRecurses) {
  const Neighbour& neighbour = GetParam();
  for (const char* program : {"reentry", "unknown", "job"}) {
    SCOPED_TRACE(program);
    Folder folder;
    const Result result = same_as_without(folder, program, {}, [&](Command& command) {
      if (neighbour.library != nullptr) command.preload(neighbour.library, neighbour.before);
      command.set("DLSYM_PRELOAD_SAYS", "1");
    });
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_TRUE(result.notices().empty()) << result;
    if (neighbour.library == kDlsym && std::string(program) != "job") {
      EXPECT_NE(result.err.find("dlsym_preload: called"), std::string::npos) << "the neighbour was passed over";
    }
    const Trace trace = only_trace(folder);
    EXPECT_TRUE(trace.complete) << trace.damage;
    if (std::string(program) == "reentry") {
      EXPECT_EQ(trace.launches.size(), 108u);
      EXPECT_EQ(trace.count("cuLaunchHostFunc"), 20u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Neighbours, Row14_Reentry,
                         testing::Values(Neighbour{"none", nullptr, false},
                                         Neighbour{"allocator_before", kAllocator, true},
                                         Neighbour{"allocator_behind", kAllocator, false},
                                         Neighbour{"dlsym_before", kDlsym, true},
                                         Neighbour{"dlsym_behind", kDlsym, false}),
                         [](const auto& one) { return std::string(one.param.name); });

class Row21_Plugin : public testing::TestWithParam<const char*> {};

TEST_P(Row21_Plugin, ComesAndGoes) {
  const std::string mode = GetParam();
  Folder folder;
  const Result result = same_as_without(folder, "load_plugin", {mode, kPlugin});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  // With RTLD_DEEPBIND a plugin's calls go to its own libraries first, and so past any preloaded one.
  if (mode == "deepbind" || mode == "driver") return;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.launches.size(), 50u);
}

INSTANTIATE_TEST_SUITE_P(Modes, Row21_Plugin, testing::Values("local", "global", "deepbind", "driver"));

TEST(Row21_LateLoading, IsInertWithOneNotice) {
  Folder folder;
  const auto run = [&](const char* library) {
    return Command(folder, "load_plugin", {"late", kPlugin, library}).set("GRAPE_TRACE", folder.in("run.grape")).run();
  };
  const Result without = run(kAllocator), with = run(kLibrary);
  EXPECT_TRUE(without.exited(0)) << without;
  EXPECT_TRUE(with.exited(0)) << with;
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.notices().size(), 1u) << with;
  EXPECT_TRUE(folder.traces().empty());
}

}  // namespace
}  // namespace grape::faults
