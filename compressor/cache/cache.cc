#include "compressor/cache/cache.h"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compressor/trace/byte_stream.h"

namespace grape::cache {
namespace {

using trace::ByteCursor;
using trace::Bytes;
using trace::put_fixed;
using trace::put_varint;

enum NoteType : std::uint32_t { kEnvironment = 0, kEntry = 1, kPadding = 2, kPlace = 3 };

void put_text(Bytes& to, const std::string& text) {
  put_varint(to, text.size());
  to.insert(to.end(), text.begin(), text.end());
}

bool take_text(ByteCursor& from, std::string& text) {
  const std::uint64_t size = from.varint();
  const std::uint8_t* data = from.take(size);
  if (data == nullptr) return false;
  text.assign(reinterpret_cast<const char*>(data), size);
  return true;
}

void put_digest(Bytes& to, const Digest& digest) {
  put_fixed(to, digest.low);
  put_fixed(to, digest.high);
}

Digest take_digest(ByteCursor& from) {
  Digest digest;
  digest.low = from.fixed<std::uint64_t>();
  digest.high = from.fixed<std::uint64_t>();
  return digest;
}

store::Note note_of(const Entry& entry) {
  store::Note note{kEntry, {}};
  put_fixed(note.bytes, entry.id);
  put_fixed(note.bytes, entry.last_used);
  put_digest(note.bytes, entry.call.signature);
  put_digest(note.bytes, entry.call.code);
  put_digest(note.bytes, entry.outcome);
  put_text(note.bytes, entry.call.region);
  return note;
}

bool take_entry(ByteCursor from, Entry& entry) {
  entry.id = from.fixed<std::uint64_t>();
  entry.last_used = from.fixed<std::uint64_t>();
  entry.call.signature = take_digest(from);
  entry.call.code = take_digest(from);
  entry.outcome = take_digest(from);
  return take_text(from, entry.call.region) && !from.failed() && from.left() == 0;
}

// All words of one kernel together.
void add_padding_notes(const std::vector<Padding>& padding, std::vector<store::Note>& notes) {
  const Padding* last = nullptr;
  for (const Padding& each : padding) {
    if (last == nullptr || each.kernel != last->kernel) {
      notes.push_back({kPadding, {}});
      put_digest(notes.back().bytes, each.kernel);
    }
    last = &each;
    put_varint(notes.back().bytes, each.word);
    notes.back().bytes.insert(notes.back().bytes.end(), each.seen.begin(), each.seen.end());
    notes.back().bytes.push_back(each.own);
    notes.back().bytes.push_back(each.varies);
  }
}

bool take_padding(ByteCursor from, std::vector<Padding>& padding) {
  const Digest kernel = take_digest(from);
  const std::size_t left = from.left();
  const std::uint8_t* rest = from.take(left);
  if (from.failed() || rest == nullptr) return false;
  ByteCursor words(rest, left);
  std::uint64_t next = 0;
  while (!words.failed() && words.left() != 0) {
    Padding one;
    one.kernel = kernel;
    const std::uint64_t word = words.varint();
    words.copy(one.seen.data(), one.seen.size());
    one.own = words.fixed<std::uint8_t>();
    one.varies = words.fixed<std::uint8_t>();
    if (word < next || word >= std::uint64_t{1} << 32) return false;
    next = word + 1;
    one.word = static_cast<std::uint32_t>(word);
    padding.push_back(one);
  }
  return !words.failed();
}

const char* take_note(const store::Note& note, Cache& cache) {
  const std::string text(note.bytes.begin(), note.bytes.end());
  const ByteCursor from(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  switch (note.type) {
    case kEnvironment:
      cache.environment = text;
      return nullptr;
    case kEntry:
      cache.entries.emplace_back();
      return take_entry(from, cache.entries.back()) ? nullptr : "an entry is damaged";
    case kPadding:
      return take_padding(from, cache.padding) ? nullptr : "what it says of padding is damaged";
    case kPlace:
      cache.places.push_back(text);
      return nullptr;
    default:
      return nullptr;  // of a newer minor version
  }
}

struct CallHash {
  std::size_t operator()(const Call& call) const {
    return std::hash<std::string>()(call.region) ^ call.signature.low ^ (call.code.low * 0x9E3779B97F4A7C15u);
  }
};

bool padding_before(const Padding& a, const Padding& b) {
  return std::tie(a.kernel, a.word) < std::tie(b.kernel, b.word);
}

const char* fault_of(const Cache& cache) {
  std::unordered_set<Call, CallHash> calls;
  for (const Entry& entry : cache.entries) {
    if (!cache.programs->contains(entry.id)) return "an entry has no program";
    if (!calls.insert(entry.call).second) return "two entries have the same call";
  }
  const auto not_before = [](const Padding& a, const Padding& b) { return !padding_before(a, b); };
  const bool in_order =
      std::adjacent_find(cache.padding.begin(), cache.padding.end(), not_before) == cache.padding.end();
  return in_order ? nullptr : "what it says of padding is out of order";
}

}  // namespace

std::uint64_t handle_of(const Digest& kernel) { return kernel.low | 1; }  // 0 is nobody

void save(const Cache& cache, std::vector<std::uint8_t>& file) {
  std::vector<store::Note> notes;
  notes.push_back({kEnvironment, {cache.environment.begin(), cache.environment.end()}});
  for (const std::string& place : cache.places) notes.push_back({kPlace, {place.begin(), place.end()}});
  for (const Entry& entry : cache.entries) notes.push_back(note_of(entry));
  add_padding_notes(cache.padding, notes);
  cache.programs->save(file, notes);
}

bool open(const std::vector<std::uint8_t>& file, Cache& cache, std::string& error) {
  cache = Cache();
  std::vector<store::Note> notes;
  Cache read;
  read.programs = store::Store::open(file, error, {}, &notes);
  if (read.programs == nullptr || !error.empty()) return false;
  for (const store::Note& note : notes) {
    if (const char* fault = take_note(note, read)) {
      error = fault;
      return false;
    }
  }
  if (const char* fault = fault_of(read)) {
    error = fault;
    return false;
  }
  cache = std::move(read);
  return true;
}

struct Builder::State {
  Cache cache;
  std::unordered_map<std::string, std::uint32_t> numbers;  // of places
  std::unordered_map<Call, bool, CallHash> calls;
  std::map<std::pair<Digest, std::uint32_t>, Padding> padding;
  std::uint64_t next_id = 1;
};

Builder::Builder(std::string environment) : state_(std::make_unique<State>()) {
  state_->cache.environment = std::move(environment);
  state_->cache.programs = std::make_unique<store::Store>();
}

Builder::~Builder() = default;

bool Builder::add(Entry entry, program::Program program, const std::function<std::string(std::uint32_t)>& place) {
  if (state_->calls.count(entry.call) != 0) return false;
  for (program::RecordedNode& node : program.nodes) {
    const std::string text = node.frame != 0 ? place(node.frame) : std::string();
    node.frame = 0;
    if (text.empty()) continue;
    const auto next = static_cast<std::uint32_t>(state_->numbers.size() + 1);
    const auto known = state_->numbers.emplace(text, next);
    if (known.second) state_->cache.places.push_back(text);
    node.frame = known.first->second;
  }
  std::string error;
  entry.id = state_->next_id;
  if (!state_->cache.programs->put(entry.id, program, error)) return false;
  ++state_->next_id;
  state_->calls.emplace(entry.call, true);
  state_->cache.entries.push_back(std::move(entry));
  return true;
}

void Builder::remove(const std::function<bool(const Entry&)>& which) {
  std::vector<Entry>& entries = state_->cache.entries;
  const auto gone =
      std::stable_partition(entries.begin(), entries.end(), [&](const Entry& entry) { return !which(entry); });
  for (auto at = gone; at != entries.end(); ++at) {
    state_->calls.erase(at->call);
    state_->cache.programs->erase(at->id);
  }
  entries.erase(gone, entries.end());
}

bool Builder::add_padding(const Padding& padding) {
  const auto [place, added] = state_->padding.try_emplace({padding.kernel, padding.word}, padding);
  if (added) return true;
  Padding& known = place->second;
  const Padding before = known;
  for (std::size_t i = 0; i < known.seen.size(); ++i) known.seen[i] = std::max(known.seen[i], padding.seen[i]);
  known.own = static_cast<std::uint8_t>(known.own | padding.own);
  known.varies = static_cast<std::uint8_t>(known.varies | padding.varies);
  return known.seen != before.seen || known.own != before.own || known.varies != before.varies;
}

bool Builder::merge(const Cache& older, std::uint64_t most_bytes, std::size_t most_entries) {
  for (const Padding& padding : older.padding) add_padding(padding);
  std::vector<const Entry*> order;
  for (const Entry& entry : older.entries) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(),
                   [](const Entry* a, const Entry* b) { return a->last_used > b->last_used; });
  const auto place = [&older](std::uint32_t frame) {
    return frame <= older.places.size() ? older.places[frame - 1] : std::string();
  };
  program::Program program;
  std::string error;
  for (const Entry* entry : order) {
    if (state_->calls.count(entry->call) != 0) continue;
    if (state_->cache.programs->statistics().compressed >= most_bytes) return true;
    if (most_entries == 0) return false;
    if (older.programs->get(entry->id, program, error) && add(*entry, program, place)) --most_entries;
  }
  return true;
}

const Cache& Builder::so_far() {
  std::vector<Padding>& padding = state_->cache.padding;
  padding.clear();
  for (const auto& [place, known] : state_->padding) padding.push_back(known);
  return state_->cache;
}

Cache Builder::take() {
  static_cast<void>(so_far());
  return std::move(state_->cache);
}

}  // namespace grape::cache
