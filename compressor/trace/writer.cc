#include "compressor/trace/writer.h"

#include <utility>

#include "compressor/trace/chunk.h"
#include "compressor/trace/event_encoder.h"
#include "compressor/trace/meta_fields.h"

namespace grape::trace {
namespace {

// By measurement (tests/compressor/trace/trace_bench): higher levels gain little on these columns, and cost time beside
// the application.
constexpr int kEventLevel = 3;
constexpr int kTextLevel = 6;

}  // namespace

struct ThreadEncoder::State {
  EventEncoder events;
};

ThreadEncoder::ThreadEncoder() : state_(new State) {}
ThreadEncoder::~ThreadEncoder() = default;
ThreadEncoder::ThreadEncoder(ThreadEncoder&&) noexcept = default;
ThreadEncoder& ThreadEncoder::operator=(ThreadEncoder&&) noexcept = default;

void ThreadEncoder::add(const EventHeader& event) { state_->events.add(event); }
std::size_t ThreadEncoder::raw_bytes() const { return static_cast<std::size_t>(state_->events.event_bytes()); }
std::size_t ThreadEncoder::memory() const { return state_->events.memory(); }
std::size_t ThreadEncoder::events() const { return static_cast<std::size_t>(state_->events.events()); }

struct Writer::State {
  explicit State(Sink& to) : sink(to) {}

  Sink& sink;
  bool ok = true;
  std::uint64_t ticks_per_second = 0;
  std::uint64_t bytes = 0;
  std::uint64_t events = 0;
  ColumnPacker packer;
  Bytes body;

  bool write(const std::uint8_t* data, std::size_t size) {
    ok = ok && sink.write(data, size);
    if (ok) bytes += size;
    return ok;
  }

  bool write_chunk(ChunkHeader& header, const std::vector<const Bytes*>& columns, const std::vector<int>& levels) {
    packer.pack(columns, levels, header, body);
    std::uint8_t start[kChunkHeaderBytes];
    write_chunk_header(header, start);
    body.insert(body.begin(), start, start + kChunkHeaderBytes);
    if (bytes == 0) {
      std::uint8_t file_start[kFileHeaderBytes];
      write_file_header(file_start);
      body.insert(body.begin(), file_start, file_start + kFileHeaderBytes);
    }
    // One write per chunk, so that a process that is killed leaves whole chunks if the sink can.
    return write(body.data(), body.size());
  }

  bool write_fields(ChunkType type, const Bytes& fields) {
    ChunkHeader header;
    header.type = static_cast<std::uint16_t>(type);
    return write_chunk(header, {&fields}, {kTextLevel});
  }
};

Writer::Writer(Sink& sink, const Meta& meta) : state_(new State(sink)) {
  state_->ticks_per_second = meta.ticks_per_second;
  state_->write_fields(ChunkType::kMeta, write_meta(meta));
}

Writer::~Writer() = default;

bool Writer::ok() const { return state_->ok; }
std::uint64_t Writer::bytes_written() const { return state_->bytes; }
std::uint64_t Writer::events_written() const { return state_->events; }

bool Writer::write_events(std::uint32_t thread, std::uint32_t os_thread, ThreadEncoder& encoder) {
  EventEncoder& events = encoder.state_->events;
  if (!state_->ok) {
    events.clear();
    return false;
  }
  if (events.events() == 0) return true;
  events.finish(state_->ticks_per_second);
  ChunkHeader header;
  header.type = static_cast<std::uint16_t>(ChunkType::kEvents);
  header.thread = thread;
  header.os_thread = os_thread;
  header.first_sequence = events.first_sequence();
  header.last_sequence = events.last_sequence();
  header.event_bytes = events.event_bytes();
  header.events = static_cast<std::uint32_t>(events.events());
  std::vector<const Bytes*> columns;
  std::vector<int> levels(kColumns, kEventLevel);
  for (const Bytes& column : events.columns()) columns.push_back(&column);
  levels[kLiterals] = kTextLevel;
  const bool written = state_->write_chunk(header, columns, levels);
  if (written) state_->events += header.events;
  events.clear();
  return written;
}

bool Writer::write_end(const End& end) {
  return state_->ok && state_->write_fields(ChunkType::kEnd, trace::write_end(end));
}

}  // namespace grape::trace
