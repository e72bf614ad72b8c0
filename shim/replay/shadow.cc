#include "shim/replay/shadow.h"

#include <algorithm>
#include <new>
#include <utility>

#include "shim/device/own_kernels.h"
#include "shim/device/thread_context.h"
#include "shim/driver/real_driver.h"
#include "shim/replay/run_spread.h"

namespace grape::replay {
namespace {

namespace real = driver::real;
using device::copy_bytes;
using device::failed;

constexpr std::size_t kMostRuns = 8;  // of a graph that left other bytes than eager

// Are there several devices? Asked once.
bool several_devices() noexcept {
  static const bool several = [] {
    int count = 0;
    return real::call_cuDeviceGetCount(&count) != CUDA_SUCCESS || count > 1;
  }();
  return several;
}

bool is_of(CUdevice device, std::uint64_t address) noexcept {
  int ordinal = -1;
  return real::call_cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS &&
         ordinal == device;
}

// Kernels, which hash and copy, reach memory of the current context's device only: another one's is an illegal address.
bool can_be_reached(const std::vector<device::DeviceHash::Range>& ranges, refusal::Refusal& error) {
  if (!several_devices()) return true;
  CUdevice device = 0;
  auto* current = real::get_cuCtxGetDevice();
  if (current == nullptr || failed(current(&device), "cuCtxGetDevice", error)) return false;
  const auto here = [device](const device::DeviceHash::Range& range) {
    return range.bytes == 0 || is_of(device, range.address);
  };
  if (std::all_of(ranges.begin(), ranges.end(), here)) return true;
  error = refusal::make(refusal::tensors_on_other_device);
  return false;
}

// What is not written a second time must not look as if it was.
bool overwrite(CUstream stream, const std::vector<device::DeviceHash::Range>& outputs, refusal::Refusal& error) {
  constexpr unsigned char kAnything = 0xA5;
  auto* fill = real::get_cuMemsetD8Async();
  for (const device::DeviceHash::Range& output : outputs) {
    if (output.bytes == 0) continue;
    if (fill == nullptr || failed(fill(output.address, kAnything, output.bytes, stream), "cuMemsetD8Async", error)) {
      return false;
    }
  }
  return true;
}

}  // namespace

// The copies were waited for, but for those of a call that was given up behind after().
Shadow::~Shadow() {
  const device::ContextScope scope(before_copy_.context);  // a default stream is that of the current one
  if (copying_ && scope.entered()) real::call_cuStreamSynchronize(copied_on_);
  device::CopyMemory::instance().give(before_copy_);
  device::CopyMemory::instance().give(after_copy_);
}

bool Shadow::copy(CUstream stream, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                  refusal::Refusal& error) noexcept {
  auto* copy_memory = real::get_cuMemcpyDtoDAsync_v2();
  if (copy_memory == nullptr) {
    error = refusal::make(refusal::driver_without_copies);
    return false;
  }
  return !failed(copy_memory(to, from, bytes, stream), "cuMemcpyDtoDAsync", error);
}

bool Shadow::before(CUstream stream, const std::vector<Watched>& watched, refusal::Refusal& error) noexcept {
  watched_.clear();
  hidden_.clear();
  onlooker_.emplace();
  busy_at_first_ = !observation::streams_idle();
  try {
    for (const Watched& range : watched) {
      watched_.push_back(range);
      hidden_.push_back(range.hidden);
    }
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_host_memory);
    return false;
  }
  device::DeviceHash* hash = device::DeviceHash::of_current_context(error);
  if (hash == nullptr || !can_be_reached(watched_, error)) return false;
  std::uint64_t bytes = copy_bytes(1);
  for (const Range& range : watched_) bytes += copy_bytes(range.bytes);
  device::CopyMemory::instance().give(before_copy_);
  if (!device::CopyMemory::instance().take(bytes, before_copy_, error)) return false;
  try {
    std::vector<std::uint64_t> copies;
    std::uint64_t to = before_copy_.address;
    for (const Range& range : watched_) {
      copies.push_back(to);
      to += copy_bytes(range.bytes);
    }
    return !failed(hash->hash_and_copy(stream, watched_, copies, before_hashes_), "hashing", error);
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_host_memory);
    return false;
  }
}

// Of the watched ranges and of `outputs`, in one go; on an error both are empty.
CUresult Shadow::hash_all(device::DeviceHash& hash, CUstream stream, const std::vector<Range>& outputs,
                          std::vector<std::uint64_t>& watched_hashes,
                          std::vector<std::uint64_t>& output_hashes) const noexcept {
  watched_hashes.clear();
  output_hashes.clear();
  try {
    std::vector<Range> all = watched_;
    all.insert(all.end(), outputs.begin(), outputs.end());
    std::vector<std::uint64_t> hashes;
    const CUresult result = hash.hash(stream, all, hashes);
    if (result != CUDA_SUCCESS) return result;
    const auto first = hashes.begin() + static_cast<std::ptrdiff_t>(watched_.size());
    output_hashes.assign(first, hashes.end());
    hashes.erase(first, hashes.end());
    watched_hashes = std::move(hashes);
    return result;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// Only what the eager run changed needs a copy of its own: of the rest there is one.
bool Shadow::after(CUstream stream, std::vector<Range> outputs, refusal::Refusal& error) noexcept {
  outputs_ = std::move(outputs);
  device::DeviceHash* hash = device::DeviceHash::of_current_context(error);
  if (hash == nullptr || !can_be_reached(outputs_, error) ||
      failed(hash_all(*hash, stream, outputs_, after_hashes_, output_hashes_), "hashing", error)) {
    return false;
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < watched_.size(); ++i) bytes += changed(i) ? copy_bytes(watched_[i].bytes) : 0;
  if (bytes == 0) return true;
  device::CopyMemory::instance().give(after_copy_);
  if (!device::CopyMemory::instance().take(bytes, after_copy_, error)) return false;
  copying_ = true;
  copied_on_ = stream;
  std::uint64_t to = after_copy_.address;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (!changed(i)) continue;
    if (!copy(stream, to, watched_[i].address, watched_[i].bytes, error)) return false;
    to += copy_bytes(watched_[i].bytes);
  }
  return true;
}

// As it was before the eager run, where `now`, the hashes of what is there, says otherwise.
bool Shadow::rewind(CUstream stream, const std::vector<std::uint64_t>& now, bool hidden_too,
                    refusal::Refusal& error) noexcept {
  std::uint64_t from = before_copy_.address;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const bool other = now[i] != before_hashes_[i] && (hidden_too || !hidden_[i]);
    if (other && !copy(stream, watched_[i].address, from, watched_[i].bytes, error)) return false;
    from += copy_bytes(watched_[i].bytes);
  }
  return true;
}

// As eager left it. `now`: hashes of the watched ranges as they are; empty: not known, and all are put back.
bool Shadow::put_back(CUstream stream, const std::vector<std::uint64_t>& now, refusal::Refusal& error) noexcept {
  std::uint64_t before = before_copy_.address, after = after_copy_.address;
  bool good = true;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const bool same = !now.empty() && now[i] == after_hashes_[i];
    const std::uint64_t from = changed(i) ? after : before;
    // One that fails keeps none of the others from it.
    if (!same && !copy(stream, watched_[i].address, from, watched_[i].bytes, error)) good = false;
    before += copy_bytes(watched_[i].bytes);
    after += changed(i) ? copy_bytes(watched_[i].bytes) : 0;
  }
  // Whatever comes next, on whichever stream, finds it done.
  auto* wait = real::get_cuStreamSynchronize();
  if (wait == nullptr || failed(wait(stream), "waiting", error)) return false;
  copying_ = false;
  return good;
}

// False: an error; `left` has the hashes that could be taken.
bool Shadow::run(const Graph& graph, Left& left, refusal::Refusal& error) {
  for (const Fresh& fresh : fresh_) {
    if (!copy(graph.stream, fresh.to, fresh.from, fresh.bytes, error)) return false;
  }
  left.ran = graph.steps.run(graph.stream, graph.others);
  const CUresult hashed = hash_all(graph.hash, graph.stream, graph.outputs, left.watched, left.outputs);
  if (left.ran == ProgramRun::Result::kFailed) error = refusal::make(refusal::graph_launch_failed);
  return left.ran != ProgramRun::Result::kFailed && !failed(hashed, "hashing", error);
}

// Where a run differs from eager's, if it does.
refusal::Refusal Shadow::where(const Left& left, bool hidden_too) const {
  if (left.ran == ProgramRun::Result::kOtherValue) return refusal::make(refusal::other_read_in_shadow);
  for (std::size_t i = 0; i < left.outputs.size(); ++i) {
    if (left.outputs[i] != output_hashes_[i]) return refusal::make(refusal::other_output, std::to_string(i));
  }
  for (std::size_t i = 0; i < left.watched.size(); ++i) {
    if (left.watched[i] == after_hashes_[i] || (hidden_[i] && !hidden_too)) continue;
    const char* whose = hidden_[i] ? " that only its kernels know of" : " of its arguments, its module or a global";
    return refusal::make(refusal::other_memory, whose, std::to_string(watched_[i].bytes));
  }
  return {};
}

// Is there nothing that all runs left alike, and eager otherwise?
bool Shadow::differ(const std::vector<Left>& runs) const {
  const auto wrong = [&](std::vector<std::uint64_t> Left::*of, std::size_t i, std::uint64_t eager) {
    const std::uint64_t first = (runs.front().*of)[i];
    return first != eager &&
           std::all_of(runs.begin(), runs.end(), [&](const Left& run) { return (run.*of)[i] == first; });
  };
  for (std::size_t i = 0; i < output_hashes_.size(); ++i) {
    if (wrong(&Left::outputs, i, output_hashes_[i])) return false;
  }
  for (std::size_t i = 0; i < after_hashes_.size(); ++i) {
    if (!hidden_[i] && wrong(&Left::watched, i, after_hashes_[i])) return false;
  }
  return true;
}

// Once more from the same memory, hidden memory as it is or as it was; `last`: the run before, and this one.
bool Shadow::run_again(const Graph& graph, bool hidden_too, Left& last, refusal::Refusal& error) {
  const std::vector<std::uint64_t> left = std::move(last.watched);
  last.watched.clear();
  return rewind(graph.stream, left, hidden_too, error) && overwrite(graph.stream, graph.outputs, error) &&
         run(graph, last, error);
}

// Did some run leave memory that others see as eager did not?
bool Shadow::varies_in_watched(const std::vector<Left>& runs) const {
  for (std::size_t i = 0; i < after_hashes_.size(); ++i) {
    const auto other = [&](const Left& run) { return run.watched[i] != after_hashes_[i]; };
    if (!hidden_[i] && std::any_of(runs.begin(), runs.end(), other)) return true;
  }
  return false;
}

// It left other bytes than eager. A region that is not deterministic may do so seldom: several more runs.
bool Shadow::look_whether_random(const Graph& graph, Found& found, Left& last, refusal::Refusal& error) {
  std::vector<Left> runs = {last};
  RunSpread spread(elements_);
  refusal::Refusal unknown;
  const bool typed = elements_.size() == graph.outputs.size() &&
                     std::find(elements_.begin(), elements_.end(), device::Element::kOther) == elements_.end();
  bool measured = typed && spread.begin(graph.stream, graph.outputs, unknown);
  while (runs.size() < (differ(runs) ? RunSpread::kRuns : kMostRuns)) {
    if (!measured && differ(runs)) break;
    if (!run_again(graph, true, last, error)) return false;
    if (last.ran != ProgramRun::Result::kDone) return true;
    runs.push_back(last);
    measured = measured && spread.add(graph.stream, graph.outputs, unknown);
  }
  if (!differ(runs)) return true;
  found = Found::kNotDeterministic;
  bool within = false;
  if (!measured || varies_in_watched(runs) || !spread.holds(graph.stream, outputs_, within, unknown) || !within)
    return true;
  // The content of hidden memory must not matter: the last run finds it as the one before left it.
  if (!run_again(graph, false, last, error)) return false;
  if (last.ran != ProgramRun::Result::kDone || varies_in_watched({last}) ||
      !spread.holds(graph.stream, graph.outputs, within, unknown)) {
    return true;
  }
  if (within) found = Found::kWithinSpread;
  return true;
}

// Memory is as eager left it. At the end it is as it was before.
bool Shadow::look_at_state(const Graph& graph, Left& last, refusal::Refusal& error) {
  if (!run(graph, last, error)) return false;
  depends_on_state_ = last.ran != ProgramRun::Result::kDone || last.outputs != output_hashes_;
  return rewind(graph.stream, last.watched, true, error) && overwrite(graph.stream, graph.outputs, error);
}

// `last`: what is there at the end, also after an error.
bool Shadow::compare_runs(const Graph& graph, bool twice, Found& found, refusal::Refusal& difference, Left& last,
                          refusal::Refusal& error) {
  if (!(asks_for_state_ ? look_at_state(graph, last, error) : rewind(graph.stream, after_hashes_, true, error)))
    return false;
  last.watched.clear();
  if (!run(graph, last, error)) return false;
  difference = where(last, false);
  found = difference ? Found::kDifferent : Found::kSame;
  if (last.ran == ProgramRun::Result::kOtherValue) {
    found = Found::kOtherValue;
    return true;
  }
  if (found == Found::kDifferent) return look_whether_random(graph, found, last, error);
  if (!twice && !where(last, true)) return true;
  if (!run_again(graph, false, last, error)) return false;
  if (const refusal::Refusal other = where(last, false)) {
    found = Found::kDifferent;
    difference = refusal::make(refusal::depends_on_hidden_memory, other.text);
  }
  return true;
}

bool Shadow::compare(CUstream stream, const std::vector<CUstream>& others, ProgramRun& steps,
                     const std::vector<Range>& outputs, bool twice, Found& found, refusal::Refusal& difference,
                     refusal::Refusal& error) noexcept {
  device::DeviceHash* hash = device::DeviceHash::of_current_context(error);
  if (hash == nullptr) return false;
  Left last;
  bool compared = false;
  try {
    compared = compare_runs({*hash, stream, others, steps, outputs}, twice, found, difference, last, error);
  } catch (const std::bad_alloc&) {
    error = refusal::make(refusal::no_host_memory);
  }
  // In every case: what eager left is what the program sees.
  refusal::Refusal worse;
  if (put_back(stream, last.watched, worse)) return compared;
  error = worse;
  return false;
}

}  // namespace grape::replay
