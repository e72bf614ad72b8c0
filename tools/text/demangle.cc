#include "tools/text/demangle.h"

#include <csetjmp>
#include <cstddef>
#include <string_view>

// The demangler behind abi::__cxa_demangle, in the form that hands its output over piece by piece and holds no memory,
// so that it can be left at any time. In libstdc++.a (cp-demangle.c), not in the shared library.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled, void (*callback)(const char*, std::size_t, void*),
                                             void* opaque);

namespace grape::tools {
namespace {

constexpr std::size_t kLongestMangled = 16 * 1024;
constexpr std::size_t kLongestDemangled = 64 * 1024;
constexpr std::size_t kLongestShortened = 16 * 1024;
constexpr std::size_t kShortName = 96;
constexpr std::size_t kShortArguments = 56;

struct Collector {
  std::string text;
  std::jmp_buf too_long;
};

void collect(const char* piece, std::size_t bytes, void* opaque) {
  auto* collector = static_cast<Collector*>(opaque);
  if (collector->text.size() + bytes > kLongestDemangled) longjmp(collector->too_long, 1);  // NOLINT(cert-err52-cpp)
  collector->text.append(piece, bytes);
}

// The demangler is C code, which an exception could not pass through.
bool run_demangler(const char* mangled, Collector& collector) {
  if (setjmp(collector.too_long) != 0) return false;  // NOLINT(cert-err52-cpp)
  return __gcclibcxx_demangle_callback(mangled, collect, &collector) == 0;
}

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

bool word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// "a::b::c" becomes "c" in template arguments; outside of them names stay whole.
std::string without_inner_namespaces(const std::string& name) {
  std::string out;
  int depth = 0;
  std::size_t start = 0;  // where the current identifier begins in `out`
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth > 0 && c == ':' && i + 1 < name.size() && name[i + 1] == ':') {
      // Only after a plain identifier: "Foo<int>::bar" keeps its class.
      if (out.size() > start) {
        out.resize(start);
      } else {
        out += "::";
      }
      ++i;
      continue;
    }
    depth += c == '<' ? 1 : c == '>' && depth > 0 ? -1 : 0;
    out += c;
    if (!word(c)) start = out.size();
  }
  return out;
}

// Where the parameter list begins: the last top-level "(" that is not part of the name.
std::size_t parameters_begin(const std::string& name) {
  int angle = 0, round = 0;
  std::size_t at = std::string::npos;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_operator = i >= 8 && name.compare(i - 8, 8, "operator") == 0;
    if (round == 0 && !is_operator) angle += c == '<' ? 1 : c == '>' && angle > 0 ? -1 : 0;
    if (c == '(') {
      if (angle == 0 && round == 0 && i > 0 && !is_operator && name[i - 1] != ':' && name[i - 1] != ' ') at = i;
      ++round;
    } else if (c == ')' && round > 0) {
      --round;
    }
  }
  return at;
}

std::size_t return_type_end(const std::string& name) {
  int depth = 0;
  std::size_t end = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<' || c == '(' || c == '{') ++depth;
    if ((c == '>' || c == ')' || c == '}') && depth > 0) --depth;
    if (c == ' ' && depth == 0 && name.compare(i >= 8 ? i - 8 : 0, 8, "operator") != 0) end = i + 1;
  }
  return end;
}

}  // namespace

std::string demangle(const std::string& mangled) {
  if (mangled.size() > kLongestMangled || mangled.compare(0, 2, "_Z") != 0) return mangled;
  Collector collector;
  return run_demangler(mangled.c_str(), collector) ? collector.text : mangled;
}

std::string short_name(const std::string& demangled) {
  if (demangled.size() > kLongestShortened) return demangled.substr(0, kShortName) + "…";
  std::string name = demangled;
  erase_all(name, "(anonymous namespace)::");
  const std::size_t parameters = parameters_begin(name);
  if (parameters != std::string::npos) {
    name.resize(parameters);
    name.erase(0, return_type_end(name));
  }
  name = without_inner_namespaces(name);
  for (std::size_t at = name.find(" >"); at != std::string::npos; at = name.find(" >", at)) name.erase(at, 1);
  const std::size_t open = name.find('<');
  if (name.size() > kShortName && open != std::string::npos && name.size() - open > kShortArguments) {
    name = name.substr(0, open + kShortArguments);
    while (!name.empty() && (static_cast<unsigned char>(name.back()) & 0x80) != 0) name.pop_back();
    name += "…>";
  }
  return name;
}

KernelNames::Names& KernelNames::known(const std::string& mangled) {
  Names& names = names_[mangled];
  if (names.demangled.empty()) names.demangled = demangle(mangled);
  return names;
}

const std::string& KernelNames::shown(const std::string& mangled) {
  Names& names = known(mangled);
  if (full_) return names.demangled;
  if (names.shortened.empty()) names.shortened = short_name(names.demangled);
  return names.shortened;
}

}  // namespace grape::tools
