// The store's file (docs/STORE.md).
#include <algorithm>
#include <cstring>
#include <utility>

#include "compressor/store/store.h"
#include "compressor/trace/byte_stream.h"
#include "compressor/trace/chunk.h"

namespace grape::store {
namespace {

using Lock = std::lock_guard<std::mutex>;
using trace::ByteCursor;
using trace::put_fixed;
using trace::put_varint;

constexpr std::uint16_t kMajor = 1, kMinor = 1;
constexpr std::uint16_t kMinorOfNotes = 1;  // had them first
constexpr std::size_t kFileHeaderBytes = 16, kRecordHeaderBytes = 16, kChecksumBytes = 8;
constexpr std::uint64_t kMaxRaw = (kMaxCells * 8 + 4096) * 2;

enum class RecordType : std::uint32_t { kName = 1, kLayout = 2, kDictionary = 3, kProgram = 4, kEnd = 5 };
constexpr std::uint32_t kFirstNote = 16;  // types from here on are notes
constexpr std::uint8_t kIsBase = 1, kIsCompressed = 2;

// Appends a record whose body `write` appends.
template <typename Write>
void put_record(Bytes& file, std::uint32_t type, Write write) {
  const std::size_t at = file.size();
  file.resize(at + kRecordHeaderBytes);
  write();
  const auto stored = static_cast<std::uint32_t>(file.size() - at - kRecordHeaderBytes);
  std::memcpy(file.data() + at + kChecksumBytes, &type, sizeof type);
  std::memcpy(file.data() + at + kChecksumBytes + 4, &stored, sizeof stored);
  const std::uint64_t sum = trace::checksum(file.data() + at + kChecksumBytes, file.size() - at - kChecksumBytes);
  std::memcpy(file.data() + at, &sum, sizeof sum);
}

template <typename Write>
void put_record(Bytes& file, RecordType type, Write write) {
  put_record(file, static_cast<std::uint32_t>(type), write);
}

void append(Bytes& file, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  file.insert(file.end(), from, from + bytes);
}

// Gives records and dictionaries their numbers in the file, each after what it needs.
class Saver {
 public:
  explicit Saver(Bytes& file) : file_(file) {}

  void header() {
    append(file_, kMagic, sizeof kMagic);
    put_fixed(file_, kMajor);
    put_fixed(file_, kMinor);
    put_fixed(file_, std::uint32_t{0});
  }

  void parts(const Parts::Snapshot& parts) {
    for (const std::string* name : parts.names) {
      put_record(file_, RecordType::kName, [&] { append(file_, name->data(), name->size()); });
    }
    for (const Layout* layout : parts.layouts) {
      put_record(file_, RecordType::kLayout, [&] { put_layout(*layout, file_); });
    }
  }

  void name_id(const Record* record, std::uint64_t id) { ids_[record].push_back(id); }

  void program(const Record* record) {
    if (numbers_.count(record) != 0) return;
    if (record->base != nullptr) program(record->base.get());
    const Payload& payload = *record->payload;
    const std::uint64_t dictionary = dictionary_number(payload.dictionary.get());
    put_record(file_, RecordType::kProgram, [&] {
      for (const std::uint64_t word : {record->content.low, record->content.high, record->shape}) {
        put_fixed(file_, word);
      }
      const unsigned flags = (record->is_base ? kIsBase : 0u) | (payload.compressed ? kIsCompressed : 0u);
      file_.push_back(static_cast<std::uint8_t>(flags));
      put_varint(file_, record->base != nullptr ? numbers_[record->base.get()] + 1 : 0);
      put_varint(file_, dictionary);
      put_varint(file_, record->image_bytes / 8);
      put_varint(file_, payload.raw_size);
      const std::vector<std::uint64_t>& ids = ids_[record];
      put_varint(file_, ids.size());
      for (const std::uint64_t id : ids) put_fixed(file_, id);
      append(file_, payload.bytes.data(), payload.bytes.size());
    });
    const std::uint64_t number = numbers_.size();
    numbers_.emplace(record, number);
  }

  void note(const Note& note) {
    put_record(file_, kFirstNote + note.type, [&] { append(file_, note.bytes.data(), note.bytes.size()); });
  }

  void end() {
    put_record(file_, RecordType::kEnd, [&] { put_varint(file_, numbers_.size()); });
  }

 private:
  // From 1; 0: none.
  std::uint64_t dictionary_number(const Dictionary* dictionary) {
    if (dictionary == nullptr) return 0;
    const auto known = dictionaries_.emplace(dictionary, dictionaries_.size() + 1);
    if (known.second) {
      const Bytes& bytes = dictionary->bytes();
      put_record(file_, RecordType::kDictionary, [&] { append(file_, bytes.data(), bytes.size()); });
    }
    return known.first->second;
  }

  Bytes& file_;
  std::unordered_map<const Record*, std::vector<std::uint64_t>> ids_;
  std::unordered_map<const Record*, std::uint64_t> numbers_;
  std::unordered_map<const Dictionary*, std::uint64_t> dictionaries_;
};

}  // namespace

// Reads records into an empty store.
class Store::Loader {
 public:
  Loader(Store& store, std::vector<Note>* notes) : store_(store), notes_(notes) {}

  bool header(ByteCursor& cursor, std::string& error) {
    std::uint8_t magic[sizeof kMagic] = {};
    cursor.copy(magic, sizeof magic);
    const auto major = cursor.fixed<std::uint16_t>();
    minor_ = cursor.fixed<std::uint16_t>();
    cursor.fixed<std::uint32_t>();
    if (cursor.failed() || std::memcmp(magic, kMagic, sizeof magic) != 0) {
      error = "this is no store of programs";
      return false;
    }
    if (major != kMajor) {
      error = "the store has format version " + std::to_string(major) + "." + std::to_string(minor_) +
              "; this reads versions " + std::to_string(kMajor) + ".x";
      return false;
    }
    return true;
  }

  // Null: the record is sound. `done`: it was the last one.
  const char* record(ByteCursor& cursor, bool& done) {
    ByteCursor rest = cursor;
    const auto sum = cursor.fixed<std::uint64_t>();
    const auto type = cursor.fixed<std::uint32_t>();
    const auto stored = cursor.fixed<std::uint32_t>();
    if (cursor.failed() || stored > cursor.left()) return "the file ends within a record";
    const std::uint8_t* all = rest.take(kRecordHeaderBytes + std::size_t{stored});
    cursor = rest;
    const std::uint8_t* body = all + kRecordHeaderBytes;
    if (trace::checksum(all + kChecksumBytes, kRecordHeaderBytes - kChecksumBytes + stored) != sum) {
      return "a record's checksum is wrong";
    }
    switch (static_cast<RecordType>(type)) {
      case RecordType::kName:
        return name(body, stored);
      case RecordType::kLayout:
        return layout(body, stored);
      case RecordType::kDictionary:
        return dictionary(body, stored);
      case RecordType::kProgram:
        return program(ByteCursor(body, stored));
      case RecordType::kEnd:
        done = true;
        return ByteCursor(body, stored).varint() == records_.size() ? nullptr : "programs are missing";
    }
    if (type >= kFirstNote && minor_ >= kMinorOfNotes) {
      if (notes_ != nullptr) notes_->push_back({type - kFirstNote, {body, body + stored}});
      return nullptr;
    }
    return minor_ > kMinor ? nullptr : "a record of an unknown type";
  }

 private:
  const char* name(const std::uint8_t* body, std::size_t size) {
    const std::string name(reinterpret_cast<const char*>(body), size);
    return store_.parts_.name(name) == names_++ ? nullptr : "a name stands there twice";
  }

  const char* layout(const std::uint8_t* body, std::size_t size) {
    Layout layout;
    if (!take_layout(body, size, layout)) return "a parameter layout is damaged";
    const bool fresh = store_.parts_.layout(layout.parameters, layout.has_layout) == layouts_++;
    return fresh ? nullptr : "a parameter layout stands there twice";
  }

  const char* dictionary(const std::uint8_t* body, std::size_t size) {
    auto dictionary = Dictionary::from_bytes(body, size);
    if (dictionary == nullptr || dictionaries_.size() >= kMaxDictionaries) return "a dictionary is damaged";
    dictionaries_.push_back(std::move(dictionary));
    return nullptr;
  }

  const char* program(ByteCursor cursor) {
    auto record = std::make_shared<Record>();
    auto payload = std::make_shared<Payload>();
    record->number = next_number();
    record->content.low = cursor.fixed<std::uint64_t>();
    record->content.high = cursor.fixed<std::uint64_t>();
    record->shape = cursor.fixed<std::uint64_t>();
    const std::uint8_t flags = cursor.byte();
    const std::uint64_t base = cursor.varint(), dictionary = cursor.varint(), cells = cursor.varint();
    const std::uint64_t raw_size = cursor.varint(), ids = cursor.varint();
    if (cursor.failed() || ids > cursor.left() / 8) return "a program's record is damaged";
    std::vector<std::uint64_t> named(ids);
    for (std::uint64_t& id : named) id = cursor.fixed<std::uint64_t>();
    record->is_base = (flags & kIsBase) != 0;
    payload->compressed = (flags & kIsCompressed) != 0;
    if (base > records_.size() || dictionary > dictionaries_.size()) return "a program's base or dictionary is missing";
    if (base > 0) record->base = records_[base - 1];
    if (dictionary > 0) payload->dictionary = dictionaries_[dictionary - 1];
    const char* fault = place(*record);
    if (fault != nullptr) return fault;
    const bool fits = payload->compressed ? ratio_allowed(raw_size, cursor.left()) : raw_size == cursor.left();
    if (!fits || raw_size > kMaxRaw || cells > kMaxCells) return "a program's size is not credible";
    record->image_bytes = cells * 8;
    payload->raw_size = raw_size;
    const std::size_t left = cursor.left();
    const std::uint8_t* bytes = cursor.take(left);
    payload->bytes.assign(bytes, bytes + left);
    record->payload = std::move(payload);
    return enter(record, named);
  }

  static const char* place(Record& record) {
    if (record.base == nullptr) return record.is_base ? nullptr : "a program without base is none itself";
    if (!record.base->is_base) return "a program's base is none";
    record.depth = static_cast<std::uint8_t>(record.base->depth + 1);
    return record.depth + (record.is_base ? 1 : 0) <= kMaxDepth ? nullptr : "a program is too far from what is whole";
  }

  // Bases are decoded now: what new programs are compared with must be sound.
  const char* enter(const std::shared_ptr<Record>& record, const std::vector<std::uint64_t>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!store_.records_.emplace(ids[i], record).second) {
        for (std::size_t k = 0; k < i; ++k) store_.records_.erase(ids[k]);
        return "an id stands there twice";
      }
    }
    const char* fault = record->is_base ? base(record) : nullptr;
    if (fault != nullptr) {
      for (const std::uint64_t id : ids) store_.records_.erase(id);
      return fault;
    }
    if (record->payload->dictionary != nullptr) {
      store_.trees_[record->root().number].dictionary = record->payload->dictionary;
    }
    store_.by_content_[record->content] = record;
    records_.push_back(record);
    return nullptr;
  }

  const char* base(const std::shared_ptr<Record>& record) {
    const auto image = store_.image_of(*record);
    if (image == nullptr || shape_of(*image) != record->shape) return "a base is damaged";
    store_.families_[record->shape].push_back(record);
    if (record->base == nullptr) {
      Tree& tree = store_.trees_[record->number];
      tree.root = record;
      tree.sketch = sketch_of(*image);
    }
    return nullptr;
  }

  static constexpr std::size_t kMaxDictionaries = 4096;
  Store& store_;
  std::vector<Note>* notes_;  // null: nobody asks
  std::uint16_t minor_ = 0;
  std::uint32_t names_ = 0, layouts_ = 0;
  std::vector<std::shared_ptr<const Dictionary>> dictionaries_;
  std::vector<std::shared_ptr<Record>> records_;  // those without id and without relatives go with the loader
};

void Store::save(Bytes& file, const std::vector<Note>& notes) {
  const Lock put_lock(put_mutex_);
  for (auto& tree : trees_) compress(tree.second, true);
  file.clear();
  Saver saver(file);
  saver.header();
  saver.parts(*parts_.snapshot());
  std::vector<std::pair<std::uint64_t, const Record*>> order;
  for (const auto& entry : records_) order.emplace_back(entry.second->number, entry.second.get());
  std::sort(order.begin(), order.end());
  for (const auto& entry : records_) saver.name_id(entry.second.get(), entry.first);
  for (const auto& entry : order) saver.program(entry.second);
  for (const Note& note : notes) saver.note(note);
  saver.end();
}

bool Store::read_file(const Bytes& file, std::string& error, std::vector<Note>* notes) {
  const Lock put_lock(put_mutex_);
  ByteCursor cursor(file.data(), file.size());
  Loader loader(*this, notes);
  if (!loader.header(cursor, error)) return false;
  bool done = false;
  while (!done) {
    const std::size_t at = file.size() - cursor.left();
    const char* fault = cursor.left() == 0 ? "the file ends before its end record" : loader.record(cursor, done);
    if (fault == nullptr && done && cursor.left() != 0) fault = "bytes behind the end record";
    if (fault != nullptr) {
      error = std::string(fault) + ", at byte " + std::to_string(at);
      break;
    }
  }
  const Lock lock(mutex_);
  names_ = parts_.snapshot();
  return true;
}

}  // namespace grape::store
