#include "compressor/program/prove.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compressor/program/parameter_types.h"

namespace grape::program {
namespace {

const FunctionInfo& function_of(const Program& program, const RecordedNode& node) {
  return program.functions[node.function];
}

bool same_function(const FunctionInfo& a, const FunctionInfo& b) { return a.handle == b.handle && a.name == b.name; }

// PyTorch's allocator hands out a large block whole if what is left of it would be small: the same request then gets
// blocks of different sizes. Requests of up to 1 MiB get what they ask for; beyond that up to 1 MiB more, or 20 MiB
// where PYTORCH_CUDA_ALLOC_CONF limits the splitting.
bool same_request(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kExact = 1u << 20, kMostSlack = 20u << 20;
  return a == b || (std::min(a, b) > kExact && std::max(a, b) - std::min(a, b) < kMostSlack);
}

bool same_block(const BornBlock& a, const BornBlock& b) {
  return same_request(a.bytes, b.bytes) && a.birth == b.birth && a.born == b.born && a.died == b.died;
}

// An address in the program's own data or on its stack, where device memory never lies on x86-64 Linux. A float has
// one that is a multiple of 4.
bool first_threads_address(std::uint64_t value) {
  const auto between = [&](std::uint64_t low, std::uint64_t high) { return value >= low && value < high; };
  return value % 4 == 0 && (between(0x1'0000, 0x1'0000'0000) || between(0x5500'0000'0000, 0x5800'0000'0000) ||
                            between(0x7ff0'0000'0000, 0x8000'0000'0000));
}

bool takes_random_state(const FunctionInfo& function) {
  return function.name.find("PhiloxCudaState") != std::string::npos;
}

bool is_random(const Reference* reference) {
  return reference != nullptr && (reference->role == Role::kRandomSeed || reference->role == Role::kRandomOffset);
}

bool same_state(const Program& a, const Program& b) {
  return a.observed_seed == b.observed_seed && a.observed_offset == b.observed_offset;
}

// The bytes of a parameter that lie in the word that begins at `begin`, as a mask.
std::uint64_t bytes_in_word(const Parameter& parameter, std::uint64_t begin) {
  const std::uint64_t first = std::max<std::uint64_t>(parameter.offset, begin);
  const std::uint64_t last = std::min<std::uint64_t>(std::uint64_t{parameter.offset} + parameter.bytes, begin + 8);
  if (first >= last) return 0;
  const std::uint64_t bytes = last - first;
  const std::uint64_t mask = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (bytes * 8)) - 1;
  return mask << ((first - begin) * 8);
}

class Comparer {
 public:
  Comparer(const Program& a, const Program& b, const HostPlaces& host) : a_(a), b_(b), host_(host) {}

  bool may_be_noise(std::uint32_t word, std::uint64_t bits, bool plain) {
    return in_padding(node_of(a_, word), word, bits, plain);
  }

  Comparison run() {
    if (same_nodes() && same_blocks() && same_events() && same_random()) compare_words();
    if (result_.difference != Difference::kNone) result_.noise.clear();
    return std::move(result_);
  }

 private:
  bool differ(Difference difference, std::uint32_t node) {
    result_.difference = difference;
    result_.node = node;
    return false;
  }

  bool same_nodes() {
    const std::size_t both = std::min(a_.nodes.size(), b_.nodes.size());
    const bool same_count = a_.nodes.size() == b_.nodes.size();
    for (std::uint32_t i = 0; i < both; ++i) {
      const Difference difference = difference_of(i);
      if (difference != Difference::kNone) return differ(same_count ? difference : Difference::kNodeCount, i);
    }
    return same_count || differ(Difference::kNodeCount, static_cast<std::uint32_t>(both));
  }

  Difference difference_of(std::uint32_t node) const {
    const RecordedNode& a = a_.nodes[node];
    const RecordedNode& b = b_.nodes[node];
    if (a.kind != b.kind) return Difference::kNodeKind;
    if (a.kind == NodeKind::kKernel && !same_function(function_of(a_, a), function_of(b_, b))) {
      return Difference::kFunction;
    }
    if (a.grid != b.grid || a.block != b.block || a.shared_bytes != b.shared_bytes || a.cooperative != b.cooperative ||
        a.packed != b.packed || a.parameter_bytes != b.parameter_bytes || a.word_count != b.word_count ||
        a.attribute_count != b.attribute_count) {
      return Difference::kLaunchShape;
    }
    const std::size_t bytes = std::size_t{a.attribute_count} * kAttributeBytes;
    if (bytes != 0 && std::memcmp(a_.attributes.data() + std::size_t{a.attributes_at} * kAttributeBytes,
                                  b_.attributes.data() + std::size_t{b.attributes_at} * kAttributeBytes, bytes) != 0) {
      return Difference::kLaunchShape;
    }
    return same_order(a, b) ? Difference::kNone : Difference::kOrder;
  }

  bool same_order(const RecordedNode& a, const RecordedNode& b) const {
    const auto after_a = a_.after.begin() + a.after_at;
    const auto after_b = b_.after.begin() + b.after_at;
    return a.stream == b.stream && std::equal(after_a, after_a + a.after_count, after_b, after_b + b.after_count);
  }

  bool same_blocks() {
    if (a_.input_bytes != b_.input_bytes) return differ(Difference::kBlocks, 0);
    return same_births(a_.temps, b_.temps) && same_births(a_.outputs, b_.outputs);
  }

  bool same_births(const std::vector<BornBlock>& a, const std::vector<BornBlock>& b) {
    const auto last_node = static_cast<std::uint32_t>(a_.nodes.empty() ? 0 : a_.nodes.size() - 1);
    const std::size_t both = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < both; ++i) {
      if (same_block(a[i], b[i])) continue;
      return differ(Difference::kBlocks, std::min({a[i].born, b[i].born, last_node}));
    }
    if (a.size() == b.size()) return true;
    return differ(Difference::kBlocks, std::min((a.size() > both ? a : b)[both].born, last_node));
  }

  bool same_events() {
    if (a_.waited_events == b_.waited_events && a_.recorded_events == b_.recorded_events &&
        a_.waited_streams.size() == b_.waited_streams.size()) {
      return true;
    }
    return differ(Difference::kEvents, 0);
  }

  bool same_random() {
    if (a_.random_increment != b_.random_increment) return differ(Difference::kRandom, 0);
    if (a_.random_increment != 0 && same_state(a_, b_)) return differ(Difference::kRandom, 0);
    std::vector<bool> draws;
    for (const FunctionInfo& function : a_.functions) draws.push_back(takes_random_state(function));
    if (std::find(draws.begin(), draws.end(), true) == draws.end()) return true;
    for (const Program* program : {&a_, &b_}) {
      auto reference = program->references.begin();
      for (std::uint32_t i = 0; i < program->nodes.size(); ++i) {
        const RecordedNode& node = program->nodes[i];
        bool found = false;
        for (; reference != program->references.end() && reference->word < node.words_at + node.word_count;
             ++reference) {
          found = found || reference->role == Role::kRandomOffset;
        }
        if (node.kind == NodeKind::kKernel && draws[a_.nodes[i].function] && !found) {
          return differ(Difference::kRandom, i);
        }
      }
    }
    return true;
  }

  bool compare_words() {
    auto next_a = a_.references.begin();
    auto next_b = b_.references.begin();
    for (std::uint32_t i = 0; i < a_.nodes.size(); ++i) {
      const RecordedNode& node = a_.nodes[i];
      if (node.kind == NodeKind::kHostCopy && !same_host_data(node)) return differ(Difference::kHostData, i);
      for (std::uint32_t word = node.words_at; word < node.words_at + node.word_count; ++word) {
        const Reference* a = next_a != a_.references.end() && next_a->word == word ? &*next_a++ : nullptr;
        const Reference* b = next_b != b_.references.end() && next_b->word == word ? &*next_b++ : nullptr;
        if (!compare_word(i, word, a, b)) return false;
      }
    }
    return true;
  }

  // Where it lies, and how much it is, are words like others.
  bool same_host_data(const RecordedNode& node) const {
    if (node.word_count < 3) return false;
    const std::uint64_t at = a_.words[node.words_at + 1], bytes = a_.words[node.words_at + 2];
    for (const Program* program : {&a_, &b_}) {
      if (at > program->host_data.size() || bytes > program->host_data.size() - at) return false;
    }
    return bytes == 0 || std::memcmp(a_.host_data.data() + at, b_.host_data.data() + at, bytes) == 0;
  }

  bool compare_word(std::uint32_t node, std::uint32_t word, const Reference* a, const Reference* b) {
    const std::uint64_t bits = a_.words[word] ^ b_.words[word];
    const bool symbols = a != nullptr && b != nullptr;
    if (a == nullptr && b == nullptr && bits == 0) {
      const auto& strays = a_.strays;
      if (strays.empty() || !std::binary_search(strays.begin(), strays.end(), word)) return true;
      result_.word = word - a_.nodes[node].words_at;
      if (!in_padding(a_.nodes[node], word, ~std::uint64_t{0}, false)) return differ(Difference::kStray, node);
      result_.noise.push_back(word);
      return true;
    }
    if (symbols && bits == 0 && same_symbol(*a, *b)) return true;
    result_.word = word - a_.nodes[node].words_at;
    if (symbols && a->role == Role::kNumber && same_symbol(*a, *b)) {  // what is beside the number differs
      if (!in_padding(a_.nodes[node], word, bits, true)) return differ(Difference::kScalar, node);
      result_.noise.push_back(word);
      return true;
    }
    if (is_random(a) && is_random(b)) return differ(Difference::kRandom, node);
    // Of a pair only the offset tells: equal seeds are no surprise.
    const auto is_constant = [word](const Program& one, const Reference* its, const Program& other,
                                    const Reference* theirs) {
      return its != nullptr && theirs == nullptr && its->role == Role::kRandomOffset &&
             one.observed_offset + one.words[word] == other.words[word];
    };
    if (is_constant(a_, a, b_, b) || is_constant(b_, b, a_, a)) return differ(Difference::kRandom, node);
    // A symbol is a whole word, whatever its bytes were.
    const bool plain = a == nullptr && b == nullptr;
    if (!in_padding(a_.nodes[node], word, plain ? bits : ~std::uint64_t{0}, plain)) {
      return differ(symbols ? Difference::kPointer : Difference::kScalar, node);
    }
    result_.noise.push_back(word);
    return true;
  }

  bool same_symbol(const Reference& a, const Reference& b) const {
    if (a.role != b.role) return false;
    if (a.role != Role::kStatic) return a.block == b.block;
    const StaticBlock& block_a = a_.statics[a.block];
    const StaticBlock& block_b = b_.statics[b.block];
    return block_a.address == block_b.address && block_a.serial == block_b.serial;
  }

  // Do these bits of the word belong to what has room for padding, or to no parameter at all? `plain`: no symbol in it.
  bool in_padding(const RecordedNode& node, std::uint32_t word, std::uint64_t bits, bool plain) {
    result_.parameter = 0;
    if (node.kind != NodeKind::kKernel) return false;
    const FunctionInfo& function = function_of(a_, node);
    const FunctionInfo& other = function_of(b_, b_.nodes[static_cast<std::size_t>(&node - a_.nodes.data())]);
    if (!function.has_layout || !other.has_layout || function.parameters.size() != other.parameters.size())
      return false;
    const std::uint64_t begin = std::uint64_t{word - node.words_at} * 8;
    for (std::uint32_t i = 0; i < function.parameters.size(); ++i) {
      const Parameter& parameter = function.parameters[i];
      if (parameter.bytes > kMostWithoutPadding || (bytes_in_word(parameter, begin) & bits) == 0) continue;
      if (plain && left_over(function, i, node)) continue;
      result_.parameter = i;
      return false;
    }
    return true;
  }

  // Has the parameter, of one byte, another value than 0 and 1 in any launch of that function, in either run?
  bool no_boolean(std::uint32_t function, std::uint32_t at) const {
    for (const Program* program : {&a_, &b_}) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(program->words.data());
      for (const RecordedNode& node : program->nodes) {
        if (node.kind != NodeKind::kKernel || node.function != function || at >= node.parameter_bytes) continue;
        if (bytes[std::size_t{node.words_at} * 8 + at] > 1) return true;
      }
    }
    return false;
  }

  // Does a parameter of at most a word hold what the host left there, by type and by value? See compare().
  bool left_over(const FunctionInfo& function, std::uint32_t parameter, const RecordedNode& node) const {
    const Parameter& place = function.parameters[parameter];
    if (place.offset + place.bytes > node.parameter_bytes) return false;
    const std::vector<ParameterType> types = parameter_types(function.name);
    if (types.size() != function.parameters.size()) return false;
    const ParameterType type = types[parameter];
    if (place.bytes == 1) {
      if (type == ParameterType::kEmpty) return true;
      // Nodes have the same functions in both runs, and so the same numbers for them.
      return (type == ParameterType::kClosure || type == ParameterType::kTemplate) &&
             no_boolean(node.function, place.offset);
    }
    std::uint64_t a = 0, b = 0;
    const std::size_t at = std::size_t{node.words_at} * 8 + place.offset;
    std::memcpy(&a, reinterpret_cast<const std::uint8_t*>(a_.words.data()) + at, place.bytes);
    std::memcpy(&b, reinterpret_cast<const std::uint8_t*>(b_.words.data()) + at, place.bytes);
    if (place.bytes == 8 && host_address(a) && host_address(b)) {
      return type == ParameterType::kClosure || type == ParameterType::kPointer;
    }
    // A class that begins with an empty object, or with one byte, and goes on with four, has a gap there (PyTorch's
    // BUnaryFunctor, LoadWithCast).
    return type == ParameterType::kTemplate && place.bytes > 4 && a != b && (a ^ b) >> 32 == 0;
  }

  bool host_address(std::uint64_t value) const {
    return first_threads_address(value) || (host_ && value % 4 == 0 && host_(value) == HostPlace::kData);
  }

  const Program& a_;
  const Program& b_;
  const HostPlaces& host_;
  Comparison result_;
};

// Of two runs whose nodes are the same. Puts constants back that were taken for offsets; false: there are none.
bool put_back_constants(Program& run, const Program& other) {
  std::vector<bool> gone(run.references.size(), false);
  for (std::size_t i = 1; i < run.references.size(); ++i) {
    const Reference& offset = run.references[i];
    if (offset.role != Role::kRandomOffset || reference_at(other, offset.word) != nullptr ||
        run.observed_offset + run.words[offset.word] != other.words[offset.word]) {
      continue;
    }
    run.words[offset.word] += run.observed_offset;
    run.words[run.references[i - 1].word] = run.observed_seed;
    gone[i - 1] = gone[i] = true;
  }
  drop_references(run, gone);
  return run.references.size() != gone.size();
}

}  // namespace

Comparison compare(const Program& a, const Program& b, const HostPlaces& host) { return Comparer(a, b, host).run(); }

bool may_be_noise(const Program& a, const Program& b, std::uint32_t word, std::uint64_t bits, bool plain) {
  return Comparer(a, b, {}).may_be_noise(word, bits, plain);
}

Comparison compare_and_settle(Program& a, Program& b, const HostPlaces& host) {
  Comparison comparison = compare(a, b, host);
  if (comparison.difference != Difference::kRandom || same_state(a, b) || a.words.size() != b.words.size())
    return comparison;
  const bool in_a = put_back_constants(a, b), in_b = put_back_constants(b, a);
  return in_a || in_b ? compare(a, b, host) : comparison;
}

}  // namespace grape::program
