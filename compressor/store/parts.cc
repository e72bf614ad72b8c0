#include "compressor/store/parts.h"

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/chunk.h"

namespace grape::store {

std::uint32_t Parts::name(const std::string& name) {
  const auto found = number_of_name_.find(name);
  if (found != number_of_name_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(names_.size());
  names_.push_back(name);
  number_of_name_.emplace(name, number);
  snapshot_ = nullptr;
  bytes_ += name.size();
  return number;
}

std::uint32_t Parts::layout(const std::vector<program::Parameter>& parameters, bool has_layout) {
  Layout layout{parameters, has_layout};
  Bytes bytes;
  put_layout(layout, bytes);
  const std::uint64_t key = trace::checksum(bytes.data(), bytes.size());
  const auto range = number_of_layout_.equal_range(key);
  for (auto known = range.first; known != range.second; ++known) {
    if (layouts_[known->second] == layout) return known->second;
  }
  const auto number = static_cast<std::uint32_t>(layouts_.size());
  layouts_.push_back(std::move(layout));
  number_of_layout_.emplace(key, number);
  snapshot_ = nullptr;
  bytes_ += bytes.size();
  return number;
}

std::shared_ptr<const Parts::Snapshot> Parts::snapshot() {
  if (snapshot_ == nullptr) {
    auto made = std::make_shared<Snapshot>();
    for (const std::string& name : names_) made->names.push_back(&name);
    for (const Layout& layout : layouts_) made->layouts.push_back(&layout);
    snapshot_ = std::move(made);
  }
  return snapshot_;
}

void put_layout(const Layout& layout, Bytes& to) {
  to.push_back(layout.has_layout ? 1 : 0);
  trace::put_varint(to, layout.parameters.size());
  for (const program::Parameter& parameter : layout.parameters) {
    trace::put_varint(to, parameter.offset);
    trace::put_varint(to, parameter.bytes);
  }
}

bool take_layout(const std::uint8_t* data, std::size_t size, Layout& layout) {
  trace::ByteCursor cursor(data, size);
  const std::uint8_t has_layout = cursor.byte();
  const std::uint64_t count = cursor.varint();
  if (cursor.failed() || has_layout > 1 || count > cursor.left() / 2) return false;
  layout.has_layout = has_layout != 0;
  layout.parameters.clear();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = cursor.varint(), bytes = cursor.varint();
    if (offset > ~std::uint32_t{0} || bytes > ~std::uint32_t{0}) return false;
    layout.parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
  }
  return !cursor.failed() && cursor.left() == 0;
}

}  // namespace grape::store
