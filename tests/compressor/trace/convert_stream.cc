#include "tests/compressor/trace/convert_stream.h"

#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <unordered_map>

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/chunk.h"

namespace grape::trace {
namespace {

constexpr std::uint64_t kTicksPerSecond = 2'100'000'000;
constexpr std::uint32_t kOsThread = 1000;
enum FixedApi : std::uint32_t { kLaunchKernel = 1, kLaunchKernelEx = 2 };

struct Record {
  char type = 0;
  std::uint32_t numbers[9] = {};  // L: function .. shared; F: id, kind
  std::uint64_t stream = 0;
  std::string text;  // F, O: name; M: mark
  std::uint64_t arguments[4] = {};
  std::vector<std::uint64_t> layout;  // F
  const std::uint8_t* parameters = nullptr;
  std::uint32_t parameter_bytes = 0;
};

bool take_text(ByteCursor& cursor, std::string& text) {
  const auto bytes = cursor.fixed<std::uint32_t>();
  const std::uint8_t* data = cursor.take(bytes);
  if (data != nullptr) text.assign(reinterpret_cast<const char*>(data), bytes);
  return data != nullptr;
}

bool take_record(ByteCursor& cursor, Record& record) {
  record = Record();
  record.type = static_cast<char>(cursor.byte());
  switch (record.type) {
    case 'F': {
      record.numbers[0] = cursor.fixed<std::uint32_t>();
      record.numbers[1] = cursor.fixed<std::uint32_t>();
      if (!take_text(cursor, record.text)) return false;
      const auto count = cursor.fixed<std::uint32_t>();
      for (std::uint32_t i = 0; i < count && !cursor.failed(); ++i)
        record.layout.push_back(cursor.fixed<std::uint64_t>());
      break;
    }
    case 'L':
      for (std::uint32_t& number : record.numbers) number = cursor.fixed<std::uint32_t>();
      record.stream = cursor.fixed<std::uint64_t>();
      cursor.fixed<std::uint32_t>();  // attributes: only their number was recorded
      record.parameter_bytes = cursor.fixed<std::uint32_t>();
      record.parameters = cursor.take(record.parameter_bytes);
      break;
    case 'O':
      take_text(cursor, record.text);
      for (std::uint64_t& argument : record.arguments) argument = cursor.fixed<std::uint64_t>();
      break;
    case 'M':
      take_text(cursor, record.text);
      break;
    default:
      cursor.fail();
  }
  return !cursor.failed();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

ApiInfo describe(const std::string& name) {
  ApiInfo api;
  api.symbol = name;
  api.arguments = "argument0:u,argument1:u,argument2:u,argument3:u";
  if (contains(name, "Memcpy")) {
    api.arguments = "dst:d,src:d,bytes:u,stream:s";
    api.api_class = contains(name, "HtoD")   ? ApiClass::kCopyToDevice
                    : contains(name, "DtoH") ? ApiClass::kCopyToHost
                                             : ApiClass::kCopy;
  } else if (contains(name, "Memset")) {
    api.arguments = "dst:d,value:u,bytes:u,stream:s";
    api.api_class = ApiClass::kMemset;
  } else if (contains(name, "Synchronize")) {
    api.api_class = ApiClass::kStreamSync;
  }
  return api;
}

std::uint32_t key_of(std::uint64_t value) { return static_cast<std::uint32_t>(checksum(&value, sizeof value)); }
std::uint32_t key_of(const std::string& text) { return static_cast<std::uint32_t>(checksum(text.data(), text.size())); }

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Converter {
 public:
  Converter(const ConvertOptions& options, Sink& sink, ConvertCounts& counts)
      : options_(options), sink_(sink), counts_(counts) {}

  bool run(const std::vector<std::uint8_t>& stream, std::string& error) {
    Meta meta;
    meta.ticks_per_second = kTicksPerSecond;
    meta.start_ticks = ticks_;
    meta.start_unix_ns = 1'700'000'000'000'000'000;
    meta.pid = kOsThread;
    meta.host = "converted";
    meta.command = options_.command;
    meta.driver_version = 13000;
    meta.apis = {{"cuLaunchKernel", ApiClass::kLaunch, "stream:s"},
                 {"cuLaunchKernelEx", ApiClass::kLaunch, "stream:s"}};
    Record record;
    for (ByteCursor cursor(stream.data(), stream.size()); cursor.left() > 0;) {
      const std::size_t offset = stream.size() - cursor.left();
      if (!take_record(cursor, record)) {
        error = "the stream is damaged at byte " + std::to_string(offset);
        return false;
      }
      if (record.type == 'O' && record.text != "alloc" && api_of_.count(record.text) == 0) {
        meta.apis.push_back(describe(record.text));
        api_of_[record.text] = static_cast<std::uint32_t>(meta.apis.size());
      }
    }
    Writer writer(sink_, meta);
    writer_ = &writer;
    for (const auto& [address, size] : options_.blocks) block(address, static_cast<std::int64_t>(size));
    for (ByteCursor cursor(stream.data(), stream.size()); cursor.left() > 0;) {
      take_record(cursor, record);
      convert(record);
    }
    flush();
    End end;
    end.events = writer.events_written();
    end.ticks_per_second = kTicksPerSecond;
    writer.write_end(end);
    counts_.file_bytes = writer.bytes_written();
    if (!writer.ok()) error = "the output cannot be written";
    return writer.ok();
  }

 private:
  void convert(const Record& record) {
    if (record.type == 'F') {
      function(record);
    } else if (record.type == 'L') {
      launch(record);
    } else if (record.type == 'M') {
      mark(record.text);
    } else if (record.text == "alloc") {
      block(record.arguments[0], static_cast<std::int64_t>(record.arguments[1]));
    } else {
      const std::uint32_t api = api_of_[record.text];
      payload_ = {pack(api, 0), 0, pack(4, 0)};
      payload_.insert(payload_.end(), record.arguments, record.arguments + 4);
      advance(800, 0.15);
      emit(EventKind::kCall, api, 600);
    }
  }

  void append_bytes(const void* data, std::size_t bytes) {
    const std::size_t at = payload_.size();
    payload_.resize(at + words_for(bytes), 0);
    if (bytes > 0) std::memcpy(payload_.data() + at, data, bytes);
  }

  void function(const Record& record) {
    const auto id = static_cast<std::uint32_t>(functions_.size() + 1);
    functions_[record.numbers[0]] = {id, key_of(record.text)};
    payload_ = {pack(id, record.numbers[1]), 0x10000u + std::uint64_t{record.numbers[0]} * 64, 0,
                pack(static_cast<std::uint32_t>(record.layout.size()), static_cast<std::uint32_t>(record.text.size()))};
    payload_.insert(payload_.end(), record.layout.begin(), record.layout.end());
    append_bytes(record.text.data(), record.text.size());
    emit(EventKind::kDefFunction, key_of(record.text), 0);
  }

  void launch(const Record& record) {
    const std::uint32_t* n = record.numbers;
    const Function& function = functions_[n[0]];
    payload_ = {pack(function.id, n[1] == 0 ? kLaunchKernel : kLaunchKernelEx),
                0,
                pack(n[2], n[3]),
                pack(n[4], n[5]),
                pack(n[6], n[7]),
                pack(n[8], 0),
                record.stream,
                pack(0, record.parameter_bytes)};
    append_bytes(record.parameters, record.parameter_bytes);
    // 6 to 25 us of Python and dispatch, typical of the kernel; now and then something else gets in between.
    advance(6000 + function.key % 19000, 0.10);
    if (random() % 128 == 0) advance(40000, 0.5);
    emit(EventKind::kLaunch, function.key, 2600);
    ++counts_.launches;
    counts_.parameter_bytes += record.parameter_bytes;
  }

  void block(std::uint64_t address, std::int64_t size) {
    const bool frees = size < 0;
    const auto bytes = static_cast<std::uint64_t>(frees ? -size : size);
    payload_ = {address, bytes, 0};
    emit(frees ? EventKind::kBlockFree : EventKind::kBlockAlloc, key_of(bytes), 0);
  }

  void mark(const std::string& text) {
    if (text.empty() || (text[0] != 'B' && text[0] != 'E')) return;
    const std::string name = "B" + text.substr(1);
    std::uint32_t& scope = scopes_[name];
    if (scope == 0) {
      scope = static_cast<std::uint32_t>(scopes_.size());
      const std::string type = "stream:region";
      payload_ = {pack(scope, static_cast<std::uint32_t>(ScopeKind::kFunction)), 0,
                  pack(static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(type.size()))};
      append_bytes(name.data(), name.size());
      append_bytes(type.data(), type.size());
      emit(EventKind::kDefScope, key_of(name), 0);
    }
    if (text[0] == 'B') ++calls_;
    payload_ = {pack(scope, 0), calls_};
    advance(3000, 0.1);
    emit(text[0] == 'B' ? EventKind::kScopeBegin : EventKind::kScopeEnd, key_of(name), 0);
  }

  std::uint32_t random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(random_ >> 33);
  }

  // About normal, by the sum of uniform numbers; never less than a third.
  std::uint64_t jittered(double nanoseconds, double deviation) {
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += random() / 2147483648.0;
    const double value = nanoseconds * std::max(1.0 / 3, 1 + (sum - 6) * deviation);
    return static_cast<std::uint64_t>(value * kTicksPerSecond / 1e9);
  }

  void advance(double nanoseconds, double deviation) { ticks_ += jittered(nanoseconds, deviation); }

  void emit(EventKind kind, std::uint32_t key, double duration) {
    event_.resize(sizeof(EventHeader) / 8 + payload_.size());
    EventHeader header{};
    header.bytes = static_cast<std::uint32_t>(event_.size() * 8);
    header.kind = kind;
    header.key = key;
    header.sequence = ++sequence_;
    header.ticks = ticks_;
    if (duration > 0) header.duration = static_cast<std::uint32_t>(jittered(duration, 0.12));
    std::memcpy(event_.data(), &header, sizeof header);
    std::copy(payload_.begin(), payload_.end(), event_.begin() + sizeof(EventHeader) / 8);
    ++counts_.events;
    counts_.event_bytes += header.bytes;
    pending_.insert(pending_.end(), event_.begin(), event_.end());
    if (pending_.size() >= kBatchWords) encode();
  }

  // Events are handed to the encoder in batches, so that its time can be told from the converter's.
  void encode() {
    const double begin = cpu_seconds();
    for (std::size_t at = 0; at < pending_.size();) {
      const auto* header = reinterpret_cast<const EventHeader*>(&pending_[at]);
      encoder_.add(*header);
      at += header->bytes / 8;
      if (encoder_.event_bytes() >= options_.chunk_bytes) writer_->write_events(1, kOsThread, encoder_);
    }
    pending_.clear();
    counts_.encode_seconds += cpu_seconds() - begin;
  }

  void flush() {
    encode();
    const double begin = cpu_seconds();
    writer_->write_events(1, kOsThread, encoder_);
    counts_.encode_seconds += cpu_seconds() - begin;
  }

  static constexpr std::size_t kBatchWords = 1u << 19;
  struct Function {
    std::uint32_t id = 0;
    std::uint32_t key = 0;
  };

  const ConvertOptions& options_;
  Sink& sink_;
  ConvertCounts& counts_;
  Writer* writer_ = nullptr;
  EventEncoder encoder_;
  std::unordered_map<std::string, std::uint32_t> api_of_, scopes_;
  std::unordered_map<std::uint32_t, Function> functions_;
  std::uint64_t sequence_ = 0;
  std::uint64_t ticks_ = 5'000'000'000;
  std::uint64_t calls_ = 0;
  std::uint64_t random_ = 1;
  std::vector<std::uint64_t> payload_, event_, pending_;
};

}  // namespace

bool convert_stream(const std::vector<std::uint8_t>& stream, const ConvertOptions& options, Sink& sink,
                    ConvertCounts& counts, std::string& error) {
  return Converter(options, sink, counts).run(stream, error);
}

bool read_gzip(const std::string& path, std::vector<std::uint8_t>& bytes, std::string& error) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    error = path + ": cannot be opened";
    return false;
  }
  bytes.clear();
  constexpr std::size_t kPiece = 1u << 20;
  int got = 0;
  do {
    const std::size_t at = bytes.size();
    bytes.resize(at + kPiece);
    got = gzread(file, bytes.data() + at, kPiece);
    bytes.resize(at + static_cast<std::size_t>(got > 0 ? got : 0));
  } while (got > 0);
  const bool ended = gzclose(file) == Z_OK && got == 0;
  if (!ended) error = path + ": is not a whole gzip file";
  return ended;
}

bool read_blocks(const std::string& path, std::vector<std::pair<std::uint64_t, std::uint64_t>>& blocks,
                 std::string& error) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::uint64_t> numbers;
  bool in_number = false;
  for (const char c : text.str()) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) numbers.push_back(0);
    if (digit) numbers.back() = numbers.back() * 10 + static_cast<std::uint64_t>(c - '0');
    in_number = digit;
  }
  if (!file || numbers.size() % 2 != 0) {
    error = path + ": is not a list of addresses and sizes";
    return false;
  }
  for (std::size_t i = 0; i < numbers.size(); i += 2) blocks.emplace_back(numbers[i], numbers[i + 1]);
  return true;
}

}  // namespace grape::trace
