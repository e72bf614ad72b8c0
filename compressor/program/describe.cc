// A comparison in words.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "compressor/program/prove.h"

namespace grape::program {
namespace {

using Readable = std::string (*)(const std::string& kernel);

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

std::string plain(std::uint64_t value) {
  return value < 10 ? number(value) : number(value) + " (" + hexadecimal(value) + ")";
}

std::string dimensions(const Dimensions& size) { return number(size.x) + "x" + number(size.y) + "x" + number(size.z); }

class Describer {
 public:
  Describer(const Comparison& comparison, const Program& a, const Program& b, Readable readable)
      : comparison_(comparison), a_(a), b_(b), readable_(readable) {}

  std::string run() const {
    switch (comparison_.difference) {
      case Difference::kNone:
        return comparison_.noise.empty() ? "both calls did the same"
                                         : "both calls did the same, but for " + number(comparison_.noise.size()) +
                                               " words of what looks like padding";
      case Difference::kNodeCount:
        return "one call ran " + number(a_.nodes.size()) + " operations on the device, the other " +
               number(b_.nodes.size()) + "; " + where_they_part();
      case Difference::kNodeKind:
        return where_they_part();
      case Difference::kFunction:
        return function();
      case Difference::kLaunchShape:
        return shape();
      case Difference::kOrder:
        return operation(a_) + " ran on another stream, or waited for other work, in the other call";
      case Difference::kScalar:
      case Difference::kPointer:
        return word();
      case Difference::kStray:
        return operation(a_) + " uses device memory that was given back, or that PyTorch's allocator does not report";
      case Difference::kBlocks:
        return blocks();
      case Difference::kEvents:
        return events();
      case Difference::kHostData:
        return "copies other host data to the device each time: " + operation(a_) + " is the first to differ";
      case Difference::kRandom:
        return random();
    }
    return {};
  }

 private:
  std::string kernel(const Program& program, const RecordedNode& node) const {
    const std::string& name = program.functions[node.function].name;
    return "kernel " + (readable_ != nullptr ? readable_(name) : name);
  }

  std::string what(const Program& program) const {
    const RecordedNode& node = program.nodes[comparison_.node];
    if (node.kind == NodeKind::kKernel) return kernel(program, node);
    if (node.kind == NodeKind::kHostRead) return "a read by the host";
    if (node.kind == NodeKind::kHostCopy) return "a copy from the host";
    return node.kind == NodeKind::kCopy ? "a copy" : "a memset";
  }

  std::string operation(const Program& program) const {
    return what(program) + " (operation " + number(comparison_.node) + ")";
  }

  std::string where_they_part() const {
    const std::string place = "operation " + number(comparison_.node);
    if (comparison_.node >= std::min(a_.nodes.size(), b_.nodes.size())) return place + " is there in one of them only";
    const std::string one = what(a_), other = what(b_);
    if (one == other) return place + " (" + one + ") is the first to differ";
    return place + " is " + one + " in one call and " + other + " in the other";
  }

  std::string function() const {
    const RecordedNode& a = a_.nodes[comparison_.node];
    const RecordedNode& b = b_.nodes[comparison_.node];
    if (a_.functions[a.function].name != b_.functions[b.function].name) return where_they_part();
    return operation(a_) + " was loaded anew between the calls";
  }

  std::string shape() const {
    const RecordedNode& a = a_.nodes[comparison_.node];
    const RecordedNode& b = b_.nodes[comparison_.node];
    std::string text = operation(a_) + " was launched with ";
    if (a.grid != b.grid) return text + "a grid of " + dimensions(a.grid) + " and of " + dimensions(b.grid);
    if (a.block != b.block) return text + "blocks of " + dimensions(a.block) + " and of " + dimensions(b.block);
    if (a.shared_bytes != b.shared_bytes) {
      return text + number(a.shared_bytes) + " and " + number(b.shared_bytes) + " bytes of shared memory";
    }
    if (a.parameter_bytes != b.parameter_bytes) {
      return text + number(a.parameter_bytes) + " and " + number(b.parameter_bytes) + " bytes of parameters";
    }
    return text + "different attributes";
  }

  std::string word() const {
    const RecordedNode& node = a_.nodes[comparison_.node];
    const bool copies = node.kind == NodeKind::kCopy || node.kind == NodeKind::kHostCopy;
    std::string place = "word " + number(comparison_.word) + " of the parameters";
    if (node.kind != NodeKind::kKernel) {
      place = node.kind == NodeKind::kHostRead  ? read_part()
              : comparison_.word == 0           ? "the destination"
              : comparison_.word == 1 && copies ? "the source"
              : comparison_.word == 1           ? "the value"
                                                : "the size";
    } else if (a_.functions[node.function].has_layout) {
      place = "parameter " + number(comparison_.parameter);
    }
    return place + " of " + operation(a_) + " is " + value(a_) + " in one call and " + value(b_) + " in the other";
  }

  std::string read_part() const {
    return comparison_.word == 0 ? "the source" : comparison_.word == 1 ? "the size" : "the value";
  }

  static const Reference* reference_at(const Program& program, std::uint32_t word) {
    const auto by_word = [](const Reference& reference, std::uint32_t other) { return reference.word < other; };
    const auto found = std::lower_bound(program.references.begin(), program.references.end(), word, by_word);
    return found != program.references.end() && found->word == word ? &*found : nullptr;
  }

  std::string value(const Program& program) const {
    const RecordedNode& node = program.nodes[comparison_.node];
    const std::uint32_t word = node.words_at + comparison_.word;
    const std::uint64_t content = program.words[word];
    const Reference* reference = reference_at(program, word);
    if (reference == nullptr) return plain(parameter_value(program, node, content));
    return symbol(program, *reference) + (content != 0 ? " + " + number(content) + " bytes" : "");
  }

  static std::string symbol(const Program& program, const Reference& reference) {
    switch (reference.role) {
      case Role::kStatic: {
        const StaticBlock& block = program.statics[reference.block];
        return "memory from before the call (" + number(block.bytes) + " bytes at " + hexadecimal(block.address) + ")";
      }
      case Role::kInput:
        return "argument " + number(reference.block);
      case Role::kTemp:
        return "temporary memory " + number(reference.block);
      case Role::kOutput:
        return "result memory " + number(reference.block);
      case Role::kHostData:
        return "data of the host";
      case Role::kRandomSeed:
        return "the random seed";
      case Role::kRandomOffset:
        return "the random offset";
    }
    return {};
  }

  // What a parameter of at most a word says; else the word.
  std::uint64_t parameter_value(const Program& program, const RecordedNode& node, std::uint64_t content) const {
    if (node.kind != NodeKind::kKernel) return content;
    const FunctionInfo& function = program.functions[node.function];
    if (!function.has_layout || comparison_.parameter >= function.parameters.size()) return content;
    const Parameter& parameter = function.parameters[comparison_.parameter];
    if (parameter.bytes > 8 || parameter.offset + parameter.bytes > node.word_count * std::size_t{8}) return content;
    std::uint64_t result = 0;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(program.words.data() + node.words_at);
    std::memcpy(&result, bytes + parameter.offset, parameter.bytes);
    return result;
  }

  std::string blocks() const {
    if (a_.input_bytes != b_.input_bytes) return "the arguments' memory has other sizes in the other call";
    std::string text = "the calls allocated memory in different ways: " + number(a_.temps.size()) + " and " +
                       number(b_.temps.size()) + " temporary blocks, " + number(a_.outputs.size()) + " and " +
                       number(b_.outputs.size()) + " that outlive the call";
    if (comparison_.node < a_.nodes.size()) text += "; the first to differ is allocated before " + operation(a_);
    return text;
  }

  std::string events() const {
    if (a_.waited_events != b_.waited_events) return "the calls wait for other CUDA events from before them";
    if (a_.recorded_events != b_.recorded_events) return "the calls record other CUDA events that outlive them";
    return "the calls have the host wait for another number of streams";
  }

  std::string random() const {
    if (a_.random_increment != b_.random_increment) {
      return "the calls drew different amounts of random numbers: the generator's offset moved by " +
             number(a_.random_increment) + " and by " + number(b_.random_increment);
    }
    if (a_.random_increment != 0 && a_.observed_seed == b_.observed_seed && a_.observed_offset == b_.observed_offset) {
      return "both calls began with the same random state, so what depends on it cannot be told from what does not";
    }
    return operation(a_) +
           " draws random numbers in a way that cannot be followed, perhaps from a generator of its own";
  }

  const Comparison& comparison_;
  const Program& a_;
  const Program& b_;
  Readable readable_;
};

}  // namespace

std::string describe(const Comparison& comparison, const Program& a, const Program& b, Readable readable) {
  return Describer(comparison, a, b, readable).run();
}

}  // namespace grape::program
