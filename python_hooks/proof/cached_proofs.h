// What earlier processes proved (GRAPE_CACHE, docs/CACHE.md), as evidence for this one, and what this one leaves to the
// next. With the GIL, but for write(). Those that are not noexcept throw std::bad_alloc.
#pragma once

#include <memory>

#include "compressor/cache/cache.h"
#include "python_hooks/replay/call.h"
#include "python_hooks/report/report_text.h"

namespace grape::python::replay {

class CachedProofs {
 public:
  // Null: GRAPE_CACHE is not set, or its folder is not to be used (a line on stderr said why). Never destroyed.
  static CachedProofs* instance() noexcept;
  // The same where it was asked for before; else null.
  static CachedProofs* in_use() noexcept;

  // The call before it ran, in terms that hold in other processes: arguments, module, switches. After write_sharing().
  // All zeros: it has no such name.
  cache::Digest name(const Region& region, const Call& call);
  // Did an earlier process prove calls of that name, whatever code they then ran?
  bool knows(const Region& region, const cache::Digest& signature) const noexcept;

  // The program that an earlier process proved for `call`, with functions and memory of `seen`, which this one
  // observed: what is left is to compare them. Null: there is none, or it did for Python what `outcome` is not, or it
  // cannot be the same: `why`.
  std::unique_ptr<program::Program> find(const cache::Call& call, const cache::Digest& outcome,
                                         const program::Program& seen, std::string& why);
  void note_use(const cache::Call& call);  // a proof stands on what find() gave
  // Its graph left other bytes here: not to be believed again, nor to be handed on.
  void refute(const cache::Call& call);
  void refute_region(const Region& region) noexcept;
  // Proven here. `observed`: with the bytes of an observed run.
  void add(const cache::Call& call, const cache::Digest& outcome, const program::Program& observed,
           const program::PaddingKnowledge& padding);

  program::PaddingKnowledge::Words padding_of(const program::FunctionInfo& function);
  void write() noexcept;  // what the file has not yet; else a thread does it, now and then
  CacheReport report() const;

 private:
  CachedProofs();
  ~CachedProofs() = delete;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace grape::python::replay
