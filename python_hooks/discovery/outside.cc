#include "python_hooks/discovery/outside.h"

#include <atomic>
#include <cerrno>
#include <new>

#include "python_hooks/discovery/outside_regions.h"
#include "python_hooks/discovery/outside_stacks.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/replay/look_limits.h"
#include "python_hooks/report/report_text.h"
#include "python_hooks/scopes/frames.h"
#include "python_hooks/torch/torch_api.h"
#include "shim/lifecycle/config.h"

namespace grape::python::discovery {

namespace {

// How a thread's launches are sampled.
struct Sampling {
  std::int32_t stride;  // from the launch that was looked at to the next one that is; 0: none was
  std::uint32_t random;
};
__thread Sampling t_sampling __attribute__((tls_model("initial-exec")));

constexpr std::uint32_t kMostSeldom = 10;     // one of 2^10 looks
constexpr std::uint32_t kStep = 0x9e3779b9u;  // odd, so that no two threads begin alike

std::atomic<std::uint32_t> g_threads{0};
std::atomic<std::uint64_t> g_all{0}, g_outside{0}, g_samples{0};

// Never freed: launches may come until the very end. Null: no memory.
SampledStacks* sampled_stacks() noexcept {
  static auto* stacks = new (std::nothrow) SampledStacks;
  return stacks;
}

std::uint32_t next_random(std::uint32_t& state) noexcept {
  if (state == 0) state = (2 * g_threads.fetch_add(1, std::memory_order_relaxed) + 1) * kStep;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

// The longer it goes on the more seldom, and each sample stands for more.
void sample(std::uint32_t random) noexcept {
  const std::uint64_t level = g_samples.load(std::memory_order_relaxed) / replay::g_look_limits.samples_at_once;
  const std::uint32_t weight = 1U << (level < kMostSeldom ? level : kMostSeldom);
  if ((random & (weight - 1)) != 0) return;
  SampledStacks* stacks = sampled_stacks();
  if (stacks == nullptr) return;
  g_samples.fetch_add(1, std::memory_order_relaxed);
  const bool gradients = torch::gradients_enabled();
  try {
    stacks->add(weight, gradients);
  } catch (const std::bad_alloc&) {  // then one less
    return;
  }
  if (!gradients && config().auto_regions) note_sample();
}

// Is it worth a word?
bool is_much(std::uint64_t launches, std::uint64_t all) noexcept {
  return launches != 0 && launches * replay::g_look_limits.least_part >= all;
}

}  // namespace

std::vector<OutsideCandidate> outside_candidates(bool automatic, bool callers_known) {
  std::vector<OutsideCandidate> chosen;
  if (g_samples.load() < replay::g_look_limits.least_samples || !is_much(g_outside.load(), g_all.load())) return chosen;
  std::vector<SampledCode> codes;
  std::vector<CallNode> nodes;
  sampled_stacks()->copy(codes, nodes);
  for (CallNode& node : nodes) node.weight -= automatic ? node.graded : 0;
  name_codes(codes);
  for (SampledCode& code : codes) code.candidate = code.candidate && !(automatic && code.calls_itself);
  for (const Choice& choice : choose({codes.begin(), codes.end()}, nodes, callers_known)) {
    const SampledCode& code = codes[choice.code];
    const std::string place = std::string(last_two_parts(code.file)) + ":" + std::to_string(code.line);
    chosen.push_back({{code.region, place, choice.share}, code.function});
  }
  return chosen;
}

void look_at_launch(bool outside) noexcept {
  record::LaunchCount& mine = thread_launches();
  Sampling& sampling = t_sampling;
  g_all.fetch_add(sampling.stride != 0 ? static_cast<std::uint32_t>(sampling.stride) : 1, std::memory_order_relaxed);
  const std::uint32_t launches = mine.outside;
  mine.outside = 0;
  const std::uint32_t random = next_random(sampling.random);
  mine.due = sampling.stride =
      static_cast<std::int32_t>(1 + (random >> 16) * replay::g_look_limits.most_stride / 0x10000);
  if (launches == 0) return;
  const int saved_errno = errno;
  // Threads without Python, as those of backward passes, have no function to name, and are in no region ever.
  if (scopes::waiting_frame() != nullptr) {
    g_outside.fetch_add(launches, std::memory_order_relaxed);
    if (outside) sample(random);
  }
  errno = saved_errno;
}

void note_module_call() noexcept {
  constexpr std::uint64_t kFirst = 64, kLater = 16;  // calls that are all looked at, then one in so many
  static std::uint64_t calls = 0;
  if (++calls > kFirst && calls % kLater != 0) return;
  SampledStacks* stacks = scopes::waiting_frame() != nullptr ? sampled_stacks() : nullptr;
  if (stacks == nullptr) return;
  try {
    stacks->add_callers();
  } catch (const std::bad_alloc&) {  // then the next time
  }
}

report::OutsideReport outside_report() {
  report::OutsideReport report;
  const record::LaunchCount& mine = thread_launches();
  report.all = g_all.load() + static_cast<std::uint32_t>(t_sampling.stride - mine.due);
  report.launches = g_outside.load();
  if (report.launches == 0) return report;  // no frames were read
  report.launches += mine.outside;
  if (!is_much(report.launches, report.all)) return report::OutsideReport();
  report.named = config().regions;
  report.automatic = config().auto_regions;
  report.found = found_regions();
  const std::vector<OutsideCandidate> functions = outside_candidates(false, false);
  report.functions.assign(functions.begin(), functions.end());
  return report;
}

}  // namespace grape::python::discovery
