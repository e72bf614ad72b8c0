// Reads a trace and prints its launches as JSON, for the GPU tests: an oracle of its own beside `grape dump`, so that
// neither the tool's views nor its formats stand between a test and what was recorded.
//
//   trace_events FILE > launches.json
//
// Exit status: 0 read, 1 the file is no trace, 2 usage. An incomplete trace is no error: "complete" says so.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "compressor/trace/event.h"
#include "compressor/trace/meta.h"
#include "compressor/trace/reader.h"

namespace {

using grape::trace::ApiClass;
using grape::trace::EventKind;
using grape::trace::EventView;
using grape::trace::LaunchView;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return out;
}

// The value of the argument called `name` in a kCall event; false if the call has none.
bool argument(const EventView& call, const grape::trace::ApiInfo& api, const std::string& name, std::uint64_t& value) {
  std::size_t index = 0;
  for (std::size_t begin = 0; begin < api.arguments.size(); ++index) {
    std::size_t end = api.arguments.find(',', begin);
    if (end == std::string::npos) end = api.arguments.size();
    const std::string row = api.arguments.substr(begin, end - begin);
    if (row.substr(0, row.find(':')) == name && 3 + index < call.word_count()) {
      value = call.words()[3 + index];
      return true;
    }
    begin = end + 1;
  }
  return false;
}

// The kernel nodes of each instantiated graph, as the trace defines them.
class Graphs {
 public:
  void add_node(const EventView& event) {
    const std::uint64_t exec = event.words()[0];
    const std::uint32_t index = grape::trace::low(event.words()[1]);
    Nodes& nodes = execs_[exec];
    // A handle is used again once its graph is destroyed: its nodes then start anew.
    if (!nodes.empty() && index <= nodes.rbegin()->first) nodes.clear();
    const bool kernel = grape::trace::high(event.words()[1]) == 0;
    nodes[index] = kernel ? grape::trace::low(event.words()[2]) : 0;
  }
  void launch(std::uint64_t exec, std::map<std::uint32_t, std::uint64_t>& executed) {
    for (const auto& [index, function] : execs_[exec]) {
      if (function != 0) ++executed[function];
    }
  }

 private:
  using Nodes = std::map<std::uint32_t, std::uint32_t>;  // node index → function id, 0 where it is no kernel
  std::map<std::uint64_t, Nodes> execs_;
};

struct Counts {
  std::map<std::uint32_t, std::uint64_t>
      direct;  // function id → launches that the application issued and the driver took
  std::map<std::uint32_t, std::uint64_t> replayed;  // function id → kernels of graph launches
  std::uint64_t events = 0, captured = 0, failed = 0, graph_launches = 0, block_allocs = 0, block_frees = 0;
  std::uint64_t lost_events = 0, regions = 0;
};

void print_counts(const char* name, const std::map<std::uint32_t, std::uint64_t>& counts) {
  std::printf(",\n\"%s\":{", name);
  const char* separator = "";
  for (const auto& [function, count] : counts) {
    std::printf("%s\"%u\":%llu", separator, function, static_cast<unsigned long long>(count));
    separator = ",";
  }
  std::printf("}");
}

void print_tables(const grape::trace::Tables& tables) {
  std::printf(",\n\"functions\":[");
  for (std::size_t i = 0; i < tables.functions.size(); ++i) {
    const std::string& name = tables.functions[i].name;
    std::printf("%s\n[%s,%s]", i == 0 ? "" : ",", quoted(name).c_str(), quoted(demangled(name)).c_str());
  }
  std::printf("],\n\"codes\":[");
  for (std::size_t i = 0; i < tables.codes.size(); ++i) {
    const auto& code = tables.codes[i];
    std::printf("%s\n[%s,%s,%u]", i == 0 ? "" : ",", quoted(code.file).c_str(), quoted(code.qualname).c_str(),
                code.first_line);
  }
  std::printf("],\n\"frames\":[");
  for (std::size_t i = 0; i < tables.frames.size(); ++i) {
    const auto& frame = tables.frames[i];
    std::printf("%s[%u,%u,%u]", i == 0 ? "" : ",", frame.parent, frame.code, frame.line);
  }
  std::printf("]");
}

void print_end(const grape::trace::Reader& reader, const Counts& counts) {
  const auto* end = reader.end();
  std::printf(",\n\"complete\":%s,\"lost\":%llu,\"damage\":%s,\"file_bytes\":%llu",
              reader.complete() ? "true" : "false",
              static_cast<unsigned long long>(end != nullptr ? end->lost : counts.lost_events),
              quoted(reader.damage().message).c_str(), static_cast<unsigned long long>(reader.file_bytes()));
  std::printf(",\n\"unhandled\":{");
  if (end != nullptr) {
    for (std::size_t i = 0; i < end->unhandled.size(); ++i) {
      std::printf("%s%s:%llu", i == 0 ? "" : ",", quoted(end->unhandled[i].name).c_str(),
                  static_cast<unsigned long long>(end->unhandled[i].count));
    }
  }
  std::printf("},\n\"notices\":[");
  for (std::size_t i = 0; end != nullptr && i < end->notices.size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : ",", quoted(end->notices[i]).c_str());
  }
  std::printf("]");
  const std::pair<const char*, std::uint64_t> numbers[] = {{"events", counts.events},
                                                           {"captured", counts.captured},
                                                           {"failed", counts.failed},
                                                           {"graph_launches", counts.graph_launches},
                                                           {"block_allocs", counts.block_allocs},
                                                           {"block_frees", counts.block_frees},
                                                           {"regions", counts.regions}};
  for (const auto& [name, value] : numbers) std::printf(",\"%s\":%llu", name, static_cast<unsigned long long>(value));
}

// One row a launch: function id, frame id, thread, stream, captured, result, the first parameter word (0: none), region
// call number of its thread (0: none).
void print_launch(const LaunchView& launch, std::uint32_t thread, std::uint64_t region, bool first) {
  std::uint64_t word = 0;
  const std::uint32_t bytes = launch.parameter_bytes();
  if (bytes > 0) std::memcpy(&word, launch.parameters(), bytes < 8 ? bytes : 8);
  std::printf("%s\n[%u,%u,%u,\"%llx\",%d,%d,%llu,%llu]", first ? "" : ",", launch.function(), launch.frame(), thread,
              static_cast<unsigned long long>(launch.stream()),
              (launch.header->flags & grape::trace::kFlagCaptured) != 0 ? 1 : 0, launch.result(),
              static_cast<unsigned long long>(word), static_cast<unsigned long long>(region));
}

class Walk {
 public:
  explicit Walk(grape::trace::Reader& reader) : reader_(reader) {}

  void run() {
    std::printf("{\"launches\":[");
    EventView event;
    std::uint32_t thread = 0;
    while (reader_.next(event, thread)) visit(event, thread);
    std::printf("]");
    print_counts("direct", counts_.direct);
    print_counts("replayed", counts_.replayed);
    print_tables(reader_.tables());
    print_end(reader_, counts_);
    std::printf("}\n");
  }

 private:
  void visit(const EventView& event, std::uint32_t thread) {
    ++counts_.events;
    switch (event.header->kind) {
      case EventKind::kLaunch:
        return visit_launch(LaunchView(event), thread);
      case EventKind::kCall:
        return visit_call(event);
      case EventKind::kExecNode:
        return graphs_.add_node(event);
      case EventKind::kBlockAlloc:
        ++counts_.block_allocs;
        return;
      case EventKind::kBlockFree:
        ++counts_.block_frees;
        return;
      case EventKind::kScopeBegin:
        if (event.words()[1] != 0) {
          ++counts_.regions;
          region_of_[thread] = event.words()[1];
        }
        return;
      case EventKind::kScopeEnd:
        if (event.words()[1] != 0) region_of_[thread] = 0;
        return;
      case EventKind::kScopeAttach:
        region_of_[thread] = event.words()[0];
        return;
      case EventKind::kLost:
        counts_.lost_events += event.words()[0];
        return;
      default:
        return;
    }
  }

  void visit_launch(const LaunchView& launch, std::uint32_t thread) {
    if ((launch.header->flags & grape::trace::kFlagCaptured) != 0) {
      ++counts_.captured;
    } else if (launch.result() != 0) {
      ++counts_.failed;
    } else {
      ++counts_.direct[launch.function()];
    }
    print_launch(launch, thread, region_of_[thread], first_);
    first_ = false;
  }

  void visit_call(const EventView& call) {
    const std::uint32_t api = grape::trace::low(call.words()[0]);
    const auto& apis = reader_.meta().apis;
    if (api == 0 || api > apis.size() || apis[api - 1].api_class != ApiClass::kGraphLaunch) return;
    std::uint64_t exec = 0;
    if (grape::trace::high(call.words()[0]) != 0 || !argument(call, apis[api - 1], "exec", exec)) return;
    ++counts_.graph_launches;
    graphs_.launch(exec, counts_.replayed);
  }

  grape::trace::Reader& reader_;
  Counts counts_;
  Graphs graphs_;
  std::map<std::uint32_t, std::uint64_t> region_of_;  // thread → the region call it works for
  bool first_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: trace_events FILE\n");
    return 2;
  }
  grape::trace::Error error;
  const auto reader = grape::trace::Reader::open(argv[1], error);
  if (reader == nullptr) {
    std::fprintf(stderr, "trace_events: %s: %s at byte %llu\n", argv[1], error.message.c_str(),
                 static_cast<unsigned long long>(error.offset));
    return 1;
  }
  Walk(*reader).run();
  return 0;
}
