// The fields of meta and end chunks (docs/FORMAT.md, Meta and end chunks).
#pragma once

#include "compressor/trace/byte_stream.h"
#include "compressor/trace/meta.h"

namespace grape::trace {

Bytes write_meta(const Meta& meta);
Bytes write_end(const End& end);

// False: the fields are not well-formed, or more than the format allows.
bool parse_meta(const Bytes& from, Meta& meta);
bool parse_end(const Bytes& from, End& end);

}  // namespace grape::trace
