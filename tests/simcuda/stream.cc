#include "stream.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "capture.h"
#include "faults.h"
#include "handles.h"

namespace simcuda {

namespace {

std::uint64_t next_stream_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

constexpr int kSpins = 40;  // of the scheduler, before a thread sleeps: a wake-up costs more

// A number of this thread's own, never used again.
std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  static thread_local std::uint64_t number = 0;
  if (number == 0) number = next.fetch_add(1);
  return number;
}

void release_per_thread_streams(void* number) {
  for_each_context([number](Context& context) {
    std::shared_ptr<Stream> stream;
    {
      std::lock_guard<std::mutex> lock(context.streams_mutex);
      const auto found = context.per_thread.find(reinterpret_cast<std::uintptr_t>(number));
      if (found == context.per_thread.end()) return;
      stream = found->second;
      context.per_thread.erase(found);
    }
    stream->close();
  });
}

struct PerThreadCache {
  std::uint64_t context_id;
  Stream* stream;
};
thread_local PerThreadCache per_thread_cache = {0, nullptr};

Stream* per_thread_stream(Context& context) {
  if (per_thread_cache.context_id == context.id) return per_thread_cache.stream;
  static pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, release_per_thread_streams);
    return made;
  }();
  const std::uint64_t number = thread_number();
  pthread_setspecific(key, reinterpret_cast<void*>(static_cast<std::uintptr_t>(number)));
  std::lock_guard<std::mutex> lock(context.streams_mutex);
  std::shared_ptr<Stream>& stream = context.per_thread[number];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>(&context, CU_STREAM_DEFAULT, 0);
    stream->handle = CU_STREAM_PER_THREAD;
  }
  per_thread_cache = {context.id, stream.get()};
  return stream.get();
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Stream::Stream(Context* c, unsigned f, int p) : context(c), flags(f), priority(p), id(next_stream_id()) {}

Stream::~Stream() {
  while (head_ != nullptr) {
    Operation* gone = head_;
    head_ = gone->next;
    delete gone;
  }
}

// The legacy default stream waits for all blocking streams, and they for it.
void Stream::add_default_stream_order(std::vector<Dependency>* dependencies) {
  if (!blocking()) return;
  if (!legacy) {
    const std::shared_ptr<Stream>& other = context->legacy_stream;
    const std::uint64_t ticket = other->last_ticket();
    if (!other->done(ticket)) dependencies->push_back({other, ticket});
    return;
  }
  const auto add = [dependencies](const std::shared_ptr<Stream>& other) {
    const std::uint64_t ticket = other->last_ticket();
    if (other->blocking() && !other->done(ticket)) dependencies->push_back({other, ticket});
  };
  std::lock_guard<std::mutex> lock(context->streams_mutex);
  for (const auto& other : context->streams) add(other);
  for (const auto& other : context->per_thread) add(other.second);
}

std::uint64_t Stream::enqueue(Work&& work, std::vector<Dependency> dependencies) {
  auto operation = std::make_unique<Operation>(std::move(work));
  operation->dependencies = std::move(dependencies);
  // Before the ticket is taken: dependencies only ever point to what was submitted before.
  add_default_stream_order(&operation->dependencies);
  bool wake = false;
  std::uint64_t ticket = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) start_worker();
    Operation* added = operation.release();
    ticket = added->ticket = submitted_.load(std::memory_order_relaxed) + 1;
    if (auto* event = std::get_if<EventRecordWork>(&added->work)) {
      if (event->record != nullptr) event->record->ticket = ticket;
    } else if (auto* graph = std::get_if<GraphWork>(&added->work)) {
      for (const auto& record : graph->records) record.second->ticket = ticket;
    }
    (tail_ == nullptr ? head_ : tail_->next) = added;
    tail_ = added;
    submitted_.store(ticket);
    wake = sleeping_;
  }
  if (wake) queued_.notify_one();
  return ticket;
}

void Stream::start_worker() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's threads' business
  struct Restore {
    sigset_t* mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, mask, nullptr); }
  } restore{&before};
  std::thread([self = shared_from_this()] { self->work(); }).detach();
  started_ = true;
}

Operation* Stream::next_operation() {
  for (int i = 0; i < kSpins && submitted_.load() == completed_.load(); ++i) sched_yield();
  std::unique_lock<std::mutex> lock(mutex_);
  sleeping_ = true;
  queued_.wait(lock, [this] { return head_ != nullptr || closing_; });
  sleeping_ = false;
  Operation* operation = head_;
  if (operation != nullptr) {
    head_ = operation->next;
    if (head_ == nullptr) tail_ = nullptr;
  }
  return operation;
}

void Stream::work() {
  while (Operation* operation = next_operation()) {
    for (const Dependency& dependency : operation->dependencies) dependency.stream->wait(dependency.ticket);
    CUresult result = CUDA_ERROR_UNKNOWN;
    try {
      const bool skip = context->sticky.load() != 0 && !std::holds_alternative<EventRecordWork>(operation->work);
      result = skip ? CUDA_SUCCESS : execute(operation->work, *context, handle);
    } catch (...) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) fail_context(*context, result);
    const std::uint64_t ticket = operation->ticket;
    delete operation;  // before completion is seen: it may hold the last reference to something
    completed_.store(ticket);
    if (waiters_.load() != 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      completion_.notify_all();
    }
  }
}

void Stream::wait(std::uint64_t ticket) {
  for (int i = 0; i < kSpins; ++i) {
    if (done(ticket)) return;
    sched_yield();
  }
  waiters_.fetch_add(1);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    completion_.wait(lock, [&] { return done(ticket); });
  }
  waiters_.fetch_sub(1);
}

void Stream::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closing_ = true;
  queued_.notify_one();
}

CUresult resolve_stream(CUstream handle, Stream** stream) {
  Context* context = nullptr;
  if (handle == nullptr) handle = per_thread_default_stream ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    SIM_TRY(current_context(&context));
    *stream = handle == CU_STREAM_LEGACY ? context->legacy_stream.get() : per_thread_stream(*context);
    return CUDA_SUCCESS;
  }
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  *stream = find_handle<Stream>(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if ((*stream)->context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>((*stream)->context->sticky.load(std::memory_order_relaxed));
}

CUresult submit(Stream& stream, Work&& work) {
  busy_wait();
  if (captures_active()) {
    if (stream.capturing) return capture_work(stream, std::move(work));
    SIM_TRY(check_implicit_synchronization(stream));
  }
  stream.enqueue(std::move(work));
  return CUDA_SUCCESS;
}

CUresult submit_and_wait(Stream& stream, Work&& work) {
  busy_wait();
  if (captures_active()) {
    if (stream.capturing) return invalidate_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM_TRY(check_implicit_synchronization(stream));
  }
  stream.wait(stream.enqueue(std::move(work)));
  return static_cast<CUresult>(stream.context->sticky.load());
}

std::shared_ptr<EventRecord> record_event(Stream& stream, Event& event) {
  auto record = std::make_shared<EventRecord>();
  record->stream = stream.shared_from_this();
  EventRecordWork work;
  work.record = record;
  stream.enqueue(std::move(work));
  std::lock_guard<std::mutex> lock(event.mutex);
  event.record = record;
  event.captured = false;
  return record;
}

}  // namespace simcuda
