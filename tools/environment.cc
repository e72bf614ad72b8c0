#include "tools/environment.h"

#include <cstring>
#include <string_view>

#include "tools/text/escape.h"

namespace grape::tools {
namespace {

std::vector<std::string>* g_complaints = nullptr;  // the library's parser takes a plain function

void collect(const char* line) { g_complaints->emplace_back(line); }

// The library says what it does instead; the launcher does nothing instead.
std::string without_fallback(const std::string& line) {
  for (const char* tail : {"; using ", "; ignored"}) {
    const std::size_t at = line.rfind(tail);
    if (at != std::string::npos) return line.substr(0, at);
  }
  return line;
}

// "GRAPE_MODE=obsrve is not one of off, observe" → the word that was probably meant.
std::string suggestion(const std::string& line) {
  const std::size_t equals = line.find('='), is = line.find(" is not one of ");
  if (equals == std::string::npos || is == std::string::npos || equals > is) return "";
  std::vector<std::string> words(1);
  for (const char c : line.substr(is + std::strlen(" is not one of "))) {
    if (c == ' ') continue;
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  const std::string near = nearest(std::string_view(line).substr(equals + 1, is - equals - 1), words);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

}  // namespace

std::unique_ptr<Config> read_environment(const char* const* environment) {
  auto config = std::make_unique<Config>();
  parse_environment(environment, *config, [](const char*) {});
  return config;
}

std::vector<std::string> environment_complaints(const char* const* environment) {
  std::vector<std::string> complaints;
  const auto config = std::make_unique<Config>();
  g_complaints = &complaints;
  parse_environment(environment, *config, collect);
  g_complaints = nullptr;
  for (std::string& line : complaints) {
    line = without_fallback(line);
    line += suggestion(line);
  }
  return complaints;
}

}  // namespace grape::tools
