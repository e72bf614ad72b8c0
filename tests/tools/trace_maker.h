// Small traces for tests of the tool, made event by event with the writer's own interface.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compressor/trace/writer.h"

namespace grape::tools {

class TraceMaker {
 public:
  // Calls that views know; the ids are their places in apis().
  enum Api : std::uint32_t {
    kLaunchKernel = 1,
    kLaunchKernelPerThread,
    kCopyToDevice,
    kCopyToHost,
    kSynchronize,
    kEventRecord,
    kEventWait,
    kMemset,
    kGraphLaunch,
    kExecDestroy,
    kStreamCreate,
    kMemAlloc,
    kCopy2D,
    kEventDestroy,
    kProfilerStart,
    kProfilerStop,
  };
  static std::vector<trace::ApiInfo> apis();

  struct Launch {
    std::uint32_t function = 1;
    std::uint64_t stream = 0;
    std::vector<std::uint8_t> parameters = {};
    std::uint32_t frame = 0;
    std::uint32_t grid = 1, block = 32;
    std::int32_t result = 0;
    std::uint16_t flags = 0;
    std::uint32_t api = kLaunchKernel;
    std::vector<std::vector<std::uint8_t>> attributes = {};  // kAttributeBytes each
    std::uint32_t native_frame = 0;
  };

  // The thread that the following events stand on.
  TraceMaker& thread(std::uint32_t number);
  void function(std::uint32_t id, const std::string& name,
                const std::vector<std::pair<std::uint32_t, std::uint32_t>>& layout = {});
  void code(std::uint32_t id, const std::string& file, const std::string& name);
  void frame(std::uint32_t id, std::uint32_t parent, std::uint32_t code, std::uint32_t line);
  void native_frame(std::uint32_t id, std::uint32_t parent, std::uint64_t offset, const std::string& object,
                    const std::string& symbol);
  void scope(std::uint32_t id, const std::string& name, const std::string& type,
             trace::ScopeKind kind = trace::ScopeKind::kModule);
  void begin(std::uint32_t scope, std::uint64_t call, std::uint32_t frame = 0);
  void end(std::uint32_t scope, std::uint64_t call, bool raised = false);
  void attach(std::uint64_t call);
  void launch(const Launch& launch);
  void call(std::uint32_t api, const std::vector<std::uint64_t>& arguments, std::int32_t result = 0,
            std::uint16_t flags = 0);
  // A call whose argument 0 leads to `blob`.
  void call_with_blob(std::uint32_t api, const std::vector<std::uint64_t>& arguments,
                      const std::vector<std::uint64_t>& blob);
  void alloc(std::uint64_t address, std::uint64_t bytes, std::uint32_t frame = 0);
  void free(std::uint64_t address, std::uint64_t bytes);
  void exec_node(std::uint64_t exec, std::uint32_t index, std::uint32_t type, std::uint32_t function,
                 const std::vector<std::uint8_t>& parameters = {});
  void exec_edges(std::uint64_t exec, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges);
  void raw(trace::EventKind kind, const std::vector<std::uint64_t>& words, std::uint16_t flags = 0, bool timed = false);

  // The events so far, header and payload, as they stand in memory; by thread.
  const std::vector<std::pair<std::uint32_t, std::vector<std::uint64_t>>>& events() const { return events_; }
  trace::Meta meta;
  trace::End end_chunk;
  // False: it cannot be written.
  bool write(const std::string& path, bool with_end = true) const;

  TraceMaker();

 private:
  std::uint32_t thread_ = 1;
  std::uint64_t sequence_ = 0, ticks_ = 1'000'000;
  std::vector<std::pair<std::uint32_t, std::vector<std::uint64_t>>> events_;
};

// Little-endian bytes of values, one after the other.
template <class... Values>
std::vector<std::uint8_t> packed(Values... values) {
  std::vector<std::uint8_t> bytes;
  const auto add = [&bytes](auto value) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  (add(values), ...);
  return bytes;
}

}  // namespace grape::tools
