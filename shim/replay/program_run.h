// Runs a program in parts: graphs, and the reads by the host between them. The host must read the values that were
// recorded. One thread; the program's context is current.
#pragma once

#include <cuda.h>

#include <vector>

#include "compressor/refusal/refusal.h"
#include "shim/graphs/exec_pool.h"
#include "shim/graphs/host_buffer.h"

namespace grape::replay {

// Copies the program's host data to `address`, in the order of `stream`. The program stays as it is until that is done.
bool put_host_data(const program::Program& program, std::uint64_t address, CUstream stream) noexcept;

// The caller's part in a long wait for the device: it lets other threads work meanwhile. A run without a Pause keeps
// all other threads waiting.
class Pause {
 public:
  virtual bool begin() = 0;      // false: not possible now; the wait goes on as it is
  virtual void end() = 0;        // after begin(). May not return, where the thread is ended
  virtual bool unchanged() = 0;  // has nothing that the run needs changed in the pauses since the last question?

 protected:
  ~Pause() = default;
};

// Memory for the parts of a program that is cut (ArenaPlan::cuts), each just before it is bound.
class Supply {
 public:
  // Into the bindings. False: there is none; nothing more is launched.
  virtual bool before_part(std::size_t part, program::Bindings& bindings) = 0;

 protected:
  ~Supply() = default;
};

// In seconds: most waits are shorter. After a pause everything has to be checked again. Python itself lets a thread run
// for 5 ms before it switches.
constexpr double kShortWait = 1e-3;

class ProgramRun {
 public:
  // Takes the exec of the first part, bound. False: one line in `error`. Valid until the pool is asked for another
  // program; program and plan must live until run() is done. Always for one and the same program and plan.
  bool prepare(graphs::ExecPool& pool, const store::KeptProgram& program, const program::ArenaPlan& plan,
               const program::Bindings& bindings, refusal::Refusal& error);
  // Prepares all parts ahead of time, so that prepare() and run() with similar bindings have little to do. Failures are
  // left to these two.
  void prepare_all(graphs::ExecPool& pool, const store::KeptProgram& program, const program::ArenaPlan& plan,
                   const program::Bindings& bindings);
  enum class Result : std::uint8_t { kDone, kOtherValue, kChanged, kFailed };
  // The parts behind the first are bound while the device works on what is before them.
  // kOtherValue: the host would have read something else than what was recorded; the parts behind the read were not
  // launched. kChanged: the same, because of what happened in a pause. kFailed: nothing was launched, or nothing behind
  // a read; `launched()` tells. `others`: streams besides `stream` that the recorded work was on; the graphs follow
  // what they had, and they follow the graphs. The program's waited events are waited for first, its recorded events
  // are recorded on `stream` at the end, unless it is gone. `pause`: may be null. Within one other threads may do
  // anything, so long as the program and the plan, its context, the pool and its execs live on; unchanged() must tell
  // of all else that the program needs.
  // `supply`: may be null; is asked for all parts but the first.
  Result run(CUstream stream, const std::vector<CUstream>& others, Pause* pause = nullptr, Supply* supply = nullptr);
  bool launched() const noexcept { return launched_; }
  double waited() const noexcept { return waited_; }  // seconds, in the last run(), for the device
  bool reads() const noexcept { return reads_; }      // does the host read values in between? Once it was prepared

 private:
  struct Part {
    program::Segment segment;
    graphs::GraphExec* exec = nullptr;  // null: no nodes
    bool read = false;                  // does the host read something behind it?
    bool moves = false;                 // is that in a block, `source_base`? Else at a fixed address
    program::Reference source_base;
    std::uint64_t source_offset = 0, source = 0, bytes = 0;
    std::vector<std::uint64_t> value;  // that it must have
  };
  std::vector<program::Segment> segments(const program::Program& program) const;
  bool lay_out(const program::Program& program, refusal::Refusal& error);
  bool bind(Part& part, refusal::Refusal& error);
  template <typename Wait>
  bool wait_for(CUstream stream, Pause* pause, Wait wait);
  bool wait_for_streams(Pause* pause);
  static bool copy(const Part& part, const graphs::HostBuffer& landing, CUstream stream) noexcept;
  Result read(std::size_t index, CUstream stream, Pause* pause, refusal::Refusal& error);
  bool wait_for_events(CUstream stream) const noexcept;
  bool record_events(CUstream stream) const noexcept;

  graphs::ExecPool* pool_ = nullptr;
  const store::KeptProgram* program_ = nullptr;
  const program::ArenaPlan* plan_ = nullptr;
  program::Bindings bindings_;
  std::vector<Part> parts_;
  bool reads_ = false;  // values, on the host
  bool launched_ = false;
  double waited_ = 0;
};

}  // namespace grape::replay
