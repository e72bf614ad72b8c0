// Region records out of traces that were converted from the probe's streams (tests/compressor/trace/convert_stream.h):
// what PyTorch really did, as input of the symboliser.
#pragma once

#include <string>
#include <vector>

#include "compressor/program/record.h"

namespace grape::program {

struct StreamRegion {
  std::string name;  // "B<k>", as the probe marked it
  RegionRecord record;
};

enum class RegionEnd { kAtItsMark, kAtTheNextMark };  // the latter leaves nothing out between two regions

// Of a stream and its blocks: `base`.bin.gz and, if there is one, `base`.blocks.json. False: `error` says why.
bool read_stream(const std::string& base, std::vector<StreamRegion>& regions, std::string& error,
                 RegionEnd end = RegionEnd::kAtItsMark);

// Of a trace that convert_stream made.
bool read_converted(const std::string& path, std::vector<StreamRegion>& regions, std::string& error);

// The probe did not record the generator's state: it is read off the kernels that say in their names that they take it.
void find_random_state(RegionRecord& record);

}  // namespace grape::program
