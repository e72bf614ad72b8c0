#include "shim/replay/program_run.h"

#include <cstring>
#include <memory>
#include <utility>

#include "shim/driver/real_driver.h"
#include "shim/lifecycle/clock.h"
#include "shim/memory/live_blocks.h"
#include "shim/observation/region_record.h"

namespace grape::replay {
namespace real = driver::real;
namespace {

static_assert(observation::kMostValueBytes <= graphs::HostBuffer::kBytes, "a value finds room");

// Is all that the stream has done, or as good as? An error is not looked at here: whatever follows meets it as well.
bool done_within(double patience, CUstream stream) noexcept {
  if (real::get_cuStreamQuery() == nullptr) return false;
  const double until = monotonic_seconds() + patience;
  do {
    if (real::call_cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return true;
  } while (monotonic_seconds() < until);
  return false;
}

}  // namespace

// Does what waits for the stream, in a pause if that takes long.
template <typename Wait>
bool ProgramRun::wait_for(CUstream stream, Pause* pause, Wait wait) {
  const double began = monotonic_seconds();
  const bool paused = pause != nullptr && !done_within(kShortWait, stream) && pause->begin();
  const bool good = wait();
  if (paused) pause->end();
  waited_ += monotonic_seconds() - began;
  return good;
}

bool put_host_data(const program::Program& program, std::uint64_t address, CUstream stream) noexcept {
  return real::call_cuMemcpyHtoDAsync_v2(address, program.host_data.data(), program.host_data.size(), stream) ==
         CUDA_SUCCESS;
}

std::vector<program::Segment> ProgramRun::segments(const program::Program& program) const {
  std::vector<program::Segment> all;
  for (program::Segment segment : program::segments(program)) {
    const std::uint32_t end = segment.first + segment.count;
    for (const std::uint32_t cut : plan_->cuts) {
      if (cut <= segment.first || cut >= end) continue;
      all.push_back({segment.first, cut - segment.first, program::kNever});
      segment.count -= cut - segment.first;
      segment.first = cut;
    }
    all.push_back(segment);
  }
  return all;
}

// What is the same each time.
bool ProgramRun::lay_out(const program::Program& program, refusal::Refusal& error) {
  std::vector<Part> parts;
  for (const program::Segment& segment : segments(program)) {
    Part part;
    part.segment = segment;
    if (segment.read != program::kNever) {
      const program::RecordedNode& read = program.nodes[segment.read];
      part.source_offset = program.words[read.words_at];
      for (const program::Reference& reference : program.references) {
        if (reference.word != read.words_at) continue;
        part.source_base = reference;
        part.moves = true;
      }
      part.read = true;
      part.bytes = program.words[read.words_at + 1];
      const auto value = program.words.begin() + read.words_at + 2;
      part.value.assign(value, value + (read.word_count - 2));
      if (part.bytes > observation::kMostValueBytes) {
        error = refusal::make(refusal::reads_too_much);
        return false;
      }
      reads_ = true;
    }
    parts.push_back(std::move(part));
  }
  parts_ = std::move(parts);
  return true;
}

bool ProgramRun::bind(Part& part, refusal::Refusal& error) {
  if (part.segment.count != 0) {
    part.exec = pool_->take(*program_, part.segment, *plan_, bindings_, error);
    if (part.exec == nullptr) return false;
  }
  part.source = part.source_offset;
  if (part.moves) part.source += program::base_of(program_->head(), *plan_, bindings_, part.source_base);
  return true;
}

bool ProgramRun::prepare(graphs::ExecPool& pool, const store::KeptProgram& program, const program::ArenaPlan& plan,
                         const program::Bindings& bindings, refusal::Refusal& error) {
  pool_ = &pool;
  program_ = &program;
  plan_ = &plan;
  bindings_ = bindings;
  launched_ = false;
  if (parts_.empty()) {
    const std::shared_ptr<const program::Program> whole = program.whole();
    if (whole == nullptr) error = refusal::make(refusal::no_memory_for_program);
    if (whole == nullptr || !lay_out(*whole, error)) return false;
  }
  return parts_.empty() || bind(parts_.front(), error);
}

void ProgramRun::prepare_all(graphs::ExecPool& pool, const store::KeptProgram& program, const program::ArenaPlan& plan,
                             const program::Bindings& bindings) {
  refusal::Refusal error;
  bool good = prepare(pool, program, plan, bindings, error);
  for (std::size_t i = 0; good && i < parts_.size(); ++i) {
    good = i == 0 || bind(parts_[i], error);
    if (good && parts_[i].exec != nullptr) parts_[i].exec->upload();
  }
}

bool ProgramRun::wait_for_streams(Pause* pause) {
  for (const std::uint64_t waited : program_->head().waited_streams) {
    auto* stream = reinterpret_cast<CUstream>(waited);
    const auto wait = [&] { return real::call_cuStreamSynchronize(stream) == CUDA_SUCCESS; };
    if (!wait_for(stream, pause, wait)) return false;
  }
  return true;
}

bool ProgramRun::copy(const Part& part, const graphs::HostBuffer& landing, CUstream stream) noexcept {
  return real::call_cuMemcpyDtoHAsync_v2(landing.data(), part.source, part.bytes, stream) == CUDA_SUCCESS;
}

// The value behind a part that was launched, while the next one is bound. A copy that waits comes after our own wait,
// which others may use.
ProgramRun::Result ProgramRun::read(std::size_t index, CUstream stream, Pause* pause, refusal::Refusal& error) {
  const Part& part = parts_[index];
  auto* wait = real::get_cuStreamSynchronize();
  std::shared_ptr<graphs::HostBuffer> landing = part.exec != nullptr ? part.exec->value() : nullptr;
  const bool copied = landing != nullptr;  // by the graph
  if (!copied) landing = std::make_shared<graphs::HostBuffer>();
  if (landing->data() == nullptr || wait == nullptr) return Result::kFailed;
  const bool copy_waits = !copied && landing->waits();
  if (!copied && !copy_waits && !copy(part, *landing, stream)) return Result::kFailed;
  const bool bound = index + 1 == parts_.size() || bind(parts_[index + 1], error);
  // Also where that failed: a copy may be under way.
  const bool good = wait_for(
      stream, pause, [&] { return (!copy_waits || copy(part, *landing, stream)) && wait(stream) == CUDA_SUCCESS; });
  if (!good) {
    landing->abandon();
    return Result::kFailed;
  }
  if (std::memcmp(landing->data(), part.value.data(), part.bytes) != 0) return Result::kOtherValue;
  if (pause != nullptr && !pause->unchanged()) return Result::kChanged;
  return bound ? Result::kDone : Result::kFailed;
}

bool ProgramRun::wait_for_events(CUstream stream) const noexcept {
  for (const program::LiveHandle& event : program_->head().waited_events) {
    if (!memory::LiveBlocks::instance().alive(event.handle, event.serial) ||
        real::call_cuStreamWaitEvent(stream, reinterpret_cast<CUevent>(event.handle), 0) != CUDA_SUCCESS) {
      return false;
    }
  }
  return true;
}

// One that cannot be recorded has its last record, and who waits for that must find the work done. For one that is gone
// nobody waits.
bool ProgramRun::record_events(CUstream stream) const noexcept {
  bool good = true;
  for (const program::LiveHandle& event : program_->head().recorded_events) {
    if (!memory::LiveBlocks::instance().alive(event.handle, event.serial)) continue;
    good = real::call_cuEventRecord(reinterpret_cast<CUevent>(event.handle), stream) == CUDA_SUCCESS && good;
  }
  return good || real::call_cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

ProgramRun::Result ProgramRun::run(CUstream stream, const std::vector<CUstream>& others, Pause* pause, Supply* supply) {
  refusal::Refusal error;
  waited_ = 0;
  if (!wait_for_streams(pause)) return Result::kFailed;
  if (pause != nullptr && !pause->unchanged()) return Result::kChanged;
  if (!wait_for_events(stream)) return Result::kFailed;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.exec != nullptr) {
      if (part.exec->launch(stream, others) != CUDA_SUCCESS) return Result::kFailed;
      launched_ = true;
    }
    if (part.read) {
      const Result ran = read(i, stream, pause, error);
      if (ran != Result::kDone) return ran;
    } else if (i + 1 != parts_.size()) {
      if (supply != nullptr && !supply->before_part(i + 1, bindings_)) return Result::kFailed;
      if (!bind(parts_[i + 1], error)) return Result::kFailed;
    }
  }
  return record_events(stream) ? Result::kDone : Result::kFailed;
}

}  // namespace grape::replay
