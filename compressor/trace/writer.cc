#include "compressor/trace/writer.h"

#include "compressor/trace/meta_fields.h"

namespace grape::trace {
namespace {

// By measurement (tests/compressor/trace/trace_bench): higher levels gain little on these columns, and cost time beside
// the application.
constexpr int kEventLevel = 3;
constexpr int kTextLevel = 6;

}  // namespace

bool Writer::write_chunk(ChunkHeader& header, const std::vector<const Bytes*>& columns,
                         const std::vector<int>& levels) {
  packer_.pack(columns, levels, header, body_);
  std::uint8_t start[kChunkHeaderBytes];
  write_chunk_header(header, start);
  body_.insert(body_.begin(), start, start + kChunkHeaderBytes);
  if (bytes_ == 0) {
    const FileHeader file;
    const auto* file_start = reinterpret_cast<const std::uint8_t*>(&file);
    body_.insert(body_.begin(), file_start, file_start + sizeof file);
  }
  // One write per chunk, so that a process that is killed leaves whole chunks if the sink can.
  ok_ = ok_ && sink_.write(body_.data(), body_.size());
  if (ok_) bytes_ += body_.size();
  return ok_;
}

bool Writer::write_fields(ChunkType type, const Bytes& fields) {
  ChunkHeader header;
  header.type = static_cast<std::uint16_t>(type);
  return write_chunk(header, {&fields}, {kTextLevel});
}

Writer::Writer(Sink& sink, const Meta& meta) : sink_(sink), ticks_per_second_(meta.ticks_per_second) {
  write_fields(ChunkType::kMeta, write_meta(meta));
}

bool Writer::write_events(std::uint32_t thread, std::uint32_t os_thread, EventEncoder& encoder) {
  if (!ok_) {
    encoder.clear();
    return false;
  }
  if (encoder.events() == 0) return true;
  encoder.finish(ticks_per_second_);
  ChunkHeader header;
  header.type = static_cast<std::uint16_t>(ChunkType::kEvents);
  header.thread = thread;
  header.os_thread = os_thread;
  header.first_sequence = encoder.first_sequence();
  header.last_sequence = encoder.last_sequence();
  header.event_bytes = encoder.event_bytes();
  header.events = static_cast<std::uint32_t>(encoder.events());
  std::vector<const Bytes*> columns;
  std::vector<int> levels(kColumns, kEventLevel);
  for (const Bytes& column : encoder.columns()) columns.push_back(&column);
  levels[kLiterals] = kTextLevel;
  const bool written = write_chunk(header, columns, levels);
  if (written) events_ += header.events;
  encoder.clear();
  return written;
}

bool Writer::write_end(const End& end) { return ok_ && write_fields(ChunkType::kEnd, trace::write_end(end)); }

}  // namespace grape::trace
