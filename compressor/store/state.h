// What is behind Store. Core: no CUDA, no Python.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "compressor/store/parts.h"
#include "compressor/store/record.h"
#include "compressor/store/store.h"

namespace grape::store {

// Two locks. `put_mutex_` makes those who change the store take turns; whoever holds it may read all of the index.
// `mutex_` is taken for moments only, by those for changes and by get() for reading; it guards what is marked so.
class Store::State {
 public:
  explicit State(const Options& options) : options_(options), hot_(options.hot_bytes) {}

  bool put(std::uint64_t id, const program::Program& program, std::string& error);
  bool get(std::uint64_t id, program::Program& program, std::string& error);
  bool contains(std::uint64_t id) const;
  std::vector<std::uint64_t> ids() const;
  bool erase(std::uint64_t id);
  void compress();
  Statistics statistics() const;
  std::vector<FamilyStatistics> families() const;
  bool statistics(std::uint64_t id, ProgramStatistics& program) const;
  void save(Bytes& file, const std::vector<Note>& notes);
  bool open(const Bytes& file, std::string& error, std::vector<Note>* notes);

 private:
  class Loader;
  using RecordPointer = std::shared_ptr<Record>;

  struct Family {
    std::vector<std::weak_ptr<Record>> bases;
  };
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

  RecordPointer store_new(std::shared_ptr<const Image> image, const ContentKey& content);
  RecordPointer store_base(const std::shared_ptr<const Image>& image, Record record);
  RecordPointer store_member(const Image& image, Record record, const Choice& choice);
  void consider(const RecordPointer& base, const Image& image, Choice& best);
  Choice nearest_of(Family& family, const Image& image);
  Choice nearest_root(const Image& image, const Sketch& sketch);
  std::shared_ptr<const Payload> pack(Bytes raw, std::shared_ptr<const Dictionary> dictionary);
  void compress(Tree& tree, bool train);
  void forget_dead();

  // Null: the bytes are damaged.
  std::shared_ptr<const Image> image_of(const Record& record);
  bool unpack(const Payload& payload, Bytes& raw);
  bool read(const Record& record, program::Program& program, std::string& error);
  std::shared_ptr<const Payload> payload_of(const Record& record) const;

  const Options options_;
  Codec codec_;

  mutable std::mutex put_mutex_;
  std::unordered_map<std::uint64_t, Family> families_;  // by shape
  std::map<std::uint64_t, Tree> trees_;                 // by their roots' numbers
  std::unordered_map<ContentKey, std::weak_ptr<Record>, ContentKeyHash> by_content_;
  std::size_t changes_ = 0;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, RecordPointer> records_;  // by id; under mutex_
  std::shared_ptr<const Parts::Snapshot> names_;              // under mutex_
  HotImages hot_;                                             // under mutex_
  std::uint64_t base_hits_ = 0, base_misses_ = 0;             // under mutex_
  Parts parts_;                                               // under put_mutex_; what snapshots point to stays
};

}  // namespace grape::store
