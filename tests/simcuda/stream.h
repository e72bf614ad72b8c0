// Streams and events. A stream is a queue and a worker thread, started with the first work. Any thread may submit.
//
// Order between streams is by dependencies: an operation names the operations of other streams that must be done
// before it. All of these were submitted earlier, so that no circle can arise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "context.h"
#include "work.h"

namespace simcuda {

struct Capture;
struct Node;

struct Dependency {
  std::shared_ptr<Stream> stream;
  std::uint64_t ticket;
};

struct Operation {
  explicit Operation(Work&& w) : work(std::move(w)) {}
  Operation* next = nullptr;
  std::uint64_t ticket = 0;
  std::vector<Dependency> dependencies;
  Work work;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Context* context, unsigned flags, int priority);
  ~Stream();

  // Queues work behind all that was submitted before and behind `dependencies`. Returns its ticket.
  std::uint64_t enqueue(Work&& work, std::vector<Dependency> dependencies = {});
  bool done(std::uint64_t ticket) const { return completed_.load() >= ticket; }
  bool idle() const { return done(submitted_.load()); }
  std::uint64_t last_ticket() const { return submitted_.load(); }
  void wait(std::uint64_t ticket);
  void wait_all() { wait(last_ticket()); }
  void close();  // the worker ends when the queue is empty

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }

  Context* const context;
  const unsigned flags;
  std::atomic<int> priority;
  const std::uint64_t id;
  CUstream handle = nullptr;
  bool legacy = false;
  std::mutex attributes_mutex;
  CUstreamAttrValue attributes[32] = {};

  // Stream capture (capture.h), under its mutex; `capturing` may be read without it.
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;

 private:
  void add_default_stream_order(std::vector<Dependency>* dependencies);
  void start_worker();
  void work();
  Operation* next_operation();

  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable completion_;
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;
  bool started_ = false;
  bool sleeping_ = false;
  bool closing_ = false;
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<int> waiters_{0};
};

struct EventRecord {
  std::shared_ptr<Stream> stream;
  std::uint64_t ticket = 0;
  std::atomic<std::int64_t> time{0};  // ns of the steady clock, when the stream came to it
  bool done() const { return stream == nullptr || stream->done(ticket); }
};

struct Event {
  unsigned flags = 0;
  Context* context = nullptr;
  std::mutex mutex;
  std::shared_ptr<EventRecord> record;  // the last one; null: never recorded
  std::weak_ptr<Capture> capture;       // recorded in this capture
  std::vector<Node*> capture_nodes;
  bool captured = false;
};

// The stream that a handle means on this thread: null is the default stream that the called symbol stands for.
// CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED.
CUresult resolve_stream(CUstream handle, Stream** stream);

// Submits to a stream, or adds to its capture's graph. Precondition: checked by the caller.
CUresult submit(Stream& stream, Work&& work);
// The same for calls that wait: not allowed in a capture.
CUresult submit_and_wait(Stream& stream, Work&& work);

// Queues `work` where the stream's legacy order asks for it; `record` is filled in with the ticket.
std::shared_ptr<EventRecord> record_event(Stream& stream, Event& event);

std::int64_t now_ns();

}  // namespace simcuda
