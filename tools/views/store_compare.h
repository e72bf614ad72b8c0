// What differs between two programs of a cache, node by node: more than program::compare tells, which ends at the
// first.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compressor/program/program.h"
#include "tools/text/align.h"
#include "tools/views/store_nodes.h"

namespace grape::tools {

enum class StoredChange : std::uint8_t {
  kOnlyA,
  kOnlyB,
  kKernel,  // another one of the same name
  kDimensions,
  kStream,
  kEdges,
  kAttributes,
  kMoved,    // pointers into a block with another number, which stands for the other one throughout
  kStatics,  // a static block at another address, which stands for the other one throughout: told once
  kPointer,  // to another place
  kRole,     // a pointer, or a random number's state, in one of them only
  kPlain,
  kPadding,  // plain, in bytes that are known to be padding
  kHostData,
  kBlocks,
  kEvents,
  kRandom,
  kNone,
};
constexpr std::size_t kStoredChanges = static_cast<std::size_t>(StoredChange::kNone);
const char* change_key(StoredChange change);    // in JSON and CSV
const char* change_title(StoredChange change);  // in text: of several

struct StoredDifference {
  StoredChange change = StoredChange::kPlain;
  std::size_t a = kNoPartner, b = kNoPartner;  // nodes; neither: of the whole program
  std::string place, left, right;              // in words
  bool has_words = false;
  StoredWord word_a, word_b;
};

class StoredComparison {
 public:
  // The programs must outlive it.
  StoredComparison(const StoreInput& input, const program::Program& a, const program::Program& b)
      : input_(input), a_(a), b_(b) {}
  void run();

  const std::vector<StoredDifference>& differences() const { return differences_; }
  std::uint64_t count(StoredChange change) const { return counts_[static_cast<std::size_t>(change)]; }
  std::uint64_t aligned() const { return aligned_; }  // nodes
  std::uint64_t words() const { return words_; }      // compared

 private:
  using Node = program::RecordedNode;
  using Block = std::pair<program::Role, std::uint32_t>;

  std::vector<std::uint32_t> keys(const program::Program& program);
  void add(StoredChange change, std::size_t a, std::size_t b, std::string place, std::string left, std::string right);
  void compare_nodes(std::size_t i, std::size_t j);
  bool same_edges(const Node& a, const Node& b) const;
  void compare_words(std::size_t i, std::size_t j);
  StoredChange change_of(const Node& node, const StoredWord& a, const StoredWord& b);
  StoredChange pointer_change(const program::Reference& a, const program::Reference& b, bool same_offset);
  bool same_block(const program::Reference& a, const program::Reference& b) const;
  void compare_host_data(std::size_t i, std::size_t j);
  void compare_blocks();
  void compare_born(const char* name, const std::vector<program::BornBlock>& a,
                    const std::vector<program::BornBlock>& b);
  void compare_rest();

  const StoreInput& input_;
  const program::Program& a_;
  const program::Program& b_;
  std::unordered_map<std::string, std::uint32_t> ids_;    // of node_key()
  std::unordered_map<std::size_t, std::size_t> partner_;  // A's node → B's
  std::vector<bool> has_partner_;                         // B\'s nodes
  Pairing<std::uint32_t> streams_;
  Pairing<Block> blocks_;
  std::vector<StoredDifference> differences_;
  std::uint64_t counts_[kStoredChanges] = {};
  std::uint64_t aligned_ = 0, words_ = 0;
};

}  // namespace grape::tools
