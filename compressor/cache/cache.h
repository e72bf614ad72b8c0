// What one process leaves for the next ones (GRAPE_CACHE, docs/CACHE.md): proven programs without handles or addresses,
// what is known of padding, and where in the Python code each node came from. A store's file with notes. Core: no CUDA,
// no Python. Plain data; throws std::bad_alloc only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "compressor/store/store.h"

namespace grape::cache {

using Digest = store::Digest;

// What was called, in words that another process understands: nothing of it depends on where objects lie.
struct Call {
  std::string region;  // "package.module:Class", or the function's
  Digest signature;    // arguments, module, names and switches that the code may read
  Digest code;         // the Python code that ran
  bool operator==(const Call& other) const {
    return region == other.region && signature == other.signature && code == other.code;
  }
};

// A program that was proven for a call, as portable() makes it.
struct Entry {
  std::uint64_t id = 0;  // in the store
  Call call;
  Digest outcome;               // what the call returned and changed
  std::uint64_t last_used = 0;  // seconds since 1970
};

// A word of a kernel's parameters, as program::PaddingKnowledge::Word.
struct Padding {
  Digest kernel;                       // its name, and the content of its module
  std::uint32_t word = 0;              // of the parameters
  std::array<std::uint8_t, 8> seen{};  // in how many shadow replays each byte was another one
  std::uint8_t own = 0;                // bytes of which each process has its own, as a mask
  std::uint8_t varies = 0;             // bytes that were not the same in all calls of a process, likewise
};

struct Cache {
  std::string environment;          // lines of "key=value": nothing of it may differ where the cache is used
  std::vector<Entry> entries;       // no two with the same call
  std::vector<Padding> padding;     // ascending by kernel and word, each once
  std::vector<std::string> places;  // RecordedNode::frame counts them from 1: "net.py:12 in Net.forward". 0: not known
  std::unique_ptr<store::Store> programs;
};

// The file's bytes.
void save(const Cache& cache, std::vector<std::uint8_t>& file);

// False: `error` says why; a file that is damaged anywhere is not taken at all. `cache` is then empty.
bool open(const std::vector<std::uint8_t>& file, Cache& cache, std::string& error);

// In a program of a cache, FunctionInfo::handle is this number.
std::uint64_t handle_of(const Digest& kernel);

// Puts a cache together.
class Builder {
 public:
  explicit Builder(std::string environment);
  ~Builder();

  // `place`: of a RecordedNode::frame, in words; "": not known. The handles of the program's functions are those of
  // handle_of(). False: the store refuses it, or the call is there already.
  bool add(Entry entry, program::Program program, const std::function<std::string(std::uint32_t)>& place);
  // Takes entries out again.
  void remove(const std::function<bool(const Entry&)>& which);
  // What was learned counts no less than what is there. True: it counts more.
  bool add_padding(const Padding& padding);
  // What `older` has besides, the latest used first, until the programs take `most_bytes`. False: `most_entries` were
  // added, and there may be more.
  bool merge(const Cache& older, std::uint64_t most_bytes, std::size_t most_entries = ~std::size_t{0});
  // With the entries in the order in which they were added; until something is added.
  const Cache& so_far();
  // The same; nothing can be added after it.
  Cache take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::cache
