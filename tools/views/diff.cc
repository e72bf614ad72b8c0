// The view "diff A B": two graphs, node by node and word by word.
#include <algorithm>
#include <unordered_map>

#include "tools/inputs/attributes.h"
#include "tools/inputs/loaded_graph.h"
#include "tools/text/align.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

enum class Change { kOnlyA, kOnlyB, kDimensions, kStream, kEdges, kAttributes, kMoved, kPointer, kPlain };
constexpr const char* kChangeKeys[] = {"only_in_a",  "only_in_b",     "dimensions", "stream", "edges",
                                       "attributes", "moved_pointer", "pointer",    "plain"};
constexpr const char* kChangeNames[] = {
    "nodes only in A", "nodes only in B", "grids, blocks, shared memory or sizes", "streams",
    "edges",           "attributes",      "pointers that moved with their block",  "pointers to another place",
    "plain words"};
constexpr std::size_t kChanges = sizeof kChangeKeys / sizeof *kChangeKeys;

struct Difference {
  Change change = Change::kPlain;
  std::size_t a = kNoPartner, b = kNoPartner;  // nodes
  const Word* word_a = nullptr;
  const Word* word_b = nullptr;
};

class Comparison {
 public:
  Comparison(TraceInput& input, const LoadedGraph& a, const LoadedGraph& b) : input_(input), a_(a), b_(b) {}

  void run() {
    pairs_ = align(keys(a_), keys(b_));
    for (const auto& [i, j] : pairs_) {
      if (i != kNoPartner && j != kNoPartner) partner_[i] = j;
    }
    for (const auto& [i, j] : pairs_) {
      if (j == kNoPartner) {
        add({Change::kOnlyA, i, j});
      } else if (i == kNoPartner) {
        add({Change::kOnlyB, i, j});
      } else {
        ++aligned_;
        compare(i, j);
      }
    }
  }

  const std::vector<Difference>& differences() const { return differences_; }
  std::uint64_t count(std::size_t change) const { return counts_[change]; }
  std::uint64_t words() const { return words_; }
  std::uint64_t aligned() const { return aligned_; }

 private:
  std::vector<std::uint32_t> keys(const LoadedGraph& graph) {
    std::vector<std::uint32_t> list;
    for (const LoadedNode& node : graph.nodes) {
      list.push_back(ids_.emplace(node_key(input_, node), static_cast<std::uint32_t>(ids_.size())).first->second);
    }
    return list;
  }

  void add(const Difference& difference) {
    differences_.push_back(difference);
    ++counts_[static_cast<std::size_t>(difference.change)];
  }

  void compare(std::size_t i, std::size_t j) {
    const LoadedNode& a = a_.nodes[i];
    const LoadedNode& b = b_.nodes[j];
    if (!std::equal(a.grid, a.grid + 3, b.grid) || !std::equal(a.block, a.block + 3, b.block) ||
        a.shared_bytes != b.shared_bytes || a.bytes != b.bytes) {
      add({Change::kDimensions, i, j});
    }
    // Streams are told apart by what they are to each other, not by their handles.
    if (!streams_.pair(a.stream, b.stream)) add({Change::kStream, i, j});
    if (a.attributes != b.attributes) add({Change::kAttributes, i, j});
    if (!same_edges(a, b)) add({Change::kEdges, i, j});
    compare_words(i, j);
  }

  bool same_edges(const LoadedNode& a, const LoadedNode& b) const {
    if (a.after.size() != b.after.size()) return false;
    std::vector<std::size_t> from_a;
    for (const std::uint32_t from : a.after) {
      const auto found = partner_.find(from);
      // A predecessor that only one graph has is reported as such.
      if (found == partner_.end()) return true;
      from_a.push_back(found->second);
    }
    std::sort(from_a.begin(), from_a.end());
    std::vector<std::size_t> from_b(b.after.begin(), b.after.end());
    std::sort(from_b.begin(), from_b.end());
    return from_a == from_b;
  }

  // A pointer has moved with its block if it keeps its offset, and if this pairing of blocks holds throughout.
  bool pair(const Block& a, const Block& b) { return blocks_.pair({a.driver, a.ordinal}, {b.driver, b.ordinal}); }

  void compare_words(std::size_t i, std::size_t j) {
    const auto& a = a_.nodes[i].words;
    const auto& b = b_.nodes[j].words;
    for (std::size_t w = 0; w < std::min(a.size(), b.size()); ++w) {
      ++words_;
      const bool pointers = a[w].block && b[w].block;
      const bool same_offset = pointers && a[w].value - a[w].block.address == b[w].value - b[w].block.address;
      if (a[w].value == b[w].value) {
        if (same_offset) pair(a[w].block, b[w].block);
        continue;
      }
      const Change change = !pointers                                     ? Change::kPlain
                            : same_offset && pair(a[w].block, b[w].block) ? Change::kMoved
                                                                          : Change::kPointer;
      add({change, i, j, &a[w], &b[w]});
    }
  }

  TraceInput& input_;
  const LoadedGraph& a_;
  const LoadedGraph& b_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
  std::unordered_map<std::size_t, std::size_t> partner_;
  Pairing<std::uint64_t> streams_;
  Pairing<std::pair<bool, std::uint64_t>> blocks_;  // whose they are, and ordinals
  std::vector<Difference> differences_;
  std::uint64_t counts_[kChanges] = {};
  std::uint64_t words_ = 0, aligned_ = 0;
};

std::string edges_text(const LoadedNode& node) {
  return node.after.empty() ? "nothing" : fmt::format("#{}", fmt::join(node.after, " #"));
}

std::string size_text(const LoadedNode& node) {
  if (node.kind != record::NodeKind::kKernel) return fmt::format("{} B", node.bytes);
  return fmt::format("grid {}x{}x{} block {}x{}x{} shared {}, {} B of parameters", node.grid[0], node.grid[1],
                     node.grid[2], node.block[0], node.block[1], node.block[2], node.shared_bytes, node.bytes);
}

std::string value_text(const Word& word) {
  const std::string block = describe(word.block, word.value);
  return fmt::format("{:#0{}x}{}{}", word.value, 2 + 2 * word.bytes, block.empty() ? "" : "  ", block);
}

// Both sides of a difference as text.
std::pair<std::string, std::string> sides(TraceInput& input, const Difference& d, const LoadedNode* a,
                                          const LoadedNode* b) {
  switch (d.change) {
    case Change::kOnlyA:
      return {size_text(*a), "-"};
    case Change::kOnlyB:
      return {"-", size_text(*b)};
    case Change::kDimensions:
      return {size_text(*a), size_text(*b)};
    case Change::kStream:
      return {input.stream_name(a->stream), input.stream_name(b->stream)};
    case Change::kEdges:
      return {edges_text(*a), edges_text(*b)};
    case Change::kAttributes:
      return {attributes_text(a->attributes), attributes_text(b->attributes)};
    default:
      return {value_text(*d.word_a), value_text(*d.word_b)};
  }
}

// The node that a difference is about: A's where A has it.
const LoadedNode& node_of(const Difference& d, const LoadedGraph& a, const LoadedGraph& b) {
  return d.a != kNoPartner ? a.nodes[d.a] : b.nodes[d.b];
}

struct Row {
  std::string node, name, place, left, right, position;
};

Row describe(TraceInput& input, const Difference& d, const LoadedGraph& graph_a, const LoadedGraph& graph_b) {
  const LoadedNode* a = d.a == kNoPartner ? nullptr : &graph_a.nodes[d.a];
  const LoadedNode* b = d.b == kNoPartner ? nullptr : &graph_b.nodes[d.b];
  const LoadedNode& node = node_of(d, graph_a, graph_b);
  Row row;
  row.node = a != nullptr && b != nullptr && d.a != d.b ? fmt::format("#{}/#{}", d.a, d.b)
                                                        : fmt::format("#{}", a != nullptr ? d.a : d.b);
  row.name = node_name(input, node);
  row.place = d.word_a != nullptr ? word_place(input, node, *d.word_a) : kChangeNames[static_cast<int>(d.change)];
  std::tie(row.left, row.right) = sides(input, d, a, b);
  row.position = input.position(node.frame);
  return row;
}

Json word_json(const Word& word) {
  Json json = {{"value", hex_value(word.value)}};
  if (word.block) {
    json["block"] = word.block.ordinal;
    json["driver"] = word.block.driver;
    json["block_offset"] = word.value - word.block.address;
    json["block_bytes"] = word.block.bytes;
  }
  return json;
}

Json difference_json(TraceInput& input, const Difference& d, const LoadedGraph& a, const LoadedGraph& b) {
  const Row row = describe(input, d, a, b);
  Json json;
  json["change"] = kChangeKeys[static_cast<std::size_t>(d.change)];
  json["node_a"] = d.a == kNoPartner ? Json() : Json(d.a);
  json["node_b"] = d.b == kNoPartner ? Json() : Json(d.b);
  json["name"] = text_value(node_key(input, node_of(d, a, b)));
  json["line"] = text_value(row.position);
  if (d.word_a == nullptr) {
    json["a"] = text_value(row.left);
    json["b"] = text_value(row.right);
    return json;
  }
  json["parameter"] = d.word_a->parameter == Word::kNoParameter ? Json() : Json(d.word_a->parameter);
  json["in_parameter"] = d.word_a->in_parameter;
  json["offset"] = d.word_a->offset;
  json["bytes"] = d.word_a->bytes;
  json["a"] = word_json(*d.word_a);
  json["b"] = word_json(*d.word_b);
  return json;
}

void print_text(Output& out, TraceInput& input, const DumpOptions& options, const Comparison& comparison,
                const LoadedGraph& a, const LoadedGraph& b, const std::vector<Difference>& shown) {
  out.print("A: {}, {} nodes\nB: {}, {} nodes\n{} nodes aligned, {} words compared\n", escape_text(a.title),
            a.nodes.size(), escape_text(b.title), b.nodes.size(), comparison.aligned(), comparison.words());
  for (std::size_t change = 0; change < kChanges; ++change) {
    if (comparison.count(change) != 0) out.print("{:>8}  {}\n", comparison.count(change), kChangeNames[change]);
  }
  if (comparison.differences().empty()) out.write("the same\n");
  std::string last;
  std::size_t printed = 0;
  for (const Difference& d : shown) {
    if (options.limit != 0 && printed++ == options.limit) {
      out.print("… and {} more\n", shown.size() - options.limit);
      break;
    }
    const Row row = describe(input, d, a, b);
    const std::string head = row.node + " " + row.name + (row.position.empty() ? "" : "  at " + row.position);
    if (head != last) out.print("\n{}\n", escape_text(head));
    last = head;
    out.print("  {:<24} {}\n  {:<24} {}\n", escape_text(row.place), escape_text(row.left),
              d.change == Change::kMoved     ? "  moved"
              : d.change == Change::kPointer ? "  another place"
              : d.change == Change::kPlain   ? "  plain"
                                             : "",
              escape_text(row.right));
  }
}

void print_csv(Output& out, TraceInput& input, const DumpOptions& options, const LoadedGraph& a, const LoadedGraph& b,
               const std::vector<Difference>& shown) {
  Table table = Table::of_keys({"change", "node", "name", "place", "a", "b", "line"});
  for (const Difference& d : shown) {
    const Row row = describe(input, d, a, b);
    table.add({kChangeKeys[static_cast<std::size_t>(d.change)], row.node, text_value(row.name), text_value(row.place),
               row.left, row.right, text_value(row.position)});
  }
  table.csv(out, options.limit);
}

}  // namespace

int view_diff(TraceInput& input, const DumpOptions& options, Output& out) {
  const GraphIndex index(input);
  const LoadedGraph a = load_graph(input, index, options.arguments[0], true);
  const LoadedGraph b = load_graph(input, index, options.arguments[1], true);
  Comparison comparison(input, a, b);
  comparison.run();
  Filter filter(options.filter, input);
  std::vector<Difference> shown;
  std::size_t counted = 0;
  for (const Difference& d : comparison.differences()) {
    if (options.ignore_moved && d.change == Change::kMoved) continue;
    ++counted;
    const LoadedNode& node = node_of(d, a, b);
    if (filter.node(node.function, node.kind == record::NodeKind::kKernel, node.stream, node.frame)) shown.push_back(d);
  }
  if (options.format == Format::kText) {
    print_text(out, input, options, comparison, a, b, shown);
  } else if (options.format == Format::kCsv) {
    print_csv(out, input, options, a, b, shown);
  } else {
    Json json;
    json["a"] = {{"title", text_value(a.title)}, {"nodes", a.nodes.size()}};
    json["b"] = {{"title", text_value(b.title)}, {"nodes", b.nodes.size()}};
    json["aligned"] = comparison.aligned();
    json["words"] = comparison.words();
    for (std::size_t change = 0; change < kChanges; ++change) {
      json["counts"][kChangeKeys[change]] = comparison.count(change);
    }
    json["differences"] = Json::array();
    for (const Difference& d : shown) {
      if (options.limit != 0 && json["differences"].size() == options.limit) break;
      json["differences"].push_back(difference_json(input, d, a, b));
    }
    print_json(out, input, options, std::move(json));
  }
  return counted == 0 ? kOk : kDifferent;
}

}  // namespace grape::tools
