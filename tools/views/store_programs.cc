// The views "programs" and "families" of a cache.
#include "tools/views/views.h"

namespace grape::tools {
namespace {

constexpr std::size_t kShortDigest = 8;  // hexadecimal digits

Cell digest_cell(const cache::Digest& digest) {
  const std::string text = digest_text(digest);
  return {text, text.substr(0, kShortDigest)};
}

}  // namespace

void print_json(Output& out, const StoreInput& input, const DumpOptions& options, Json content) {
  Json json;
  json["file"] = text_value(input.path());
  json["view"] = text_value(options.view);
  for (auto& [key, value] : content.items()) json[key] = std::move(value);
  out.print("{}\n", dump_json(json, 2));
}

int view_programs(StoreInput& input, const DumpOptions& options, Output& out) {
  KernelFilter kernels(options.filter.kernel);
  Table table({{"id", "program", true},
               {"family", "family", true},
               {"nodes", "nodes", true},
               {"words", "words", true},
               {"raw_bytes", "bytes raw", true},
               {"last_used", "last used"},
               {"signature", "signature"},
               {"code", "code"},
               {"outcome", ""},
               {"region", "region", false, true}});
  for (const std::uint64_t id : input.ids()) {
    const cache::Entry& entry = input.entry(id);
    if (!options.filter.region.empty() && !matches(options.filter.region, entry.call.region)) continue;
    const program::Program program = input.program(id);
    if (!kernels.program(input, program)) continue;
    table.add({id, input.family(id), program.nodes.size(), program.words.size(), input.raw_bytes(id),
               Cell(entry.last_used, time_text(entry.last_used)), digest_cell(entry.call.signature),
               digest_cell(entry.call.code), digest_text(entry.outcome), text_value(entry.call.region)});
  }
  print_table(out, input, options, table, "programs");
  return 0;
}

int view_families(StoreInput& input, const DumpOptions& options, Output& out) {
  Table table({{"id", "family", true},
               {"example", "example", true},
               {"programs", "programs", true},
               {"unique", "unique", true},
               {"bases", "bases", true},
               {"raw_bytes", "bytes raw", true},
               {"deduplicated_bytes", "deduplicated", true},
               {"compressed_bytes", "compressed", true},
               {"region", "region of the example", false, true}});
  for (const store::FamilyStatistics& family : input.families()) {
    table.add({table.size() + 1, family.example, family.programs, family.unique, family.bases, family.raw,
               family.deduplicated, family.compressed, text_value(input.entry(family.example).call.region)});
  }
  print_table(out, input, options, table, "families");
  return 0;
}

}  // namespace grape::tools
