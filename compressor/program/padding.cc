#include "compressor/program/padding.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace grape::program {
namespace {

constexpr std::uint8_t kAllBytes = 0xff, kUpperHalf = 0xf0;

int count(std::uint8_t bytes) { return __builtin_popcount(bytes); }

// What a run had in a word.
struct Observed {
  bool address = false;  // a symbol, or an address in memory that is nobody's
  bool known = true;     // the lower half
  std::uint32_t low = 0;
};

Observed observed(const Program& program, std::uint32_t word) {
  const Reference* reference = reference_at(program, word);
  if (reference == nullptr || reference->role == Role::kNumber) {  // beside the number
    const bool stray = std::binary_search(program.strays.begin(), program.strays.end(), word);
    return {stray, true, static_cast<std::uint32_t>(program.words[word])};
  }
  if (program.lows.size() != program.references.size()) return {true, false, 0};
  return {true, true, program.lows[static_cast<std::size_t>(reference - program.references.data())]};
}

// Of two runs. Lower halves that are not known count as the same: the program was proven where they were.
std::uint8_t noise_bytes(const Program& a, const Program& b, std::uint32_t word) {
  const Observed in_a = observed(a, word), in_b = observed(b, word);
  if (!in_a.address && !in_b.address) return different_bytes(a.words[word], b.words[word]);
  const bool both = in_a.known && in_b.known;
  return static_cast<std::uint8_t>(kUpperHalf | (both ? different_bytes(in_a.low, in_b.low) : 0));
}

// The references at these words go, but for numbers, and the statics that nothing else refers to.
void drop_references_of(Program& program, const std::vector<NoiseWord>& noise) {
  std::vector<bool> gone;
  auto next = noise.begin();
  for (const Reference& reference : program.references) {
    while (next != noise.end() && next->word < reference.word) ++next;
    gone.push_back(next != noise.end() && next->word == reference.word && reference.role != Role::kNumber);
  }
  drop_references(program, gone);
  drop_unused_statics(program);
  program.lows.clear();
}

}  // namespace

void add_noise(std::vector<NoiseWord>& all, const Program& a, const Program& b,
               const std::vector<std::uint32_t>& noise) {
  std::vector<NoiseWord> merged;
  merged.reserve(all.size() + noise.size());
  auto old = all.begin();
  for (const std::uint32_t word : noise) {
    for (; old != all.end() && old->word < word; ++old) merged.push_back(*old);
    NoiseWord added{word, noise_bytes(a, b, word)};
    if (old != all.end() && old->word == word) added.bytes = static_cast<std::uint8_t>(added.bytes | old++->bytes);
    merged.push_back(added);
  }
  merged.insert(merged.end(), old, all.end());
  all = std::move(merged);
}

ForeignNoise foreign_noise(const Program& own, const Program& earlier, const std::vector<std::uint32_t>& noise,
                           const HostPlaces& host) {
  ForeignNoise result;
  for (const std::uint32_t word : noise) {
    const bool own_address = observed(own, word).address, address = own_address || observed(earlier, word).address;
    if (!address && host(own.words[word]) == HostPlace::kCode) continue;
    (address ? result.addresses : result.plain).push_back({word, noise_bytes(own, earlier, word)});
    if (!address) result.other.push_back(earlier.words[word]);
    if (own_address) result.replaced.push_back({word, kUpperHalf});
  }
  return result;
}

std::string describe(const Program& program, const NoiseWord& noise) {
  const RecordedNode& node = node_of(program, noise.word);
  char text[80];
  std::snprintf(text, sizeof text, "bytes 0x%02x of word %u of kernel ", noise.bytes, noise.word - node.words_at);
  return text + program.functions[node.function].name + " (operation " + std::to_string(&node - program.nodes.data()) +
         ")";
}

void PaddingKnowledge::set_module_epoch(std::uint32_t epoch) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch != module_epoch_) kernels_.clear();
  module_epoch_ = epoch;
}

PaddingKnowledge::Kernel& PaddingKnowledge::kernel_of(const FunctionInfo& function) const {
  const auto [place, added] = kernels_.try_emplace(identity_ ? identity_(function) : function.handle);
  Kernel& kernel = place->second;
  if (!added && kernel.name == function.name) return kernel;
  kernel.name = function.name;
  kernel.words = source_ ? source_(function) : Words();
  kernel.in_last_call.clear();
  kernel.pointers.clear();
  return kernel;
}

PaddingKnowledge::Words PaddingKnowledge::known(const FunctionInfo& function) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kernel_of(function).words;
}

std::uint8_t PaddingKnowledge::unknown_bytes(const Program& program, const NoiseWord& noise,
                                             std::uint8_t enough) const {
  const RecordedNode& node = node_of(program, noise.word);
  const FunctionInfo& function = program.functions[node.function];
  const Words& words = kernel_of(function).words;
  const auto known = words.find(noise.word - node.words_at);
  if (known == words.end()) return noise.bytes;
  std::uint8_t bytes = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if (known->second.seen[i] < enough) bytes = static_cast<std::uint8_t>(bytes | 1u << i);
  }
  return static_cast<std::uint8_t>(bytes & noise.bytes);
}

std::vector<NoiseWord> PaddingKnowledge::unknown(const Program& program, const std::vector<NoiseWord>& noise,
                                                 std::uint8_t enough) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<NoiseWord> result;
  for (const NoiseWord& each : noise) {
    const std::uint8_t bytes = unknown_bytes(program, each, enough);
    if (bytes != 0) result.push_back({each.word, bytes});
  }
  return result;
}

std::array<std::uint8_t, 8>& PaddingKnowledge::counts_of(const Program& program, std::uint32_t word) {
  const RecordedNode& node = node_of(program, word);
  return kernel_of(program.functions[node.function]).words[word - node.words_at].seen;
}

void PaddingKnowledge::confirm(const Program& program, const std::vector<NoiseWord>& tried) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<std::uint8_t*> counted;
  for (const NoiseWord& each : tried) {
    std::array<std::uint8_t, 8>& counts = counts_of(program, each.word);
    for (unsigned i = 0; i < 8; ++i) {
      if ((each.bytes >> i & 1) == 0 || !counted.insert(&counts[i]).second) continue;
      if (counts[i] < kEnough) ++counts[i];
    }
  }
}

bool PaddingKnowledge::refute(const Program& program, const std::vector<NoiseWord>& tried) {
  std::vector<NoiseWord> blamed = unknown(program, tried);
  if (blamed.empty()) blamed = tried;
  bool learned = false;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const NoiseWord& each : blamed) {
    std::array<std::uint8_t, 8>& counts = counts_of(program, each.word);
    for (unsigned i = 0; i < 8; ++i) {
      if ((each.bytes >> i & 1) != 0) counts[i] = 0;
    }
    const RecordedNode& node = node_of(program, each.word);
    const bool stray = std::binary_search(program.strays.begin(), program.strays.end(), each.word);
    std::set<std::uint32_t>& pointers = kernel_of(program.functions[node.function]).pointers;
    learned = (stray && pointers.insert(each.word - node.words_at).second) || learned;
  }
  return learned;
}

void PaddingKnowledge::note_call(const Program& own, const ForeignNoise& foreign) {
  struct InThisCall {
    std::uint64_t value;   // of the kernel's first launch
    std::uint8_t foreign;  // bytes that the earlier process had otherwise, in any launch
    std::uint8_t varies;   // from launch to launch
  };
  std::map<std::pair<Kernel*, std::uint32_t>, InThisCall> words;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const NoiseWord& each : foreign.plain) {
    const RecordedNode& node = node_of(own, each.word);
    const std::uint64_t value = own.words[each.word];
    const std::pair<Kernel*, std::uint32_t> place(&kernel_of(own.functions[node.function]), each.word - node.words_at);
    InThisCall& call = words.try_emplace(place, InThisCall{value, 0, 0}).first->second;
    call.foreign = static_cast<std::uint8_t>(call.foreign | each.bytes);
    call.varies = static_cast<std::uint8_t>(call.varies | different_bytes(call.value, value));
  }
  for (const auto& [place, call] : words) {
    const auto [last, first_call] = place.first->in_last_call.try_emplace(place.second, call.value);
    const auto varies = static_cast<std::uint8_t>(call.varies | different_bytes(last->second, call.value));
    last->second = call.value;
    if (first_call && varies == 0) continue;
    Word& word = place.first->words[place.second];
    word.varies = static_cast<std::uint8_t>(word.varies | varies);
    if (!first_call) word.own = static_cast<std::uint8_t>(word.own | (call.foreign & ~varies));
  }
}

std::uint8_t PaddingKnowledge::own_bytes(const Program& program, std::uint32_t word) const {
  const RecordedNode& node = node_of(program, word);
  const Words& words = kernel_of(program.functions[node.function]).words;
  const auto known = words.find(word - node.words_at);
  return known == words.end() ? 0 : static_cast<std::uint8_t>(known->second.own & ~known->second.varies);
}

std::vector<NoiseWord> PaddingKnowledge::not_own(const Program& own, const ForeignNoise& foreign) const {
  std::vector<NoiseWord> result;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const NoiseWord& each : foreign.plain) {
    const auto bytes = static_cast<std::uint8_t>(each.bytes & ~own_bytes(own, each.word));
    if (bytes != 0) result.push_back({each.word, bytes});
  }
  return result;
}

std::vector<NoiseWord> PaddingKnowledge::unsettled(const Program& own, const ForeignNoise& foreign) const {
  std::vector<NoiseWord> result = unknown(own, foreign.addresses, 1);
  const std::vector<NoiseWord> plain = unknown(own, not_own(own, foreign), 1);
  result.insert(result.end(), plain.begin(), plain.end());
  return result;
}

std::set<std::pair<PaddingKnowledge::Kernel*, std::uint32_t>> PaddingKnowledge::stray_places(
    const Program& program) const {
  std::set<std::pair<Kernel*, std::uint32_t>> places;
  for (const std::uint32_t word : program.strays) {
    const RecordedNode& node = node_of(program, word);
    if (node.kind == NodeKind::kKernel)
      places.emplace(&kernel_of(program.functions[node.function]), word - node.words_at);
  }
  return places;
}

bool PaddingKnowledge::note_pointers(const Program& a, const Program& b) {
  const auto has_lows = [](const Program& program) { return program.lows.size() == program.references.size(); };
  if (!has_lows(a) || !has_lows(b)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<std::pair<Kernel*, std::uint32_t>> places = stray_places(a);
  places.merge(stray_places(b));
  if (places.empty()) return false;
  bool learned = false;
  auto other = b.references.begin();
  for (std::size_t i = 0; i < a.references.size(); ++i) {
    const Reference& reference = a.references[i];
    while (other != b.references.end() && other->word < reference.word) ++other;
    const bool is_memory =
        reference.role == Role::kInput || reference.role == Role::kTemp || reference.role == Role::kOutput;
    if (!is_memory || other == b.references.end() || *other != reference ||
        a.words[reference.word] != b.words[reference.word] ||
        a.lows[i] == b.lows[static_cast<std::size_t>(other - b.references.begin())]) {
      continue;
    }
    const RecordedNode& node = node_of(a, reference.word);
    if (node.kind != NodeKind::kKernel) continue;
    Kernel& kernel = kernel_of(a.functions[node.function]);
    const std::uint32_t place = reference.word - node.words_at;
    learned = (places.count({&kernel, place}) != 0 && kernel.pointers.insert(place).second) || learned;
  }
  return learned;
}

bool PaddingKnowledge::may_be_pointer(const FunctionInfo& function, std::uint32_t word) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kernel_of(function).pointers.count(word) != 0;
}

namespace {

// The donor's bytes that try most, of those that are `wanted` first.
std::uint64_t best_of(std::uint64_t own, const std::vector<std::uint64_t>& others, std::uint8_t wanted) {
  std::uint64_t best = own;
  int best_worth = 0;
  for (const std::uint64_t other : others) {
    const std::uint8_t bytes = different_bytes(own, other);
    const int worth = 16 * count(static_cast<std::uint8_t>(bytes & wanted)) + count(bytes);
    if (worth <= best_worth) continue;
    best = other;
    best_worth = worth;
  }
  return best;
}

// Gives the word other bytes, and says which.
std::uint8_t settle(Program& program, const std::vector<const Program*>& donors, std::uint32_t word,
                    std::uint8_t wanted, std::uint64_t harmless) {
  const Observed own = observed(program, word);
  bool address = own.address;
  std::vector<std::uint64_t> words, lows;
  for (const Program* donor : donors) {
    const Observed theirs = observed(*donor, word);
    address = address || theirs.address;
    words.push_back(donor->words[word]);
    if (theirs.known) lows.push_back(theirs.low);
  }
  std::uint64_t& value = program.words[word];
  if (!address) {
    const std::uint64_t before = value;
    value = best_of(value, words, wanted);
    return different_bytes(before, value);
  }
  const bool keeps_low = static_cast<std::uint32_t>(harmless) == 0 && own.known;
  const std::uint64_t low = keeps_low ? best_of(own.low, lows, wanted) : 0;
  value = harmless | low;
  return keeps_low ? static_cast<std::uint8_t>(kUpperHalf | different_bytes(own.low, low)) : kAllBytes;
}

}  // namespace

std::vector<NoiseWord> settle_noise(Program& program, const std::vector<const Program*>& donors,
                                    const std::vector<NoiseWord>& noise, const PaddingKnowledge& knowledge,
                                    std::uint64_t harmless) {
  const std::vector<NoiseWord> unknown = knowledge.unknown(program, noise);
  std::vector<NoiseWord> tried;
  auto next_unknown = unknown.begin();
  for (const NoiseWord& each : noise) {
    while (next_unknown != unknown.end() && next_unknown->word < each.word) ++next_unknown;
    const bool any_unknown = next_unknown != unknown.end() && next_unknown->word == each.word;
    const std::uint8_t bytes = settle(program, donors, each.word, any_unknown ? next_unknown->bytes : 0, harmless);
    if (bytes != 0) tried.push_back({each.word, bytes});
  }
  drop_references_of(program, noise);
  return tried;
}

std::vector<NoiseWord> settle_foreign_noise(Program& program, const ForeignNoise& foreign,
                                            const PaddingKnowledge& knowledge, const HostPlaces& host,
                                            std::uint64_t harmless) {
  const std::vector<NoiseWord> wanted = knowledge.not_own(program, foreign);
  std::vector<NoiseWord> tried;
  auto next = wanted.begin();
  for (std::size_t i = 0; i < foreign.plain.size() && next != wanted.end(); ++i) {
    if (foreign.plain[i].word != next->word) continue;
    std::uint64_t& word = program.words[next->word];
    const Replacement found = careful_replacement(word, foreign.other[i], next->bytes, host(word), harmless);
    word = found.value;
    if (found.bytes != 0) tried.push_back({next->word, found.bytes});
    ++next;
  }
  return tried;
}

}  // namespace grape::program
