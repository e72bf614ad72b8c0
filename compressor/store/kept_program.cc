#include "compressor/store/kept_program.h"

#include <atomic>
#include <new>
#include <string>
#include <utility>

#include "compressor/store/store.h"

namespace grape::store {
namespace {

std::atomic<std::uint64_t> g_last_id{0};  // of all stores

program::Program head_of(const program::Program& whole) {
  program::Program head;
  head.statics = whole.statics;
  head.input_bytes = whole.input_bytes;
  head.outputs = whole.outputs;
  head.waited_events = whole.waited_events;
  head.recorded_events = whole.recorded_events;
  head.waited_streams = whole.waited_streams;
  head.streams = whole.streams;
  head.stream_count = whole.stream_count;
  head.random_increment = whole.random_increment;
  head.observed_seed = whole.observed_seed;
  head.observed_offset = whole.observed_offset;
  return head;
}

}  // namespace

KeptProgram::KeptProgram(program::Program whole)
    : head_(head_of(whole)), whole_(std::make_shared<const program::Program>(std::move(whole))) {}

std::shared_ptr<const program::Program> KeptProgram::whole() const noexcept {
  if (whole_ != nullptr || store_ == nullptr) return whole_;
  std::shared_ptr<const program::Program> whole = last_.lock();
  if (whole != nullptr) return whole;
  try {
    auto read = std::make_shared<program::Program>();
    std::string error;
    if (!store_->get(id_, *read, error)) return nullptr;
    last_ = whole = std::move(read);
  } catch (const std::bad_alloc&) {
  }
  return whole;
}

bool KeptProgram::put_away(Store& store) noexcept {
  if (whole_ == nullptr) return store_ != nullptr;
  try {
    const std::uint64_t id = ++g_last_id;
    std::string error;
    if (!store.put(id, *whole_, error)) return false;
    store_ = &store;
    id_ = id;
    last_ = whole_;
    whole_ = nullptr;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void KeptProgram::forget() noexcept {
  if (store_ != nullptr) store_->erase(id_);
  store_ = nullptr;
}

void KeptProgram::swap(KeptProgram& other) noexcept {
  std::swap(head_, other.head_);
  std::swap(whole_, other.whole_);
  std::swap(last_, other.last_);
  std::swap(store_, other.store_);
  std::swap(id_, other.id_);
}

}  // namespace grape::store
