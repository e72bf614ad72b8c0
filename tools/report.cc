#include "tools/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "compressor/trace/chunk.h"
#include "tools/inputs/count_option.h"
#include "tools/text/escape.h"
#include "tools/text/failure.h"
#include "tools/text/output.h"
#include "tools/text/table.h"

namespace grape::tools {
namespace {

constexpr const char* kFooter =
    R"(A program that runs in mode replay with GRAPE_REPORT=FILE (grape run --report FILE) leaves the report
when Python ends. For each module that was called: its share of the time in modules' calls, its state, how many of its
calls were replayed, what a call takes, and why calls were not replayed, with the line and what to change.
Then the functions that launch most of what no module's call holds, as GRAPE_REGIONS names them.

States: observing (not proven yet), proven, replayed, given up (its inner modules are tried), no GPU work.

Examples:
  grape report run.json
  grape report run.json --all --pager
  grape report run.json --json | jq '.regions[] | select(.state == "given up") | .reason'

Exit status:
  0  done
  2  wrong usage, or the file is no report that can be read)";

constexpr const char* kLegend =
    R"(cpu: ms that a call takes the CPU up to its return, when the GPU may still be at work; "<": only calls that were
looked at were timed. loop: ms from the begin of such a call to the begin of the module's next one (the median), with
what the program waits for and does in between. gain: loop eager / loop replay.)";

constexpr int kVersion = 1;
constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr std::size_t kReasonsShown = 4;  // of a module, without --all
constexpr std::size_t kWrapAt = 100;      // where the width is not known

struct Closed {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, Closed> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) throw Failure(fmt::format("{}: {}", escape_text(path), std::strerror(errno)));
  std::string text;
  char piece[1 << 16];
  for (std::size_t got = 0; (got = std::fread(piece, 1, sizeof piece, file.get())) != 0;) {
    text.append(piece, got);
    if (text.size() > kMostBytes) throw Failure(fmt::format("{}: too large for a report", escape_text(path)));
  }
  if (std::ferror(file.get()) != 0) throw Failure(fmt::format("{}: {}", escape_text(path), std::strerror(errno)));
  return text;
}

// One module of the report, its fields by name and type. What is wrong is said with where it stands.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw Failure(where_ + " is no object");
  }

  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw Failure(fmt::format("{}: there is no \"{}\"", where_, key));
    return *found;
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) wrong(key, "no text");
    return value.get<std::string>();
  }
  std::string text_or_none(const char* key) const { return at(key).is_null() ? std::string() : text(key); }
  double number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number()) wrong(key, "no number");
    return value.get<double>();
  }
  double number_or_zero(const char* key) const { return at(key).is_null() ? 0 : number(key); }
  std::uint64_t count(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned()) wrong(key, "no count");
    return value.get<std::uint64_t>();
  }
  const Json& list(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) wrong(key, "no list");
    return value;
  }
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong(const char* key, const char* what) const {
    throw Failure(fmt::format("{}: \"{}\" is {}", where_, key, what));
  }

  const Json& object_;
  std::string where_;
};

struct Reason {
  std::uint64_t count = 0;
  std::string text, place, advice;
};

struct Module {
  std::string name, state;
  double share = 0;
  std::uint64_t calls = 0, replayed = 0, other_reasons = 0;
  double eager = 0, observed = 0, replay = 0, eager_interval = 0, replay_interval = 0, gain = 0;
  std::vector<Reason> reasons;
};

// The program's own graphs, where they were virtual.
struct Graphs {
  bool any = false;
  std::uint64_t made = 0, pinned = 0, launches = 0, by_node = 0, taken_over = 0, ahead = 0, built = 0;
  std::uint64_t execs = 0, device_bytes = 0;
  std::uint64_t raw_bytes = 0, resident_bytes = 0;
  std::vector<Reason> left;
};

// Where the programs of modules' calls lie that wait to be replayed.
struct Store {
  std::uint64_t programs = 0, families = 0, raw = 0, deduplicated = 0, stored = 0, resident = 0;
};

// What GRAPE_CACHE had, and what came of it.
struct Cache {
  std::string file;
  std::uint64_t programs = 0, used = 0, added = 0;
};

// What was launched outside of modules' calls, and by which functions most.
struct Function {
  std::string region, place;
  double share = 0;
};
struct Outside {
  std::uint64_t launches = 0;
  double share = 0;
  std::string named;       // the patterns in GRAPE_REGIONS
  bool automatic = false;  // and `auto`,
  std::string found;       // which found these
  std::vector<Function> functions;
};

struct Report {
  Graphs graphs;
  Outside outside;
  Cache cache;
  Store store;
  double seconds = 0, region_seconds = 0;
  std::uint64_t left_out = 0;
  std::vector<Module> modules;
};

Module module_of(const Fields& fields) {
  Module module;
  module.name = fields.text("region");
  module.state = fields.text("state");
  module.share = fields.number("share");
  module.calls = fields.count("calls");
  module.replayed = fields.count("replayed");
  module.eager = fields.number_or_zero("eager_ms");
  module.observed = fields.number_or_zero("observed_ms");
  module.replay = fields.number_or_zero("replay_ms");
  module.eager_interval = fields.number_or_zero("eager_interval_ms");
  module.replay_interval = fields.number_or_zero("replay_interval_ms");
  module.gain = fields.number_or_zero("gain");
  module.other_reasons = fields.count("other_reasons");
  for (const Json& item : fields.list("reasons")) {
    const Fields reason(item, fmt::format("{}: reason {}", fields.where(), module.reasons.size()));
    module.reasons.push_back(
        {reason.count("count"), reason.text("text"), reason.text_or_none("place"), reason.text_or_none("advice")});
  }
  return module;
}

Graphs graphs_of(const Fields& fields) {
  Graphs graphs;
  graphs.any = true;
  graphs.made = fields.count("virtual");
  graphs.pinned = fields.count("pinned");
  graphs.launches = fields.count("launches");
  graphs.by_node = fields.count("by_node");
  graphs.taken_over = fields.count("taken_over");
  graphs.ahead = fields.count("ahead");
  graphs.built = fields.count("built");
  graphs.execs = fields.count("execs");
  graphs.device_bytes = fields.count("device_bytes");
  const Fields store(fields.at("store"), fields.where() + ": store");
  graphs.raw_bytes = store.count("raw_bytes");
  graphs.resident_bytes = store.count("resident_bytes");
  for (const Json& item : fields.list("left")) {
    const Fields reason(item, fmt::format("{}: reason {}", fields.where(), graphs.left.size()));
    graphs.left.push_back({reason.count("count"), reason.text("reason"), "", ""});
  }
  return graphs;
}

Store store_of(const Fields& fields) {
  return {fields.count("programs"),           fields.count("families"),     fields.count("raw_bytes"),
          fields.count("deduplicated_bytes"), fields.count("stored_bytes"), fields.count("resident_bytes")};
}

Cache cache_of(const Fields& fields) {
  return {fields.text("file"), fields.count("programs"), fields.count("used"), fields.count("added")};
}

Outside outside_of(const Fields& fields) {
  Outside outside{fields.count("launches"),      fields.number("share"),       fields.text("named"),
                  !fields.at("found").is_null(), fields.text_or_none("found"), {}};
  for (const Json& item : fields.list("functions")) {
    const Fields function(item, fmt::format("{}: function {}", fields.where(), outside.functions.size()));
    outside.functions.push_back({function.text("region"), function.text("place"), function.number("share")});
  }
  return outside;
}

Json parse(const std::string& path, const std::string& text) {
  if (text.compare(0, sizeof trace::kMagic, reinterpret_cast<const char*>(trace::kMagic.data()),
                   sizeof trace::kMagic) == 0) {
    throw Failure(fmt::format("{}: a trace, not a report; see grape dump", escape_text(path)));
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Failure(fmt::format("{}: no report: it is not JSON, or not whole", escape_text(path)));
  const auto version = json.is_object() ? json.find("version") : json.end();
  if (!json.is_object() || version == json.end() || !version->is_number_integer() || json.count("regions") == 0) {
    throw Failure(fmt::format("{}: no report of GRAPE_REPORT", escape_text(path)));
  }
  if (*version != kVersion) {
    throw Failure(fmt::format("{}: a report of version {}; this tool knows version {}", escape_text(path),
                              escape_text(version->dump()), kVersion));
  }
  return json;
}

Report report_of(const std::string& path, const Json& json) {
  const Fields fields(json, escape_text(path));
  Report report;
  report.seconds = fields.number("seconds");
  report.region_seconds = fields.number("region_seconds");
  report.left_out = fields.count("regions_left_out");
  if (json.count("graphs") != 0) report.graphs = graphs_of(Fields(json["graphs"], fields.where() + ": graphs"));
  if (json.count("cache") != 0) report.cache = cache_of(Fields(json["cache"], fields.where() + ": cache"));
  if (json.count("outside") != 0) report.outside = outside_of(Fields(json["outside"], fields.where() + ": outside"));
  if (json.count("store") != 0) report.store = store_of(Fields(json["store"], fields.where() + ": store"));
  for (const Json& item : fields.list("regions")) {
    const std::string where = fmt::format("{}: module {}", fields.where(), report.modules.size());
    report.modules.push_back(module_of(Fields(item, where)));
  }
  const auto more = [](const Module& a, const Module& b) { return a.share > b.share; };
  std::stable_sort(report.modules.begin(), report.modules.end(), more);
  return report;
}

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }
std::string milliseconds(double value) { return value > 0 ? fmt::format("{:.3f}", value) : ""; }

void print_modules(Output& out, const std::vector<Module>& modules, std::size_t limit) {
  Table table({{"share", "share", true},
               {"state", "state"},
               {"calls", "calls", true},
               {"replayed", "replayed", true},
               {"eager", "cpu eager", true},
               {"replay", "cpu replay", true},
               {"eager_loop", "loop eager", true},
               {"replay_loop", "loop replay", true},
               {"gain", "gain", true},
               {"module", "module", false, true}});
  for (const Module& module : modules) {
    const bool timed = module.eager > 0 || module.observed <= 0;
    table.add({percent(module.share), module.state, module.calls, module.replayed,
               timed ? milliseconds(module.eager) : "<" + milliseconds(module.observed), milliseconds(module.replay),
               milliseconds(module.eager_interval), milliseconds(module.replay_interval),
               module.gain > 0 ? fmt::format("{:.2f}x", module.gain) : "", module.name});
  }
  table.text(out, limit);
}

// By words, `first` in front of the first line, as much space in front of the others.
void print_wrapped(Output& out, const std::string& first, const std::string& text, std::size_t columns) {
  const std::size_t indent = width(first);
  std::string line = first;
  bool empty = true;  // nothing but the indent
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!empty && width(line) + 1 + width(word) > columns) {
      out.print("{}\n", line);
      line.assign(indent, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  out.print("{}\n", line);
}

void print_reasons(Output& out, const Module& module, const ReportOptions& options) {
  if (module.reasons.empty()) return;
  const std::size_t columns = out.columns() > 40 ? out.columns() : kWrapAt;
  out.print("\n{} ({}), calls that were not replayed:\n", escape_text(module.name), percent(module.share));
  const std::size_t most = options.all ? module.reasons.size() : kReasonsShown;
  std::uint64_t hidden = module.other_reasons;
  for (std::size_t i = 0; i < module.reasons.size(); ++i) {
    const Reason& reason = module.reasons[i];
    if (i >= most) {
      hidden += reason.count;
      continue;
    }
    print_wrapped(out, fmt::format("{:>8}  ", reason.count), escape_text(reason.text), columns);
    if (!reason.place.empty()) print_wrapped(out, "          at ", escape_text(reason.place), columns);
    if (!reason.advice.empty()) print_wrapped(out, "          -> ", escape_text(reason.advice), columns);
  }
  if (hidden != 0) out.print("{:>8}  for other reasons\n", hidden);
}

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void print_store(Output& out, const Store& store) {
  if (store.programs == 0) return;
  out.print(
      "\n{} programs of {} shapes were kept in the end: {:.1f} MiB; {:.1f} MiB as differences, {:.1f} MiB compressed, "
      "{:.1f} MiB of host memory in all\n",
      store.programs, store.families, mebibytes(store.raw), mebibytes(store.deduplicated), mebibytes(store.stored),
      mebibytes(store.resident));
}

void print_cache(Output& out, const Cache& cache) {
  if (cache.file.empty()) return;
  out.print("\n{}: {} programs of earlier processes, {} of them used; {} added\n", escape_text(cache.file),
            cache.programs, cache.used, cache.added);
}

// With the line that makes them regions, where they do not become that by themselves; what is one stays one.
void print_outside(Output& out, const Outside& outside) {
  if (outside.launches == 0) return;
  out.print("\noutside of modules: {} launches, {} of all that the program made itself{}\n", outside.launches,
            percent(outside.share), outside.functions.empty() ? "" : "; of these in calls of:");
  std::string regions = outside.named;
  for (const Function& function : outside.functions) {
    out.print("{:>8}  {} ({})\n", percent(function.share), escape_text(function.region), escape_text(function.place));
    regions += (regions.empty() ? "" : ",") + function.region;
  }
  if (outside.automatic) {
    if (!outside.found.empty()) out.print("regions that were found: {}\n", escape_text(outside.found));
  } else if (!outside.functions.empty()) {
    out.print("make them regions (`auto` in GRAPE_REGIONS does while the program runs):\nGRAPE_REGIONS={}\n",
              escape_text(regions));
  }
}

void print_graphs(Output& out, const Graphs& graphs) {
  if (!graphs.any) return;
  out.print(
      "\ngraphs that the program made itself: {} virtual ({} of them on execs of their own, since it changed them)\n",
      graphs.made, graphs.pinned);
  out.print(
      "{:>8}  launches, {} of them node by node; for {} another graph's exec was taken over (for {} ahead), for {} one "
      "was built\n",
      graphs.launches, graphs.by_node, graphs.taken_over, graphs.ahead, graphs.built);
  out.print(
      "{:>8}  execs at the end, about {:.1f} MiB of the device; {:.1f} MiB of programs in {:.1f} MiB of host memory\n",
      graphs.execs, mebibytes(graphs.device_bytes), mebibytes(graphs.raw_bytes), mebibytes(graphs.resident_bytes));
  for (const Reason& reason : graphs.left) {
    out.print("{:>8}  left to the driver: {}\n", reason.count, escape_text(reason.text));
  }
}

void print_text(Output& out, const Report& report, const ReportOptions& options) {
  std::vector<Module> modules = report.modules;
  const std::size_t all = modules.size();
  if (!options.all) {
    const auto idle = [](const Module& module) { return module.state == "no GPU work"; };
    modules.erase(std::remove_if(modules.begin(), modules.end(), idle), modules.end());
  }
  const double share = report.seconds > 0 ? std::min(report.region_seconds / report.seconds, 1.0) : 0;
  out.print("{}: {:.1f} s, {} of it in modules' calls\n", escape_text(options.file), report.seconds, percent(share));
  print_graphs(out, report.graphs);
  if (modules.empty()) {
    if (!report.graphs.any || all != 0) {
      out.print("{}\n",
                all == 0 ? "no module was called" : "no module that was called has work on a GPU (--all shows them)");
    }
    print_outside(out, report.outside);
    return;
  }
  out.print("\n");
  const std::size_t limit = options.all ? 0 : options.limit;
  print_modules(out, modules, limit);
  if (report.left_out != 0) out.print("and {} whose modules are gone\n", report.left_out);
  print_outside(out, report.outside);
  print_store(out, report.store);
  print_cache(out, report.cache);
  if (limit != 0 && modules.size() > limit) modules.resize(limit);
  for (const Module& module : modules) print_reasons(out, module, options);
  out.print("\n{}\n", kLegend);
}

}  // namespace

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* report = app.add_subcommand("report", "Show what became of each module in mode replay, and why");
  report->footer(kFooter);
  report->add_option("file", options.file, "What GRAPE_REPORT has written")->required();
  add_count(*report, "--limit", options.limit, "At most so many modules, 0 for all");
  report->add_flag("--all", options.all, "All modules and all reasons");
  report->add_flag("--json", options.json, "As it is, checked");
  report->add_flag("--pager", options.pager, "Through $PAGER, on a terminal");
  report->add_option("-o,--output", options.output, "Write to this file");
  return report;
}

int run_report(const ReportOptions& options) {
  const Json json = parse(options.file, read_file(options.file));
  const Report report = report_of(options.file, json);
  check_output(options.output, options.file);
  Output out(options.output, options.pager && options.output.empty());
  if (options.json) {
    out.print("{}\n", dump_json(json, 2));
  } else {
    print_text(out, report, options);
  }
  out.close();
  return kOk;
}

}  // namespace grape::tools
