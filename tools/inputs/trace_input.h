// An opened trace with what every view needs: the call table, clocks, names, the order of scopes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compressor/trace/reader.h"
#include "shim/record/api_table.h"
#include "tools/text/demangle.h"

namespace grape::tools {

// One event, and where it stands.
struct Step {
  trace::EventView event;
  std::uint32_t thread = 0;
  std::uint32_t scope = 0;   // innermost scope id of the thread (in kScopeBegin and kScopeEnd: that scope)
  std::uint32_t region = 0;  // scope id of the region that the event belongs to, 0: none
  std::uint64_t call = 0;    // number of the region call that it belongs to, 0: none
};

class TraceInput {
 public:
  // Throws Failure.
  explicit TraceInput(const std::string& path);

  const std::string& path() const { return path_; }
  trace::Reader& reader() { return *reader_; }
  const trace::Meta& meta() const { return reader_->meta(); }
  const trace::Tables& tables() const { return reader_->tables(); }
  const record::ApiTable& apis() const { return apis_; }
  double seconds(std::uint64_t ticks) const { return static_cast<double>(ticks) / ticks_per_second_; }
  double seconds_since_start(std::uint64_t ticks) const {
    return ticks < meta().start_ticks ? 0 : seconds(ticks - meta().start_ticks);
  }

  const trace::Function& function(std::uint32_t id) const;
  const trace::Scope& scope(std::uint32_t id) const;
  // Name of a kernel, mangled; "(unknown kernel)" for id 0. As GraphBuilder wants it, with a TraceInput as context.
  static const std::string& function_name(std::uint32_t id, void* input);
  const std::string& demangled(std::uint32_t id) { return names_.demangled(function(id).name); }
  const std::string& shown(std::uint32_t id) { return names_.shown(function(id).name); }
  void show_full_names(bool full) { names_.show_full(full); }

  // "file.py:12 in function"; "" for frame 0. Files by their last two parts unless full names are asked for.
  std::string position(std::uint32_t frame) const;
  // The same of a native frame: "function (library.so+0x1f2)", the offset being the return address's in its file.
  std::string native_position(std::uint32_t native_frame) const;
  // All of them, from the innermost frame outwards.
  std::vector<std::string> stack(std::uint32_t frame) const;
  std::vector<std::string> native_stack(std::uint32_t native_frame) const;
  // The module's path, or the type where it is a root.
  std::string scope_name(std::uint32_t scope) const;
  std::string stream_name(std::uint64_t stream) const;

  // Walks all events from the start; definitions are consumed on the way.
  void rewind();
  bool next(Step& step);
  std::uint64_t events_read() const { return events_read_; }
  // Reads on to the end, so that damage is found and events are counted.
  void drain();

 private:
  struct Open {
    std::uint32_t scope = 0, region = 0;
    std::uint64_t call = 0;
  };
  struct Thread {
    std::vector<Open> open;
    std::uint64_t attached = 0;
  };
  void place(Step& step);
  void begin_scope(Thread& thread, Step& step);
  void end_scope(Thread& thread, Step& step);

  std::string path_;
  std::unique_ptr<trace::Reader> reader_;
  record::ApiTable apis_;
  double ticks_per_second_ = 1;
  KernelNames names_;
  std::vector<Thread> threads_;
  std::unordered_map<std::uint64_t, std::uint32_t> call_regions_;  // calls that are open → scope id
  std::uint64_t events_read_ = 0;
};

// Regions in the order in which they first appear, numbered from 1, and the calls of each.
class RegionNumbers {
 public:
  // For a kScopeBegin that opens a region call (step.call != 0 and the scope is the region): its number and ordinal.
  std::uint32_t begin(const Step& step, std::uint32_t& ordinal);
  std::uint32_t number(std::uint32_t scope) const {
    const auto found = numbers_.find(scope);
    return found == numbers_.end() ? 0 : found->second;
  }
  static bool opens_region(const Step& step) {
    return step.event.header->kind == trace::EventKind::kScopeBegin && step.event.words()[1] != 0;
  }
  static bool closes_region(const Step& step) {
    return step.event.header->kind == trace::EventKind::kScopeEnd && step.call != 0 && step.event.words()[1] != 0;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;
  std::vector<std::uint32_t> calls_;
};

}  // namespace grape::tools
