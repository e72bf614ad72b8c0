// Blocks that a call keeps beside its result count as if they had been there before it.
#include "compressor/program/kept_blocks.h"

#include <gtest/gtest.h>

#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/program/record_builder.h"

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

TEST(KeptBlocks, MemoryThatWasSomethingElseBefore) {
  RecordBuilder reused;
  reused.alloc(kWorkspace + 0x100, 64).launch(plain_kernel(1, 1), {kWorkspace + 0x100}).free(kWorkspace + 0x100);
  reused.alloc(kWorkspace, 0x800).launch(plain_kernel(1, 1), {kWorkspace});
  EXPECT_FALSE(count_as_before(reused.record(), {kWorkspace}));
  EXPECT_EQ(reused.record().block_events.size(), 3u);

  RecordBuilder older;
  older.before(kWorkspace, 0x100).free(kWorkspace).alloc(kWorkspace, 0x800);
  older.launch(plain_kernel(1, 1), {kWorkspace});
  EXPECT_FALSE(count_as_before(older.record(), {kWorkspace}));
  EXPECT_FALSE(count_as_before(older.record(), {kOther})) << "not made in the call";
  EXPECT_EQ(older.record().before.size(), 1u);
}

}  // namespace
}  // namespace grape::program
