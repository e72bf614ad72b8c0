#include "tools/inputs/graph_index.h"
#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {

int view_graphs(TraceInput& input, const DumpOptions& options, Output& out) {
  const GraphIndex index(input);
  Filter filter(options.filter, input);
  // The filter learns the regions' numbers from a walk.
  Step step;
  if (!options.filter.region.empty()) {
    input.rewind();
    while (input.next(step)) filter.see(step);
  }
  Table table({{"id", "graph", true},
               {"origin", "origin"},
               {"region", "", true},
               {"name", "name", false, true},
               {"calls", "runs", true},
               {"nodes", "nodes", true},
               {"kernels", "kernels", true},
               {"copies", "copies", true},
               {"memsets", "memsets", true},
               {"host_functions", "", true},
               {"graph_launches", "", true},
               {"edges", "edges", true},
               {"streams", "streams", true},
               {"parameter_bytes", "param bytes", true},
               {"host_reads", "host reads", true},
               {"syncs", "syncs", true},
               {"first_call", "first call", true},
               {"incomplete_calls", "", true},
               {"shape", "", false},
               {"exec", "", false}});
  for (const GraphEntry& entry : index.entries()) {
    if (!options.filter.region.empty() && !filter.region(entry.region)) continue;
    const std::string name =
        entry.application ? fmt::format("exec {:#x}", entry.exec_handle) : input.scope_name(entry.region);
    table.add({entry.id,
               entry.application ? "application" : "region",
               entry.application ? Json() : Json(entry.region_number),
               text_value(name),
               entry.application ? entry.launches : entry.calls,
               entry.nodes,
               entry.kernels,
               entry.copies,
               entry.memsets,
               entry.host_functions,
               entry.graph_launches,
               entry.edges,
               entry.application ? Json() : Json(entry.streams),
               entry.parameter_bytes,
               entry.host_reads,
               entry.syncs,
               entry.application ? Json() : Json(entry.first_call),
               entry.incomplete_calls,
               entry.application ? Json() : hex_value(entry.shape_hash),
               entry.application ? hex_value(entry.exec_handle) : Json()});
  }
  print_table(out, input, options, table, "graphs");
  if (options.format == Format::kText && index.outside_launches() > 0) {
    out.print("\n{} launches stand outside of all regions: graph call:0\n", index.outside_launches());
  }
  return 0;
}

}  // namespace grape::tools
