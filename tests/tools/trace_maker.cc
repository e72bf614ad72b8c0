#include "tests/tools/trace_maker.h"

#include <cstdio>
#include <cstring>
#include <map>

namespace grape::tools {

using trace::ApiClass;
using trace::EventKind;
using trace::pack;

namespace {

void append(std::vector<std::uint64_t>& words, const void* data, std::size_t bytes) {
  const std::size_t at = words.size();
  words.resize(at + trace::words_for(bytes), 0);
  if (bytes > 0) std::memcpy(&words[at], data, bytes);
}

std::uint32_t size32(std::size_t size) { return static_cast<std::uint32_t>(size); }

class FileSink final : public trace::Sink {
 public:
  explicit FileSink(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {}
  ~FileSink() override { close(); }
  bool write(const std::uint8_t* data, std::size_t bytes) override {
    return file_ != nullptr && std::fwrite(data, 1, bytes, file_) == bytes;
  }
  bool close() {
    std::FILE* file = file_;
    file_ = nullptr;
    return file != nullptr && std::fclose(file) == 0;
  }

 private:
  std::FILE* file_;
};

}  // namespace

std::vector<trace::ApiInfo> TraceMaker::apis() {
  return {{"cuLaunchKernel", ApiClass::kLaunch, "function:x,stream:s"},
          {"cuLaunchKernel_ptsz", ApiClass::kLaunch, "function:x,stream:s"},
          {"cuMemcpyHtoDAsync_v2", ApiClass::kCopyToDevice, "dst:d,src:h,bytes:u,stream:s"},
          {"cuMemcpyDtoHAsync_v2", ApiClass::kCopyToHost, "dst:h,src:d,bytes:u,stream:s"},
          {"cuStreamSynchronize", ApiClass::kStreamSync, "stream:s"},
          {"cuEventRecord", ApiClass::kEventRecord, "event:e,stream:s"},
          {"cuStreamWaitEvent", ApiClass::kEventWait, "stream:s,event:e,flags:u"},
          {"cuMemsetD32Async", ApiClass::kMemset, "dst:d,value:u,count:u,stream:s"},
          {"cuGraphLaunch", ApiClass::kGraphLaunch, "exec:x,stream:s"},
          {"cuGraphExecDestroy", ApiClass::kGraph, "exec:x"},
          {"cuStreamCreate", ApiClass::kStream, "stream:o,flags:u"},
          {"cuMemAlloc_v2", ApiClass::kAlloc, "ptr:o,bytes:u"},
          {"cuMemcpy2DAsync_v2", ApiClass::kCopy, "copy:b,stream:s"},
          {"cuEventDestroy_v2", ApiClass::kEvent, "event:e"},
          {"cuProfilerStart", ApiClass::kOther, ""},
          {"cuProfilerStop", ApiClass::kOther, ""}};
}

TraceMaker::TraceMaker() {
  meta.ticks_per_second = 1'000'000'000;
  meta.start_ticks = ticks_;
  meta.start_unix_ns = 1'700'000'000'000'000'000;
  meta.pid = 42;
  meta.host = "host";
  meta.command = "python train.py";
  meta.grape_version = "0.1.0";
  meta.python_version = "3.12.1";
  meta.driver_version = 13000;
  meta.apis = apis();
  end_chunk.ticks_per_second = meta.ticks_per_second;
}

TraceMaker& TraceMaker::thread(std::uint32_t number) {
  thread_ = number;
  return *this;
}

void TraceMaker::raw(EventKind kind, const std::vector<std::uint64_t>& words, std::uint16_t flags, bool timed) {
  trace::EventHeader header{};
  header.bytes = size32(sizeof header + words.size() * 8);
  header.kind = kind;
  header.flags = flags;
  header.key = static_cast<std::uint32_t>(kind);
  header.sequence = ++sequence_;
  if (timed) ticks_ += 10'000;
  header.ticks = ticks_;
  header.duration = timed ? 2'000 : 0;
  std::vector<std::uint64_t> event(sizeof header / 8);
  std::memcpy(event.data(), &header, sizeof header);
  event.insert(event.end(), words.begin(), words.end());
  events_.emplace_back(thread_, std::move(event));
}

void TraceMaker::function(std::uint32_t id, const std::string& name,
                          const std::vector<std::pair<std::uint32_t, std::uint32_t>>& layout) {
  std::vector<std::uint64_t> words = {pack(id, 0), 0x1000 + id, 0x77, pack(size32(layout.size()), size32(name.size()))};
  for (const auto& [offset, size] : layout) words.push_back(pack(offset, size));
  append(words, name.data(), name.size());
  raw(EventKind::kDefFunction, words);
}

void TraceMaker::code(std::uint32_t id, const std::string& file, const std::string& name) {
  std::vector<std::uint64_t> words = {pack(id, 1), 0xc0de + id, pack(size32(file.size()), size32(name.size()))};
  append(words, file.data(), file.size());
  append(words, name.data(), name.size());
  raw(EventKind::kDefCode, words);
}

void TraceMaker::frame(std::uint32_t id, std::uint32_t parent, std::uint32_t code_id, std::uint32_t line) {
  raw(EventKind::kDefFrame, {pack(id, parent), pack(code_id, line), 2 * line});
}

void TraceMaker::native_frame(std::uint32_t id, std::uint32_t parent, std::uint64_t offset, const std::string& object,
                              const std::string& symbol) {
  std::vector<std::uint64_t> words = {pack(id, parent), offset, pack(size32(object.size()), size32(symbol.size()))};
  append(words, object.data(), object.size());
  append(words, symbol.data(), symbol.size());
  raw(EventKind::kDefNativeFrame, words);
}

void TraceMaker::scope(std::uint32_t id, const std::string& name, const std::string& type, trace::ScopeKind kind) {
  std::vector<std::uint64_t> words = {pack(id, static_cast<std::uint32_t>(kind)), 0x9000 + id,
                                      pack(size32(name.size()), size32(type.size()))};
  append(words, name.data(), name.size());
  append(words, type.data(), type.size());
  raw(EventKind::kDefScope, words);
}

void TraceMaker::begin(std::uint32_t id, std::uint64_t call_number, std::uint32_t frame_id) {
  raw(EventKind::kScopeBegin, {pack(id, frame_id), call_number}, 0, true);
}

void TraceMaker::end(std::uint32_t id, std::uint64_t call_number, bool raised) {
  raw(EventKind::kScopeEnd, {pack(id, raised ? 1 : 0), call_number}, 0, true);
}

void TraceMaker::attach(std::uint64_t call_number) { raw(EventKind::kScopeAttach, {call_number}); }

void TraceMaker::launch(const Launch& l) {
  std::vector<std::uint64_t> words = {pack(l.function, l.api),
                                      pack(l.frame, l.native_frame),
                                      pack(l.grid, 1),
                                      pack(1, l.block),
                                      pack(1, 1),
                                      pack(0, static_cast<std::uint32_t>(l.result)),
                                      l.stream,
                                      pack(size32(l.attributes.size()), size32(l.parameters.size()))};
  for (const auto& attribute : l.attributes) {
    std::uint8_t bytes[trace::kAttributeBytes] = {};
    std::memcpy(bytes, attribute.data(), std::min(attribute.size(), sizeof bytes));
    append(words, bytes, sizeof bytes);
  }
  append(words, l.parameters.data(), l.parameters.size());
  raw(EventKind::kLaunch, words, l.flags, true);
}

void TraceMaker::call(std::uint32_t api, const std::vector<std::uint64_t>& arguments, std::int32_t result,
                      std::uint16_t flags) {
  std::vector<std::uint64_t> words = {pack(api, static_cast<std::uint32_t>(result)), 0,
                                      pack(size32(arguments.size()), 0)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  raw(EventKind::kCall, words, flags, true);
}

void TraceMaker::call_with_blob(std::uint32_t api, const std::vector<std::uint64_t>& arguments,
                                const std::vector<std::uint64_t>& blob) {
  std::vector<std::uint64_t> words = {pack(api, 0), 0, pack(size32(arguments.size()), size32(8 + blob.size() * 8))};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.push_back(pack(0, size32(blob.size() * 8)));
  words.insert(words.end(), blob.begin(), blob.end());
  raw(EventKind::kCall, words, 0, true);
}

void TraceMaker::alloc(std::uint64_t address, std::uint64_t bytes, std::uint32_t frame_id) {
  raw(EventKind::kBlockAlloc, {address, bytes, pack(frame_id, 0)});
}

void TraceMaker::free(std::uint64_t address, std::uint64_t bytes) { raw(EventKind::kBlockFree, {address, bytes, 0}); }

void TraceMaker::exec_node(std::uint64_t exec, std::uint32_t index, std::uint32_t type, std::uint32_t function_id,
                           const std::vector<std::uint8_t>& parameters) {
  std::vector<std::uint64_t> words = {exec,       pack(index, type), pack(function_id, size32(parameters.size())),
                                      pack(2, 1), pack(1, 64),       pack(1, 1),
                                      pack(0, 0)};
  append(words, parameters.data(), parameters.size());
  raw(EventKind::kExecNode, words, 0, true);
}

void TraceMaker::exec_edges(std::uint64_t exec, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges) {
  std::vector<std::uint64_t> words = {exec, pack(size32(edges.size()), 0)};
  for (const auto& [from, to] : edges) words.push_back(pack(from, to));
  raw(EventKind::kExecEdges, words);
}

bool TraceMaker::write(const std::string& path, bool with_end) const {
  FileSink sink(path);
  trace::Writer writer(sink, meta);
  std::map<std::uint32_t, trace::EventEncoder> encoders;
  for (const auto& [number, event] : events_) {
    encoders[number].add(*reinterpret_cast<const trace::EventHeader*>(event.data()));
  }
  for (auto& [number, encoder] : encoders) writer.write_events(number, 1000 + number, encoder);
  trace::End last = end_chunk;
  last.events = events_.size();
  if (with_end) writer.write_end(last);
  return writer.ok() && sink.close();
}

}  // namespace grape::tools
