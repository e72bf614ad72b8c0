// References to all memory and handles that a program needs alive (LiveBlocks::refer). While they last,
// LiveBlocks::epoch() changes when one of these goes. Releases exactly what it took. One thread at a time.
#pragma once

#include "compressor/program/program.h"
#include "shim/memory/live_blocks.h"

namespace grape::memory {

class BlockReferences {
 public:
  BlockReferences() = default;
  ~BlockReferences() { release(); }
  BlockReferences(const BlockReferences&) = delete;
  BlockReferences& operator=(const BlockReferences&) = delete;

  // In place of what it had. False: something is gone already, and nothing is referred to. `program` must stay as it is
  // until release().
  bool take(const program::Program& program) noexcept {
    release();
    if (LiveBlocks::instance().refer(program)) program_ = &program;
    return program_ != nullptr;
  }
  void release() noexcept {
    if (program_ != nullptr) LiveBlocks::instance().release(*program_);
    program_ = nullptr;
  }

 private:
  const program::Program* program_ = nullptr;
};

}  // namespace grape::memory
