#include "tests/compressor/trace/trace_builder.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace grape::trace {

std::vector<std::uint64_t> OwnedEvent::flat() const {
  std::vector<std::uint64_t> all(sizeof header / 8 + words.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::copy(words.begin(), words.end(), all.begin() + sizeof header / 8);
  return all;
}

bool OwnedEvent::same_content(const OwnedEvent& other) const {
  return thread == other.thread && header.bytes == other.header.bytes && header.kind == other.header.kind &&
         header.flags == other.header.flags && header.key == other.header.key &&
         header.sequence == other.header.sequence && words == other.words;
}

OwnedEvent make_event(EventKind kind, std::vector<std::uint64_t> words, std::uint32_t key, std::uint16_t flags) {
  OwnedEvent event;
  event.header.bytes = static_cast<std::uint32_t>(sizeof(EventHeader) + words.size() * 8);
  event.header.kind = kind;
  event.header.key = key;
  event.header.flags = flags;
  event.words = std::move(words);
  return event;
}

std::vector<std::uint64_t> with_texts(std::vector<std::uint64_t> words, std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    const std::size_t at = words.size();
    words.resize(at + words_for(text.size()), 0);
    if (!text.empty()) std::memcpy(&words[at], text.data(), text.size());
  }
  return words;
}

namespace {

std::uint32_t length(const std::string& text) { return static_cast<std::uint32_t>(text.size()); }

}  // namespace

OwnedEvent define_function(std::uint32_t id, const std::string& name, std::uint64_t handle) {
  return make_event(EventKind::kDefFunction,
                    with_texts({pack(id, 1), handle, 0x77, pack(2, length(name)), pack(0, 8), pack(8, 4)}, {name}));
}
OwnedEvent define_code(std::uint32_t id, const std::string& file, const std::string& name) {
  return make_event(EventKind::kDefCode,
                    with_texts({pack(id, 7), 0xC0DE, pack(length(file), length(name))}, {file, name}));
}
OwnedEvent define_frame(std::uint32_t id, std::uint32_t parent, std::uint32_t code, std::uint32_t line) {
  return make_event(EventKind::kDefFrame, {pack(id, parent), pack(code, line), pack(2 * line, 0)});
}
OwnedEvent define_native_frame(std::uint32_t id, std::uint32_t parent, std::uint64_t offset) {
  return make_event(EventKind::kDefNativeFrame,
                    with_texts({pack(id, parent), offset, pack(9, 4)}, {"libx.so.1", "main"}));
}
OwnedEvent define_scope(std::uint32_t id, const std::string& name, std::uint64_t address) {
  return make_event(EventKind::kDefScope, with_texts({pack(id, 1), address, pack(length(name), 5)}, {name, "a:B.c"}));
}
OwnedEvent launch(std::uint32_t function, std::uint32_t frame, const std::vector<std::uint64_t>& parameters) {
  std::vector<std::uint64_t> words = {pack(function, 1), pack(frame, 0), pack(4, 1), pack(1, 256),
                                      pack(1, 1),        pack(1024, 0),  0x5000,     0};
  words[kLaunchSizes] = pack(0, static_cast<std::uint32_t>(parameters.size() * 8));
  words.insert(words.end(), parameters.begin(), parameters.end());
  return make_event(EventKind::kLaunch, std::move(words), function);
}

Meta test_meta() {
  Meta meta;
  meta.ticks_per_second = 1'000'000'000;
  meta.start_ticks = 1'000'000;
  meta.start_unix_ns = 1'700'000'000'000'000'000;
  meta.pid = 42;
  meta.host = "host";
  meta.command = "python train.py --name 'a b'";
  meta.grape_version = "0.1.0";
  meta.python_version = "3.12.1";
  meta.driver_version = 13000;
  meta.ranges = true;
  meta.apis = {{"cuLaunchKernel", ApiClass::kLaunch, "stream:s"},
               {"cuMemcpyHtoDAsync_v2", ApiClass::kCopyToDevice, "dst:d,src:h,bytes:u,stream:s"}};
  return meta;
}

Bytes write_trace(const std::vector<OwnedEvent>& events, std::size_t chunk_events, bool with_end) {
  MemorySink sink;
  Writer writer(sink, test_meta());
  std::map<std::uint32_t, EventEncoder> encoders;
  for (const OwnedEvent& event : events) {
    EventEncoder& encoder = encoders[event.thread];
    const std::vector<std::uint64_t> flat = event.flat();
    encoder.add(*reinterpret_cast<const EventHeader*>(flat.data()));
    if (encoder.events() == chunk_events) writer.write_events(event.thread, 1000 + event.thread, encoder);
  }
  for (auto& [thread, encoder] : encoders) writer.write_events(thread, 1000 + thread, encoder);
  End end;
  end.events = writer.events_written();
  end.ticks_per_second = 1'000'000'100;
  end.unhandled = {{"cuSomethingNew", 3}};
  end.notices = {"no block-level allocator events"};
  if (with_end) writer.write_end(end);
  return sink.bytes;
}

std::vector<OwnedEvent> read_all(Reader& reader) {
  std::vector<OwnedEvent> events;
  EventView view;
  std::uint32_t thread = 0;
  while (reader.next(view, thread)) {
    OwnedEvent event;
    event.thread = thread;
    event.header = *view.header;
    event.words.assign(view.words(), view.words() + view.word_count());
    events.push_back(std::move(event));
  }
  return events;
}

std::vector<OwnedEvent> every_kind() {
  std::vector<OwnedEvent> events = {
      define_function(1, "_Z4fillPfi", 0xF1),
      define_code(1, "/home/user/train.py", "main"),
      define_frame(1, 0, 1, 10),
      define_frame(2, 1, 1, 12),
      define_native_frame(1, 0, 0x1234),
      define_scope(1, "transformer.h.0", 0xABC0),
      make_event(EventKind::kScopeBegin, {pack(1, 2), 1}),
      make_event(EventKind::kBlockAlloc, {0x7f0000000000, 4096, pack(2, 0)}),
      launch(1, 2, {0x7f0000000000, 77}),
      make_event(EventKind::kCall, with_texts({pack(2, 0), pack(2, 1), pack(2, 16), 1, 2, pack(1, 5)}, {"hello"}), 2),
      make_event(EventKind::kExecNode, with_texts({9, pack(0, 0), pack(1, 5), 0, 0, 0, 0}, {"bytes"})),
      make_event(EventKind::kExecEdges, {9, pack(2, 0), pack(0, 1), pack(1, 2)}),
      make_event(EventKind::kScopeAttach, {1}),
      make_event(EventKind::kBlockFree, {0x7f0000000000, 4096, 0}),
      make_event(EventKind::kScopeEnd, {pack(1, 0), 1}),
      make_event(EventKind::kLost, {5}),
  };
  // An attribute, and parameters that are no whole number of words.
  OwnedEvent with_attribute = launch(1, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0x7f0000000010, 0x01020304});
  with_attribute.words[kLaunchSizes] = pack(1, 12);
  with_attribute.header.flags = kFlagCooperative;
  events.push_back(with_attribute);
  const std::size_t count = events.size();
  for (std::size_t i = 0; i < count; ++i) {
    events.push_back(events[i]);
    events.back().thread = 2;
  }
  std::uint64_t sequence = 0;
  for (OwnedEvent& event : events) {
    event.header.sequence = ++sequence;
    event.header.ticks = 1'000'000 + 5000 * sequence;
    event.header.duration = event.header.kind == EventKind::kLaunch ? 2500 : 0;
  }
  return events;
}

std::vector<ChunkPlace> chunks_of(const Bytes& file) {
  std::vector<ChunkPlace> chunks;
  std::string message;
  for (std::size_t at = kFileHeaderBytes; at + kChunkHeaderBytes <= file.size();) {
    std::uint8_t start[kChunkHeaderBytes];
    std::memcpy(start, &file[at], sizeof start);
    ChunkPlace place{at, {}};
    if (!parse_chunk_header(start, place.header, message)) break;
    chunks.push_back(place);
    at += kChunkHeaderBytes + place.header.stored;
  }
  return chunks;
}

Bytes file_start(std::uint16_t major, std::uint16_t minor) {
  Bytes file(kMagic.begin(), kMagic.end());
  put_fixed(file, major);
  put_fixed(file, minor);
  put_fixed(file, std::uint32_t{0});
  return file;
}

void append_chunk(Bytes& file, ChunkHeader header, const std::vector<Bytes>& columns) {
  Bytes body;
  put_varint(body, columns.size());
  header.raw = 0;
  for (const Bytes& column : columns) {
    put_varint(body, column.size());
    put_varint(body, column.size());
    header.raw += static_cast<std::uint32_t>(column.size());
  }
  for (const Bytes& column : columns) body.insert(body.end(), column.begin(), column.end());
  header.stored = static_cast<std::uint32_t>(body.size());
  header.body_checksum = checksum(body.data(), body.size());
  std::uint8_t start[kChunkHeaderBytes];
  write_chunk_header(header, start);
  file.insert(file.end(), start, start + sizeof start);
  file.insert(file.end(), body.begin(), body.end());
}

Bytes without_compression(const Bytes& file) {
  Bytes out(file.begin(), file.begin() + kFileHeaderBytes);
  ColumnUnpacker unpacker;
  for (const ChunkPlace& chunk : chunks_of(file)) {
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(chunk.offset + kChunkHeaderBytes);
    const Bytes body(begin, begin + chunk.header.stored);
    std::vector<Bytes> columns(13);
    std::string message;
    if (!unpacker.unpack(chunk.header, body, columns, message)) return {};
    append_chunk(out, chunk.header, columns);
  }
  return out;
}

Bytes with_right_checksums(Bytes file) {
  for (std::size_t at = kFileHeaderBytes; at + kChunkHeaderBytes <= file.size();) {
    const std::uint8_t marker[] = {'G', 'C', 'H', 'K'};
    std::copy(std::begin(marker), std::end(marker), file.begin() + static_cast<std::ptrdiff_t>(at));
    std::uint32_t stored = 0;
    std::memcpy(&stored, &file[at + 8], sizeof stored);
    const std::size_t body = at + kChunkHeaderBytes;
    stored = static_cast<std::uint32_t>(std::min<std::size_t>(stored, file.size() - body));
    std::memcpy(&file[at + 8], &stored, sizeof stored);
    const std::uint64_t body_sum = checksum(file.data() + body, stored);
    std::memcpy(&file[at + 56], &body_sum, sizeof body_sum);
    const std::uint64_t header_sum = checksum(&file[at], kChunkHeaderBytes - 8);
    std::memcpy(&file[at + 64], &header_sum, sizeof header_sum);
    at = body + stored;
  }
  return file;
}

}  // namespace grape::trace
