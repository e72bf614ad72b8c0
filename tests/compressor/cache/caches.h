// Caches made up for tests, from the programs of tests/compressor/store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compressor/cache/cache.h"
#include "tests/compressor/store/programs.h"

namespace grape::cache {

// The call of `number`, as no other number has it.
inline Entry made_entry(std::uint64_t number, std::uint64_t last_used) {
  Entry entry;
  entry.call.region = "package.module:Class" + std::to_string(number);
  entry.call.signature = {number, number + 1};
  entry.call.code = {number + 2, number + 3};
  entry.outcome = {number + 4, number + 5};
  entry.last_used = last_used;
  return entry;
}

inline std::string place_text(std::uint32_t frame) { return "net.py:" + std::to_string(frame) + " in Net.forward"; }

// `programs` of `nodes` operations each, the last one used last, and padding of two kernels.
inline Cache made_cache(std::uint64_t programs, std::size_t nodes) {
  Builder builder("python=3.12\ntorch=2.11\n");
  for (std::uint64_t i = 0; i < programs; ++i) {
    builder.add(made_entry(i, 1000 + i), store::relative_of(store::made_program(i % 3, nodes), i), place_text);
  }
  builder.add_padding({{7, 2}, 3, {0, 1, 2, 3, 4, 5, 6, 7}, 0x1e, 0x02});
  builder.add_padding({{7, 2}, 300, {9}});
  builder.add_padding({{6, 2}, 0, {0, 0, 2}});
  return builder.take();
}

inline std::vector<std::uint8_t> file_of(const Cache& cache) {
  std::vector<std::uint8_t> file;
  save(cache, file);
  return file;
}

inline bool equal(const Entry& a, const Entry& b) {
  return a.id == b.id && a.call == b.call && a.outcome == b.outcome && a.last_used == b.last_used;
}

inline bool equal(const Padding& a, const Padding& b) {
  return a.kernel == b.kernel && a.word == b.word && a.seen == b.seen && a.own == b.own && a.varies == b.varies;
}

// All that they hold, the programs too.
inline bool equal(const Cache& a, const Cache& b) {
  bool same = a.environment == b.environment && a.places == b.places && a.entries.size() == b.entries.size() &&
              a.padding.size() == b.padding.size() && a.programs->ids() == b.programs->ids();
  for (std::size_t i = 0; same && i < a.entries.size(); ++i) same = equal(a.entries[i], b.entries[i]);
  for (std::size_t i = 0; same && i < a.padding.size(); ++i) same = equal(a.padding[i], b.padding[i]);
  program::Program one, other;
  std::string error;
  for (const std::uint64_t id : same ? a.programs->ids() : std::vector<std::uint64_t>()) {
    same = same && a.programs->get(id, one, error) && b.programs->get(id, other, error) && store::equal(one, other);
  }
  return same;
}

}  // namespace grape::cache
