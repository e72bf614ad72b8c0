// Few execs for many programs, on the simulated driver: whatever is shared or dropped, each program computes its own.
#include "shim/graphs/exec_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "shim/device/own_kernels.h"
#include "shim/graphs/device_budget.h"
#include "shim/lifecycle/config.h"
#include "shim/replay/program_run.h"
#include "tests/shim/graphs/program_builder.h"
#include "tests/simcuda/fixture.h"

namespace grape::graphs {
namespace {

using replay_test::ProgramBuilder;

constexpr std::uint64_t kBase = 10;  // each kernel appends its digit to the result

// A program, and the number that it leaves in its output.
struct Numbered {
  ProgramBuilder builder;
  program::ArenaPlan plan;
  std::uint64_t result = 0;
};

class ExecPoolTest : public simcuda_test::Driver {
 protected:
  void SetUp() override {
    Driver::SetUp();
    refusal::Refusal error;
    ASSERT_NE(device::own_kernels(error), nullptr) << error.text;
    output_ = number(0);
    ASSERT_EQ(ExecPool::device_bytes(), 0u);
  }
  void TearDown() override {
    EXPECT_EQ(ExecPool::device_bytes(), 0u) << "each pool took back what it had counted";
    EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), simcuda_calls("cuGraphInstantiateWithFlags"));
    device::forget_own_kernels(context_);  // as the wrappers do it
    Driver::TearDown();
  }

  // Sets the output to `first`, then appends one digit per kernel. Programs of as many digits are of one shape.
  Numbered numbered(std::uint64_t first, const std::vector<std::uint64_t>& digits) {
    Numbered made;
    const auto output = made.builder.add_output(8);
    add_digits(made, output, first, digits);
    return made;
  }
  void add_digits(Numbered& made, ProgramBuilder::Block output, std::uint64_t first,
                  const std::vector<std::uint64_t>& digits) {
    const auto mix =
        made.builder.add_function(reinterpret_cast<std::uint64_t>(function("_Z3mixPmmm")), "_Z3mixPmmm", {8, 8, 8});
    made.builder.kernel(mix, {output.at(0), ProgramBuilder::plain(0), ProgramBuilder::plain(first)});
    made.result = first;
    for (const std::uint64_t digit : digits) {
      made.builder.kernel(mix, {output.at(0), ProgramBuilder::plain(kBase), ProgramBuilder::plain(digit)});
      made.result = made.result * kBase + digit;
    }
  }
  // As many nodes as take up more than a third of the budget, and `more`: shapes differ by it.
  Numbered third_of_budget(std::uint64_t first, std::size_t more) {
    const std::size_t nodes = nodes_of_third() + more;
    return numbered(first, std::vector<std::uint64_t>(nodes - 1, first));
  }
  // The least that take up more than a third of the budget.
  std::size_t nodes_of_third() {
    const std::uint64_t one = bytes_of(1), per_node = bytes_of(2) - one;
    return 1 + (config().memory_budget / 3 - one) / per_node + 1;
  }
  std::uint64_t bytes_of(std::size_t nodes) {
    const Numbered made = numbered(1, std::vector<std::uint64_t>(nodes - 1, 1));
    refusal::Refusal error;
    ExecPool pool;
    const program::Bindings bindings = to(output_);
    pool.take(made.builder.kept(), program::segments(made.builder.program()).front(), made.plan, bindings, error);
    return ExecPool::device_bytes();
  }
  static program::Bindings to(CUdeviceptr output) {
    program::Bindings bindings;
    bindings.outputs = {output};
    return bindings;
  }
  GraphExec* take(ExecPool& pool, const Numbered& numbered, CUdeviceptr output) {
    const store::KeptProgram& program = numbered.builder.kept();
    const program::Segment segment = program::segments(numbered.builder.program()).front();
    refusal::Refusal error;
    GraphExec* exec = pool.take(program, segment, numbered.plan, to(output), error);
    EXPECT_NE(exec, nullptr) << error.text;
    if (exec != nullptr) {
      EXPECT_EQ(exec->holds(), program.whole().get());
    }
    return exec;
  }
  // Takes it, launches it, and looks at what it wrote.
  void expect_computes(ExecPool& pool, const Numbered& numbered) {
    const CUdeviceptr output = number(999);
    GraphExec* exec = take(pool, numbered, output);
    ASSERT_NE(exec, nullptr);
    ASSERT_CU(exec->launch(nullptr));
    ASSERT_CU(cuCtxSynchronize());
    EXPECT_EQ(read<std::uint64_t>(output), numbered.result);
    ASSERT_CU(cuMemFree(output));
  }

  CUdeviceptr output_ = 0;
};

TEST_F(ExecPoolTest, AProgramTakenAgainIsBuiltOnce) {
  const Numbered program = numbered(1, {2, 3});
  ExecPool pool;
  GraphExec* first = take(pool, program, output_);
  const std::uint64_t bytes = ExecPool::device_bytes();
  EXPECT_EQ(bytes, first->device_bytes());
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(take(pool, program, output_), first);
  EXPECT_EQ(first->patched(), 0u);
  expect_computes(pool, program);
  EXPECT_EQ(pool.size(), 1u);
  EXPECT_EQ(pool.built(), 1u);
  EXPECT_EQ(pool.adopted(), 0u);
  EXPECT_EQ(ExecPool::device_bytes(), bytes);
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), 1u);
}

TEST_F(ExecPoolTest, FiveProgramsOfOneShapeShareFourExecs) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 1; i <= 5; ++i) programs.push_back(numbered(i, {i + 1, i + 2, i + 3}));
  ExecPool pool;
  for (const Numbered& program : programs) expect_computes(pool, program);
  EXPECT_EQ(pool.size(), 4u);
  EXPECT_EQ(pool.built(), 4u);
  EXPECT_EQ(pool.adopted(), 1u);
  EXPECT_EQ(ExecPool::device_bytes(), 4 * take(pool, programs[4], output_)->device_bytes());

  // The fifth took the exec that was not used for longest: the first's. The others still hold theirs.
  for (std::size_t i = 1; i < 5; ++i) expect_computes(pool, programs[i]);
  EXPECT_EQ(pool.adopted(), 1u);
  for (const Numbered& program : programs) expect_computes(pool, program);
  EXPECT_EQ(pool.built(), 4u);
  EXPECT_EQ(pool.adopted(), 6u) << "in a round each takes the next one's";
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), 4u);
}

TEST_F(ExecPoolTest, AnExecIsHandedOverToTheProgramThatFollows) {
  const Numbered other = numbered(9, {9, 9}), after = numbered(4, {5, 6});
  ExecPool pool;
  expect_computes(pool, other);
  {
    const Numbered before = numbered(1, {2, 3});
    GraphExec* exec = take(pool, before, output_);
    pool.hand_over(before.builder.kept(), after.builder.kept(), after.plan, to(output_));
    EXPECT_EQ(exec->holds(), after.builder.kept().whole().get());
    pool.forget(before.builder.kept());
    EXPECT_EQ(take(pool, after, output_), exec);
    EXPECT_EQ(exec->patched(), 0u) << "bound by the handing over";
  }
  expect_computes(pool, after);
  expect_computes(pool, other);
  EXPECT_EQ(pool.built(), 2u);
  EXPECT_EQ(pool.size(), 2u);
  EXPECT_EQ(simcuda_calls("cuGraphInstantiateWithFlags"), 2u);

  // Nothing to hand over, and a driver that refuses: the next one is built.
  const Numbered never = numbered(1, {1, 1}), last = numbered(7, {8, 8});
  pool.hand_over(never.builder.kept(), last.builder.kept(), last.plan, to(output_));
  EXPECT_EQ(pool.size(), 2u);
  ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 2, CUDA_ERROR_UNKNOWN), 0);
  pool.hand_over(after.builder.kept(), last.builder.kept(), last.plan, to(output_));
  EXPECT_EQ(pool.size(), 1u) << "half of one program and half of another";
  expect_computes(pool, last);
  EXPECT_EQ(pool.built(), 3u);
}

TEST_F(ExecPoolTest, WhatComesAgainAndAgainGetsAnExecOfItsOwn) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 1; i <= 9; ++i) programs.push_back(numbered(i, {i + 1, i + 2, i + 3}));
  ExecPool pool;
  for (int round = 0; round < 10; ++round) {
    for (const Numbered& program : programs) expect_computes(pool, program);
  }
  EXPECT_EQ(pool.size(), 9u);
  const std::uint64_t built = pool.built(), adopted = pool.adopted();
  for (const Numbered& program : programs) expect_computes(pool, program);
  EXPECT_EQ(pool.built(), built);
  EXPECT_EQ(pool.adopted(), adopted) << "each finds its own";
  pool.forget(programs[3].builder.kept());
  EXPECT_EQ(pool.size(), 8u);
  for (std::size_t i = 0; i < 9; ++i) {
    if (i != 3) expect_computes(pool, programs[i]);
  }
  EXPECT_EQ(pool.built(), built);
}

TEST_F(ExecPoolTest, TheOneNotUsedForLongestIsAdopted) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 1; i <= 5; ++i) programs.push_back(numbered(i, {i}));
  ExecPool pool;
  std::vector<GraphExec*> execs;
  for (std::size_t i = 0; i < 4; ++i) execs.push_back(take(pool, programs[i], output_));
  take(pool, programs[0], output_);  // now the second is the oldest
  EXPECT_EQ(take(pool, programs[4], output_), execs[1]);
  EXPECT_EQ(take(pool, programs[0], output_), execs[0]);
  EXPECT_EQ(pool.adopted(), 1u);
}

TEST_F(ExecPoolTest, OtherShapesAreBuilt) {
  std::deque<Numbered> programs;
  ExecPool pool;
  for (std::uint64_t length = 0; length < 6; ++length) {
    programs.push_back(numbered(length + 1, std::vector<std::uint64_t>(length, 7)));
    expect_computes(pool, programs.back());
  }
  for (const Numbered& program : programs) expect_computes(pool, program);
  EXPECT_EQ(pool.built(), 6u);
  EXPECT_EQ(pool.adopted(), 0u);
}

TEST_F(ExecPoolTest, WhatIsForgottenIsNeverLookedAt) {
  ExecPool pool;
  const Numbered kept = numbered(3, {4});
  expect_computes(pool, kept);
  const std::uint64_t bytes = ExecPool::device_bytes();
  Numbered slot = numbered(1, {2});
  expect_computes(pool, slot);
  pool.forget(slot.builder.kept());
  EXPECT_EQ(pool.size(), 1u);
  EXPECT_EQ(ExecPool::device_bytes(), bytes);
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), 1u);
  // Another program at the same address.
  slot = numbered(5, {6});
  expect_computes(pool, slot);
  EXPECT_EQ(pool.built(), 3u);
  pool.forget(numbered(7, {8}).builder.kept());  // one it never had
  EXPECT_EQ(pool.size(), 2u);
  expect_computes(pool, kept);
  EXPECT_EQ(pool.built(), 3u);
}

TEST_F(ExecPoolTest, ForgetsAllPartsOfAProgram) {
  Numbered program = numbered(1, {2});
  program.builder.read({0, true, program::Role::kOutput, 0}, 8, {12});
  add_digits(program, {program::Role::kOutput, 0}, 3, {4});
  const Numbered other = numbered(5, {6, 7});
  ExecPool pool;
  replay::ProgramRun steps;
  refusal::Refusal error;
  ASSERT_TRUE(steps.prepare(pool, program.builder.kept(), program.plan, to(output_), error)) << error.text;
  EXPECT_EQ(steps.run(nullptr, {}), replay::ProgramRun::Result::kDone);
  expect_computes(pool, other);
  EXPECT_EQ(pool.size(), 3u);
  pool.forget(program.builder.kept());
  EXPECT_EQ(pool.size(), 1u);
  expect_computes(pool, other);
  EXPECT_EQ(pool.built(), 3u);
}

// A program that reads a value takes over the exec of another, whose value is elsewhere and larger; one whose value the
// graph cannot bring does not.
TEST_F(ExecPoolTest, ValuesComeFromTheProgramThatIsHeld) {
  const auto reading = [&](std::uint64_t digit, bool argument) {
    Numbered made;
    const auto output = made.builder.add_output(8);
    const auto input = made.builder.add_input(8);
    add_digits(made, output, digit, {1});
    if (argument) {
      made.builder.read(input.at(0), 8, {0});
    } else {
      made.builder.read(output.at(0), digit == 1 ? 8 : 4, {made.result});
    }
    made.plan = made.builder.plan();
    return made;
  };
  const CUdeviceptr outputs[] = {number(0), number(0)};
  ExecPool pool;
  const auto ran = [&](const Numbered& program, CUdeviceptr output) {
    replay::ProgramRun steps;
    refusal::Refusal error;
    program::Bindings bindings;
    bindings.outputs = {output};
    bindings.inputs = {output_};
    EXPECT_TRUE(steps.prepare(pool, program.builder.kept(), program.plan, bindings, error)) << error.text;
    return steps.run(nullptr, {});
  };
  std::deque<Numbered> programs;
  for (std::uint64_t digit = 1; digit <= 4; ++digit) programs.push_back(reading(digit, false));
  for (const Numbered& program : programs) EXPECT_EQ(ran(program, outputs[0]), replay::ProgramRun::Result::kDone);
  EXPECT_EQ(pool.built(), 4u);
  programs.push_back(reading(7, false));
  EXPECT_EQ(ran(programs.back(), outputs[1]), replay::ProgramRun::Result::kDone);
  EXPECT_EQ(pool.adopted(), 1u);
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 0u);
  EXPECT_EQ(ran(programs.front(), outputs[1]), replay::ProgramRun::Result::kDone);
  programs.push_back(reading(8, true));
  EXPECT_EQ(ran(programs.back(), outputs[0]), replay::ProgramRun::Result::kDone);
  EXPECT_EQ(pool.adopted(), 2u) << "it got one of its own";
  EXPECT_EQ(simcuda_calls("cuMemcpyDtoHAsync_v2"), 1u);
  for (const Numbered& program : programs) pool.forget(program.builder.kept());
}

// Segments of one shape: none may take the exec of another of the same program.
TEST_F(ExecPoolTest, PartsOfOneProgramDoNotTakeEachOthersExecs) {
  Numbered program;
  const auto output = program.builder.add_output(8);
  for (std::uint64_t part = 1; part <= 6; ++part) {
    add_digits(program, output, part, {part});
    program.builder.read(output.at(0), 8, {program.result});
  }
  const Numbered before = numbered(8, {9});
  ExecPool pool;
  expect_computes(pool, before);
  replay::ProgramRun steps;
  refusal::Refusal error;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(steps.prepare(pool, program.builder.kept(), program.plan, to(output_), error)) << error.text;
    EXPECT_EQ(steps.run(nullptr, {}), replay::ProgramRun::Result::kDone);
    EXPECT_EQ(read<std::uint64_t>(output_), 66u);
  }
  EXPECT_EQ(pool.built(), 7u);
  EXPECT_EQ(pool.adopted(), 0u);
  expect_computes(pool, before);
}

TEST_F(ExecPoolTest, BeyondTheBudgetTheOldestGoes) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 0; i < 5; ++i) programs.push_back(third_of_budget(i + 1, i));
  ExecPool pool;
  simcuda_reset();
  for (std::size_t i = 0; i < 3; ++i) expect_computes(pool, programs[i]);
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_GT(ExecPool::device_bytes(), config().memory_budget);
  expect_computes(pool, programs[0]);  // in the pool as it is: nothing is built, nothing goes
  EXPECT_EQ(pool.size(), 3u);

  expect_computes(pool, programs[3]);  // in place of the second
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), 1u);
  for (const std::size_t i : {0, 2, 3}) expect_computes(pool, programs[i]);
  EXPECT_EQ(pool.built(), 4u) << "these were kept";
  expect_computes(pool, programs[1]);  // in place of the first
  for (const std::size_t i : {2, 3, 1}) expect_computes(pool, programs[i]);
  EXPECT_EQ(pool.built(), 5u);
  expect_computes(pool, programs[4]);
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_EQ(pool.adopted(), 0u);
}

// What the program's own graphs take counts, but takes no more than half of the budget away.
TEST_F(ExecPoolTest, BesideGraphsOfTheProgram) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 0; i < 4; ++i) programs.push_back(third_of_budget(i + 1, i));
  g_device_bytes.program = 10 * config().memory_budget;
  {
    ExecPool pool;
    for (const Numbered& program : programs) {
      expect_computes(pool, program);
      EXPECT_LE(pool.size(), 2u);
    }
    EXPECT_EQ(pool.size(), 2u);
    g_device_bytes.program = 0;
    expect_computes(pool, programs[0]);
    EXPECT_EQ(pool.size(), 3u);
  }
}

TEST_F(ExecPoolTest, BeyondTheBudgetOneOfItsShapeIsAdopted) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 0; i < 3; ++i) programs.push_back(third_of_budget(i + 1, i));
  const Numbered alike = third_of_budget(9, 0), small = numbered(1, {});
  ExecPool pool;
  simcuda_reset();
  for (const Numbered& program : programs) expect_computes(pool, program);
  const std::uint64_t bytes = ExecPool::device_bytes();
  expect_computes(pool, alike);
  EXPECT_EQ(pool.built(), 3u);
  EXPECT_EQ(pool.adopted(), 1u);
  EXPECT_EQ(ExecPool::device_bytes(), bytes);
  for (const std::size_t i : {1, 2}) expect_computes(pool, programs[i]);
  EXPECT_EQ(pool.built(), 3u);

  // Another pool has nothing of its own to let go, and is not refused.
  ExecPool other;
  expect_computes(other, small);
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_EQ(other.size(), 1u);
}

TEST_F(ExecPoolTest, PartsOfTheProgramBeingTakenStay) {
  // Four parts of different lengths: more than the budget by themselves.
  Numbered program;
  const auto output = program.builder.add_output(8);
  const std::size_t nodes = nodes_of_third();
  for (std::uint64_t part = 1; part <= 4; ++part) {
    add_digits(program, output, part, std::vector<std::uint64_t>(nodes + part, part));
    program.builder.read(output.at(0), 8, {program.result});
  }
  const Numbered older = third_of_budget(7, 0), newer = third_of_budget(8, 20);
  ExecPool pool;
  simcuda_reset();
  expect_computes(pool, older);
  expect_computes(pool, newer);
  replay::ProgramRun steps;
  refusal::Refusal error;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(steps.prepare(pool, program.builder.kept(), program.plan, to(output_), error)) << error.text;
    EXPECT_EQ(steps.run(nullptr, {}), replay::ProgramRun::Result::kDone);
    EXPECT_EQ(read<std::uint64_t>(output_), program.result);
    EXPECT_EQ(pool.built(), 6u);
  }
  EXPECT_EQ(pool.size(), 4u) << "the other programs' are gone, all of its own are there";
  EXPECT_EQ(simcuda_calls("cuGraphExecDestroy"), 2u);
  expect_computes(pool, newer);
  EXPECT_LE(pool.size(), 4u);
}

TEST_F(ExecPoolTest, WhatTheDriverRefusesLeavesNothing) {
  const Numbered first = numbered(1, {2}), second = numbered(3, {4, 5});
  const CUdeviceptr moved = number(0);
  ExecPool pool;
  refusal::Refusal error;
  const program::Segment segment = program::segments(first.builder.program()).front();
  ASSERT_EQ(simcuda_set_fault("cuGraphAddKernelNode_v2", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
  EXPECT_EQ(pool.take(first.builder.kept(), segment, first.plan, to(output_), error), nullptr);
  EXPECT_TRUE(error);
  EXPECT_EQ(error.text.find('\n'), std::string::npos);
  EXPECT_EQ(pool.size(), 0u);
  EXPECT_EQ(pool.built(), 0u);
  EXPECT_EQ(ExecPool::device_bytes(), 0u);

  expect_computes(pool, first);
  expect_computes(pool, second);
  ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 2, CUDA_ERROR_OUT_OF_MEMORY), 0);
  error = {};
  EXPECT_EQ(pool.take(first.builder.kept(), segment, first.plan, to(moved), error), nullptr);
  EXPECT_EQ(error.text, "the driver refused new parameters, with error 2");
  EXPECT_EQ(pool.size(), 1u) << "an exec half of whose nodes moved is gone";
  expect_computes(pool, first);
  expect_computes(pool, second);
  EXPECT_EQ(pool.built(), 3u);
}

TEST_F(ExecPoolTest, AProgramThatCannotBeReadIsSaid) {
  const Numbered made = numbered(1, {2});
  const program::Segment segment = program::segments(made.builder.program()).front();
  store::Store store;
  store::KeptProgram kept(made.builder.program());
  ASSERT_TRUE(kept.put_away(store));
  for (const std::uint64_t id : store.ids()) store.erase(id);
  ExecPool pool;
  replay::ProgramRun steps;
  refusal::Refusal error;
  EXPECT_EQ(pool.take(kept, segment, made.plan, to(output_), error), nullptr);
  EXPECT_EQ(error.text, "no host memory for the program");
  error = {};
  EXPECT_FALSE(steps.prepare(pool, kept, made.plan, to(output_), error));
  EXPECT_EQ(error.text, "no host memory for the program");
}

TEST_F(ExecPoolTest, AnExecThatCannotBeAdoptedIsReplaced) {
  std::vector<Numbered> programs;
  for (std::uint64_t i = 1; i <= 5; ++i) programs.push_back(numbered(i, {i}));
  ExecPool pool;
  for (std::size_t i = 0; i < 4; ++i) expect_computes(pool, programs[i]);
  ASSERT_EQ(simcuda_set_fault("cuGraphExecKernelNodeSetParams_v2", 2, CUDA_ERROR_INVALID_VALUE), 0);
  expect_computes(pool, programs[4]);
  EXPECT_EQ(pool.size(), 4u);
  EXPECT_EQ(pool.built(), 5u);
  EXPECT_EQ(pool.adopted(), 0u);
  for (const Numbered& program : programs) expect_computes(pool, program);
}

}  // namespace
}  // namespace grape::graphs
