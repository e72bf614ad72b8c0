// Streams and events.
#include <algorithm>
#include <cstring>

#include "capture.h"
#include "context.h"
#include "faults.h"
#include "handles.h"
#include "stream.h"

namespace simcuda {

namespace {

CUresult create_stream(CUstream* handle, unsigned flags, int priority) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_shared<Stream>(context, flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  stream->handle = create_handle<CUstream>(stream);
  std::lock_guard<std::mutex> lock(context->streams_mutex);
  context->streams.push_back(stream);
  *handle = stream->handle;
  return CUDA_SUCCESS;
}

// The event's last record; CUDA_ERROR_CAPTURED_EVENT if it was recorded in a capture that still runs.
CUresult last_record(CUevent handle, std::shared_ptr<EventRecord>* record) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::shared_ptr<Event> event = share_handle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(event->mutex);
  if (event->captured) {
    if (const auto capture = event->capture.lock()) {
      capture->valid = false;
      return CUDA_ERROR_CAPTURED_EVENT;
    }
  }
  *record = event->record;
  return static_cast<CUresult>(event->context->sticky.load());
}

CUresult record(CUevent handle, CUstream stream_handle, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(stream_handle, &stream));
  const std::shared_ptr<Event> event = share_handle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  if (captures_active()) {
    if (stream->capturing) return capture_event_record(*stream, handle, event, flags == CU_EVENT_RECORD_EXTERNAL);
    SIM_TRY(check_implicit_synchronization(*stream));
  }
  if (flags == CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  record_event(*stream, *event);
  return CUDA_SUCCESS;
}

template <typename T, typename Answer>
CUresult answer(CUstream handle, T* value, const Answer& get) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = get(*stream);
  return CUDA_SUCCESS;
}

bool is_stream_attribute(CUstreamAttrID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY || attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP || attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

}  // namespace

CUresult api::cuStreamCreate(CUstream* stream, unsigned flags) { return create_stream(stream, flags, kLeastPriority); }
CUresult api::cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}

// Queued work still runs; the handle is gone at once.
CUresult api::cuStreamDestroy_v2(CUstream handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::shared_ptr<Stream> stream = share_handle<Stream>(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing) invalidate_capture(*stream, CUDA_SUCCESS);
  destroy_handle<Stream>(handle);
  {
    std::lock_guard<std::mutex> lock(stream->context->streams_mutex);
    auto& all = stream->context->streams;
    all.erase(std::remove(all.begin(), all.end(), stream), all.end());
  }
  stream->close();
  return CUDA_SUCCESS;
}
CUresult api::cuStreamDestroy(CUstream handle) { return api::cuStreamDestroy_v2(handle); }

CUresult api::cuStreamGetPriority(CUstream handle, int* priority) {
  return answer(handle, priority, [](Stream& stream) { return stream.priority.load(); });
}
CUresult api::cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return answer(handle, flags, [](Stream& stream) { return stream.flags; });
}
CUresult api::cuStreamGetId(CUstream handle, unsigned long long* id) {
  return answer(handle, id, [](Stream& stream) { return stream.id; });
}
CUresult api::cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return answer(handle, context, [](Stream& stream) { return stream.context->handle; });
}
CUresult api::cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return api::cuStreamGetCtx(handle, context);
}
CUresult api::cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return answer(handle, device, [](Stream& stream) { return stream.context->device; });
}

CUresult api::cuStreamQuery(CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (captures_active()) {
    if (stream->capturing) return invalidate_capture(*stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM_TRY(check_implicit_synchronization(*stream));
  }
  if (!stream->idle()) return CUDA_ERROR_NOT_READY;
  return static_cast<CUresult>(stream->context->sticky.load());
}

CUresult api::cuStreamSynchronize(CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (captures_active()) {
    if (stream->capturing) return invalidate_capture(*stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SIM_TRY(check_implicit_synchronization(*stream));
  }
  if (stream->legacy) return synchronize(*stream->context, true);  // and the blocking streams with it
  const std::shared_ptr<Stream> keep = stream->shared_from_this();
  keep->wait_all();
  return static_cast<CUresult>(keep->context->sticky.load());
}

CUresult api::cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  const std::shared_ptr<Event> event = share_handle<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<EventRecord> record;
  bool captured = false;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    record = event->record;
    captured = event->captured && event->capture.lock() != nullptr;
  }
  if (stream->capturing || captured) {
    return capture_event_wait(*stream, event_handle, event, flags == CU_EVENT_WAIT_EXTERNAL);
  }
  if (captures_active()) SIM_TRY(check_implicit_synchronization(*stream));
  if (flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (record != nullptr && !record->done()) stream->enqueue(EmptyWork{}, {{record->stream, record->ticket}});
  return CUDA_SUCCESS;
}

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capturing) return invalidate_capture(*stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  HostWork work;
  work.callback = callback;
  work.data = data;
  work.stream = handle;
  return submit(*stream, work);
}

CUresult api::cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  Stream* to = nullptr;
  Stream* from = nullptr;
  SIM_TRY(resolve_stream(to_handle, &to));
  SIM_TRY(resolve_stream(from_handle, &from));
  if (to == from) return CUDA_SUCCESS;
  std::scoped_lock lock(to->attributes_mutex, from->attributes_mutex);
  std::memcpy(to->attributes, from->attributes, sizeof to->attributes);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (value == nullptr || !is_stream_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(stream->attributes_mutex);
  *value = stream->attributes[attribute];
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (value == nullptr || !is_stream_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(stream->attributes_mutex);
  stream->attributes[attribute] = *value;
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) stream->priority = value->priority;
  return CUDA_SUCCESS;
}

CUresult api::cuEventCreate(CUevent* handle, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(current_context(&context));
  if (handle == nullptr || (flags & ~7U) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto event = std::make_shared<Event>();
  event->flags = flags;
  event->context = context;
  *handle = create_handle<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult api::cuEventDestroy_v2(CUevent handle) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  return destroy_handle<Event>(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
CUresult api::cuEventDestroy(CUevent handle) { return api::cuEventDestroy_v2(handle); }

CUresult api::cuEventRecord(CUevent event, CUstream stream) { return record(event, stream, CU_EVENT_RECORD_DEFAULT); }
CUresult api::cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags);
}

CUresult api::cuEventQuery(CUevent handle) {
  SIM_TRY(check_unsafe_call());
  std::shared_ptr<EventRecord> record;
  SIM_TRY(last_record(handle, &record));
  return record == nullptr || record->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult api::cuEventSynchronize(CUevent handle) {
  std::shared_ptr<EventRecord> record;
  SIM_TRY(last_record(handle, &record));
  if (record == nullptr || record->stream == nullptr) return CUDA_SUCCESS;
  record->stream->wait(record->ticket);
  return static_cast<CUresult>(record->stream->context->sticky.load());
}

CUresult api::cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  std::shared_ptr<EventRecord> first;
  std::shared_ptr<EventRecord> last;
  SIM_TRY(last_record(start, &first));
  SIM_TRY(last_record(end, &last));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const unsigned flags = find_handle<Event>(start)->flags | find_handle<Event>(end)->flags;
  if (first == nullptr || last == nullptr || (flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (!first->done() || !last->done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(last->time - first->time) / 1e6);
  return CUDA_SUCCESS;
}
CUresult api::cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return api::cuEventElapsedTime_v2(milliseconds, start, end);
}

}  // namespace simcuda
