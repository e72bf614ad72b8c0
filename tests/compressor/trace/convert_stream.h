// Converts a launch stream that the probe recorded (little-endian records, each opened by one byte) to a trace, as
// test input: functions, launches, allocator events, other calls; marks "B<k>" and "E<k>" become calls of a scope.
// The streams have no sequence and no clock: the sequence counts up, and ticks advance with a jitter like that of a
// Python program, the same in every run.
//
// Records: F function: u32 id, u32 is_cukernel, u32 n, name, u32 parameters, per parameter u32 offset, u32 size.
// L launch: u32 function, u32 kind, 3 u32 grid, 3 u32 block, u32 shared bytes, u64 stream, u32 attributes, u32 n,
// parameter bytes. O other call: u32 n, name, 4 u64 arguments ("alloc": address, signed size). M mark: u32 n, text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compressor/trace/writer.h"

namespace grape::trace {

struct ConvertOptions {
  std::string command = "convert_stream";
  std::size_t chunk_bytes = std::size_t{32} << 20;
  // Address and size of blocks that were alive at the start; they come first, as allocations.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;
};

struct ConvertCounts {
  std::uint64_t events = 0;
  std::uint64_t launches = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t event_bytes = 0;
  std::uint64_t file_bytes = 0;
  double encode_seconds = 0;  // CPU time in EventEncoder and Writer
};

// False: `error` says what is wrong with the stream, or that the sink failed.
bool convert_stream(const std::vector<std::uint8_t>& stream, const ConvertOptions& options, Sink& sink,
                    ConvertCounts& counts, std::string& error);

// Reads a gzip file (or a plain one) whole. False: `error` says why.
bool read_gzip(const std::string& path, std::vector<std::uint8_t>& bytes, std::string& error);

// Reads [[address, size], ...].
bool read_blocks(const std::string& path, std::vector<std::pair<std::uint64_t, std::uint64_t>>& blocks,
                 std::string& error);

}  // namespace grape::trace
