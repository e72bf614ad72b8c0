// File header, chunk headers and chunk bodies (docs/FORMAT.md, Grammar). Shared by writer and reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/trace/byte_stream.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace grape::trace {

constexpr std::uint16_t kFormatMajor = 1;
constexpr std::uint16_t kFormatMinor = 1;
constexpr std::size_t kFileHeaderBytes = 16;
constexpr std::size_t kChunkHeaderBytes = 72;
constexpr std::uint32_t kChunkMarker = 0x4B484347;  // "GCHK"
constexpr std::array<std::uint8_t, 8> kMagic = {0x89, 'G', 'R', 'A', 'P', 'E', '\r', '\n'};

constexpr std::uint64_t kMaxChunkBytes = 256u << 20;
constexpr std::uint64_t kRatioAllowance = 65536;  // raw bytes that any chunk may have, however small its body
constexpr std::uint64_t kMaxRatio = 4096;
constexpr std::uint32_t kMaxThread = 1u << 20;
constexpr std::size_t kMaxColumns = 64;

enum class ChunkType : std::uint16_t { kMeta = 1, kEvents = 2, kEnd = 3 };

// The two headers as they stand in the file.
struct FileHeader {
  std::array<std::uint8_t, 8> magic = kMagic;
  std::uint16_t major = kFormatMajor, minor = kFormatMinor;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FileHeader) == kFileHeaderBytes);

struct ChunkHeader {
  std::uint32_t marker = kChunkMarker;
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint32_t stored = 0;
  std::uint32_t raw = 0;
  std::uint32_t thread = 0;
  std::uint32_t os_thread = 0;
  std::uint64_t first_sequence = 0;
  std::uint64_t last_sequence = 0;
  std::uint64_t event_bytes = 0;
  std::uint32_t events = 0;
  std::uint32_t reserved = 0;
  std::uint64_t body_checksum = 0;
  std::uint64_t header_checksum = 0;  // of all before it
};
static_assert(sizeof(ChunkHeader) == kChunkHeaderBytes);

void write_chunk_header(ChunkHeader header, std::uint8_t (&to)[kChunkHeaderBytes]);

// False, with the reason in `message`, where marker, checksum or limits do not hold.
bool parse_chunk_header(const std::uint8_t (&from)[kChunkHeaderBytes], ChunkHeader& header, std::string& message);

std::uint64_t checksum(const void* data, std::size_t bytes);

struct FreeContext {
  void operator()(ZSTD_CCtx_s* context) const;
  void operator()(ZSTD_DCtx_s* context) const;
};

// Compresses columns into bodies; keeps zstd's working memory between chunks.
class ColumnPacker {
 public:
  ColumnPacker();

  // Sets header.stored, raw and body_checksum, and adds padding where header.event_bytes or the columns would break
  // the ratio limit. `levels`: zstd's level per column.
  void pack(const std::vector<const Bytes*>& columns, const std::vector<int>& levels, ChunkHeader& header, Bytes& body);

 private:
  std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
  Bytes compressed_;
};

// Decompresses bodies; keeps zstd's working memory between chunks.
class ColumnUnpacker {
 public:
  ColumnUnpacker();

  // Fills `columns` (as many as it has; those missing in the body become empty). False: `message` says why.
  bool unpack(const ChunkHeader& header, const Bytes& body, std::vector<Bytes>& columns, std::string& message);

 private:
  std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
};

}  // namespace grape::trace
