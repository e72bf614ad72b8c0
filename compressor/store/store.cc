#include "compressor/store/store.h"

#include <algorithm>
#include <unordered_set>

namespace grape::store {

namespace {

using Lock = std::lock_guard<std::mutex>;

bool is_image_of(const Record& record, const Counts& counts, const std::vector<std::uint64_t>& structure,
                 const std::vector<std::uint64_t>& words) {
  return (structure.size() + words.size()) * sizeof(std::uint64_t) == record.image_bytes &&
         content_key(counts, structure, words) == record.content;
}

}  // namespace

std::shared_ptr<const Payload> Store::payload_of(const Record& record) const {
  const Lock lock(mutex_);
  return record.payload;
}

bool Store::unpack(const Payload& payload, Bytes& raw) const {
  if (payload.compressed) return codec_.decompress(payload.bytes, payload.raw_size, payload.dictionary.get(), raw);
  raw = payload.bytes;
  return true;
}

std::shared_ptr<const Image> Store::image_of(const Record& record) const {
  {
    const Lock lock(mutex_);
    if (auto image = hot_.find(record.number)) {
      ++base_hits_;
      return image;
    }
    ++base_misses_;
  }
  auto image = std::make_shared<Image>();
  Bytes raw;
  if (!unpack(*payload_of(record), raw)) return nullptr;
  if (record.base == nullptr) {
    if (!take_image(raw, *image)) return nullptr;
  } else {
    const auto base = image_of(*record.base);
    if (base == nullptr || !apply_difference(*base, raw, image->counts, image->structure, image->words)) return nullptr;
  }
  if (!is_image_of(record, image->counts, image->structure, image->words)) return nullptr;
  const Lock lock(mutex_);
  hot_.add(record.number, image);
  return image;
}

bool Store::read(const Record& record, program::Program& program, std::string& error) const {
  Counts counts{};
  std::vector<std::uint64_t> structure;
  bool good = false;
  if (record.is_base) {
    if (const auto image = image_of(record)) {
      good = true;
      counts = image->counts;
      structure = image->structure;
      program.words = image->words;
    }
  } else {
    Bytes raw;
    const auto base = image_of(*record.base);
    good = base != nullptr && unpack(*payload_of(record), raw) &&
           apply_difference(*base, raw, counts, structure, program.words) &&
           is_image_of(record, counts, structure, program.words);
  }
  if (!good) {
    error = "the stored program is damaged";
    return false;
  }
  std::shared_ptr<const Parts::Snapshot> parts;
  {
    const Lock lock(mutex_);
    parts = names_;
  }
  return from_structure(counts, structure, parts->names, parts->layouts, program, error);
}

bool Store::get(std::uint64_t id, program::Program& program, std::string& error) const {
  RecordPointer record;
  {
    const Lock lock(mutex_);
    const auto found = records_.find(id);
    if (found != records_.end()) record = found->second;
  }
  if (record == nullptr) error = "no program has this id";
  if (record != nullptr && read(*record, program, error)) return true;
  program = {};
  return false;
}

bool Store::contains(std::uint64_t id) const {
  const Lock lock(mutex_);
  return records_.count(id) != 0;
}

std::vector<std::uint64_t> Store::ids() const {
  std::vector<std::uint64_t> ids;
  {
    const Lock lock(mutex_);
    ids.reserve(records_.size());
    for (const auto& entry : records_) ids.push_back(entry.first);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Statistics Store::statistics() const {
  const Lock put_lock(put_mutex_);
  const Lock lock(mutex_);
  Statistics result;
  std::unordered_set<const Record*> records;
  std::unordered_set<const Dictionary*> dictionaries;
  std::unordered_set<std::uint64_t> shapes;
  std::size_t overhead = 0;
  constexpr std::size_t kMapEntry = 48;  // about, of a hash map
  for (const auto& entry : records_) {
    overhead += kMapEntry;
    result.raw += entry.second->image_bytes;
    for (const Record* record = entry.second.get(); record != nullptr; record = record->base.get()) {
      if (!records.insert(record).second) break;
      const Payload& payload = *record->payload;
      shapes.insert(record->shape);
      result.bases += record->is_base ? 1 : 0;
      result.whole += record->base == nullptr ? 1 : 0;
      result.deduplicated += payload.raw_size;
      result.compressed += payload.bytes.size();
      overhead += sizeof(Record) + sizeof(Payload) + 2 * kMapEntry;
      if (payload.dictionary != nullptr) dictionaries.insert(payload.dictionary.get());
    }
  }
  for (const Dictionary* dictionary : dictionaries) {
    result.compressed += dictionary->bytes().size();
    overhead += dictionary->resident_bytes() - dictionary->bytes().size();
  }
  result.programs = records_.size();
  result.unique = records.size();
  result.families = shapes.size();
  result.dictionaries = dictionaries.size();
  result.deduplicated += parts_.bytes();
  result.compressed += parts_.bytes();
  result.hot = hot_.bytes();
  result.resident = result.compressed + result.hot + overhead + parts_.bytes() + codec_.resident_bytes();
  result.base_hits = base_hits_;
  result.base_misses = base_misses_;
  return result;
}

std::vector<FamilyStatistics> Store::families() const {
  const Lock lock(mutex_);
  std::unordered_map<std::uint64_t, FamilyStatistics> by_shape;
  std::unordered_set<const Record*> records;
  for (const auto& [id, record] : records_) {
    const auto known = by_shape.try_emplace(record->shape);
    FamilyStatistics& family = known.first->second;
    family.shape = record->shape;
    family.example = known.second ? id : std::min(family.example, id);
    ++family.programs;
    family.raw += record->image_bytes;
    if (!records.insert(record.get()).second) continue;
    ++family.unique;
    family.bases += record->is_base ? 1 : 0;
    family.deduplicated += record->payload->raw_size;
    family.compressed += record->payload->bytes.size();
  }
  std::vector<FamilyStatistics> result;
  result.reserve(by_shape.size());
  for (const auto& family : by_shape) result.push_back(family.second);
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.example < b.example; });
  return result;
}

bool Store::statistics(std::uint64_t id, ProgramStatistics& program) const {
  const Lock lock(mutex_);
  const auto found = records_.find(id);
  if (found == records_.end()) return false;
  program = {found->second->shape, found->second->image_bytes};
  return true;
}

Store::~Store() = default;

std::unique_ptr<Store> Store::open(const std::vector<std::uint8_t>& file, std::string& error, const Options& options,
                                   std::vector<Note>* notes) {
  auto store = std::make_unique<Store>(options);
  error.clear();
  return store->read_file(file, error, notes) ? std::move(store) : nullptr;
}

}  // namespace grape::store
