// make_corpus FOLDER: the fuzzer's seeds, and the fixture of this format version. Small traces of every kind,
// compressed and not; and columns alone (see as_columns in fuzz_reader.cc).
#include <cstdio>
#include <fstream>
#include <string>

#include "compressor/trace/event_encoder.h"
#include "tests/compressor/trace/trace_builder.h"

namespace grape::trace {
namespace {

bool save(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return static_cast<bool>(file.flush());
}

Bytes columns_of(const std::vector<OwnedEvent>& events) {
  EventEncoder encoder;
  for (const OwnedEvent& event : events) encoder.add(*reinterpret_cast<const EventHeader*>(event.flat().data()));
  encoder.finish(1'000'000'000);
  Bytes out;
  put_fixed(out, static_cast<std::uint16_t>(encoder.events()));
  put_fixed(out, static_cast<std::uint16_t>(encoder.last_sequence() - encoder.events()));
  put_fixed(out, static_cast<std::uint32_t>(encoder.event_bytes()));
  for (const Bytes& column : encoder.columns()) {
    put_fixed(out, static_cast<std::uint16_t>(column.size()));
    out.insert(out.end(), column.begin(), column.end());
  }
  return out;
}

std::vector<OwnedEvent> one_thread(std::size_t rounds) {
  std::vector<OwnedEvent> events;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (OwnedEvent event : every_kind()) {
      if (event.thread != 1) continue;
      event.header.sequence = events.size() + 1;
      event.header.ticks += round * 1'000'000;
      if (event.header.kind == EventKind::kLaunch) {
        event.words[8] += round * (round % 2 == 0 ? 512 : std::uint64_t{1} << 33);
        event.words[9] ^= round * 0x123456789ABCDEF;
      }
      events.push_back(event);
    }
  }
  return events;
}

bool make(const std::string& folder) {
  bool good = save(folder + "/every_kind", write_trace(every_kind()));
  good = good && save(folder + "/every_kind_plain", without_compression(write_trace(every_kind())));
  good = good && save(folder + "/small_chunks_plain", without_compression(write_trace(every_kind(), 2)));
  good = good && save(folder + "/rounds_plain", without_compression(write_trace(one_thread(4))));
  good = good && save(folder + "/columns_every_kind", columns_of(one_thread(1)));
  good = good && save(folder + "/columns_rounds", columns_of(one_thread(4)));
  return good && save(folder + "/empty_trace", write_trace({}));
}

}  // namespace
}  // namespace grape::trace

int main(int argc, char** argv) {
  if (argc != 2 || !grape::trace::make(argv[1])) {
    std::fprintf(stderr, "usage: make_corpus FOLDER (which must exist)\n");
    return 2;
  }
  return 0;
}
