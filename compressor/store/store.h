// Thousands of programs in little memory: each as the difference to its nearest relative, equal parts once, what is
// cold in zstd with a dictionary trained on its relatives. Any program is read without its neighbours: through one
// base, or two. Core: no CUDA, no Python. How the bytes look is in docs/STORE.md.
//
// Threads: all functions may be called from any thread at any time. get() does not wait for put(), except for the
// moments in which the index changes. Errors are texts for a log; nothing throws other than std::bad_alloc, after
// which the store is as it was before the call, or has the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/program/program.h"
#include "compressor/store/parts.h"
#include "compressor/store/record.h"

namespace grape::store {

// A store's file begins so.
constexpr std::uint8_t kMagic[8] = {0x89, 'G', 'S', 'T', 'O', 'R', '\r', '\n'};

struct Options {
  // Bytes of bases that are kept decoded. Beyond them the least recently used ones go, and are decoded again when they
  // are needed. 0: none are kept.
  std::size_t hot_bytes = std::size_t{16} << 20;
  // Relatives that must be there before a dictionary is trained on them; until then they lie uncompressed.
  std::size_t dictionary_after = 64;
};

// Bytes, and numbers of things.
struct Statistics {
  std::uint64_t programs = 0;  // ids
  std::uint64_t unique = 0;    // programs that differ from one another
  std::uint64_t families = 0;  // shapes: programs of the same operations in the same order
  std::uint64_t bases = 0;     // programs that others are differences to, or could be
  std::uint64_t whole = 0;     // programs that are no difference to another
  std::uint64_t dictionaries = 0;
  std::uint64_t raw = 0;           // of all programs, each by itself, without functions' names and layouts
  std::uint64_t deduplicated = 0;  // what is left of it as differences, with names and layouts, before zstd
  std::uint64_t compressed = 0;    // what is stored: the same after zstd, with dictionaries
  std::uint64_t hot = 0;           // decoded bases
  std::uint64_t resident = 0;      // all memory of the store: stored, hot, index, zstd's tables
  std::uint64_t base_hits = 0, base_misses = 0;  // of get(): was the base decoded already?
};

// Programs of the same operations in the same order. Bytes as in Statistics.
struct FamilyStatistics {
  std::uint64_t shape = 0;    // names the family
  std::uint64_t example = 0;  // the least id of its programs
  std::uint64_t programs = 0, unique = 0, bases = 0;
  std::uint64_t raw = 0, deduplicated = 0, compressed = 0;
};

// One program.
struct ProgramStatistics {
  std::uint64_t shape = 0;  // of its family
  std::uint64_t raw = 0;    // bytes, as in Statistics
};

// What else a file has: for whoever keeps something beside the programs. Types count from 0; the store does not look at
// the bytes.
struct Note {
  std::uint32_t type = 0;
  std::vector<std::uint8_t> bytes;
};

class Store {
 public:
  explicit Store(const Options& options = {}) : options_(options), hot_(options.hot_bytes) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Keeps `program` under `id`. False, with `error`: it contradicts itself, is larger than 128 MiB, or another program
  // has the id. The same program under the same id again is no error. Now and then a call trains a dictionary, which
  // takes some ten milliseconds.
  bool put(std::uint64_t id, const program::Program& program, std::string& error);

  // The program, bit for bit; memory that `program` has is used again. False, with `error`: no such id, or the bytes
  // are damaged; `program` is then empty.
  bool get(std::uint64_t id, program::Program& program, std::string& error) const;

  bool contains(std::uint64_t id) const;
  std::vector<std::uint64_t> ids() const;  // ascending

  // Forgets an id. What nothing else needs is freed; names and layouts stay. False: no such id.
  bool erase(std::uint64_t id);

  // Compresses what still lies uncompressed.
  void compress();

  Statistics statistics() const;
  // Those that have a program, by their examples, ascending.
  std::vector<FamilyStatistics> families() const;
  // False: no such id.
  bool statistics(std::uint64_t id, ProgramStatistics& program) const;

  // The file of docs/STORE.md: all programs, and `notes`; of a store in use, as it is at one moment. Compresses first.
  void save(std::vector<std::uint8_t>& file, const std::vector<Note>& notes = {});

  // Checks checksums, lengths and references of all records, and what is read later is checked when it is read. Null:
  // not a store, or of a newer major version. A file that is cut or damaged behind its header gives what comes before:
  // `error` then says what is wrong, and is empty otherwise. `notes`, if not null, gets the file's.
  static std::unique_ptr<Store> open(const std::vector<std::uint8_t>& file, std::string& error,
                                     const Options& options = {}, std::vector<Note>* notes = nullptr);

 private:
  class Loader;
  using RecordPointer = std::shared_ptr<Record>;

  using Bases = std::vector<std::weak_ptr<Record>>;  // of a family
  // What hangs together by its root: programs that share a dictionary.
  struct Tree {
    std::weak_ptr<Record> root;
    Sketch sketch{};
    std::shared_ptr<const Dictionary> dictionary;
    std::vector<std::weak_ptr<Record>> pending;  // not compressed yet
  };
  // A base and how an image lies on it.
  struct Choice {
    RecordPointer base;  // null: none
    std::shared_ptr<const Image> image;
    Fitting fitting;
    std::size_t distance = ~std::size_t{0};
  };

  RecordPointer store_new(std::shared_ptr<const Image> image, const Digest& content);
  RecordPointer store_base(const std::shared_ptr<const Image>& image, Record record);
  RecordPointer store_member(const Image& image, Record record, const Choice& choice);
  void consider(const RecordPointer& base, const Image& image, Choice& best);
  Choice nearest_of(Bases& bases, const Image& image);
  Choice nearest_root(const Image& image, const Sketch& sketch);
  std::shared_ptr<const Payload> pack(Bytes raw, std::shared_ptr<const Dictionary> dictionary);
  void compress(Tree& tree, bool train);
  void forget_dead();

  // Null: the bytes are damaged.
  std::shared_ptr<const Image> image_of(const Record& record) const;
  bool unpack(const Payload& payload, Bytes& raw) const;
  bool read(const Record& record, program::Program& program, std::string& error) const;
  std::shared_ptr<const Payload> payload_of(const Record& record) const;
  // Into an empty store; false and `error` as open().
  bool read_file(const Bytes& file, std::string& error, std::vector<Note>* notes);

  const Options options_;
  mutable Codec codec_;

  // Two locks. `put_mutex_` makes those who change the store take turns; whoever holds it may read all of the index.
  // `mutex_` is taken for moments only, by those for changes and by get() for reading; it guards what is marked so.
  mutable std::mutex put_mutex_;
  std::unordered_map<std::uint64_t, Bases> families_;  // by shape
  std::map<std::uint64_t, Tree> trees_;                // by their roots' numbers
  std::unordered_map<Digest, std::weak_ptr<Record>, DigestHash> by_content_;
  std::size_t changes_ = 0;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, RecordPointer> records_;  // by id; under mutex_
  std::shared_ptr<const Parts::Snapshot> names_;              // under mutex_
  mutable HotImages hot_;                                     // under mutex_
  mutable std::uint64_t base_hits_ = 0, base_misses_ = 0;     // under mutex_
  Parts parts_;                                               // under put_mutex_; what snapshots point to stays
};

}  // namespace grape::store
