#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "compressor/trace/chunk.h"
#include "tools/commands.h"
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

// An object of the report, its fields by name and type. What is wrong is said with where it stands.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
    if (!object.is_object()) throw Failure(where_ + " is no object");
  }

  bool has(const char* key) const { return object_->count(key) != 0; }
  const Json& at(const char* key) const {
    const auto found = object_->find(key);
    if (found == object_->end()) throw Failure(fmt::format("{}: there is no \"{}\"", where_, key));
    return *found;
  }
  Fields part(const char* key) const { return {at(key), fmt::format("{}: {}", where_, key)}; }
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
  double mebibytes(const char* key) const { return static_cast<double>(count(key)) / (1 << 20); }
  // The objects of a list; `what` each of them is.
  std::vector<Fields> list(const char* key, const char* what) const {
    const Json& value = at(key);
    if (!value.is_array()) wrong(key, "no list");
    std::vector<Fields> items;
    for (const Json& item : value) items.emplace_back(item, fmt::format("{}: {} {}", where_, what, items.size()));
    return items;
  }

 private:
  [[noreturn]] void wrong(const char* key, const char* what) const {
    throw Failure(fmt::format("{}: \"{}\" is {}", where_, key, what));
  }

  const Json* object_;
  std::string where_;
};

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

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }
std::string milliseconds(double value) { return value > 0 ? fmt::format("{:.3f}", value) : ""; }

void print_modules(Output& out, const std::vector<Fields>& modules, std::size_t limit) {
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
  for (const Fields& module : modules) {
    const double eager = module.number_or_zero("eager_ms"), observed = module.number_or_zero("observed_ms");
    const double gain = module.number_or_zero("gain");
    table.add({percent(module.number("share")), module.text("state"), module.count("calls"), module.count("replayed"),
               eager > 0 || observed <= 0 ? milliseconds(eager) : "<" + milliseconds(observed),
               milliseconds(module.number_or_zero("replay_ms")),
               milliseconds(module.number_or_zero("eager_interval_ms")),
               milliseconds(module.number_or_zero("replay_interval_ms")), gain > 0 ? fmt::format("{:.2f}x", gain) : "",
               module.text("region")});
  }
  table.text(out, limit);
}

// By words, `first` in front of the first line, as much space in front of the others.
void print_wrapped(Output& out, const std::string& first, const std::string& text, std::size_t columns) {
  const std::size_t indent = width(first);
  std::string line = first;
  bool empty = true;  // nothing but the indent
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ' ');) {
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

void print_reasons(Output& out, const Fields& module, const ReportOptions& options) {
  const std::vector<Fields> reasons = module.list("reasons", "reason");
  std::uint64_t hidden = module.count("other_reasons");
  if (reasons.empty()) return;
  const std::size_t columns = out.columns() > 40 ? out.columns() : kWrapAt;
  out.print("\n{} ({}), calls that were not replayed:\n", escape_text(module.text("region")),
            percent(module.number("share")));
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const Fields& reason = reasons[i];
    const std::uint64_t count = reason.count("count");
    if (!options.all && i >= kReasonsShown) {
      hidden += count;
      continue;
    }
    print_wrapped(out, fmt::format("{:>8}  ", count), escape_text(reason.text("text")), columns);
    const std::string place = reason.text_or_none("place"), advice = reason.text_or_none("advice");
    if (!place.empty()) print_wrapped(out, "          at ", escape_text(place), columns);
    if (!advice.empty()) print_wrapped(out, "          -> ", escape_text(advice), columns);
  }
  if (hidden != 0) out.print("{:>8}  for other reasons\n", hidden);
}

// Where the programs of modules' calls lie that wait to be replayed.
void print_store(Output& out, const Fields& store) {
  if (store.count("programs") == 0) return;
  out.print(
      "\n{} programs of {} shapes were kept in the end: {:.1f} MiB; {:.1f} MiB as differences, {:.1f} MiB compressed, "
      "{:.1f} MiB of host memory in all\n",
      store.count("programs"), store.count("families"), store.mebibytes("raw_bytes"),
      store.mebibytes("deduplicated_bytes"), store.mebibytes("stored_bytes"), store.mebibytes("resident_bytes"));
}

// What GRAPE_CACHE had, and what came of it.
void print_cache(Output& out, const Fields& cache) {
  out.print("\n{}: {} programs of earlier processes, {} of them used; {} added\n", escape_text(cache.text("file")),
            cache.count("programs"), cache.count("used"), cache.count("added"));
}

// What was launched outside of modules' calls, and by which functions most. With the line that makes them regions,
// where they do not become that by themselves; what is one stays one.
void print_outside(Output& out, const Fields& outside) {
  const std::uint64_t launches = outside.count("launches");
  if (launches == 0) return;
  const std::vector<Fields> functions = outside.list("functions", "function");
  out.print("\noutside of modules: {} launches, {} of all that the program made itself{}\n", launches,
            percent(outside.number("share")), functions.empty() ? "" : "; of these in calls of:");
  std::string regions = outside.text("named");  // the patterns in GRAPE_REGIONS
  for (const Fields& function : functions) {
    const std::string region = function.text("region");
    out.print("{:>8}  {} ({})\n", percent(function.number("share")), escape_text(region),
              escape_text(function.text("place")));
    regions += (regions.empty() ? "" : ",") + region;
  }
  const std::string found = outside.text_or_none("found");
  if (!outside.at("found").is_null()) {  // `auto` was among the patterns
    if (!found.empty()) out.print("regions that were found: {}\n", escape_text(found));
  } else if (!functions.empty()) {
    out.print("make them regions (`auto` in GRAPE_REGIONS does while the program runs):\nGRAPE_REGIONS={}\n",
              escape_text(regions));
  }
}

// The program's own graphs, where they were virtual.
void print_graphs(Output& out, const Fields& graphs) {
  out.print(
      "\ngraphs that the program made itself: {} virtual ({} of them on execs of their own, since it changed them)\n",
      graphs.count("virtual"), graphs.count("pinned"));
  out.print(
      "{:>8}  launches, {} of them node by node; for {} another graph's exec was taken over (for {} ahead), for {} one "
      "was built\n",
      graphs.count("launches"), graphs.count("by_node"), graphs.count("taken_over"), graphs.count("ahead"),
      graphs.count("built"));
  const Fields store = graphs.part("store");
  out.print(
      "{:>8}  execs at the end, about {:.1f} MiB of the device; {:.1f} MiB of programs in {:.1f} MiB of host memory\n",
      graphs.count("execs"), graphs.mebibytes("device_bytes"), store.mebibytes("raw_bytes"),
      store.mebibytes("resident_bytes"));
  for (const Fields& reason : graphs.list("left", "reason")) {
    out.print("{:>8}  left to the driver: {}\n", reason.count("count"), escape_text(reason.text("reason")));
  }
}

// A part of the report that may be missing.
void print_part(Output& out, const Fields& report, const char* key, void (*print)(Output&, const Fields&)) {
  if (report.has(key)) print(out, report.part(key));
}

void print_text(Output& out, const Fields& report, const ReportOptions& options) {
  std::vector<Fields> modules = report.list("regions", "module");
  const std::size_t all = modules.size();
  std::stable_sort(modules.begin(), modules.end(),
                   [](const Fields& a, const Fields& b) { return a.number("share") > b.number("share"); });
  if (!options.all) {
    const auto idle = [](const Fields& module) { return module.text("state") == "no GPU work"; };
    modules.erase(std::remove_if(modules.begin(), modules.end(), idle), modules.end());
  }
  const double seconds = report.number("seconds"), in_regions = report.number("region_seconds");
  const double share = seconds > 0 ? std::min(in_regions / seconds, 1.0) : 0;
  out.print("{}: {:.1f} s, {} of it in modules' calls\n", escape_text(options.file), seconds, percent(share));
  print_part(out, report, "graphs", print_graphs);
  const std::uint64_t left_out = report.count("regions_left_out");
  if (modules.empty()) {
    if (!report.has("graphs") || all != 0) {
      out.print("{}\n",
                all == 0 ? "no module was called" : "no module that was called has work on a GPU (--all shows them)");
    }
    return print_part(out, report, "outside", print_outside);
  }
  out.print("\n");
  const std::size_t limit = options.all ? 0 : options.limit;
  print_modules(out, modules, limit);
  if (left_out != 0) out.print("and {} whose modules are gone\n", left_out);
  print_part(out, report, "outside", print_outside);
  print_part(out, report, "store", print_store);
  print_part(out, report, "cache", print_cache);
  for (std::size_t i = 0; i < modules.size() && (limit == 0 || i < limit); ++i) print_reasons(out, modules[i], options);
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
  const Fields report(json, escape_text(options.file));
  // What is wrong with it is found before anything is written.
  Output nowhere;
  ReportOptions everything = options;
  everything.all = true;
  print_text(nowhere, report, everything);
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
