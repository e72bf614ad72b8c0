#include "shim/record/trace_session.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "shim/lifecycle/clock.h"
#include "shim/lifecycle/config.h"
#include "shim/lifecycle/log.h"
#include "shim/lifecycle/notices.h"
#include "shim/record/recorder.h"

namespace grape::record {
namespace {

constexpr const char* kDefaultTrace = "grape-%h-%p.grape";
constexpr std::size_t kChunkBytes = 8u << 20;               // a chunk is written when it holds this much,
constexpr std::uint64_t kChunkNanoseconds = 1'000'000'000;  // or when its oldest event is this old,
constexpr std::uint64_t kHeldBytes = 48u << 20;             // or when all chunks together hold this much
constexpr long kCalibrationNanoseconds = 20'000'000;

std::uint64_t rate(std::uint64_t tick_count, std::uint64_t elapsed) {
  return elapsed == 0
             ? 1'000'000'000u
             : static_cast<std::uint64_t>(static_cast<double>(tick_count) * 1e9 / static_cast<double>(elapsed));
}

// One letter behind each colon: the others are for the wrappers.
std::string plain_arguments(const char* arguments) {
  std::string text;
  for (const char* at = arguments; *at != '\0'; ++at) {
    text += *at;
    if (*at != ':') continue;
    text += *++at;
    while (at[1] != '\0' && at[1] != ',') ++at;
  }
  return text;
}

}  // namespace

bool TraceSession::open() {
  const Config& settings = config();
  // A first estimate of the clock's rate; the end chunk has the exact one.
  while (nanoseconds(CLOCK_MONOTONIC) - recorder_.start_nanoseconds_ < kCalibrationNanoseconds) {
    const timespec pause{0, kCalibrationNanoseconds / 4};
    nanosleep(&pause, nullptr);
  }
  trace::Meta meta;
  meta.ticks_per_second =
      rate(ticks() - recorder_.start_ticks_, nanoseconds(CLOCK_MONOTONIC) - recorder_.start_nanoseconds_);
  meta.start_ticks = recorder_.start_ticks_;
  meta.start_unix_ns = nanoseconds(CLOCK_REALTIME) - (nanoseconds(CLOCK_MONOTONIC) - recorder_.start_nanoseconds_);
  meta.pid = static_cast<std::uint32_t>(getpid());
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) meta.host = host;
  meta.command = lifecycle::command_line();
  meta.grape_version = GRAPE_VERSION;
  meta.ranges = settings.range == Range::kProfiler;
  meta.driver_version = recorder_.driver_version_.load();
  if (recorder_.python_known_.load()) meta.python_version = recorder_.python_version_;
  const ApiRow* rows = recorder_.apis_.load();
  for (std::uint32_t i = 0; rows != nullptr && i < recorder_.api_count_.load(); ++i) {
    meta.apis.push_back({rows[i].symbol, rows[i].api_class, plain_arguments(rows[i].arguments)});
  }
  if (!file_.create(settings.trace[0] == '\0' ? kDefaultTrace : settings.trace, settings.replace)) {
    log_line(LogLevel::kError, "cannot create the trace %s: %s; not recording", file_.path(), std::strerror(errno));
    return false;
  }
  writer_ = std::make_unique<trace::Writer>(file_, meta);
  return writer_->ok();
}

void TraceSession::fail() {
  if (failed_) return;
  failed_ = true;
  if (file_.error() != 0) {
    log_line(LogLevel::kError, "the trace %s ends early: %s; the program runs on", file_.path(),
             std::strerror(file_.error()));
  }
}

void TraceSession::add(std::uint32_t number, std::uint32_t os_thread, void*& slot, const trace::EventHeader& event) {
  if (failed_) return;
  auto* thread = static_cast<Thread*>(slot);
  if (thread == nullptr) {
    threads_.push_back(std::make_unique<Thread>());
    thread = threads_.back().get();
    thread->number = number;
    thread->os_thread = os_thread;
    slot = thread;
  }
  if (thread->encoder.events() == 0) thread->first_nanoseconds = nanoseconds(CLOCK_MONOTONIC_COARSE);
  thread->encoder.add(event);
  held_bytes_ += event.bytes;
  launches_ += event.kind == trace::EventKind::kLaunch ? 1 : 0;
  calls_ += event.kind == trace::EventKind::kCall ? 1 : 0;
  if (event.kind == trace::EventKind::kScopeBegin) {
    regions_ += trace::EventView{&event}.words()[1] != 0 ? 1 : 0;
  }
  if (thread->encoder.event_bytes() >= kChunkBytes) write(*thread);
}

void TraceSession::write(Thread& thread) {
  if (failed_ || thread.encoder.events() == 0) return;
  held_bytes_ -= std::min<std::uint64_t>(held_bytes_, thread.encoder.event_bytes());
  if ((writer_ == nullptr && !open()) || !writer_->write_events(thread.number, thread.os_thread, thread.encoder))
    fail();
}

void TraceSession::close_thread(void*& slot) {
  auto* thread = static_cast<Thread*>(slot);
  slot = nullptr;
  if (thread == nullptr) return;
  write(*thread);
  std::swap(*std::find_if(threads_.begin(), threads_.end(), [&](const auto& each) { return each.get() == thread; }),
            threads_.back());
  threads_.pop_back();
}

void TraceSession::flush(bool all) {
  const std::uint64_t now = nanoseconds(CLOCK_MONOTONIC_COARSE);
  const bool too_much = held_bytes_ > kHeldBytes;
  for (auto& thread : threads_) {
    const bool old = now - thread->first_nanoseconds >= kChunkNanoseconds;
    if (all || old || too_much) write(*thread);
  }
  if (all || too_much) held_bytes_ = 0;
}

void TraceSession::close() {
  if (closed_) return;
  closed_ = true;
  for (auto& thread : threads_) write(*thread);
  if (writer_ == nullptr || failed_) return;
  trace::End end;
  end.events = writer_->events_written();
  end.lost = recorder_.lost_.load();
  end.ticks_per_second =
      rate(ticks() - recorder_.start_ticks_, nanoseconds(CLOCK_MONOTONIC) - recorder_.start_nanoseconds_);
  if (UnhandledSource source = recorder_.unhandled_.load()) {
    constexpr std::uint32_t kRoom = 1024;
    std::vector<const char*> names(kRoom);
    std::vector<std::uint64_t> counts(kRoom);
    const std::uint32_t found = source(names.data(), counts.data(), kRoom);
    for (std::uint32_t i = 0; i < found; ++i) end.unhandled.push_back({names[i], counts[i]});
  }
  for (std::size_t i = 0; i < notice_count(); ++i) {
    if (const char* text = notice_text(i)) end.notices.emplace_back(text);
  }
  if (!writer_->write_end(end)) return fail();
  if (!file_.commit()) {
    log_line(LogLevel::kError, "closing the trace %s: %s", file_.path(), std::strerror(errno));
    return;
  }
  log_line(LogLevel::kInfo, "%llu launches, %llu other calls, %llu region calls, %llu events lost; %.1f MB in %s",
           static_cast<unsigned long long>(launches_), static_cast<unsigned long long>(calls_),
           static_cast<unsigned long long>(regions_), static_cast<unsigned long long>(recorder_.lost_.load()),
           static_cast<double>(writer_->bytes_written()) / 1e6, file_.path());
}

}  // namespace grape::record
