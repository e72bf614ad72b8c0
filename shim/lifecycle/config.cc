#include "shim/lifecycle/config.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace grape {
namespace {

constexpr std::size_t kShown = 48;  // bytes of a bad value that a warning repeats

template <class Value>
struct Choice {
  const char* word;
  Value value;
};

constexpr Choice<Mode> kModes[] = {{"off", Mode::kOff}, {"observe", Mode::kObserve}, {"replay", Mode::kReplay}};
constexpr Choice<Stacks> kStackChoices[] = {
    {"off", Stacks::kOff}, {"leaf", Stacks::kLeaf}, {"python", Stacks::kPython}, {"native", Stacks::kNative}};
constexpr Choice<Range> kRanges[] = {{"process", Range::kProcess}, {"profiler", Range::kProfiler}};
constexpr Choice<LogLevel> kLevels[] = {{"error", LogLevel::kError},
                                        {"warning", LogLevel::kWarning},
                                        {"info", LogLevel::kInfo},
                                        {"debug", LogLevel::kDebug}};
constexpr Choice<bool> kGraphs[] = {{"real", false}, {"virtual", true}};
constexpr Choice<bool> kLookBudgets[] = {{"limited", false}, {"unlimited", true}};
constexpr Choice<bool> kSwitch[] = {{"0", false},  {"1", true},   {"false", false}, {"true", true},
                                    {"no", false}, {"yes", true}, {"", false}};
constexpr Choice<Varying> kVarying[] = {{"0", Varying::kNever},
                                        {"1", Varying::kAlways},
                                        {"false", Varying::kNever},
                                        {"true", Varying::kAlways},
                                        {"no", Varying::kNever},
                                        {"yes", Varying::kAlways},
                                        {"spread", Varying::kWithinSpread},
                                        {"", Varying::kWithinSpread}};

using Warn = void (*)(const char*);

// Printable ASCII only, cut: a value may be a megabyte of anything.
struct Shown {
  explicit Shown(const char* value) {
    std::size_t i = 0;
    for (; value[i] != '\0' && i < kShown; ++i) text[i] = value[i] >= 0x20 && value[i] < 0x7f ? value[i] : '?';
    std::memcpy(text + i, value[i] == '\0' ? "" : "...", value[i] == '\0' ? 1 : 4);
  }
  char text[kShown + 4];
};

__attribute__((format(printf, 2, 3))) void complain(Warn warn, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  warn(line);
}

template <class Value, std::size_t N>
Value choose(const char* name, const char* value, const Choice<Value> (&choices)[N], Value otherwise, Warn warn) {
  for (const Choice<Value>& choice : choices) {
    if (std::strcmp(choice.word, value) == 0) return choice.value;
  }
  char allowed[128] = "";
  const char* fallback = "";
  for (const Choice<Value>& choice : choices) {
    if (*choice.word == '\0') continue;
    if (*allowed != '\0') std::strncat(allowed, ", ", sizeof allowed - std::strlen(allowed) - 1);
    std::strncat(allowed, choice.word, sizeof allowed - std::strlen(allowed) - 1);
    if (choice.value == otherwise && *fallback == '\0') fallback = choice.word;
  }
  complain(warn, "%s=%s is not one of %s; using %s", name, Shown(value).text, allowed, fallback);
  return otherwise;
}

// A size: digits, and K, M or G (powers of 1024) behind them.
std::uint64_t size_of(const char* name, const char* value, std::uint64_t otherwise, Warn warn) {
  std::uint64_t size = 0;
  const char* p = value;
  for (; *p >= '0' && *p <= '9' && size < (std::uint64_t{1} << 50); ++p) {
    size = size * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  const bool digits = p != value;
  int shift = 0;
  if (*p == 'K' || *p == 'M' || *p == 'G') shift = *p++ == 'K' ? 10 : p[-1] == 'M' ? 20 : 30;
  if (digits && *p == '\0' && size < (std::uint64_t{1} << (60 - shift))) return size << shift;
  complain(warn, "%s=%s is not a size such as 256M; using %lluM", name, Shown(value).text,
           static_cast<unsigned long long>(otherwise >> 20));
  return otherwise;
}

// How often: a whole number; 0 is never.
std::uint32_t count_of(const char* name, const char* value, Warn warn) {
  constexpr std::uint32_t kMost = 1000000000;
  std::uint32_t count = 0;
  const char* p = value;
  for (; *p >= '0' && *p <= '9' && count <= kMost / 10; ++p) count = count * 10 + static_cast<std::uint32_t>(*p - '0');
  if (p != value && *p == '\0' && count <= kMost) return count;
  complain(warn, "%s=%s is not a number from 0 to %u; using 0", name, Shown(value).text, kMost);
  return 0;
}

void copy_text(const char* name, const char* value, char* out, std::size_t room, Warn warn) {
  const std::size_t bytes = std::strlen(value);
  if (bytes >= room) return complain(warn, "%s is %zu bytes long, more than %zu; ignored", name, bytes, room - 1);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(value[i]) < 0x20) return complain(warn, "%s has a control character; ignored", name);
  }
  std::memcpy(out, value, bytes + 1);
}

// package.module:Qualified.name, each part of identifier characters, dots and the wildcards * ? [ ] !
bool is_pattern(const char* begin, const char* end) {
  int colons = 0;
  for (const char* p = begin; p != end; ++p) {
    const auto c = static_cast<unsigned char>(*p);
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
    if (*p == ':') ++colons;
    if (!word && std::strchr(".:*?[]!-<>", *p) == nullptr) return false;
  }
  return colons == 1 && *begin != ':' && end[-1] != ':';
}

bool is_word(const char* first, const char* last, const char* word) {
  const auto bytes = static_cast<std::size_t>(last - first);
  return bytes == std::strlen(word) && std::memcmp(first, word, bytes) == 0;
}

// `automatic`: set where the word `auto` is among them; null: that is none. Nor is `modules`, which says what holds
// anyway, and is for saying nothing else.
void copy_patterns(const char* name, const char* value, char* out, std::size_t room, bool* automatic, Warn warn) {
  char raw[sizeof(Config::regions)] = "";
  copy_text(name, value, raw, room < sizeof raw ? room : sizeof raw, warn);
  std::size_t used = 0;
  for (const char* p = raw; *p != '\0';) {
    const char* end = p + std::strcspn(p, ",");
    const char* first = p + std::strspn(p, " ");
    const char* last = end;
    while (last > first && last[-1] == ' ') --last;
    p = *end == ',' ? end + 1 : end;
    if (first >= last) continue;
    const bool is_auto = is_word(first, last, "auto");
    if (automatic != nullptr && (is_auto || is_word(first, last, "modules"))) {
      *automatic = *automatic || is_auto;
      continue;
    }
    if (!is_pattern(first, last)) {
      char item[sizeof raw];
      std::memcpy(item, first, static_cast<std::size_t>(last - first));
      item[last - first] = '\0';
      complain(warn, "%s: %s is not a pattern package.module:Qualified.name; ignored", name, Shown(item).text);
      continue;
    }
    if (used != 0) out[used++] = ',';
    std::memcpy(out + used, first, static_cast<std::size_t>(last - first));
    used += static_cast<std::size_t>(last - first);
  }
  out[used] = '\0';
}

constexpr const char* kNames[] = {
    "GRAPE_MODE",    "GRAPE_TRACE",    "GRAPE_TRACE_REPLACE", "GRAPE_LOG",
    "GRAPE_REGIONS", "GRAPE_EXCLUDE",  "GRAPE_STACKS",        "GRAPE_REPORT",
    "GRAPE_STRICT",  "GRAPE_VALIDATE", "GRAPE_MEMORY_BUDGET", "GRAPE_ALLOW_NONDETERMINISTIC",
    "GRAPE_GRAPHS",  "GRAPE_CACHE",    "GRAPE_DISABLE",       "GRAPE_TRACE_RANGE",
    "GRAPE_RUN_PID", "GRAPE_AUTOGRAD", "GRAPE_LOOK_BUDGET"};

// Edit distance, capped: enough to tell a slip of the finger.
std::size_t distance(const char* a, const char* b) {
  constexpr std::size_t kMost = 32;
  const std::size_t rows = std::strlen(a), columns = std::strlen(b);
  if (rows > kMost || columns > kMost) return kMost;
  std::size_t row[kMost + 1];
  for (std::size_t j = 0; j <= columns; ++j) row[j] = j;
  for (std::size_t i = 1; i <= rows; ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= columns; ++j) {
      const std::size_t best = std::min({diagonal + (a[i - 1] == b[j - 1] ? 0 : 1), row[j] + 1, row[j - 1] + 1});
      diagonal = std::exchange(row[j], best);
    }
  }
  return row[columns];
}

void warn_unknown(const char* name, Warn warn) {
  const char* nearest = nullptr;
  std::size_t best = 4;
  for (const char* known : kNames) {
    const std::size_t d = distance(name, known);
    if (d < best) {
      best = d;
      nearest = known;
    }
  }
  complain(warn, "%s is not a setting of Grape; %s%s%s", Shown(name).text,
           nearest != nullptr ? "did you mean " : "ignored", nearest != nullptr ? nearest : "",
           nearest != nullptr ? "?" : "");
}

// The value of a variable that is there and not empty; null: it is not.
const char* value_in(const char* const* environment, const char* name) {
  const std::size_t bytes = std::strlen(name);
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const char* value = *environment + bytes;
    if (std::strncmp(*environment, name, bytes) == 0 && value[0] == '=' && value[1] != '\0') return value + 1;
  }
  return nullptr;
}

// What a mode that is not understood is taken for.
Mode safe_mode(const Config& out) { return out.mode == Mode::kObserve ? Mode::kObserve : Mode::kOff; }

void apply(const char* name, const char* value, Config& out, Warn warn) {
  const auto is = [name](const char* known) { return std::strcmp(name, known) == 0; };
  if (is("GRAPE_MODE")) {
    out.mode = choose(name, value, kModes, safe_mode(out), warn);
  } else if (is("GRAPE_STACKS")) {
    out.stacks = choose(name, value, kStackChoices, Stacks::kPython, warn);
  } else if (is("GRAPE_LOG")) {
    out.log = choose(name, value, kLevels, LogLevel::kWarning, warn);
  } else if (is("GRAPE_DISABLE")) {
    // Whoever sets it wants Grape out of the way: a value that is not understood disables too.
    out.disabled = choose(name, value, kSwitch, true, warn);
  } else if (is("GRAPE_TRACE_REPLACE")) {
    out.replace = choose(name, value, kSwitch, false, warn);
  } else if (is("GRAPE_AUTOGRAD")) {
    out.autograd = choose(name, value, kSwitch, false, warn);
  } else if (is("GRAPE_ALLOW_NONDETERMINISTIC")) {
    out.varying = choose(name, value, kVarying, Varying::kNever, warn);
  } else if (is("GRAPE_TRACE_RANGE")) {
    out.range = choose(name, value, kRanges, Range::kProcess, warn);
  } else if (is("GRAPE_TRACE")) {
    copy_text(name, value, out.trace, sizeof out.trace, warn);
  } else if (is("GRAPE_MEMORY_BUDGET")) {
    out.memory_budget = size_of(name, value, out.memory_budget, warn);
  } else if (is("GRAPE_GRAPHS")) {
    out.virtual_graphs = choose(name, value, kGraphs, false, warn);
  } else if (is("GRAPE_REPORT")) {
    copy_text(name, value, out.report, sizeof out.report, warn);
  } else if (is("GRAPE_CACHE")) {
    copy_text(name, value, out.cache, sizeof out.cache, warn);
  } else if (is("GRAPE_STRICT")) {
    out.strict = choose(name, value, kSwitch, false, warn);
  } else if (is("GRAPE_EARLY_REGIONS")) {
    out.early_regions = choose(name, value, kSwitch, false, warn);
  } else if (is("GRAPE_FAMILIES")) {
    out.families = choose(name, value, kSwitch, false, warn);
  } else if (is("GRAPE_LOOK_BUDGET")) {
    out.unlimited_looks = choose(name, value, kLookBudgets, false, warn);
  } else if (is("GRAPE_VALIDATE")) {
    out.validate = count_of(name, value, warn);
  } else if (is("GRAPE_RUN_PID")) {
    out.run_pid = count_of(name, value, warn);
  } else if (is("GRAPE_REGIONS")) {
    copy_patterns(name, value, out.regions, sizeof out.regions, &out.auto_regions, warn);
  } else if (is("GRAPE_EXCLUDE")) {
    copy_patterns(name, value, out.exclude, sizeof out.exclude, nullptr, warn);
  } else {
    warn_unknown(name, warn);
  }
}

// What nobody has named is no error that a program could be blamed for, and what launches cannot be told without
// stacks. `named`: there is something in GRAPE_REGIONS; where that is nothing but what is not understood, something
// else was wanted than what would be found.
void settle_auto_regions(Config& out, bool named, Warn warn) {
  const char* against = out.strict ? "GRAPE_STRICT=1" : out.stacks == Stacks::kOff ? "GRAPE_STACKS=off" : nullptr;
  const bool asked = out.auto_regions;
  out.auto_regions = (asked || !named) && against == nullptr && out.mode == Mode::kReplay;
  if (!asked || against == nullptr) return;
  complain(warn, "GRAPE_REGIONS: auto finds nothing with %s; ignored", against);
}

}  // namespace

void parse_environment(const char* const* environment, Config& out, void (*warn)(const char* line)) noexcept {
  if (value_in(environment, "GRAPE_TRACE") != nullptr) out.mode = Mode::kObserve;
  for (const char* name : {"GRAPE_MODE", "GRAPE_TRACE", "GRAPE_REPORT", "GRAPE_STRICT", "GRAPE_VALIDATE",
                           "GRAPE_REGIONS", "GRAPE_GRAPHS", "GRAPE_CACHE"}) {
    out.asked = out.asked || value_in(environment, name) != nullptr;
  }
  const bool named = value_in(environment, "GRAPE_REGIONS") != nullptr;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, "GRAPE_", 6) != 0) continue;
    const char* equals = std::strchr(*environment, '=');
    char name[kShown];
    const std::size_t bytes = equals == nullptr ? 0 : static_cast<std::size_t>(equals - *environment);
    if (bytes == 0 || bytes >= sizeof name) {
      warn_unknown(bytes == 0 ? *environment : "GRAPE_ with a name longer than any", warn);
      continue;
    }
    std::memcpy(name, *environment, bytes);
    name[bytes] = '\0';
    apply(name, equals + 1, out, warn);
  }
  settle_auto_regions(out, named, warn);
}

}  // namespace grape
