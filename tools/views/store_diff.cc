// The view "diff A B" of a cache: why two programs differ, in a sentence and then node by node.
#include "compressor/cache/adopt.h"
#include "compressor/program/prove.h"
#include "tools/text/demangle.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/views/store_compare.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

using program::Program;
using program::RecordedNode;

std::string full_name(const std::string& kernel) { return demangle(kernel); }
std::string shortened_name(const std::string& kernel) { return short_name(demangle(kernel)); }

constexpr const char* kDifferenceKeys[] = {"none",   "node_count", "node_kind", "function", "launch_shape",
                                           "order",  "scalar",     "pointer",   "stray",    "blocks",
                                           "events", "host_data",  "random"};

struct Verdict {
  program::Difference difference = program::Difference::kNone;
  std::string text;
};

using Readable = std::string (*)(const std::string& kernel);

std::string in_words(const program::Comparison& comparison, const Program& a, const Program& b, Readable readable) {
  if (comparison.difference != program::Difference::kNone) return program::describe(comparison, a, b, readable).text;
  if (comparison.noise.empty()) return "both calls did the same";
  return fmt::format("both calls did the same, but for {} words of what looks like padding", comparison.noise.size());
}

Verdict verdict_of(const StoreInput& input, const Program& a, Program b) {
  // That two runs began with the same random state would forbid a proof. These are proven, each for itself.
  if (a.observed_seed == b.observed_seed) ++b.observed_seed;
  // Which address statics have differs from process to process.
  const std::vector<program::StaticBlock> own = b.statics;
  cache::put_on_statics_of(b, a);
  std::size_t elsewhere = 0;
  for (std::size_t i = 0; i < own.size(); ++i) elsewhere += own[i].address != b.statics[i].address;
  const program::Comparison comparison = program::compare(a, b);
  const auto readable = input.full_names() ? full_name : shortened_name;
  Verdict verdict{comparison.difference, in_words(comparison, a, b, readable)};
  if (comparison.difference == program::Difference::kNone && elsewhere != 0) {
    verdict.text +=
        fmt::format("; on {} static blocks at other addresses: of another process, or other weights", elsewhere);
  }
  if (comparison.difference == program::Difference::kFunction) {
    const std::string& name_a = a.functions[a.nodes[comparison.node].function].name;
    // describe() speaks of one process, in which a name's kernel changes only with its module.
    if (name_a == b.functions[b.nodes[comparison.node].function].name) {
      verdict.text =
          fmt::format("kernel {} (operation {}) is another one of the same name: of a module with other content",
                      readable(name_a), comparison.node);
    }
  }
  return verdict;
}

struct Side {
  std::uint64_t id = 0;
  const cache::Entry& entry;
  Program program;
};

struct Row {
  std::string node, kind, name, line;
};

class View {
 public:
  View(StoreInput& input, const DumpOptions& options)
      : input_(input),
        options_(options),
        a_(side(options.arguments[0])),
        b_(side(options.arguments[1])),
        verdict_(verdict_of(input, a_.program, b_.program)),
        comparison_(input, a_.program, b_.program) {
    comparison_.run();
    KernelFilter kernels(options.filter.kernel);
    for (const StoredDifference& each : comparison_.differences()) {
      const bool moved = each.change == StoredChange::kMoved || each.change == StoredChange::kStatics;
      if (options.ignore_moved && moved) continue;
      ++counted_;
      const bool whole = each.a == kNoPartner && each.b == kNoPartner;
      if (whole ? options.filter.kernel.empty() : kernels.node(input, program_of(each), node_of(each))) {
        shown_.push_back(&each);
      }
    }
  }

  bool same() const {
    // A program that has strays is no proof of anything, not even next to itself.
    return counted_ == 0 &&
           (comparison_.count(StoredChange::kMoved) != 0 || verdict_.difference == program::Difference::kNone ||
            verdict_.difference == program::Difference::kStray);
  }

  void text(Output& out) {
    for (const auto& [name, side] : {std::pair("A", &a_), std::pair("B", &b_)}) {
      out.print("{}: program {}, region {}, {} nodes, {} words\n", name, side->id, escape_text(side->entry.call.region),
                side->program.nodes.size(), side->program.words.size());
    }
    print_entries(out);
    out.print("{}\n{} nodes aligned, {} words compared\n",
              escape_text(comparison_.differences().empty() && same() ? "the programs are the same" : verdict_.text),
              comparison_.aligned(), comparison_.words());
    for (std::size_t i = 0; i < kStoredChanges; ++i) {
      const auto change = static_cast<StoredChange>(i);
      if (comparison_.count(change) != 0) out.print("{:>8}  {}\n", comparison_.count(change), change_title(change));
    }
    print_differences(out);
  }

  void csv(Output& out) {
    Table table = Table::of_keys({"change", "node", "kind", "name", "place", "offset", "a", "b", "line"});
    for (const StoredDifference* each : shown_) {
      const Row row = row_of(*each);
      table.add({change_key(each->change), row.node, row.kind, text_value(row.name), each->place,
                 each->has_words ? Json(each->word_a.offset) : Json(), each->left, each->right, text_value(row.line)});
    }
    table.csv(out, options_.limit);
  }

  Json json() {
    Json json;
    json["a"] = side_json(a_);
    json["b"] = side_json(b_);
    json["same_region"] = a_.entry.call.region == b_.entry.call.region;
    json["same_signature"] = a_.entry.call.signature == b_.entry.call.signature;
    json["same_code"] = a_.entry.call.code == b_.entry.call.code;
    json["verdict"] = {{"difference", kDifferenceKeys[static_cast<std::size_t>(verdict_.difference)]},
                       {"text", text_value(verdict_.text)}};
    json["same"] = same();
    json["aligned"] = comparison_.aligned();
    json["words"] = comparison_.words();
    for (std::size_t i = 0; i < kStoredChanges; ++i) {
      const auto change = static_cast<StoredChange>(i);
      json["counts"][change_key(change)] = comparison_.count(change);
    }
    json["differences"] = Json::array();
    for (const StoredDifference* each : shown_) {
      if (options_.limit != 0 && json["differences"].size() == options_.limit) break;
      json["differences"].push_back(difference_json(*each));
    }
    return json;
  }

 private:
  Side side(const std::string& number) {
    const std::uint64_t id = input_.find(number);
    return {id, input_.entry(id), input_.program(id)};
  }

  // The program and node that a difference is about: A's where A has it.
  const Program& program_of(const StoredDifference& each) const {
    return each.a != kNoPartner ? a_.program : b_.program;
  }
  const RecordedNode& node_of(const StoredDifference& each) const {
    return program_of(each).nodes[each.a != kNoPartner ? each.a : each.b];
  }

  Row row_of(const StoredDifference& each) {
    if (each.a == kNoPartner && each.b == kNoPartner) return {"", "program", "", ""};
    const RecordedNode& node = node_of(each);
    const bool renumbered = each.a != kNoPartner && each.b != kNoPartner && each.a != each.b;
    return {renumbered ? fmt::format("#{}/#{}", each.a, each.b)
                       : fmt::format("#{}", each.a != kNoPartner ? each.a : each.b),
            kind_name(node.kind), node_name(input_, program_of(each), node), input_.position(node)};
  }

  void print_entries(Output& out) const {
    const cache::Call& a = a_.entry.call;
    const cache::Call& b = b_.entry.call;
    if (a.region != b.region) out.write("they are of different regions\n");
    const auto digests = [&out](const char* name, const cache::Digest& one, const cache::Digest& other) {
      if (one != other) out.print("{} differs: {} and {}\n", name, digest_text(one), digest_text(other));
    };
    digests("signature", a.signature, b.signature);
    digests("code", a.code, b.code);
  }

  void print_differences(Output& out) {
    std::string last;
    for (std::size_t i = 0; i < shown_.size(); ++i) {
      if (options_.limit != 0 && i == options_.limit) {
        out.print("… and {} more\n", shown_.size() - i);
        break;
      }
      const StoredDifference& each = *shown_[i];
      const Row row = row_of(each);
      const std::string head = row.node.empty()
                                   ? "of the whole program"
                                   : row.node + " " + row.name + (row.line.empty() ? "" : "  at ") + row.line;
      if (head != last) out.print("\n{}\n", escape_text(head));
      last = head;
      out.print("  {:<24} {}\n  {:<24} {}\n", each.place, escape_text(each.left), note_of(each.change),
                escape_text(each.right));
    }
  }

  static const char* note_of(StoredChange change) {
    switch (change) {
      case StoredChange::kMoved:
        return "  another number";
      case StoredChange::kStatics:
        return "  another address";
      case StoredChange::kPointer:
        return "  another place";
      case StoredChange::kRole:
        return "  another role";
      case StoredChange::kPlain:
        return "  plain";
      case StoredChange::kPadding:
        return "  padding";
      default:
        return "";
    }
  }

  static Json side_json(const Side& side) {
    return {{"id", side.id},
            {"region", text_value(side.entry.call.region)},
            {"signature", digest_text(side.entry.call.signature)},
            {"code", digest_text(side.entry.call.code)},
            {"nodes", side.program.nodes.size()}};
  }

  Json difference_json(const StoredDifference& each) {
    const Row row = row_of(each);
    Json json;
    json["change"] = change_key(each.change);
    json["node_a"] = each.a == kNoPartner ? Json() : Json(each.a);
    json["node_b"] = each.b == kNoPartner ? Json() : Json(each.b);
    json["kind"] = row.kind;
    json["name"] = text_value(row.name);
    json["line"] = text_value(row.line);
    json["place"] = each.place;
    if (!each.has_words) {
      json["a"] = text_value(each.left);
      json["b"] = text_value(each.right);
      return json;
    }
    json["parameter"] = each.word_a.place == StoredWord::Place::kParameter ? Json(each.word_a.parameter) : Json();
    json["in_parameter"] = each.word_a.in_parameter;
    json["at"] = each.word_a.offset;
    json["bytes"] = each.word_a.bytes;
    json["a"] = value_json(a_.program, each.word_a);
    json["b"] = value_json(b_.program, each.word_b);
    return json;
  }

  StoreInput& input_;
  const DumpOptions& options_;
  Side a_, b_;
  Verdict verdict_;
  StoredComparison comparison_;
  std::vector<const StoredDifference*> shown_;
  std::size_t counted_ = 0;
};

}  // namespace

int view_diff(StoreInput& input, const DumpOptions& options, Output& out) {
  View view(input, options);
  if (options.format == Format::kText) {
    view.text(out);
  } else if (options.format == Format::kCsv) {
    view.csv(out);
  } else {
    print_json(out, input, options, view.json());
  }
  return view.same() ? kOk : kDifferent;
}

}  // namespace grape::tools
