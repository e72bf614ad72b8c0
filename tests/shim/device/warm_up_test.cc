// What is made beside the program's own start, on the simulated driver. Warm-ups happen once in a process: one test.
#include "shim/device/warm_up.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/device/harmless_memory.h"
#include "shim/device/own_kernels.h"
#include "shim/driver/listeners.h"
#include "tests/simcuda/fixture.h"

namespace grape::device {
namespace {

class WarmUpTest : public simcuda_test::Driver {
 protected:
  void TearDown() override {
    forget_own_kernels(context_);
    Driver::TearDown();
  }
};

// Does a child of a fork, which has no such thread, go on?
bool child_ends_it() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    end_warm_up();
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(WarmUpTest, BeginsWithAContextAndOnce) {
  const std::uint64_t loads = simcuda_calls("cuModuleLoadData");
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  warm_up();
  driver::tell_context_goes();
  EXPECT_EQ(simcuda_calls("cuModuleLoadData"), loads) << "no context is current";

  ASSERT_CU(cuCtxSetCurrent(context_));
  warm_up();
  EXPECT_TRUE(child_ends_it());
  driver::tell_context_goes();
  EXPECT_EQ(simcuda_calls("cuModuleLoadData"), loads + 1);
  const std::uint64_t maps = simcuda_calls("cuMemMap");
  EXPECT_GT(maps, 0u);

  refusal::Refusal error;
  EXPECT_NE(own_kernels(error), nullptr);
  EXPECT_NE(harmless_memory(0), 0u);
  warm_up();
  end_warm_up();
  EXPECT_EQ(simcuda_calls("cuModuleLoadData"), loads + 1) << "made once";
  EXPECT_EQ(simcuda_calls("cuMemMap"), maps) << "made once";
}

}  // namespace
}  // namespace grape::device
