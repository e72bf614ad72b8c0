#include "compressor/program/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grape::program {
namespace {

constexpr unsigned kForms = 3;
enum Form : unsigned { kItself, kInverse, kInverseOfDouble };

constexpr std::size_t index_of(std::uint8_t code) noexcept { return (code - 1U) / kForms; }
constexpr Form form_of(std::uint8_t code) noexcept { return static_cast<Form>((code - 1U) % kForms); }
constexpr std::uint8_t code_of(std::size_t index, unsigned form) noexcept {
  return static_cast<std::uint8_t>(1 + kForms * index + form);
}

std::uint32_t float_bits(double number, Form form) noexcept {
  auto value = static_cast<float>(form == kInverseOfDouble ? 1.0 / number : number);
  if (form == kInverse) value = 1.0F / value;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::uint64_t double_bits(double number, Form form) noexcept {
  const double value = form == kItself ? number : 1.0 / number;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::uint64_t bits_of(std::uint8_t code, bool whole, const Numbers& numbers) noexcept {
  if (code == 0 || index_of(code) >= numbers.size()) return 0;
  const double number = numbers[index_of(code)];
  return whole ? double_bits(number, form_of(code)) : float_bits(number, form_of(code));
}

NumberForm unpacked(std::uint32_t packed) noexcept {
  return {static_cast<std::uint8_t>(packed), static_cast<std::uint8_t>(packed >> 8),
          static_cast<std::uint8_t>(packed >> 16)};
}

bool same_bits(double a, double b) noexcept { return double_bits(a, kItself) == double_bits(b, kItself); }

unsigned equal_floats(double a, double b) noexcept {
  unsigned equal = 0;
  for (const Form form : {kItself, kInverse, kInverseOfDouble}) equal += float_bits(a, form) == float_bits(b, form);
  return equal;
}
// In each form.
bool floats_differ(double a, double b) noexcept { return equal_floats(a, b) == 0; }
bool same_floats(double a, double b) noexcept { return equal_floats(a, b) == kForms; }

// Are all numbers that differ such that words tell of them?
bool are_ordinary(const Numbers& in_a, const Numbers& in_b) noexcept {
  if (in_a.size() != in_b.size() || in_a.size() > kMostNumbers) return false;
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    if (!same_bits(in_a[i], in_b[i]) && (!is_ordinary(in_a[i]) || !is_ordinary(in_b[i]))) return false;
  }
  return true;
}

constexpr std::uint64_t low_of(std::uint64_t word) noexcept { return word & 0xFFFF'FFFFu; }
constexpr std::uint64_t high_of(std::uint64_t word) noexcept { return word >> 32; }
constexpr std::uint64_t joined(std::uint64_t low, std::uint64_t high) noexcept { return low_of(low) | high << 32; }

// What a run had in a word.
struct Seen {
  enum class Kind : std::uint8_t { kPlain, kNumber, kAddress } kind = Kind::kPlain;
  std::uint64_t value = 0;  // of an address the lower half
  bool known = true;        // that is
};

// References that are put into a program, or taken out.
class Change {
 public:
  Change(Program& program, const Numbers& numbers) : program_(program), numbers_(numbers) {}
  Seen see(std::uint32_t word, const Reference* reference) const {
    if (reference == nullptr) return {Seen::Kind::kPlain, program_.words[word], true};
    if (reference->role == Role::kNumber)
      return {Seen::Kind::kNumber, program_.words[word] + number_bits(reference->block, numbers_), true};
    const bool known = program_.lows.size() == program_.references.size();
    const auto index = static_cast<std::size_t>(reference - program_.references.data());
    return {Seen::Kind::kAddress, known ? program_.lows[index] : 0, known};
  }
  // Both in the order of words; what is taken out comes first.
  void add(std::uint32_t word, std::uint32_t form) { added_.push_back({word, Role::kNumber, form}); }
  void take_out(std::uint32_t word, std::uint64_t value) { gone_.push_back({word, value}); }

  void make() {
    if (added_.empty() && gone_.empty()) return;
    take_out_all();
    std::vector<Reference> all;
    std::vector<std::uint32_t> lows;
    const bool with_lows = !program_.references.empty() && program_.lows.size() == program_.references.size();
    auto next = added_.begin();
    const auto put_before = [&](std::uint32_t word) {
      for (; next != added_.end() && next->word < word; ++next) {
        std::uint64_t& value = program_.words[next->word];
        all.push_back(*next);
        lows.push_back(static_cast<std::uint32_t>(value));
        value -= number_bits(next->block, numbers_);
      }
    };
    for (std::size_t i = 0; i < program_.references.size(); ++i) {
      put_before(program_.references[i].word);
      all.push_back(program_.references[i]);
      lows.push_back(with_lows ? program_.lows[i] : 0);
    }
    put_before(kNever);
    program_.references = std::move(all);
    program_.lows = with_lows ? std::move(lows) : std::vector<std::uint32_t>();
  }

 private:
  struct Gone {
    std::uint32_t word;
    std::uint64_t value;  // that stays
  };

  void take_out_all() {
    std::vector<bool> gone(program_.references.size());
    auto next = gone_.begin();
    for (std::size_t i = 0; i < gone.size(); ++i) {
      while (next != gone_.end() && next->word < program_.references[i].word) ++next;
      gone[i] = next != gone_.end() && next->word == program_.references[i].word;
      if (gone[i]) program_.words[next->word] = next->value;
    }
    drop_references(program_, gone);
    if (!gone_.empty()) drop_unused_statics(program_);
    std::vector<std::uint32_t>& strays = program_.strays;
    const auto is_added = [this](std::uint32_t word) {
      return std::any_of(added_.begin(), added_.end(), [word](const Reference& each) { return each.word == word; });
    };
    strays.erase(std::remove_if(strays.begin(), strays.end(), is_added), strays.end());
  }

  Program& program_;
  const Numbers& numbers_;
  std::vector<Reference> added_;
  std::vector<Gone> gone_;
};

// Walks the references in step with the words.
class Next {
 public:
  explicit Next(const Program& program) : at_(program.references.begin()), end_(program.references.end()) {}
  const Reference* of(std::uint32_t word) {
    while (at_ != end_ && at_->word < word) ++at_;
    return at_ != end_ && at_->word == word ? &*at_ : nullptr;
  }

 private:
  std::vector<Reference>::const_iterator at_, end_;
};

class Settler {
 public:
  Settler(Program& a, const NumberEvidence& of_a, Program& b, NumberEvidence& of_b)
      : a_(a), b_(b), of_a_(of_a), of_b_(of_b), change_a_(a, of_a.numbers), change_b_(b, of_b.numbers) {}

  Settled run() {
    if (!are_ordinary(of_a_.numbers, of_b_.numbers)) return Settled::kUnlike;
    note_moved();
    if (of_a_.numbers.empty() || a_.nodes.size() != b_.nodes.size() || a_.words.size() != b_.words.size())
      return Settled::kKnown;
    Next next_a(a_), next_b(b_);
    for (std::size_t i = 0; i < a_.nodes.size(); ++i) {
      const RecordedNode &node = a_.nodes[i], &other = b_.nodes[i];
      if (node.kind != NodeKind::kKernel || other.kind != NodeKind::kKernel) continue;
      if (node.words_at != other.words_at || node.word_count != other.word_count) break;
      for (std::uint32_t word = node.words_at; word < node.words_at + node.word_count; ++word) {
        const Reference *const in_a = next_a.of(word), *const in_b = next_b.of(word);
        if (in_a != nullptr && in_b != nullptr && *in_a == *in_b && a_.words[word] == b_.words[word]) continue;
        const Seen seen_a = change_a_.see(word, in_a), seen_b = change_b_.see(word, in_b);
        const bool addresses = seen_a.kind == Seen::Kind::kAddress || seen_b.kind == Seen::Kind::kAddress;
        addresses ? settle_addresses(word, in_a, seen_a, seen_b) : settle(word, in_a, seen_a.value, seen_b.value);
      }
    }
    change_a_.make();
    change_b_.make();
    keep_alike();
    return learned_ ? Settled::kLearned : Settled::kKnown;
  }

 private:
  // `known`: a number's reference in `a`; null: a plain word.
  void settle(std::uint32_t word, const Reference* known, std::uint64_t a, std::uint64_t b) {
    const NumberForm before = known != nullptr ? unpacked(known->block) : NumberForm();
    const NumberForm form = find_form(a, b, before);
    if (form.packed() == before.packed()) {
      if (known != nullptr) change_b_.add(word, known->block);
      return;
    }
    learned_ = true;
    if (known != nullptr) change_a_.take_out(word, a);
    if (form.packed() == 0) return;
    change_a_.add(word, form.packed());
    change_b_.add(word, form.packed());
  }

  // A number, and what the host left behind it, may look like an address, in one run or in both. Then the number is its
  // lower half. The upper half differs from now on, so that compare() takes it for what it is: padding, to be tried.
  void settle_addresses(std::uint32_t word, const Reference* known, const Seen& a, const Seen& b) {
    if (!a.known || !b.known) return;
    const bool in_a = a.kind == Seen::Kind::kAddress, in_b = b.kind == Seen::Kind::kAddress;
    const bool known_number = a.kind == Seen::Kind::kNumber;
    const NumberForm before = known_number ? unpacked(known->block) : NumberForm();
    NumberForm form;
    form.first = find(low_of(a.value), low_of(b.value), false, before.first);
    if (form.packed() != before.packed()) {
      learned_ = true;
      if (known_number) change_a_.take_out(word, a.value);
      if (form.first != 0) change_a_.add(word, form.packed());
    }
    if (form.first == 0) return;
    change_b_.add(word, form.packed());
    const std::uint64_t high = in_a ? (in_b ? 0 : ~high_of(b.value)) : high_of(a.value);
    if (in_a) change_a_.take_out(word, joined(a.value, high));
    if (in_b) change_b_.take_out(word, joined(b.value, ~high));
  }

  // How a word holds numbers in both runs, as far as they tell. `before`: what is known of it.
  NumberForm find_form(std::uint64_t a, std::uint64_t b, const NumberForm& before) {
    NumberForm form;
    const bool halves = before.first != 0 || before.last != 0;
    if (!halves) form.whole = find(a, b, true, before.whole);
    if (form.whole != 0) return form;
    form.first = find(low_of(a), low_of(b), false, before.first);
    form.last = find(high_of(a), high_of(b), false, before.last);
    return form;
  }

  // Where it was known for another number, that one may have been like it: then it is one, though it did not move.
  std::uint8_t find(std::uint64_t a, std::uint64_t b, bool whole, std::uint8_t before) {
    if (before != 0 && bits_of(before, whole, of_b_.numbers) == b) return before;
    return before != 0 || a != b ? find_code(a, b, whole) : 0;
  }

  // The first of all codes with these bits in both runs. The others are alike.
  std::uint8_t find_code(std::uint64_t a, std::uint64_t b, bool whole) {
    std::uint8_t found = 0;
    for (std::size_t i = 0; i < of_a_.numbers.size(); ++i) {
      for (unsigned form = 0; form < kForms; ++form) {
        const std::uint8_t code = code_of(i, form);
        if (bits_of(code, whole, of_a_.numbers) != a || bits_of(code, whole, of_b_.numbers) != b) continue;
        if (found != 0) new_alike_.push_back({found, code, whole});
        if (found == 0) found = code;
      }
    }
    return found;
  }

  void note_moved() {
    of_b_.moved = of_a_.moved;
    of_b_.floats_moved = of_a_.floats_moved;
    of_b_.moved.resize(of_b_.numbers.size());
    of_b_.floats_moved.resize(of_b_.numbers.size());
    for (std::size_t i = 0; i < of_b_.numbers.size(); ++i) {
      if (!same_bits(of_a_.numbers[i], of_b_.numbers[i])) of_b_.moved[i] = true;
      if (floats_differ(of_a_.numbers[i], of_b_.numbers[i])) of_b_.floats_moved[i] = true;
    }
  }

  // Where two codes are not alike any more, the words have told which of them they hold.
  void keep_alike() {
    of_b_.alike.clear();
    const std::vector<NumberEvidence::Alike>* const all[] = {&of_a_.alike, &new_alike_};
    for (const auto* from : all) {
      for (const NumberEvidence::Alike& each : *from) {
        const bool still =
            bits_of(each.taken, each.whole, of_b_.numbers) == bits_of(each.other, each.whole, of_b_.numbers);
        const auto same = [&](const NumberEvidence::Alike& other) {
          return other.taken == each.taken && other.other == each.other && other.whole == each.whole;
        };
        if (still && std::none_of(of_b_.alike.begin(), of_b_.alike.end(), same)) of_b_.alike.push_back(each);
      }
    }
  }

  Program &a_, &b_;
  const NumberEvidence& of_a_;
  NumberEvidence& of_b_;
  Change change_a_, change_b_;
  std::vector<NumberEvidence::Alike> new_alike_;
  bool learned_ = false;
};

}  // namespace

bool is_number_form(std::uint32_t packed) noexcept {
  const NumberForm form = unpacked(packed);
  const auto fits = [](std::uint8_t code) { return code <= kForms * kMostNumbers; };
  const bool halves = form.first != 0 || form.last != 0;
  return packed >> 24 == 0 && halves != (form.whole != 0) && fits(form.first) && fits(form.last) && fits(form.whole);
}

std::uint64_t number_bits(std::uint32_t packed, const Numbers& numbers) noexcept {
  const NumberForm form = unpacked(packed);
  return form.whole != 0 ? bits_of(form.whole, true, numbers)
                         : bits_of(form.first, false, numbers) | bits_of(form.last, false, numbers) << 32;
}

bool is_ordinary(double number) noexcept {
  const auto value = static_cast<float>(number);
  return std::isnormal(value) && std::isnormal(1.0F / value);
}

Settled settle_numbers(Program& a, const NumberEvidence& of_a, Program& b, NumberEvidence& of_b) {
  return Settler(a, of_a, b, of_b).run();
}

NumbersFit numbers_fit(const NumberEvidence& evidence, const std::vector<bool>& used, const Numbers& now) noexcept {
  const std::size_t count = now.size();
  if (evidence.numbers.size() != count || used.size() != count) return NumbersFit::kNotSeen;
  const auto has = [](const std::vector<bool>& flags, std::size_t i) { return i < flags.size() && flags[i]; };
  for (std::size_t i = 0; i < count; ++i) {
    const double then = evidence.numbers[i];
    const bool fits =
        has(evidence.moved, i) ? has(evidence.floats_moved, i) || same_floats(then, now[i]) : same_bits(then, now[i]);
    if (!fits) return NumbersFit::kNotSeen;
  }
  for (const NumberEvidence::Alike& each : evidence.alike) {
    if (bits_of(each.taken, each.whole, now) != bits_of(each.other, each.whole, now)) return NumbersFit::kNotSeen;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (used[i] && !is_ordinary(now[i])) return NumbersFit::kNotOrdinary;
  }
  return NumbersFit::kYes;
}

std::vector<bool> used_numbers(const Program& program, std::size_t count) {
  std::vector<bool> used(count);
  for (const Reference& reference : program.references) {
    if (reference.role != Role::kNumber) continue;
    const NumberForm form = unpacked(reference.block);
    for (const std::uint8_t code : {form.first, form.last, form.whole}) {
      if (code != 0 && index_of(code) < count) used[index_of(code)] = true;
    }
  }
  return used;
}

}  // namespace grape::program
