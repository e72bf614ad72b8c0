#include "compressor/trace/meta_fields.h"

#include <cstddef>

namespace grape::trace {
namespace {

constexpr std::size_t kMaxRepeats = 65536;

enum MetaTag : std::uint64_t {
  kTicksPerSecond = 1,
  kStartTicks,
  kStartUnixNs,
  kPid,
  kHost,
  kCommand,
  kGrapeVersion,
  kPythonVersion,
  kDriverVersion,
  kApi,
  kRanges,
};

enum EndTag : std::uint64_t { kEvents = 1, kLostEvents, kMeasuredTicksPerSecond, kUnhandled, kNotice };

void put_field(Bytes& out, std::uint64_t tag, const Bytes& content) {
  put_varint(out, tag);
  put_varint(out, content.size());
  out.insert(out.end(), content.begin(), content.end());
}

void put_number(Bytes& out, std::uint64_t tag, std::uint64_t value) {
  Bytes content;
  put_varint(content, value);
  put_field(out, tag, content);
}

void put_text(Bytes& out, std::uint64_t tag, const std::string& text) {
  put_field(out, tag, Bytes(text.begin(), text.end()));
}

std::string rest(ByteCursor& content) {
  const std::size_t bytes = content.left();
  return std::string(reinterpret_cast<const char*>(content.take(bytes)), bytes);
}

ApiInfo take_api(ByteCursor& content) {
  ApiInfo api;
  api.api_class = static_cast<ApiClass>(content.varint());
  const std::uint64_t bytes = content.varint();
  const std::uint8_t* symbol = content.take(bytes);
  if (symbol != nullptr) api.symbol.assign(reinterpret_cast<const char*>(symbol), bytes);
  if (!content.failed()) api.arguments = rest(content);
  return api;
}

void take_meta_field(std::uint64_t tag, ByteCursor& content, Meta& meta) {
  switch (tag) {
    case kTicksPerSecond:
      meta.ticks_per_second = content.varint();
      break;
    case kStartTicks:
      meta.start_ticks = content.varint();
      break;
    case kStartUnixNs:
      meta.start_unix_ns = content.varint();
      break;
    case kPid:
      meta.pid = static_cast<std::uint32_t>(content.varint());
      break;
    case kHost:
      meta.host = rest(content);
      break;
    case kCommand:
      meta.command = rest(content);
      break;
    case kGrapeVersion:
      meta.grape_version = rest(content);
      break;
    case kPythonVersion:
      meta.python_version = rest(content);
      break;
    case kDriverVersion:
      meta.driver_version = static_cast<std::int32_t>(unzigzag(content.varint()));
      break;
    case kApi:
      if (meta.apis.size() == kMaxRepeats) return content.fail();
      meta.apis.push_back(take_api(content));
      break;
    case kRanges:
      meta.ranges = content.varint() != 0;
      break;
    default:
      break;
  }
}

void take_end_field(std::uint64_t tag, ByteCursor& content, End& end) {
  switch (tag) {
    case kEvents:
      end.events = content.varint();
      break;
    case kLostEvents:
      end.lost = content.varint();
      break;
    case kMeasuredTicksPerSecond:
      end.ticks_per_second = content.varint();
      break;
    case kUnhandled: {
      if (end.unhandled.size() == kMaxRepeats) return content.fail();
      NamedCount item;
      item.count = content.varint();
      if (!content.failed()) item.name = rest(content);
      end.unhandled.push_back(std::move(item));
      break;
    }
    case kNotice:
      if (end.notices.size() == kMaxRepeats) return content.fail();
      end.notices.push_back(rest(content));
      break;
    default:
      break;
  }
}

template <typename Target>
bool parse_fields(const Bytes& from, Target& target, void (*take_field)(std::uint64_t, ByteCursor&, Target&)) {
  ByteCursor cursor(from.data(), from.size());
  while (cursor.left() > 0) {
    const std::uint64_t tag = cursor.varint();
    const std::uint64_t bytes = cursor.varint();
    const std::uint8_t* data = cursor.take(bytes);
    if (cursor.failed()) return false;
    ByteCursor content(data, bytes);
    take_field(tag, content, target);
    if (content.failed()) return false;
  }
  return true;
}

}  // namespace

Bytes write_meta(const Meta& meta) {
  Bytes out;
  put_number(out, kTicksPerSecond, meta.ticks_per_second);
  put_number(out, kStartTicks, meta.start_ticks);
  put_number(out, kStartUnixNs, meta.start_unix_ns);
  put_number(out, kPid, meta.pid);
  put_text(out, kHost, meta.host);
  put_text(out, kCommand, meta.command);
  put_text(out, kGrapeVersion, meta.grape_version);
  put_text(out, kPythonVersion, meta.python_version);
  put_number(out, kDriverVersion, zigzag(static_cast<std::uint64_t>(std::int64_t{meta.driver_version})));
  if (meta.ranges) put_number(out, kRanges, 1);
  for (const ApiInfo& api : meta.apis) {
    Bytes content;
    put_varint(content, static_cast<std::uint8_t>(api.api_class));
    put_varint(content, api.symbol.size());
    content.insert(content.end(), api.symbol.begin(), api.symbol.end());
    content.insert(content.end(), api.arguments.begin(), api.arguments.end());
    put_field(out, kApi, content);
  }
  return out;
}

Bytes write_end(const End& end) {
  Bytes out;
  put_number(out, kEvents, end.events);
  put_number(out, kLostEvents, end.lost);
  put_number(out, kMeasuredTicksPerSecond, end.ticks_per_second);
  for (const NamedCount& item : end.unhandled) {
    Bytes content;
    put_varint(content, item.count);
    content.insert(content.end(), item.name.begin(), item.name.end());
    put_field(out, kUnhandled, content);
  }
  for (const std::string& text : end.notices) put_text(out, kNotice, text);
  return out;
}

bool parse_meta(const Bytes& from, Meta& meta) { return parse_fields(from, meta, take_meta_field); }
bool parse_end(const Bytes& from, End& end) { return parse_fields(from, end, take_end_field); }

}  // namespace grape::trace
