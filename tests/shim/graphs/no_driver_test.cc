// Where the driver lacks functions, nothing is asked of it. Here there is none at all.
#include <gtest/gtest.h>

#include "shim/device/device_hash.h"
#include "shim/graphs/graph_exec.h"
#include "tests/shim/graphs/program_builder.h"

namespace grape::graphs {
namespace {

TEST(NoDriverTest, ThereAreNoGraphs) {
  replay_test::ProgramBuilder builder;
  builder.fill(builder.add_output(8).at(0), 0, 1, 8);
  const std::shared_ptr<const program::Program> program = std::make_shared<program::Program>(builder.program());
  refusal::Refusal error;
  EXPECT_EQ(GraphExec::build(program, program::segments(*program).front(), builder.plan(), {}, error), nullptr);
  EXPECT_EQ(error.text, "the driver is too old: CUDA 12.0 is needed");
}

TEST(NoDriverTest, NothingIsHashed) {
  refusal::Refusal error;
  EXPECT_EQ(device::DeviceHash::of_current_context(error), nullptr);
  EXPECT_EQ(error.text, "the driver lacks functions");
}

}  // namespace
}  // namespace grape::graphs
