// Compares a replay with an eager run: does the graph leave the same bytes everywhere that the region may write? The
// memory that the call can reach is copied before and after the eager run. So the graph starts from the same memory as
// eager did, and eager's result is restored in every case. One thread; the region's context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compressor/refusal/refusal.h"
#include "shim/device/copy_memory.h"
#include "shim/device/device_hash.h"
#include "shim/device/device_spread.h"
#include "shim/observation/device_exclusion.h"
#include "shim/replay/program_run.h"

namespace grape::replay {

class Shadow {
 public:
  using Range = device::DeviceHash::Range;
  struct Watched : Range {
    bool hidden = false;  // neither an argument's, nor the module's, nor a global's
  };
  // kNotDeterministic: runs differ from each other; wherever all of them agree, they agree with eager as well.
  // kWithinSpread: the same, and what varies are numbers that eager left as near to a run's as other runs do.
  // kOtherValue: the host read another value than the one in the program, which stopped there.
  enum class Found : std::uint8_t { kSame, kDifferent, kNotDeterministic, kWithinSpread, kOtherValue };

  Shadow() = default;
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Before the eager run. `watched`: disjoint ranges of memory that is alive before and after. False: not possible (no
  // memory for the copies, the driver refuses); `error` is one line.
  bool before(CUstream stream, const std::vector<Watched>& watched, refusal::Refusal& error) noexcept;
  // After the eager run. `outputs`: what it made.
  bool after(CUstream stream, std::vector<Range> outputs, refusal::Refusal& error) noexcept;
  // Restores the memory of before(), launches, and compares the results in `outputs` (same order and sizes as
  // after()'s) and in the watched ranges. Then restores eager's bytes. False: an error. `difference`: the first
  // difference from eager, if any. `twice`: runs once more, since the contents of hidden ranges must not matter in any
  // case.
  bool compare(CUstream stream, const std::vector<CUstream>& others, ProgramRun& steps,
               const std::vector<Range>& outputs, bool twice, Found& found, refusal::Refusal& difference,
               refusal::Refusal& error) noexcept;
  // Memory of the shadow's own that each run of the graph finds as it is at `from`. Before compare().
  struct Fresh {
    std::uint64_t to = 0, from = 0, bytes = 0;
  };
  void set_fresh(std::vector<Fresh> fresh) noexcept { fresh_ = std::move(fresh); }
  // What the outputs hold, in their order. Without it, or with kOther among them, no run is within the spread.
  void set_elements(std::vector<device::Element> elements) noexcept { elements_ = std::move(elements); }
  // Before compare(): it is to find out as well whether a run that starts from what eager left makes other outputs.
  void ask_for_state() noexcept { asks_for_state_ = true; }
  bool depends_on_state() const noexcept { return depends_on_state_; }
  const std::vector<Range>& watched() const noexcept { return watched_; }
  bool hidden(std::size_t i) const noexcept { return hidden_[i]; }
  // Did other threads work since before(), or had streams work then? They may have made the difference.
  bool others_worked() const noexcept { return onlooker_ && (busy_at_first_ || onlooker_->others_worked()); }
  // Did the eager run change watched range `i`?
  bool changed(std::size_t i) const noexcept { return before_hashes_[i] != after_hashes_[i]; }

 private:
  bool copy(CUstream stream, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
            refusal::Refusal& error) noexcept;
  CUresult hash_all(device::DeviceHash& hash, CUstream stream, const std::vector<Range>& outputs,
                    std::vector<std::uint64_t>& watched_hashes,
                    std::vector<std::uint64_t>& output_hashes) const noexcept;
  // What one run of the graph left.
  struct Left {
    ProgramRun::Result ran = ProgramRun::Result::kFailed;
    std::vector<std::uint64_t> watched, outputs;
  };
  // What is run, and where it leaves its outputs.
  struct Graph {
    device::DeviceHash& hash;
    CUstream stream;
    const std::vector<CUstream>& others;
    ProgramRun& steps;
    const std::vector<Range>& outputs;
  };
  bool run(const Graph& graph, Left& left, refusal::Refusal& error);
  bool rewind(CUstream stream, const std::vector<std::uint64_t>& now, bool hidden_too,
              refusal::Refusal& error) noexcept;
  bool put_back(CUstream stream, const std::vector<std::uint64_t>& now, refusal::Refusal& error) noexcept;
  bool compare_runs(const Graph& graph, bool twice, Found& found, refusal::Refusal& difference, Left& last,
                    refusal::Refusal& error);
  bool look_at_state(const Graph& graph, Left& last, refusal::Refusal& error);
  bool run_again(const Graph& graph, bool hidden_too, Left& last, refusal::Refusal& error);
  bool look_whether_random(const Graph& graph, Found& found, Left& last, refusal::Refusal& error);
  bool differ(const std::vector<Left>& runs) const;
  bool varies_in_watched(const std::vector<Left>& runs) const;
  refusal::Refusal where(const Left& left, bool hidden_too) const;

  std::optional<observation::Onlooker> onlooker_;
  bool asks_for_state_ = false, depends_on_state_ = false;
  bool busy_at_first_ = false;  // another thread may have put work on a stream between the wait and before()
  std::vector<Range> watched_;
  std::vector<bool> hidden_;  // per watched range
  std::vector<Range> outputs_;
  std::vector<Fresh> fresh_;
  std::vector<device::Element> elements_;
  std::vector<std::uint64_t> before_hashes_, after_hashes_, output_hashes_;
  // Ranges back to back: all as they were before; the changed ones as eager left them.
  device::CopyMemory::Block before_copy_, after_copy_;
  bool copying_ = false;  // to after_copy_, for all we know
  CUstream copied_on_ = nullptr;
};

}  // namespace grape::replay
