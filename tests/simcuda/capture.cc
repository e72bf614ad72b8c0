#include "capture.h"

#include <algorithm>
#include <set>

#include "graph.h"
#include "handles.h"

namespace simcuda {

namespace {

std::atomic<int> active{0};
std::vector<std::shared_ptr<Capture>>& captures() {  // under graph_mutex
  static auto& all = *new std::vector<std::shared_ptr<Capture>>;
  return all;
}

thread_local char this_thread = 0;  // its address names the thread
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void leave(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->streams) {
    stream->capturing = false;
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  auto& all = captures();
  all.erase(std::remove(all.begin(), all.end(), capture), all.end());
  active.fetch_sub(1);
}

// A kernel launched with programmatic stream serialization may overlap the end of a kernel before it.
CUgraphEdgeData edge_between(const Node& from, const Work& to) {
  CUgraphEdgeData data = {};
  const auto* kernel = std::get_if<KernelWork>(&to);
  if (kernel == nullptr || !std::holds_alternative<KernelWork>(from.work)) return data;
  for (const CUlaunchAttribute& attribute : kernel->attributes) {
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
  }
  return data;
}

CUresult capture_locked(Stream& stream, Work&& work) {
  if (!stream.capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (auto* allocation = std::get_if<AllocWork>(&work)) let_graph_own(allocation);
  std::vector<CUgraphNode> dependencies;
  std::vector<CUgraphEdgeData> data;
  for (const Node* node : stream.capture_tail) {
    dependencies.push_back(node->handle);
    data.push_back(edge_between(*node, work));
  }
  Node* node = add_node(*stream.capture->graph, std::move(work), dependencies.data(), data.data(), dependencies.size());
  stream.capture_tail = {node};
  return CUDA_SUCCESS;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, const std::shared_ptr<Graph>& graph,
               const std::vector<Node*>& tail) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  static std::uint64_t next_id = 1;  // under graph_mutex
  if (stream->capture != nullptr) {
    stream->capture->valid = false;
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  auto capture = std::make_shared<Capture>();
  capture->id = next_id++;
  capture->mode = mode;
  capture->owner = &this_thread;
  capture->into_existing = graph != nullptr;
  capture->graph = graph != nullptr ? graph : std::make_shared<Graph>();
  if (graph == nullptr) capture->graph->handle = create_handle<CUgraph>(capture->graph);
  capture->origin = stream;
  capture->streams.push_back(stream->shared_from_this());
  stream->capture = capture;
  stream->capture_tail = tail;
  stream->capturing = true;
  captures().push_back(capture);
  active.fetch_add(1);
  return CUDA_SUCCESS;
}

// Every forked stream's last nodes must lead to the origin's.
bool all_joined(const Capture& capture) {
  std::set<const Node*> before;
  std::vector<const Node*> open(capture.origin->capture_tail.begin(), capture.origin->capture_tail.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!before.insert(node).second) continue;
    for (const Edge& edge : node->dependencies) open.push_back(edge.from);
  }
  for (const auto& stream : capture.streams) {
    for (const Node* node : stream->capture_tail) {
      if (before.count(node) == 0) return false;
    }
  }
  return true;
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy && captures_active()) SIM_TRY(check_implicit_synchronization(*stream));
  std::lock_guard<std::mutex> lock(graph_mutex());
  *status = status_of(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph->handle;
  // What is pointed to stays valid until the next call on the stream.
  static thread_local std::vector<CUgraphNode> nodes;
  static thread_local std::vector<CUgraphEdgeData> data;
  nodes.clear();
  for (const Node* node : stream->capture_tail) nodes.push_back(node->handle);
  data.assign(nodes.size(), CUgraphEdgeData{});
  if (dependencies != nullptr) *dependencies = nodes.data();
  if (edges != nullptr) *edges = data.data();
  if (count != nullptr) *count = nodes.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, CUgraphNode* dependencies, size_t count, unsigned flags) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  SIM_TRY(check_dependencies(*stream->capture->graph, dependencies, count));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  for (size_t i = 0; i < count; ++i) {
    Node* node = find_handle<Node>(dependencies[i]);
    auto& tail = stream->capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool captures_active() { return active.load(std::memory_order_acquire) != 0; }

CUresult capture_work(Stream& stream, Work&& work) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;  // ended by another thread meanwhile
  return capture_locked(stream, std::move(work));
}

CUresult invalidate_capture(Stream& stream, CUresult error) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (stream.capture == nullptr) return error;
  const bool was_valid = stream.capture->valid;
  stream.capture->valid = false;
  return was_valid ? error : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult check_implicit_synchronization(Stream& stream) {
  if (!stream.legacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graph_mutex());
  for (const auto& capture : captures()) {
    for (const auto& captured : capture->streams) {
      if (captured->context != stream.context || !captured->blocking()) continue;
      capture->valid = false;
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return result;
}

CUresult check_context_synchronization(Context& context) {
  CUresult result = CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graph_mutex());
  for (const auto& capture : captures()) {
    if (capture->origin->context != &context) continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult check_unsafe_call() {
  if (!captures_active() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graph_mutex());
  for (const auto& capture : captures()) {
    const bool own = capture->owner == &this_thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult capture_event_record(Stream& stream, CUevent handle, const std::shared_ptr<Event>& event, bool external) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream.capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (external) {
    EventRecordWork work;
    work.handle = handle;
    work.event = event;
    return capture_locked(stream, std::move(work));
  }
  std::lock_guard<std::mutex> event_lock(event->mutex);
  event->captured = true;
  event->capture = stream.capture;
  event->capture_nodes = stream.capture_tail;
  return CUDA_SUCCESS;
}

CUresult capture_event_wait(Stream& stream, CUevent handle, const std::shared_ptr<Event>& event, bool external) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  if (external) {
    if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    EventWaitWork work;
    work.handle = handle;
    work.event = event;
    return capture_locked(stream, std::move(work));
  }
  std::lock_guard<std::mutex> event_lock(event->mutex);
  const std::shared_ptr<Capture> capture = event->captured ? event->capture.lock() : nullptr;
  if (capture == nullptr || (stream.capture != nullptr && stream.capture != capture)) {
    if (stream.capture != nullptr) stream.capture->valid = false;
    return capture == nullptr ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture == nullptr) {
    if (stream.legacy) {
      capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream.capture = capture;
    stream.capture_tail.clear();
    stream.capturing = true;
    capture->streams.push_back(stream.shared_from_this());
  }
  for (Node* node : event->capture_nodes) {
    auto& tail = stream.capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult api::cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  return begin(stream, mode, nullptr, {});
}
CUresult api::cuStreamBeginCapture(CUstream stream) {
  return api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult api::cuStreamBeginCaptureToGraph(CUstream stream, CUgraph handle, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  std::lock_guard<std::mutex> lock(graph_mutex());
  const std::shared_ptr<Graph> graph = share_handle<Graph>(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_TRY(check_dependencies(*graph, dependencies, count));
  std::vector<Node*> tail;
  for (size_t i = 0; i < count; ++i) tail.push_back(find_handle<Node>(dependencies[i]));
  return begin(stream, mode, graph, tail);
}

CUresult api::cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Stream* stream = nullptr;
  SIM_TRY(resolve_stream(handle, &stream));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  std::lock_guard<std::mutex> lock(graph_mutex());
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->owner != &this_thread) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool joined = all_joined(*capture);
  leave(capture);
  if (capture->valid && joined) {
    *graph = capture->graph->handle;
    return CUDA_SUCCESS;
  }
  if (!capture->into_existing) destroy_handle<Graph>(capture->graph->handle);
  return capture->valid ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult api::cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return capture_info(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
CUresult api::cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return capture_info(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult api::cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, size_t* count) {
  return capture_info(handle, status, id, graph, dependencies, nullptr, count);
}
CUresult api::cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                                        size_t* count) {
  return capture_info(handle, status, id, graph, dependencies, edges, count);
}

CUresult api::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                                unsigned flags) {
  return update_dependencies(stream, dependencies, count, flags);
}
CUresult api::cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData*,
                                                   size_t count, unsigned flags) {
  return update_dependencies(stream, dependencies, count, flags);
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

}  // namespace simcuda
