// The proofs in GRAPE_CACHE (docs/CACHE.md): reads those of earlier processes as evidence, and adds this process's own.
// With the GIL, but for write(). All that is not noexcept throws std::bad_alloc.
#pragma once

#include <memory>
#include <unordered_map>

#include "compressor/cache/keeper.h"
#include "python_hooks/replay/call.h"
#include "python_hooks/report/report_text.h"

namespace grape::python::proof {

// Which code a kernel is, whatever its handle. False: it is not known where the code comes from, or without GRAPE_CACHE
// that is too large to have been read (shim/driver/kernel_content.h). Remembered by handle until code is unloaded.
bool kernel_digest(const program::FunctionInfo& function, cache::Digest& digest);

class CachedProofs {
 public:
  // Null: GRAPE_CACHE is not set, or its folder is not to be used (a line on stderr said why). Never destroyed.
  static CachedProofs* instance() noexcept;
  // The same where it was asked for before; else null.
  static CachedProofs* in_use() noexcept;

  // Names a call before it runs, in terms that hold in other processes: arguments, module, switches. After
  // write_sharing(). All zeros: the call has no such name.
  cache::Digest name(const replay::Region& region, const replay::Call& call);
  // Did an earlier process prove calls of that name, whatever code they then ran?
  bool knows(const replay::Region& region, const cache::Digest& signature) const noexcept;

  // The program that an earlier process proved for `call`, with the functions and the memory of `observed`, the program
  // that this process observed; the caller compares the two. Null: there is none, or its call did something else than
  // `outcome`, or it cannot be the same; `why` says which.
  std::unique_ptr<program::Program> find(const cache::Call& call, const cache::Digest& outcome,
                                         const program::Program& observed, std::string& why);
  void note_use(const cache::Call& call);  // a proof stands on what find() gave
  // Its graph left other bytes in this process: it is neither believed again nor written.
  void refute(const cache::Call& call);
  void refute_region(const replay::Region& region) noexcept;
  // Proven here. `observed`: with the bytes of an observed run.
  void add(const cache::Call& call, const cache::Digest& outcome, const program::Program& observed,
           const program::PaddingKnowledge& padding);

  program::PaddingKnowledge::Words padding_of(const program::FunctionInfo& function);
  void write() noexcept;  // what the file has not yet; else a thread does it, now and then
  report::CacheReport report() const;

 private:
  CachedProofs() = default;
  ~CachedProofs() = delete;

  std::unique_ptr<cache::Keeper> keeper_;
  std::unordered_map<std::uint64_t, cache::Digest> modules_;  // digests of modules' states, by hash of their bytes
  std::uint64_t used_ = 0;
};

}  // namespace grape::python::proof
