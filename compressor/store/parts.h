// Names and parameter layouts of functions, each once. Not thread-safe; snapshots are.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/store/difference.h"

namespace grape::store {

class Parts {
 public:
  // By number; what they point to lives as long as the Parts.
  struct Snapshot {
    std::vector<const std::string*> names;
    std::vector<const Layout*> layouts;
  };

  // Their numbers, from 0.
  std::uint32_t name(const std::string& name);
  std::uint32_t layout(const std::vector<program::Parameter>& parameters, bool has_layout);

  // Of all that is there now.
  std::shared_ptr<const Snapshot> snapshot();
  std::size_t bytes() const { return bytes_; }  // as they are stored

 private:
  std::deque<std::string> names_;
  std::deque<Layout> layouts_;
  std::unordered_map<std::string, std::uint32_t> number_of_name_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> number_of_layout_;  // by checksum
  std::shared_ptr<const Snapshot> snapshot_;
  std::size_t bytes_ = 0;
};

// A layout in the store's file.
void put_layout(const Layout& layout, Bytes& to);
// False: the bytes are no layout.
bool take_layout(const std::uint8_t* data, std::size_t size, Layout& layout);

}  // namespace grape::store
