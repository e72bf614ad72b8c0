// A stored program's nodes and parameter words in words: what the views "program" and "diff" show.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/inputs/store_input.h"
#include "tools/text/table.h"

namespace grape::tools {

// At most 8 bytes of a node's parameters, none across two parameters. What has a role is a whole word.
struct StoredWord {
  enum class Place { kParameter, kBetween, kWord };  // kWord: of what is no kernel, or has a layout that is not known
  Place place = Place::kWord;
  std::uint32_t parameter = 0;     // its index, of kParameter
  std::uint32_t in_parameter = 0;  // bytes from its begin
  std::uint32_t offset = 0;        // bytes from the begin of all parameters
  std::uint32_t bytes = 8;
  std::uint64_t value = 0;                        // an offset, where it has a role
  const program::Reference* reference = nullptr;  // the program's; null: a plain number
};

// All of a node's parameters, in order, what lies between them too.
std::vector<StoredWord> words_of(const program::Program& program, const program::RecordedNode& node);
// The same of two nodes with as many words, cut alike in both.
std::vector<std::pair<StoredWord, StoredWord>> word_pairs(const program::Program& a,
                                                          const program::RecordedNode& node_a,
                                                          const program::Program& b,
                                                          const program::RecordedNode& node_b);

const char* kind_name(program::NodeKind kind);
const char* role_name(program::Role role);
// The mangled name, or the kind of what is no kernel.
std::string node_key(const program::Program& program, const program::RecordedNode& node);
// As people read it.
std::string node_name(StoreInput& input, const program::Program& program, const program::RecordedNode& node);
// "cooperative", "cluster 2x1x1", "packed parameters", …
std::vector<std::string> attributes_of(const program::Program& program, const program::RecordedNode& node);
// That a copy, a memset or a read by the host moves; 0: a kernel.
std::uint64_t moved_bytes(const program::Program& program, const program::RecordedNode& node);
std::string dimensions_text(const program::Dimensions& size);
// "p1+0x8", "source", "word 3".
std::string word_place(const program::RecordedNode& node, const StoredWord& word);
// "input #0 + 0x40 of 1024 B", "0x00000010 (16)".
std::string value_text(const program::Program& program, const StoredWord& word);
Json value_json(const program::Program& program, const StoredWord& word);

}  // namespace grape::tools
