#include "compressor/trace/chunk.h"

#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace grape::trace {
namespace {

std::uint64_t raw_limit(std::uint64_t stored) { return kRatioAllowance + kMaxRatio * stored; }

struct Column {
  std::uint64_t raw = 0;
  std::uint64_t stored = 0;
};

}  // namespace

void write_chunk_header(ChunkHeader header, std::uint8_t (&to)[kChunkHeaderBytes]) {
  header.header_checksum = checksum(&header, offsetof(ChunkHeader, header_checksum));
  std::memcpy(to, &header, sizeof header);
}

bool parse_chunk_header(const std::uint8_t (&from)[kChunkHeaderBytes], ChunkHeader& header, std::string& message) {
  std::memcpy(&header, from, sizeof header);
  if (header.marker != kChunkMarker) {
    message = "no chunk begins here";
    return false;
  }
  if (header.header_checksum != checksum(from, offsetof(ChunkHeader, header_checksum))) {
    message = "the chunk header's checksum is wrong";
    return false;
  }
  const std::uint64_t limit = std::min(raw_limit(header.stored), kMaxChunkBytes);
  if (header.stored > kMaxChunkBytes || header.raw > limit || header.event_bytes > limit) {
    message = "the chunk claims to be larger than the format allows";
    return false;
  }
  return true;
}

std::uint64_t checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

void FreeContext::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }
void FreeContext::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

ColumnPacker::ColumnPacker() : context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}

void ColumnPacker::pack(const std::vector<const Bytes*>& columns, const std::vector<int>& levels, ChunkHeader& header,
                        Bytes& body) {
  compressed_.clear();
  std::vector<Column> sizes;
  std::uint64_t raw = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Bytes& column = *columns[i];
    const std::size_t at = compressed_.size();
    compressed_.resize(at + ZSTD_compressBound(column.size()));
    std::size_t stored = ZSTD_compressCCtx(context_.get(), compressed_.data() + at, compressed_.size() - at,
                                           column.data(), column.size(), levels[i]);
    // zstd fails here only for want of memory. Uncompressed is always right.
    if (ZSTD_isError(stored) || stored >= column.size()) {
      std::copy(column.begin(), column.end(), compressed_.begin() + static_cast<std::ptrdiff_t>(at));
      stored = column.size();
    }
    compressed_.resize(at + stored);
    sizes.push_back({column.size(), stored});
    raw += column.size();
  }
  const std::uint64_t most = std::max(raw, header.event_bytes);
  if (most > raw_limit(compressed_.size())) {
    const std::uint64_t padding = (most - kRatioAllowance) / kMaxRatio + 1 - compressed_.size();
    compressed_.resize(compressed_.size() + padding);
    sizes.push_back({padding, padding});
    raw += padding;
  }
  body.clear();
  put_varint(body, sizes.size());
  for (const Column& size : sizes) {
    put_varint(body, size.raw);
    put_varint(body, size.stored);
  }
  body.insert(body.end(), compressed_.begin(), compressed_.end());
  header.stored = static_cast<std::uint32_t>(body.size());
  header.raw = static_cast<std::uint32_t>(raw);
  header.body_checksum = checksum(body.data(), body.size());
}

ColumnUnpacker::ColumnUnpacker() : context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}

bool ColumnUnpacker::unpack(const ChunkHeader& header, const Bytes& body, std::vector<Bytes>& columns,
                            std::string& message) {
  ByteCursor cursor(body.data(), body.size());
  const std::uint64_t count = cursor.varint();
  message = "the chunk's columns do not fit its body";
  if (cursor.failed() || count > kMaxColumns) return false;
  std::vector<Column> sizes(count);
  std::uint64_t raw = 0, stored = 0;
  for (Column& size : sizes) {
    size.raw = cursor.varint();
    size.stored = cursor.varint();
    if (size.raw > header.raw || size.stored > header.stored) return false;
    raw += size.raw;
    stored += size.stored;
  }
  if (cursor.failed() || raw != header.raw || stored != cursor.left()) return false;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i].clear();
    if (i >= count) continue;
    const std::uint8_t* data = cursor.take(sizes[i].stored);
    columns[i].resize(sizes[i].raw);
    if (sizes[i].raw == sizes[i].stored) {
      std::copy(data, data + sizes[i].raw, columns[i].begin());
      continue;
    }
    const std::size_t got = ZSTD_decompressDCtx(context_.get(), columns[i].data(), sizes[i].raw, data, sizes[i].stored);
    if (ZSTD_isError(got) || got != sizes[i].raw) {
      message = "a column of the chunk does not decompress";
      return false;
    }
  }
  message.clear();
  return true;
}

}  // namespace grape::trace
