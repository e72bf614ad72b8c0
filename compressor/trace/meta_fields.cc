#include "compressor/trace/meta_fields.h"

#include <cstddef>
#include <type_traits>

namespace grape::trace {
namespace {

constexpr std::size_t kMaxRepeats = 65536;

void put_item(Bytes& out, const std::string& text) { out.insert(out.end(), text.begin(), text.end()); }

void put_item(Bytes& out, const NamedCount& item) {
  put_varint(out, item.count);
  put_item(out, item.name);
}

void put_item(Bytes& out, const ApiInfo& api) {
  put_varint(out, static_cast<std::uint8_t>(api.api_class));
  put_varint(out, api.symbol.size());
  put_item(out, api.symbol);
  put_item(out, api.arguments);
}

void take_text(ByteCursor& content, std::size_t bytes, std::string& text) {
  const std::uint8_t* data = content.take(bytes);
  if (data != nullptr) text.assign(reinterpret_cast<const char*>(data), bytes);
}

void take_item(ByteCursor& content, std::string& text) { take_text(content, content.left(), text); }

void take_item(ByteCursor& content, NamedCount& item) {
  item.count = content.varint();
  take_item(content, item.name);
}

void take_item(ByteCursor& content, ApiInfo& api) {
  api.api_class = static_cast<ApiClass>(content.varint());
  take_text(content, content.varint(), api.symbol);
  take_item(content, api.arguments);
}

// Appends all fields.
struct FieldWriter {
  Bytes out;

  void put(std::uint64_t tag, const Bytes& content) {
    put_varint(out, tag);
    put_varint(out, content.size());
    out.insert(out.end(), content.begin(), content.end());
  }

  template <typename Number>
  void number(std::uint64_t tag, Number value) {
    if (std::is_same_v<Number, bool> && !value) return;  // as older readers' default
    Bytes content;
    const auto raw = static_cast<std::uint64_t>(value);
    put_varint(content, std::is_signed_v<Number> ? zigzag(raw) : raw);
    put(tag, content);
  }
  template <typename Item>
  void item(std::uint64_t tag, const Item& value) {
    Bytes content;
    put_item(content, value);
    put(tag, content);
  }
  template <typename Item>
  void list(std::uint64_t tag, const std::vector<Item>& items) {
    for (const Item& each : items) item(tag, each);
  }
};

// Takes the one field whose tag it is.
struct FieldReader {
  std::uint64_t tag;
  ByteCursor content;

  template <typename Number>
  void number(std::uint64_t its_tag, Number& value) {
    if (tag != its_tag) return;
    const std::uint64_t raw = content.varint();
    value = static_cast<Number>(std::is_signed_v<Number> ? unzigzag(raw) : raw);
  }
  template <typename Item>
  void item(std::uint64_t its_tag, Item& value) {
    if (tag == its_tag) take_item(content, value);
  }
  template <typename Item>
  void list(std::uint64_t its_tag, std::vector<Item>& items) {
    if (tag != its_tag) return;
    if (items.size() == kMaxRepeats) return content.fail();
    take_item(content, items.emplace_back());
  }
};

// The fields by their tags, in the order in which they are written.
template <typename Fields, typename Target>  // a Meta, const for a writer
void meta_fields(Fields& fields, Target& meta) {
  fields.number(1, meta.ticks_per_second);
  fields.number(2, meta.start_ticks);
  fields.number(3, meta.start_unix_ns);
  fields.number(4, meta.pid);
  fields.item(5, meta.host);
  fields.item(6, meta.command);
  fields.item(7, meta.grape_version);
  fields.item(8, meta.python_version);
  fields.number(9, meta.driver_version);
  fields.number(11, meta.ranges);
  fields.list(10, meta.apis);
}

template <typename Fields, typename Target>  // an End, likewise
void end_fields(Fields& fields, Target& end) {
  fields.number(1, end.events);
  fields.number(2, end.lost);
  fields.number(3, end.ticks_per_second);
  fields.list(4, end.unhandled);
  fields.list(5, end.notices);
}

template <typename Target>
bool parse_fields(const Bytes& from, Target& target, void (*take_field)(FieldReader&, Target&)) {
  ByteCursor cursor(from.data(), from.size());
  while (cursor.left() > 0) {
    const std::uint64_t tag = cursor.varint();
    const std::uint64_t bytes = cursor.varint();
    const std::uint8_t* data = cursor.take(bytes);
    if (cursor.failed()) return false;
    FieldReader field{tag, ByteCursor(data, bytes)};
    take_field(field, target);
    if (field.content.failed()) return false;
  }
  return true;
}

}  // namespace

Bytes write_meta(const Meta& meta) {
  FieldWriter fields;
  meta_fields(fields, meta);
  return std::move(fields.out);
}

Bytes write_end(const End& end) {
  FieldWriter fields;
  end_fields(fields, end);
  return std::move(fields.out);
}

bool parse_meta(const Bytes& from, Meta& meta) { return parse_fields(from, meta, meta_fields<FieldReader, Meta>); }
bool parse_end(const Bytes& from, End& end) { return parse_fields(from, end, end_fields<FieldReader, End>); }

}  // namespace grape::trace
