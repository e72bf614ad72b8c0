// Counts the distinct reasons for which calls of a region were not replayed. Their number and their texts are bounded,
// whatever a program does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "compressor/refusal/refusal.h"

namespace grape::python::report {

struct Reason : refusal::Refusal {
  std::uint64_t count = 0;  // calls
};

// The first bytes of a text, whole characters only.
std::string_view shortened(std::string_view text, std::size_t most) noexcept;

class Reasons {
 public:
  // What differs in numbers alone (an address, a size, the operation's number) at the same place is one reason; the
  // first text is kept. Without memory only the count of others grows. Nothing refused: there was no memory to say
  // what.
  void add(const refusal::Refusal& refusal) noexcept;

  void add_last() noexcept;  // the last one once more
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t last_index() const noexcept { return all_.empty() ? kNone : last_; }

  const std::vector<Reason>& all() const noexcept { return all_; }  // in the order met
  std::uint64_t others() const noexcept { return others_; }         // calls whose reasons found no room
  const Reason* last() const noexcept;                              // null: none
  refusal::Refusal last_refusal() const noexcept;                   // none: there is none, or no memory
  bool empty() const noexcept { return all_.empty() && others_ == 0; }

  static constexpr std::size_t kMost = 16;
  static constexpr std::size_t kMostBytes = 1024;  // of a text; kernels' names can be longer

 private:
  std::vector<Reason> all_;
  std::size_t last_ = 0;
  std::uint64_t others_ = 0;
};

}  // namespace grape::python::report
