// The view "summary" of a cache.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "tools/text/escape.h"
#include "tools/views/views.h"

namespace grape::tools {
namespace {

constexpr std::size_t kTop = 10;

struct Region {
  std::string name;
  std::uint64_t programs = 0, last_used = 0;
};

struct Facts {
  store::Statistics statistics;
  std::vector<std::string> environment;
  std::vector<Region> regions;  // those with the most programs first
  std::size_t padding_kernels = 0;
  std::uint64_t last_used = 0;
};

Facts facts_of(const StoreInput& input) {
  const cache::Cache& cache = input.cache();
  Facts facts;
  facts.statistics = cache.programs->statistics();
  std::istringstream lines(cache.environment);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) facts.environment.push_back(line);
  }
  std::map<std::string, Region> regions;
  for (const cache::Entry& entry : cache.entries) {
    Region& region = regions[entry.call.region];
    region.name = entry.call.region;
    ++region.programs;
    region.last_used = std::max(region.last_used, entry.last_used);
    facts.last_used = std::max(facts.last_used, entry.last_used);
  }
  for (auto& region : regions) facts.regions.push_back(std::move(region.second));
  std::stable_sort(facts.regions.begin(), facts.regions.end(),
                   [](const Region& a, const Region& b) { return a.programs > b.programs; });
  std::set<cache::Digest> kernels;
  for (const cache::Padding& padding : cache.padding) kernels.insert(padding.kernel);
  facts.padding_kernels = kernels.size();
  return facts;
}

Json to_json(const Facts& facts, const StoreInput& input) {
  const store::Statistics& statistics = facts.statistics;
  Json json;
  json["file_bytes"] = input.file_bytes();
  json["environment"] = Json::array();
  for (const std::string& line : facts.environment) json["environment"].push_back(text_value(line));
  json["programs"] = statistics.programs;
  json["unique"] = statistics.unique;
  json["families"] = statistics.families;
  json["bases"] = statistics.bases;
  json["dictionaries"] = statistics.dictionaries;
  json["raw_bytes"] = statistics.raw;
  json["deduplicated_bytes"] = statistics.deduplicated;
  json["compressed_bytes"] = statistics.compressed;
  json["resident_bytes"] = statistics.resident;
  json["regions"] = facts.regions.size();
  json["padding_words"] = input.cache().padding.size();
  json["padding_kernels"] = facts.padding_kernels;
  json["places"] = input.cache().places.size();
  json["last_used"] = facts.last_used;
  json["top_regions"] = Json::array();
  for (std::size_t i = 0; i < std::min(kTop, facts.regions.size()); ++i) {
    const Region& region = facts.regions[i];
    json["top_regions"].push_back(
        {{"name", text_value(region.name)}, {"programs", region.programs}, {"last_used", region.last_used}});
  }
  return json;
}

void print_text(const Facts& facts, const StoreInput& input, Output& out) {
  const store::Statistics& statistics = facts.statistics;
  const auto row = [&out](const char* name, const std::string& text) {
    out.print("{:<18}{}\n", name, escape_text(text));
  };
  row("cache", fmt::format("{} ({})", input.path(), human_bytes(input.file_bytes())));
  if (facts.environment.empty()) row("environment", "not known");
  for (const std::string& line : facts.environment) row(&line == facts.environment.data() ? "environment" : "", line);
  row("programs", fmt::format("{}, {} of them unique", statistics.programs, statistics.unique));
  row("families", fmt::format("{}, with {} bases and {} dictionaries", statistics.families, statistics.bases,
                              statistics.dictionaries));
  row("bytes", fmt::format("{} raw, {} deduplicated, {} compressed; {} resident", human_bytes(statistics.raw),
                           human_bytes(statistics.deduplicated), human_bytes(statistics.compressed),
                           human_bytes(statistics.resident)));
  row("regions", std::to_string(facts.regions.size()));
  row("padding", fmt::format("{} words of {} kernels", input.cache().padding.size(), facts.padding_kernels));
  row("last used", time_text(facts.last_used));
  if (facts.regions.empty()) return;
  out.write("\ntop regions\n");
  Table table({{"programs", "programs", true}, {"last_used", "last used"}, {"name", "region", false, true}});
  for (const Region& region : facts.regions) {
    table.add({region.programs, Cell(region.last_used, time_text(region.last_used)), text_value(region.name)});
  }
  table.text(out, kTop, "  ");
}

}  // namespace

int view_summary(StoreInput& input, const DumpOptions& options, Output& out) {
  const Facts facts = facts_of(input);
  if (options.format == Format::kText) {
    print_text(facts, input, out);
  } else {
    print_facts(out, input, options, to_json(facts, input));
  }
  return 0;
}

}  // namespace grape::tools
