// A comparison in words.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "compressor/program/prove.h"

namespace grape::program {
namespace {

using refusal::make;
using refusal::Refusal;
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

  Refusal run() const {
    switch (comparison_.difference) {
      case Difference::kNone:
        break;
      case Difference::kNodeCount:
        return node_count();
      case Difference::kNodeKind:
        return node_kind();
      case Difference::kFunction:
        return function();
      case Difference::kLaunchShape:
        return make(refusal::other_launch, operation(a_), shape());
      case Difference::kOrder:
        return make(refusal::other_order, operation(a_));
      case Difference::kScalar:
      case Difference::kPointer:
        return word();
      case Difference::kStray:
        return make(refusal::stray_memory, operation(a_));
      case Difference::kBlocks:
        return blocks();
      case Difference::kEvents:
        return events();
      case Difference::kHostData:
        return make(refusal::other_host_data, operation(a_));
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

  Refusal node_count() const {
    const std::string one = number(a_.nodes.size()), other = number(b_.nodes.size()), at = number(comparison_.node);
    if (comparison_.node >= std::min(a_.nodes.size(), b_.nodes.size())) {
      return make(refusal::other_node_count, one, other, at);
    }
    const std::string left = what(a_), right = what(b_);
    if (left == right) return make(refusal::other_node_count_alike, one, other, at, left);
    const auto form = is_read() ? refusal::other_node_count_and_read : refusal::other_node_count_and_node;
    return make(form, one, other, at, left, right);
  }

  Refusal node_kind() const {
    const std::string at = number(comparison_.node), left = what(a_), right = what(b_);
    if (left == right) return make(refusal::node_differs, at, left);
    return make(is_read() ? refusal::other_read : refusal::other_node, at, left, right);
  }

  // In one of the calls.
  bool is_read() const {
    return a_.nodes[comparison_.node].kind == NodeKind::kHostRead ||
           b_.nodes[comparison_.node].kind == NodeKind::kHostRead;
  }

  Refusal function() const {
    const RecordedNode& a = a_.nodes[comparison_.node];
    const RecordedNode& b = b_.nodes[comparison_.node];
    if (a_.functions[a.function].name != b_.functions[b.function].name) return node_kind();
    return make(refusal::loaded_anew, operation(a_));
  }

  std::string shape() const {
    const RecordedNode& a = a_.nodes[comparison_.node];
    const RecordedNode& b = b_.nodes[comparison_.node];
    if (a.grid != b.grid) return "a grid of " + dimensions(a.grid) + " and of " + dimensions(b.grid);
    if (a.block != b.block) return "blocks of " + dimensions(a.block) + " and of " + dimensions(b.block);
    if (a.shared_bytes != b.shared_bytes) {
      return number(a.shared_bytes) + " and " + number(b.shared_bytes) + " bytes of shared memory";
    }
    if (a.parameter_bytes != b.parameter_bytes) {
      return number(a.parameter_bytes) + " and " + number(b.parameter_bytes) + " bytes of parameters";
    }
    return "different attributes";
  }

  Refusal word() const {
    const RecordedNode& node = a_.nodes[comparison_.node];
    const std::string of = operation(a_), one = value(a_), other = value(b_);
    if (node.kind == NodeKind::kHostRead) return make(refusal::other_read_value, read_part(), of, one, other);
    if (node.kind != NodeKind::kKernel) return make(refusal::other_operand, operand(node), of, one, other);
    const bool known = a_.functions[node.function].has_layout;
    const std::string at = number(known ? comparison_.parameter : comparison_.word);
    return make(known ? refusal::other_parameter : refusal::other_word, at, of, one, other);
  }

  // Of a copy or a memset.
  const char* operand(const RecordedNode& node) const {
    const bool copies = node.kind == NodeKind::kCopy || node.kind == NodeKind::kHostCopy;
    if (comparison_.word == 0) return "the destination";
    if (comparison_.word != 1) return "the size";
    return copies ? "the source" : "the value";
  }

  const char* read_part() const {
    return comparison_.word == 0 ? "the source" : comparison_.word == 1 ? "the size" : "the value";
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
      case Role::kNumber:
        return "a number of the call";
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

  Refusal blocks() const {
    if (a_.input_bytes != b_.input_bytes) return make(refusal::other_input_sizes);
    std::string first;
    if (comparison_.node < a_.nodes.size()) first = "; the first to differ is allocated before " + operation(a_);
    return make(refusal::other_blocks, number(a_.temps.size()), number(b_.temps.size()), number(a_.outputs.size()),
                number(b_.outputs.size()), first);
  }

  Refusal events() const {
    if (a_.waited_events != b_.waited_events) return make(refusal::other_waited_events);
    if (a_.recorded_events != b_.recorded_events) return make(refusal::other_recorded_events);
    return make(refusal::other_waited_streams);
  }

  Refusal random() const {
    if (a_.random_increment != b_.random_increment) {
      return make(refusal::other_random_amount, number(a_.random_increment), number(b_.random_increment));
    }
    if (a_.random_increment != 0 && a_.observed_seed == b_.observed_seed && a_.observed_offset == b_.observed_offset) {
      return make(refusal::same_random_state);
    }
    return make(refusal::unknown_random, operation(a_));
  }

  const Comparison& comparison_;
  const Program& a_;
  const Program& b_;
  Readable readable_;
};

}  // namespace

Refusal describe(const Comparison& comparison, const Program& a, const Program& b, Readable readable) {
  return Describer(comparison, a, b, readable).run();
}

}  // namespace grape::program
