// Other processes: fork, vfork, spawn, exec.
#include <gtest/gtest.h>

#include "tests/faults/command.h"

namespace grape::faults {
namespace {

class Row11_Fork : public testing::TestWithParam<const char*> {};

TEST_P(Row11_Fork, ChildrenAreInertAndTheParentsTraceIsWhole) {
  Folder folder;
  const Result result = same_as_without(folder, "fork", {GetParam()});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  const Trace trace = only_trace(folder);
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.end.lost, 0u);
  const auto at = result.err.find("launches ");
  ASSERT_NE(at, std::string::npos) << result;
  EXPECT_EQ(trace.launches.size(), std::stoul(result.err.substr(at + 9)));
}

INSTANTIATE_TEST_SUITE_P(Ends, Row11_Fork,
                         testing::Values("return", "exit", "_exit", "quick_exit", "abort", "kill", "exec", "cuda",
                                         "grandchild", "syscall", "raw", "early"));

// As servers do it: the first process never asks for the driver, its workers do.
TEST(Row11_ForkBeforeCuda, EachWorkerLeavesATraceOfItsOwn) {
  Folder folder;
  const Result result = same_as_without(folder, "fork", {"worker"});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_TRUE(result.notices().empty()) << result;
  const auto traces = folder.traces();
  EXPECT_EQ(traces.size(), 2u) << result;
  for (const std::string& path : traces) {
    const Trace trace = read_trace(path);
    EXPECT_TRUE(trace.complete) << trace.damage;
    EXPECT_EQ(trace.launches.size(), 20u);
  }
}

class Row12_Spawn : public testing::TestWithParam<const char*> {};

TEST_P(Row12_Spawn, LeavesNoDescriptorAndNoFileBehind) {
  Folder folder;
  const Result result = same_as_without(folder, "spawn", {GetParam(), FAULT_PROGRAMS "/list_descriptors"});
  EXPECT_TRUE(result.exited(0)) << result;
  EXPECT_EQ(result.out.find("other "), std::string::npos) << result;
  if (std::string(GetParam()) != "vfork-fails") {
    EXPECT_NE(result.out.find("standard 1"), std::string::npos) << "the child did not run\n" << result;
  }
  const Trace trace = only_trace(folder);  // the child, without CUDA, left none
  EXPECT_TRUE(trace.complete) << trace.damage;
  EXPECT_EQ(trace.launches.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Row12_Spawn,
                         testing::Values("fork", "vfork", "posix_spawn", "system", "popen", "vfork-fails"));

TEST(Row12_Exec, OfACudaProgramGivesTwoTraces) {
  Folder folder;
  const Result result = same_as_without(folder, "spawn", {"exec", FAULT_PROGRAMS "/job"});
  EXPECT_TRUE(result.exited(0)) << result;
  const auto traces = folder.traces();
  ASSERT_EQ(traces.size(), 2u) << result;
  // The second image has the same process id: its file gets a number. The first one ended without a word.
  std::size_t complete = 0, incomplete = 0;
  for (const std::string& path : traces) {
    const Trace trace = read_trace(path);
    ASSERT_TRUE(trace.readable) << trace.error;
    ++(trace.complete ? complete : incomplete);
    if (trace.complete) {
      EXPECT_EQ(trace.launches.size(), 13u);
      EXPECT_NE(trace.meta.command.find("job"), std::string::npos);
    } else {
      EXPECT_EQ(trace.launches.size(), 20u);
    }
  }
  EXPECT_EQ(complete, 1u);
  EXPECT_EQ(incomplete, 1u);
}

TEST(Row12_Exec, OfACudaProgramGivesTwoTracesWhereFilesAreReplaced) {
  Folder folder;
  const Result result = Command(folder, "spawn", {"exec", FAULT_PROGRAMS "/job"})
                            .set("GRAPE_TRACE", folder.in("run.grape"))
                            .set("GRAPE_TRACE_REPLACE", "1")
                            .with_grape()
                            .run();
  EXPECT_TRUE(result.exited(0)) << result;
  const Trace trace = read_trace(folder.in("run.grape"));
  EXPECT_TRUE(trace.complete) << result;
  EXPECT_EQ(trace.launches.size(), 13u);
}

TEST(Row12_NoCuda, LeavesNoFile) {
  for (const char* program : {"/bin/true", "/bin/sh", FAULT_PROGRAMS "/list_descriptors"}) {
    Folder folder;
    const Result result = Command(folder, program).with_grape().run();
    EXPECT_TRUE(result.exited(0)) << result;
    EXPECT_EQ(result.err, "");
    EXPECT_TRUE(folder.traces().empty());
    EXPECT_EQ(result.out.find("other "), std::string::npos) << result;
  }
}

}  // namespace
}  // namespace grape::faults
