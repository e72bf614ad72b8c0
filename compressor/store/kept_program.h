// A program between its runs. Its head stays in memory; the rest may lie in a store until a graph is made of it. One
// thread at a time per object.
#pragma once

#include <cstdint>
#include <memory>

#include "compressor/program/program.h"

namespace grape::store {

class Store;

class KeptProgram {
 public:
  KeptProgram() = default;
  explicit KeptProgram(program::Program whole);  // may throw std::bad_alloc
  ~KeptProgram() { forget(); }
  KeptProgram(const KeptProgram&) = delete;
  KeptProgram& operator=(const KeptProgram&) = delete;
  KeptProgram(KeptProgram&& other) noexcept { swap(other); }
  KeptProgram& operator=(KeptProgram&& other) noexcept {
    swap(other);
    return *this;
  }

  // Without nodes and what belongs to them (functions, words, references, attributes, edges), temps, strays and host
  // data. The address and the contents are stable for the lifetime of the object.
  const program::Program& head() const noexcept { return head_; }

  // All of it, shared with whoever else has it at the moment. Null: no memory for it, or the store's bytes are damaged.
  std::shared_ptr<const program::Program> whole() const noexcept;

  // From here on the store has what is not in the head, and memory for it is only taken while whole() is held. `store`
  // must outlive the object. False, and nothing has changed: no memory, or the store refuses it.
  bool put_away(Store& store) noexcept;

 private:
  void forget() noexcept;
  void swap(KeptProgram& other) noexcept;

  program::Program head_;
  std::shared_ptr<const program::Program> whole_;       // null: put away
  mutable std::weak_ptr<const program::Program> last_;  // that whole() gave from the store
  Store* store_ = nullptr;
  std::uint64_t id_ = 0;  // in the store
};

}  // namespace grape::store
