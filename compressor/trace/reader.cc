#include "compressor/trace/reader.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "compressor/trace/chunk.h"
#include "compressor/trace/definitions.h"
#include "compressor/trace/event_decoder.h"
#include "compressor/trace/file_bytes.h"
#include "compressor/trace/meta_fields.h"
#include "compressor/trace/validate.h"

namespace grape::trace {
namespace {

constexpr std::size_t kPiece = 1u << 20;
constexpr std::size_t kSpareDecoders = 2;

struct Chunk {
  ChunkHeader header;
  std::uint64_t offset = 0;  // of the header
  bool lost = false;         // cannot be decoded; a kLost event stands for it
};

struct Thread {
  ThreadInfo info;
  std::vector<Chunk> chunks;
  std::size_t at = 0;  // chunk that is being read
  ThreadIds ids;
  std::unique_ptr<EventDecoder> decoder;  // null: chunk `at` has not been loaded
  std::uint64_t reserved = 0;             // bytes, against ReaderLimits::max_active_bytes
  EventHeader header{};                   // the event to come
  const std::uint64_t* words = nullptr;
};

// Which thread is next: by sequence, then by thread.
struct Turn {
  std::uint64_t sequence;
  std::uint32_t thread;  // index
  bool operator<(const Turn& other) const {
    return sequence != other.sequence ? sequence > other.sequence : thread > other.thread;
  }
};

// An upper bound of what decoding a chunk holds at one time: its columns, and the window with room to move in.
std::uint64_t memory_to_decode(const ChunkHeader& header) {
  constexpr std::uint64_t kWindowMemory = 28u << 20;
  return header.raw + std::min(4 * header.event_bytes, kWindowMemory) + sizeof(EventDecoder);
}

}  // namespace

struct Reader::State {
  explicit State(const ReaderLimits& the_limits) : limits(the_limits), definitions(the_limits) {}

  bool open(std::unique_ptr<FileBytes> source, Error& error) {
    file = std::move(source);
    std::uint64_t offset = kFileHeaderBytes;
    if (!check_file_header(error) || !read_meta(offset, error)) return false;
    index_chunks(offset);
    for (const Thread& thread : threads) thread_infos.push_back(thread.info);
    start();
    return true;
  }

  bool check_file_header(Error& error) {
    FileHeader start;
    const std::size_t there = static_cast<std::size_t>(std::min<std::uint64_t>(file->size(), sizeof start));
    if (!file->read(0, &start, there)) {
      error = {"the file cannot be read", 0};
      return false;
    }
    if (there == 0 || std::memcmp(start.magic.data(), kMagic.data(), std::min(there, sizeof kMagic)) != 0) {
      error = {there == 0 ? "the file is empty" : "not a Grape trace", 0};
      return false;
    }
    if (there < sizeof start) {
      error = {"the file ends within its header", there};
      return false;
    }
    if (start.major == 0 || start.major > kFormatMajor) {
      error = {"the trace has format version " + std::to_string(start.major) + "." + std::to_string(start.minor) +
                   ", this reader knows versions up to " + std::to_string(kFormatMajor) + "." +
                   std::to_string(kFormatMinor),
               sizeof kMagic};
      return false;
    }
    version = (std::uint32_t{start.major} << 16) | start.minor;
    newer = start.minor > kFormatMinor;
    return true;
  }

  bool read_meta(std::uint64_t& offset, Error& error) {
    Chunk chunk;
    std::string message;
    std::vector<Bytes> columns(1);
    const Found found = find_chunk(offset, chunk, message);
    if (found == Found::kCut) {
      // The process, or its disk, came to an end while the file began: an incomplete trace, of which nothing is known.
      if (file->size() > offset) set_damage(message, offset);
      offset = file->size();
      return true;
    }
    if (found == Found::kBad) {
      error = {"the trace has no meta chunk: " + message, offset};
    } else if (chunk.header.type != static_cast<std::uint16_t>(ChunkType::kMeta)) {
      error = {"the trace does not begin with a meta chunk", offset};
    } else if (!body_is_whole(chunk)) {
      error = {"the meta chunk's checksum is wrong", offset};
    } else if (!unpack(chunk, columns, message)) {
      error = {"the meta chunk cannot be read: " + message, offset};
    } else if (!parse_meta(columns[0], meta)) {
      error = {"the meta chunk's fields are damaged", offset};
    }
    offset += kChunkHeaderBytes + chunk.header.stored;
    return !error;
  }

  enum class Found { kWhole, kCut, kBad };

  // The header of the chunk at `offset`. Whole: its body is there (but not checked). Cut: by the end of the file.
  Found find_chunk(std::uint64_t offset, Chunk& chunk, std::string& message) {
    std::uint8_t start[kChunkHeaderBytes];
    chunk.offset = offset;
    if (file->size() - offset < sizeof start) {
      message = "the file ends within a chunk header";
      return Found::kCut;
    }
    if (!file->read(offset, start, sizeof start)) {
      message = "the file cannot be read";
      return Found::kBad;
    }
    if (!parse_chunk_header(start, chunk.header, message)) return Found::kBad;
    if (chunk.header.stored > file->size() - offset - sizeof start) {
      message = "the file ends within a chunk";
      return Found::kCut;
    }
    return Found::kWhole;
  }

  bool body_is_whole(const Chunk& chunk) {
    XXH3_state_t sum;
    XXH3_64bits_reset(&sum);
    std::uint64_t at = chunk.offset + kChunkHeaderBytes;
    for (std::uint64_t left = chunk.header.stored; left > 0;) {
      const std::size_t piece = static_cast<std::size_t>(std::min<std::uint64_t>(left, kPiece));
      body.resize(piece);
      if (!file->read(at, body.data(), piece)) return false;
      XXH3_64bits_update(&sum, body.data(), piece);
      at += piece;
      left -= piece;
    }
    return XXH3_64bits_digest(&sum) == chunk.header.body_checksum;
  }

  void index_chunks(std::uint64_t offset) {
    Chunk chunk;
    std::string message;
    for (bool ended = false; offset < file->size(); offset += kChunkHeaderBytes + chunk.header.stored) {
      if (ended) return set_damage("bytes after the end chunk", offset);
      chunk = Chunk();
      if (find_chunk(offset, chunk, message) != Found::kWhole) return set_damage(message, offset);
      const ChunkHeader& header = chunk.header;
      const bool events = header.type == static_cast<std::uint16_t>(ChunkType::kEvents);
      if (events && (header.thread == 0 || header.thread > kMaxThread || header.events == 0 ||
                     header.first_sequence == 0 || header.last_sequence < header.first_sequence ||
                     header.last_sequence - header.first_sequence < header.events - 1)) {
        return set_damage("the chunk header's numbers contradict each other", offset);
      }
      chunk.lost = !body_is_whole(chunk);
      if (chunk.lost) set_damage("the chunk's checksum is wrong", offset);
      if (events) {
        index_events(chunk);
      } else if (header.type == static_cast<std::uint16_t>(ChunkType::kEnd)) {
        ended = true;
        if (!chunk.lost) read_end(chunk);
      }
    }
  }

  void index_events(Chunk chunk) {
    const ChunkHeader& header = chunk.header;
    const auto [found, fresh] = thread_index.emplace(header.thread, static_cast<std::uint32_t>(threads.size()));
    if (fresh) {
      threads.emplace_back();
      threads.back().info.thread = header.thread;
      threads.back().info.os_thread = header.os_thread;
    }
    Thread& thread = threads[found->second];
    if (!thread.chunks.empty() && header.first_sequence <= thread.chunks.back().header.last_sequence) {
      return set_damage("the chunk's sequences do not follow those of the thread's chunk before it", chunk.offset);
    }
    if (header.raw > limits.max_chunk_bytes || header.event_bytes > limits.max_chunk_bytes) {
      chunk.lost = true;
      set_damage("the chunk is larger than the limit", chunk.offset);
    }
    if (!chunk.lost) thread.info.events += header.events;
    thread.chunks.push_back(chunk);
  }

  void read_end(const Chunk& chunk) {
    std::vector<Bytes> columns(1);
    std::string message;
    if (!unpack(chunk, columns, message)) return set_damage(message, chunk.offset);
    if (!parse_end(columns[0], end)) {
      end = End();
      return set_damage("the end chunk's fields are damaged", chunk.offset);
    }
    has_end = true;
  }

  bool unpack(const Chunk& chunk, std::vector<Bytes>& columns, std::string& message) {
    body.resize(chunk.header.stored);
    if (!file->read(chunk.offset + kChunkHeaderBytes, body.data(), body.size())) {
      message = "the file cannot be read";
      return false;
    }
    return unpacker.unpack(chunk.header, body, columns, message);
  }

  void set_damage(const std::string& message, std::uint64_t offset) {
    if (!damage) damage = {message, offset};
  }

  void start() {
    turns.clear();
    last_ticks = meta.start_ticks;
    active_bytes = 0;
    for (std::uint32_t i = 0; i < threads.size(); ++i) {
      Thread& thread = threads[i];
      thread.decoder.reset();
      thread.reserved = 0;
      thread.at = 0;
      // Kept at their size, for which the definitions' limit was charged.
      for (auto& map : thread.ids.maps) std::fill(map.begin(), map.end(), 0);
      if (!thread.chunks.empty()) push(i, thread.chunks[0].header.first_sequence);
    }
  }

  void push(std::uint32_t thread, std::uint64_t sequence) {
    turns.push_back({sequence, thread});
    std::push_heap(turns.begin(), turns.end());
  }

  void load(std::uint32_t index) {
    Thread& thread = threads[index];
    const Chunk& chunk = thread.chunks[thread.at];
    const std::uint64_t memory = memory_to_decode(chunk.header);
    if (memory > limits.max_active_bytes - std::min(active_bytes, limits.max_active_bytes)) {
      set_damage("too many chunks overlap in sequence: decoding them together would take too much memory",
                 chunk.offset);
      return end_chunk(index);
    }
    thread.reserved = memory;
    active_bytes += memory;
    std::vector<Bytes> columns(kColumns);
    std::string message;
    if (!unpack(chunk, columns, message)) {
      set_damage(message, chunk.offset);
      return end_chunk(index);
    }
    if (spare.empty()) {
      thread.decoder.reset(new EventDecoder);
    } else {
      thread.decoder = std::move(spare.back());
      spare.pop_back();
    }
    thread.decoder->start(chunk.header, std::move(columns));
    advance(index);
  }

  void advance(std::uint32_t index) {
    Thread& thread = threads[index];
    switch (thread.decoder->next(thread.header, thread.words)) {
      case EventDecoder::Result::kEvent:
        return push(index, thread.header.sequence);
      case EventDecoder::Result::kDamage:
        set_damage(thread.decoder->message(), thread.chunks[thread.at].offset);
        [[fallthrough]];
      case EventDecoder::Result::kEnd:
        return end_chunk(index);
    }
  }

  // The thread's chunk is done, well or not; its next one waits for its turn.
  void end_chunk(std::uint32_t index) {
    Thread& thread = threads[index];
    if (thread.decoder != nullptr && spare.size() < kSpareDecoders) spare.push_back(std::move(thread.decoder));
    thread.decoder.reset();
    active_bytes -= thread.reserved;
    thread.reserved = 0;
    if (++thread.at < thread.chunks.size()) push(index, thread.chunks[thread.at].header.first_sequence);
  }

  // Copies the thread's event, with file-wide ids. False: it is passed over, or (the decoder then is gone) damaged.
  bool deliver(Thread& thread) {
    const std::size_t count = (thread.header.bytes - sizeof(EventHeader)) / 8;
    const Fit fit = check_layout(thread.header.kind, thread.words, count, newer);
    if (fit == Fit::kUnknownKind) return false;
    const std::uint64_t offset = thread.chunks[thread.at].offset;
    const char* message = "an event's payload does not fit its kind";
    std::memcpy(event.data(), &thread.header, sizeof(EventHeader));
    std::uint64_t* words = event.data() + sizeof(EventHeader) / 8;
    std::copy(thread.words, thread.words + count, words);
    if (fit == Fit::kBad || !definitions.map_event(thread.header.kind, words, count, thread.ids, message)) {
      set_damage(message, offset);
      thread.decoder.reset();
      return false;
    }
    last_ticks = thread.header.ticks;
    return true;
  }

  void deliver_lost(const Chunk& chunk) {
    EventHeader header{};
    header.bytes = sizeof header + 8;
    header.kind = EventKind::kLost;
    header.sequence = chunk.header.first_sequence;
    header.ticks = last_ticks;
    std::memcpy(event.data(), &header, sizeof header);
    event[sizeof header / 8] = chunk.header.events;
  }

  bool next(EventView& view, std::uint32_t& number) {
    while (!turns.empty()) {
      std::pop_heap(turns.begin(), turns.end());
      const std::uint32_t index = turns.back().thread;
      turns.pop_back();
      Thread& thread = threads[index];
      bool delivered = false;
      if (thread.decoder != nullptr) {
        delivered = deliver(thread);
        if (thread.decoder != nullptr) {
          advance(index);
        } else {
          end_chunk(index);
        }
      } else if (thread.chunks[thread.at].lost) {
        deliver_lost(thread.chunks[thread.at]);
        delivered = true;
        end_chunk(index);
      } else {
        load(index);
      }
      if (delivered) {
        view.header = reinterpret_cast<const EventHeader*>(event.data());
        number = thread.info.thread;
        return true;
      }
    }
    return false;
  }

  ReaderLimits limits;
  std::unique_ptr<FileBytes> file;
  std::uint32_t version = 0;
  bool newer = false;
  Meta meta;
  End end;
  bool has_end = false;
  Error damage;
  std::vector<Thread> threads;
  std::vector<ThreadInfo> thread_infos;
  std::unordered_map<std::uint32_t, std::uint32_t> thread_index;

  Definitions definitions;
  ColumnUnpacker unpacker;
  Bytes body;
  std::vector<Turn> turns;  // a heap
  std::vector<std::unique_ptr<EventDecoder>> spare;
  std::uint64_t active_bytes = 0;
  std::uint64_t last_ticks = 0;
  std::vector<std::uint64_t> event = std::vector<std::uint64_t>(kMaxEventBytes / 8);
};

Reader::Reader() = default;
Reader::~Reader() = default;

std::unique_ptr<Reader> Reader::open(const std::string& path, Error& error, const ReaderLimits& limits) {
  error = Error();
  std::unique_ptr<Reader> reader(new Reader);
  reader->state_.reset(new State(limits));
  std::unique_ptr<FileBytes> file = FileBytes::open(path, error.message);
  if (file == nullptr || !reader->state_->open(std::move(file), error)) return nullptr;
  return reader;
}

std::unique_ptr<Reader> Reader::from_bytes(std::vector<std::uint8_t> bytes, Error& error, const ReaderLimits& limits) {
  error = Error();
  std::unique_ptr<Reader> reader(new Reader);
  reader->state_.reset(new State(limits));
  if (!reader->state_->open(FileBytes::from_bytes(std::move(bytes)), error)) return nullptr;
  return reader;
}

const Meta& Reader::meta() const { return state_->meta; }
const End* Reader::end() const { return state_->has_end ? &state_->end : nullptr; }
bool Reader::complete() const { return state_->has_end && !state_->damage; }
const Error& Reader::damage() const { return state_->damage; }
std::uint64_t Reader::file_bytes() const { return state_->file->size(); }
std::uint32_t Reader::format_version() const { return state_->version; }
const std::vector<ThreadInfo>& Reader::threads() const { return state_->thread_infos; }
bool Reader::next(EventView& event, std::uint32_t& thread) { return state_->next(event, thread); }
void Reader::rewind() { state_->start(); }
const Tables& Reader::tables() const { return state_->definitions.tables(); }

}  // namespace grape::trace
