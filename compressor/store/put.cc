// Putting programs in, and taking them out for good.
#include <algorithm>

#include "compressor/store/store.h"

namespace grape::store {
namespace {

using Lock = std::lock_guard<std::mutex>;

constexpr std::size_t kMaxBases = 8;     // of a family
constexpr std::size_t kFarFraction = 8;  // farther than this part of its cells: another base is worth it
constexpr std::size_t kUselessFraction = 2;
constexpr std::size_t kRootsTried = 3;
constexpr std::size_t kLeastPending = 8;  // samples that a dictionary can be trained on
constexpr std::size_t kSweepEvery = 256;

}  // namespace

bool Store::put(std::uint64_t id, const program::Program& program, std::string& error) {
  if (!check(program, error)) return false;
  const Lock put_lock(put_mutex_);
  auto image = std::make_shared<Image>(to_image(program, parts_));
  const Digest content = content_key(image->counts, image->structure, image->words);
  const auto taken = records_.find(id);
  if (taken != records_.end()) {
    if (taken->second->content == content) return true;
    error = "another program has this id";
    return false;
  }
  const auto names = parts_.snapshot();
  const auto known = by_content_.find(content);
  RecordPointer record = known != by_content_.end() ? known->second.lock() : nullptr;
  if (record == nullptr) {
    record = store_new(std::move(image), content);
    by_content_[content] = record;
  }
  const Lock lock(mutex_);
  names_ = names;
  records_.emplace(id, record);
  return true;
}

Store::RecordPointer Store::store_new(std::shared_ptr<const Image> image, const Digest& content) {
  Record record;
  record.number = next_number();
  record.shape = shape_of(*image);
  record.content = content;
  record.image_bytes = image->cells() * sizeof(std::uint64_t);
  Bases& bases = families_[record.shape];
  const Choice choice = nearest_of(bases, *image);
  const bool far = choice.distance > image->cells() / kFarFraction && bases.size() < kMaxBases;
  if (choice.base != nullptr && !far) {
    if (auto stored = store_member(*image, record, choice)) return stored;
  }
  auto stored = store_base(image, std::move(record));
  bases.push_back(stored);
  const Lock lock(mutex_);
  hot_.add(stored->number, std::move(image));
  return stored;
}

void Store::consider(const RecordPointer& base, const Image& image, Choice& best) {
  Choice choice;
  choice.base = base;
  choice.image = image_of(*base);
  if (choice.image == nullptr) return;
  choice.fitting = fit(*choice.image, image);
  choice.distance = distance(*choice.image, choice.fitting, image);
  if (choice.distance < best.distance) best = std::move(choice);
}

Store::Choice Store::nearest_of(Bases& bases, const Image& image) {
  Choice best;
  bases.erase(std::remove_if(bases.begin(), bases.end(), [](const auto& base) { return base.expired(); }), bases.end());
  for (const auto& base : bases) {
    if (const RecordPointer record = base.lock()) consider(record, image, best);
  }
  return best;
}

Store::Choice Store::nearest_root(const Image& image, const Sketch& sketch) {
  std::vector<std::pair<std::size_t, RecordPointer>> roots;
  for (const auto& entry : trees_) {
    const std::size_t agreeing = agreement(entry.second.sketch, sketch);
    RecordPointer root = agreeing > 0 ? entry.second.root.lock() : nullptr;
    if (root != nullptr) roots.emplace_back(agreeing, std::move(root));
  }
  const std::size_t tried = std::min(kRootsTried, roots.size());
  std::partial_sort(roots.begin(), roots.begin() + static_cast<std::ptrdiff_t>(tried), roots.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  Choice best;
  for (std::size_t i = 0; i < tried; ++i) consider(roots[i].second, image, best);
  return best;
}

// The first of its family, or far from those that are there: whole, or a difference to the root of a tree.
Store::RecordPointer Store::store_base(const std::shared_ptr<const Image>& image, Record record) {
  const Sketch sketch = sketch_of(*image);
  record.is_base = true;
  Bytes raw;
  put_image(*image, raw);
  record.payload = pack(std::move(raw), nullptr);
  const Choice choice = nearest_root(*image, sketch);
  if (choice.base != nullptr && choice.distance < image->cells() / kUselessFraction) {
    Bytes difference;
    const bool good = encode_difference(*choice.image, choice.fitting, *image, difference);
    const auto payload = pack(std::move(difference), trees_[choice.base->number].dictionary);
    if (good && payload->bytes.size() < record.payload->bytes.size()) {
      record.base = choice.base;
      record.depth = 1;
      record.payload = payload;
    }
  }
  auto stored = std::make_shared<Record>(std::move(record));
  if (stored->base == nullptr) {
    Tree& tree = trees_[stored->number];
    tree.root = stored;
    tree.sketch = sketch;
  }
  return stored;
}

Store::RecordPointer Store::store_member(const Image& image, Record record, const Choice& choice) {
  Bytes difference;
  if (!encode_difference(*choice.image, choice.fitting, image, difference)) return nullptr;
  record.base = choice.base;
  record.depth = static_cast<std::uint8_t>(choice.base->depth + 1);
  Tree& tree = trees_[record.root().number];
  if (tree.dictionary != nullptr) {
    record.payload = pack(std::move(difference), tree.dictionary);
    return std::make_shared<Record>(std::move(record));
  }
  auto payload = std::make_shared<Payload>();
  payload->raw_size = difference.size();
  payload->bytes = std::move(difference);
  payload->bytes.shrink_to_fit();
  record.payload = std::move(payload);
  auto stored = std::make_shared<Record>(std::move(record));
  tree.pending.push_back(stored);
  if (tree.pending.size() >= options_.dictionary_after) compress(tree, true);
  return stored;
}

std::shared_ptr<const Payload> Store::pack(Bytes raw, std::shared_ptr<const Dictionary> dictionary) {
  auto payload = std::make_shared<Payload>();
  payload->raw_size = raw.size();
  payload->compressed =
      codec_.compress(raw, dictionary.get(), payload->bytes) && ratio_allowed(raw.size(), payload->bytes.size());
  if (payload->compressed) {
    payload->dictionary = std::move(dictionary);
  } else {
    payload->bytes = std::move(raw);
  }
  return payload;
}

void Store::compress(Tree& tree, bool train) {
  std::vector<RecordPointer> records;
  Bytes samples;
  std::vector<std::size_t> sizes;
  for (const auto& pending : tree.pending) {
    RecordPointer record = pending.lock();
    if (record == nullptr || record->payload->compressed) continue;
    samples.insert(samples.end(), record->payload->bytes.begin(), record->payload->bytes.end());
    sizes.push_back(record->payload->bytes.size());
    records.push_back(std::move(record));
  }
  tree.pending.clear();
  if (train && tree.dictionary == nullptr && sizes.size() >= kLeastPending) {
    tree.dictionary = Dictionary::train(samples, sizes);
  }
  for (const RecordPointer& record : records) {
    auto payload = pack(record->payload->bytes, tree.dictionary);
    const Lock lock(mutex_);
    record->payload = std::move(payload);
  }
}

void Store::compress() {
  const Lock put_lock(put_mutex_);
  for (auto& tree : trees_) compress(tree.second, true);
}

bool Store::erase(std::uint64_t id) {
  const Lock put_lock(put_mutex_);
  RecordPointer record;
  {
    const Lock lock(mutex_);
    const auto found = records_.find(id);
    if (found == records_.end()) return false;
    record = std::move(found->second);
    records_.erase(found);
  }
  // A base that was needed by this program only goes with it; one that a reader holds at this moment is swept later.
  while (record != nullptr && record.use_count() == 1) {
    const std::uint64_t number = record->number;
    record = RecordPointer(record->base);
    trees_.erase(number);
    const Lock lock(mutex_);
    hot_.remove(number);
  }
  if (++changes_ % kSweepEvery == 0) forget_dead();
  return true;
}

// What is left of records that are gone; those who look at it pass it over anyway.
void Store::forget_dead() {
  for (auto known = by_content_.begin(); known != by_content_.end();) {
    known = known->second.expired() ? by_content_.erase(known) : std::next(known);
  }
  for (auto family = families_.begin(); family != families_.end();) {
    const Bases& bases = family->second;
    const bool dead = std::all_of(bases.begin(), bases.end(), [](const auto& base) { return base.expired(); });
    family = dead ? families_.erase(family) : std::next(family);
  }
  for (auto tree = trees_.begin(); tree != trees_.end();) {
    const bool dead = tree->second.root.expired();
    if (dead) {
      const Lock lock(mutex_);
      hot_.remove(tree->first);
    }
    tree = dead ? trees_.erase(tree) : std::next(tree);
  }
}

}  // namespace grape::store
