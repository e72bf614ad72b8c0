// An opened cache, a store's file, with what every view of it needs: programs by number, families, names.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compressor/cache/cache.h"
#include "tools/inputs/filter.h"

namespace grape::tools {

// Whether the file begins as a store's does. False too where it cannot be read.
bool is_store(const std::string& path);

class StoreInput {
 public:
  // Throws Failure.
  explicit StoreInput(const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  const cache::Cache& cache() const { return cache_; }
  const std::vector<std::uint64_t>& ids() const { return ids_; }  // ascending
  const std::vector<store::FamilyStatistics>& families() const { return families_; }

  // A program's number as the user wrote it. Throws Failure where there is none.
  std::uint64_t find(const std::string& number) const;
  // What was called; empty where the file has the program alone.
  const cache::Entry& entry(std::uint64_t id) const;
  // Throws Failure where it is damaged.
  program::Program program(std::uint64_t id) const;
  // Counts families() from 1.
  std::size_t family(std::uint64_t id) const;
  std::uint64_t raw_bytes(std::uint64_t id) const;

  // "net.py:12 in Net.forward"; "" where it is not known.
  const std::string& position(const program::RecordedNode& node) const;
  const std::string& demangled(const std::string& kernel) { return names_.demangled(kernel); }
  const std::string& shown(const std::string& kernel) { return names_.shown(kernel); }
  void show_full_names(bool full) { names_.show_full(full); }
  bool full_names() const { return names_.full(); }

  // Whether shadow replays showed that all of these bits of a word of the kernel's parameters are padding.
  bool is_padding(std::uint64_t handle, std::uint32_t word, std::uint64_t bits) const;

 private:
  std::string path_;
  std::uint64_t file_bytes_ = 0;
  cache::Cache cache_;
  std::vector<std::uint64_t> ids_;
  std::vector<store::FamilyStatistics> families_;
  std::unordered_map<std::uint64_t, std::size_t> entries_;                                  // by program
  std::unordered_map<std::uint64_t, std::size_t> family_order_;                             // by shape
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::array<std::uint8_t, 8>> padding_;  // by handle and word
  KernelNames names_;
};

// Nodes by --kernel. Throws Failure where that cannot be understood.
class KernelFilter {
 public:
  explicit KernelFilter(const std::string& option) : active_(!option.empty()), pattern_(option) {}
  bool node(StoreInput& input, const program::Program& program, const program::RecordedNode& node);
  // Has it such a node?
  bool program(StoreInput& input, const program::Program& program);

 private:
  bool active_;
  KernelPattern pattern_;
  std::unordered_map<std::string, bool> known_;
};

// "2026-01-31 12:00:00 UTC"; "unknown" for what is no time. time_text(): for 0 as well.
std::string utc_text(std::time_t seconds);
std::string time_text(std::uint64_t unix_seconds);
std::string digest_text(const cache::Digest& digest);

}  // namespace grape::tools
