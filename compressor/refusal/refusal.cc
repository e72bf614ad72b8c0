#include "compressor/refusal/refusal.h"

namespace grape::refusal {
namespace {

enum class Advice : std::uint8_t {
#define GRAPE_ADVICE(id, text) id,
#include "compressor/refusal/advice.def"
#undef GRAPE_ADVICE
};

constexpr const char* kAdvice[] = {
#define GRAPE_ADVICE(id, text) text,
#include "compressor/refusal/advice.def"
#undef GRAPE_ADVICE
};

enum class Lasts : std::uint8_t { lasting, passing };

struct Row {
  const char *name, *kind;
  Advice advice;
  Lasts lasts;
  const char* text;
};

constexpr Row kRows[] = {
    {"none", "other", Advice::none, Lasts::lasting, ""},
#define GRAPE_REFUSAL(id, kind, advice, lasts, text) {#id, #kind, Advice::advice, Lasts::lasts, text},
#include "compressor/refusal/refusals.def"
#undef GRAPE_REFUSAL
};

const Row& row_of(RefusalId id) noexcept { return kRows[static_cast<std::size_t>(id)]; }

}  // namespace

Refusal::Refusal(const Refusal& other) = default;
Refusal::Refusal(Refusal&& other) noexcept = default;
Refusal& Refusal::operator=(const Refusal& other) = default;
Refusal& Refusal::operator=(Refusal&& other) noexcept = default;

std::string text_of(RefusalId id, const std::string_view* parts, std::size_t count) {
  std::string_view rest = row_of(id).text;
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = rest.find("{}");
    text.append(rest.substr(0, at)).append(parts[i]);
    rest.remove_prefix(at + 2);
  }
  return text.append(rest);
}

Refusal out_of_memory() noexcept { return make(no_memory); }

const char* name_of(RefusalId id) noexcept { return row_of(id).name; }
const char* kind_of(RefusalId id) noexcept { return row_of(id).kind; }
const char* advice_of(RefusalId id) noexcept { return kAdvice[static_cast<std::size_t>(row_of(id).advice)]; }
bool is_passing(RefusalId id) noexcept { return row_of(id).lasts == Lasts::passing; }

std::string in_words(const Refusal& refusal) {
  return refusal.place.empty() ? refusal.text : refusal.text + ", at " + refusal.place;
}

}  // namespace grape::refusal
