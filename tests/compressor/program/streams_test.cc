// What real PyTorch did: its runs must give the same programs, wherever their memory lay.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "compressor/program/padding.h"
#include "compressor/program/parameter_types.h"
#include "compressor/program/plan.h"
#include "compressor/program/prove.h"
#include "compressor/program/symbolise.h"
#include "tests/compressor/program/stream_records.h"

namespace grape::program {
namespace {

std::vector<StreamRegion> stream(const std::string& name) {
  std::vector<StreamRegion> regions;
  std::string error;
  EXPECT_TRUE(read_stream(std::string(GRAPE_TRACE_DATA "/") + name, regions, error)) << error;
  for (StreamRegion& region : regions) find_random_state(region.record);
  return regions;
}

const std::vector<StreamRegion>& generate() {
  static const std::vector<StreamRegion> regions = [] {
    std::vector<StreamRegion> read;
    std::string error;
    EXPECT_TRUE(read_converted(GRAPE_PROGRAM_DATA "/gpt2-generate-3x24.grape", read, error)) << error;
    return read;
  }();
  return regions;
}

std::vector<Program> programs_of(const std::vector<StreamRegion>& regions) {
  std::vector<Program> programs;
  for (const StreamRegion& region : regions) programs.push_back(symbolise(region.record));
  return programs;
}

std::string difference(const Program& a, const Program& b) {
  const Comparison comparison = compare(a, b);
  return comparison.difference == Difference::kNone ? "" : describe(comparison, a, b, nullptr).text;
}

std::size_t count(const Program& program, Role role) {
  return static_cast<std::size_t>(std::count_if(program.references.begin(), program.references.end(),
                                                [&](const Reference& each) { return each.role == role; }));
}

// The address of a static that a word refers to, in a record without extents; null for any other word.
const StaticBlock* static_at(const Program& program, std::uint32_t word) {
  const auto by_word = [](const Reference& reference, std::uint32_t other) { return reference.word < other; };
  const auto found = std::lower_bound(program.references.begin(), program.references.end(), word, by_word);
  const bool is_static = found != program.references.end() && found->word == word && found->role == Role::kStatic;
  return is_static ? &program.statics[found->block] : nullptr;
}

// The probe did not say which memory was the arguments'. It is what was alive before, and is another block in the other
// run: the blocks that words of the two runs refer to at the same offset, if they always go together.
void find_inputs(RegionRecord& a, RegionRecord& b) {
  const Program program_a = symbolise(a), program_b = symbolise(b);
  std::map<std::uint64_t, std::map<std::uint64_t, std::size_t>> pairs;  // serials
  std::map<std::uint64_t, StaticBlock> blocks;
  for (std::uint32_t word = 0; word < program_a.words.size(); ++word) {
    const StaticBlock* one = static_at(program_a, word);
    const StaticBlock* other = static_at(program_b, word);
    if (one == nullptr || other == nullptr || program_a.words[word] != program_b.words[word]) continue;
    ++pairs[one->serial][other->serial];
    blocks[one->serial] = *one;
    blocks[other->serial] = *other;
  }
  std::set<std::uint64_t> taken;
  for (const auto& [serial, others] : pairs) {
    const auto best = std::max_element(others.begin(), others.end(),
                                       [](const auto& x, const auto& y) { return x.second < y.second; });
    if (best->first == serial || !taken.insert(best->first).second) continue;
    a.inputs.push_back({blocks[serial].address, blocks[serial].bytes});
    b.inputs.push_back({blocks[best->first].address, blocks[best->first].bytes});
  }
}

struct Expected {
  const char* name;
  std::size_t nodes;
  std::size_t most_noise;  // words that differ between any two runs
};
void PrintTo(const Expected& expected, std::ostream* out) { *out << expected.name; }

class Moved : public testing::TestWithParam<Expected> {};

TEST_P(Moved, AllRunsAreTheSameProgram) {
  const std::vector<Program> programs = programs_of(stream(GetParam().name));
  ASSERT_EQ(programs.size(), 5u);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(programs[i].nodes.size(), GetParam().nodes);
    for (std::size_t j = 0; j < i; ++j) {
      const Comparison comparison = compare(programs[i], programs[j]);
      EXPECT_EQ(difference(programs[i], programs[j]), "") << i << " against " << j;
      EXPECT_GT(comparison.noise.size(), 0u);
      EXPECT_LE(comparison.noise.size(), GetParam().most_noise);
      EXPECT_EQ(compare(programs[j], programs[i]).noise, comparison.noise);
    }
  }
}

// As the controller learns it: bytes that are other ones in less than `enough` shadow replays, one for each run but the
// first. Adds to what is known.
std::size_t left_unknown(const std::vector<Program>& runs, PaddingKnowledge& knowledge, std::uint8_t enough) {
  std::vector<const Program*> donors = {&runs[0]};
  std::vector<NoiseWord> noise;
  std::size_t unknown = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    for (const Program* donor : donors) add_noise(noise, runs[i], *donor, compare(runs[i], *donor).noise);
    Program program = runs[i];
    knowledge.confirm(program, settle_noise(program, donors, noise, knowledge, 0x1000));
    unknown = knowledge.unknown(program, noise, enough).size();
    donors.push_back(&runs[i]);
  }
  return unknown;
}

// Two shadow replays try each byte of real kernels' padding; little of it shows in the second one only, and little is
// new to another signature of the same kernels.
TEST_P(Moved, ItsPaddingIsSoonKnown) {
  const std::vector<Program> runs = programs_of(stream(GetParam().name));
  PaddingKnowledge after_one, after_two, tried;
  EXPECT_GT(left_unknown({runs[0], runs[1]}, after_one, PaddingKnowledge::kEnough), 12u);
  EXPECT_LE(left_unknown({runs[0], runs[1], runs[2]}, after_two, PaddingKnowledge::kEnough), 7u);
  EXPECT_EQ(left_unknown({runs[0], runs[1], runs[2]}, tried, 1), 0u);
  EXPECT_LE(left_unknown({runs[3], runs[4]}, after_two, PaddingKnowledge::kEnough), 3u);
}

// Were pointers not recognised, or recognised where they are none, runs would not agree; but they would agree as well
// if memory did not move. It did.
TEST_P(Moved, TheMemoryMoved) {
  const std::vector<StreamRegion> regions = stream(GetParam().name);
  const Program program = symbolise(regions[0].record);
  std::size_t born = 0, moved = 0;
  for (const Reference& reference : program.references) {
    if (reference.role != Role::kTemp && reference.role != Role::kOutput) continue;
    ++born;
    moved += regions[0].record.words[reference.word] != regions[1].record.words[reference.word];
  }
  EXPECT_GT(born, 200u);
  EXPECT_GT(moved, born / 2);
}

// The addresses of another run, put into the program of the first, give the words of that run: all but the noise.
TEST_P(Moved, BoundToTheOtherRunsAddressesItIsTheOtherRun) {
  const std::vector<StreamRegion> regions = stream(GetParam().name);
  const Program program = symbolise(regions[0].record), other = symbolise(regions[1].record);
  const std::vector<std::uint32_t> noise = compare(program, other).noise;
  std::vector<std::uint64_t> addresses;  // by birth
  for (const BlockEvent& event : regions[1].record.block_events) {
    if (event.alloc) addresses.push_back(event.address);
  }
  ArenaPlan plan;
  Bindings bindings;
  bindings.seed = regions[1].record.random.seed;
  bindings.offset = regions[1].record.random.offset_before;
  for (const BornBlock& temp : program.temps) plan.offsets.push_back(addresses[temp.birth]);
  for (const BornBlock& output : program.outputs) bindings.outputs.push_back(addresses[output.birth]);
  std::vector<std::uint64_t> bound(program.words.size());
  bind(program, plan, bindings, bound.data());
  for (std::uint32_t word = 0; word < bound.size(); ++word) {
    if (std::binary_search(noise.begin(), noise.end(), word)) continue;
    ASSERT_EQ(bound[word], regions[1].record.words[word]) << word;
  }
}

// The most memory that eager had in use at once for the blocks of a list.
std::uint64_t peak(const std::vector<BornBlock>& blocks) {
  std::map<std::uint32_t, std::int64_t> changes;  // by node
  for (const BornBlock& block : blocks) {
    changes[block.born] += static_cast<std::int64_t>(block.bytes);
    if (block.died != kNever) changes[block.died] -= static_cast<std::int64_t>(block.bytes);
  }
  std::int64_t now = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, now += change.second);
  return static_cast<std::uint64_t>(most);
}

void expect_small_arena(const Program& program) {
  const ArenaPlan plan = plan_arena(program);
  std::vector<BornBlock> all = program.temps;
  all.insert(all.end(), program.outputs.begin(), program.outputs.end());
  EXPECT_GT(plan.bytes, 0u);
  EXPECT_LE(plan.bytes, peak(all));
  // Nothing could do with less than the temps' own peak; packing them costs a little.
  EXPECT_LE(plan.bytes, peak(program.temps) + peak(program.temps) / 8);
}

TEST_P(Moved, TheArenaIsNotLargerThanEagersPeak) {
  for (const Program& program : programs_of(stream(GetParam().name))) expect_small_arena(program);
}

TEST_P(Moved, OneNumberOrPointerThatChangedIsSeen) {
  const std::vector<StreamRegion> regions = stream(GetParam().name);
  const Program program = symbolise(regions[0].record);
  std::size_t numbers = 0, pointers = 0;
  for (std::uint32_t i = 0; i < program.nodes.size(); i += 7) {
    const RecordedNode& node = program.nodes[i];
    if (node.kind != NodeKind::kKernel) continue;
    const FunctionInfo& function = program.functions[node.function];
    for (std::uint32_t k = 0; k < function.parameters.size(); ++k) {
      const Parameter& parameter = function.parameters[k];
      if (parameter.bytes != 4 && parameter.bytes != 8) continue;
      RegionRecord changed = regions[1].record;
      const std::uint32_t word = node.words_at + parameter.offset / 8;
      changed.words[word] += std::uint64_t{1} << (parameter.offset % 8 * 8);
      const Comparison comparison = compare(program, symbolise(changed));
      const std::vector<ParameterType> types = parameter_types(function.name);
      if (parameter.bytes == 8 && k < types.size() && types[k] == ParameterType::kTemplate) {
        // A functor with a number behind an empty one: what stands in front is padding by hypothesis.
        EXPECT_EQ(comparison.difference, Difference::kNone);
        EXPECT_TRUE(std::binary_search(comparison.noise.begin(), comparison.noise.end(), word));
        const std::uint32_t behind = parameter.offset + 4;
        changed.words[node.words_at + behind / 8] += std::uint64_t{1} << (behind % 8 * 8);
        EXPECT_EQ(compare(program, symbolise(changed)).difference, Difference::kScalar);
        continue;
      }
      ASSERT_TRUE(comparison.difference == Difference::kScalar || comparison.difference == Difference::kPointer);
      EXPECT_EQ(comparison.node, i);
      EXPECT_EQ(comparison.parameter, k);
      ++(comparison.difference == Difference::kPointer ? pointers : numbers);
    }
  }
  EXPECT_GT(numbers, 15u);
  EXPECT_GT(pointers, 15u);
}

INSTANTIATE_TEST_SUITE_P(Streams, Moved,
                         testing::Values(Expected{"gpt2-moved-5x", 283, 120}, Expected{"bert-moved-5x", 178, 25},
                                         Expected{"resnet-moved-5x", 228, 150}),
                         [](const auto& each) {
                           return std::string(each.param.name,
                                              each.param.name + std::string(each.param.name).find('-'));
                         });

constexpr std::size_t kLengths = 24;

class Generate : public testing::TestWithParam<std::size_t> {};

TEST_P(Generate, ThreeCallsOfOneLengthAreTheSameProgram) {
  const std::vector<StreamRegion>& regions = generate();
  ASSERT_EQ(regions.size(), 3 * kLengths);
  for (const auto& [i, j] : {std::pair<int, int>{0, 1}, {0, 2}, {1, 2}}) {
    RegionRecord a = regions[GetParam() + i * kLengths].record, b = regions[GetParam() + j * kLengths].record;
    find_inputs(a, b);
    // 12 layers' keys and values but for the first call, which has none; and the token.
    EXPECT_GE(a.inputs.size(), GetParam() == 0 ? 1u : 25u);
    const Program one = symbolise(std::move(a)), other = symbolise(std::move(b));
    EXPECT_EQ(difference(one, other), "") << i << " against " << j;
    EXPECT_LE(compare(one, other).noise.size(), 15u);
    EXPECT_EQ(count(one, Role::kInput), count(other, Role::kInput));
  }
}

TEST_P(Generate, AnotherLengthIsAnotherProgram) {
  const std::vector<StreamRegion>& regions = generate();
  const std::size_t other = GetParam() + 1 < kLengths ? GetParam() + 1 : 0;
  RegionRecord a = regions[GetParam()].record, b = regions[other].record;
  find_inputs(a, b);
  EXPECT_NE(difference(symbolise(std::move(a)), symbolise(std::move(b))), "");
}

TEST_P(Generate, TheArenaIsNotLargerThanEagersPeak) { expect_small_arena(symbolise(generate()[GetParam()].record)); }

INSTANTIATE_TEST_SUITE_P(Streams, Generate, testing::Range(std::size_t{0}, kLengths));

}  // namespace
}  // namespace grape::program
