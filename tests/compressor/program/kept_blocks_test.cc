// Blocks that a call keeps beside its result count as if they had been there before it.
#include "compressor/program/kept_blocks.h"

#include <gtest/gtest.h>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/record_builder.h"

namespace grape::program {
namespace {

constexpr std::uint64_t kWorkspace = 0x5000, kResult = 0x9000, kOther = 0x1000;

// Writes into a workspace, which it makes, and then into its result.
RecordBuilder first_call() {
  RecordBuilder record;
  record.before(kOther, 0x100).alloc(kWorkspace, 0x800).launch(plain_kernel(1, 2), {kWorkspace + 64, kOther});
  record.alloc(kResult, 0x100).launch(plain_kernel(1, 2), {kResult, kWorkspace + 64});
  return record;
}

RecordBuilder next_call(std::uint64_t serial) {
  RecordBuilder record;
  record.before(kOther, 0x100).before(kWorkspace, 0x800).launch(plain_kernel(1, 2), {kWorkspace + 64, kOther});
  record.alloc(kResult + 0x400, 0x100).launch(plain_kernel(1, 2), {kResult + 0x400, kWorkspace + 64});
  record.record().before.back().serial = serial;
  return record;
}

TEST(KeptBlocks, TheNextCallIsTheSameProgram) {
  RecordBuilder first = first_call();
  const std::uint64_t serial = first.record().block_events.front().serial;
  ASSERT_TRUE(count_as_before(first.record(), {kWorkspace}));
  const Program program = symbolise(std::move(first.record()));
  EXPECT_EQ(program.outputs.size(), 1u);
  EXPECT_EQ(symbol_at(program, 0), "static 0 + 64");
  EXPECT_EQ(compare(program, symbolise(std::move(next_call(serial).record()))).difference, Difference::kNone);
  EXPECT_NE(compare(program, symbolise(std::move(next_call(serial + 1).record()))).difference, Difference::kNone)
      << "another block at the same address";
}

// Also where the workspace itself begins.
TEST(KeptBlocks, ATemporaryWasInItsPlaceBefore) {
  const auto call = [](RecordBuilder record, std::uint64_t temporary, bool first) {
    record.alloc(temporary, 64).launch(plain_kernel(1, 1), {temporary + 8}).free(temporary);
    if (first) record.alloc(kWorkspace, 0x800);
    record.launch(plain_kernel(1, 1), {kWorkspace + 8});
    return std::move(record.record());
  };
  for (const std::uint64_t place : {kWorkspace, kWorkspace + 0x100}) {
    RegionRecord first = call(RecordBuilder(), place, true);
    const std::uint64_t serial = first.block_events.back().serial;
    ASSERT_TRUE(count_as_before(first, {kWorkspace}));
    EXPECT_EQ(first.block_events.size(), 2u);
    const Program program = symbolise(std::move(first));
    EXPECT_EQ(symbol_at(program, 0), "temp 0 + 8");
    EXPECT_EQ(symbol_at(program, 1), "static 0 + 8");
    RegionRecord next = call(std::move(RecordBuilder().before(kWorkspace, 0x800)), kOther, false);
    next.before.front().serial = serial;
    EXPECT_EQ(compare(program, symbolise(std::move(next))).difference, Difference::kNone);
  }
}

TEST(KeptBlocks, MemoryThatWasSomethingElseAsTheCallBegan) {
  RecordBuilder older;
  older.before(kWorkspace, 0x100).free(kWorkspace).alloc(kWorkspace, 0x800);
  older.launch(plain_kernel(1, 1), {kWorkspace});
  EXPECT_FALSE(count_as_before(older.record(), {kWorkspace}));
  EXPECT_FALSE(count_as_before(older.record(), {kOther})) << "not made in the call";
  EXPECT_EQ(older.record().before.size(), 1u);
}

}  // namespace
}  // namespace grape::program
