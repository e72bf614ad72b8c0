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

std::uint64_t mask_of(const NumberForm& form) noexcept {
  if (form.whole != 0) return ~std::uint64_t{0};
  return (form.first != 0 ? 0xFFFF'FFFFu : 0) | (form.last != 0 ? 0xFFFF'FFFFull << 32 : 0);
}

bool same_bits(double a, double b) noexcept { return double_bits(a, kItself) == double_bits(b, kItself); }

bool floats_differ(double a, double b) noexcept {
  return float_bits(a, kItself) != float_bits(b, kItself) && float_bits(a, kInverse) != float_bits(b, kInverse) &&
         float_bits(a, kInverseOfDouble) != float_bits(b, kInverseOfDouble);
}

bool same_floats(double a, double b) noexcept {
  return float_bits(a, kItself) == float_bits(b, kItself) && float_bits(a, kInverse) == float_bits(b, kInverse) &&
         float_bits(a, kInverseOfDouble) == float_bits(b, kInverseOfDouble);
}

// Are all numbers that differ such that words tell of them?
bool are_ordinary(const Numbers& in_a, const Numbers& in_b) noexcept {
  if (in_a.size() != in_b.size() || in_a.size() > kMostNumbers) return false;
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    if (!same_bits(in_a[i], in_b[i]) && (!is_ordinary(in_a[i]) || !is_ordinary(in_b[i]))) return false;
  }
  return true;
}

// References that are put into a program's, or taken out.
class Change {
 public:
  Change(Program& program, const Numbers& numbers) : program_(program), numbers_(numbers) {}
  void add(std::uint32_t word, std::uint32_t form) { added_.push_back({word, Role::kNumber, form}); }
  void take_out(std::uint32_t word) { gone_.push_back(word); }
  // The word as it was observed.
  std::uint64_t word(std::uint32_t at, const Reference* reference) const noexcept {
    return program_.words[at] + (reference != nullptr ? number_bits(reference->block, numbers_) : 0);
  }
  void make() {
    const bool with_lows = !program_.lows.empty();
    std::vector<Reference> all;
    std::vector<std::uint32_t> lows;
    const auto put = [&](const Reference& reference, std::uint32_t low) {
      all.push_back(reference);
      if (with_lows) lows.push_back(low);
    };
    auto next = added_.begin();
    const auto put_added = [&](std::uint32_t before) {
      for (; next != added_.end() && next->word < before; ++next) {
        std::uint64_t& word = program_.words[next->word];
        put(*next, static_cast<std::uint32_t>(word));
        word -= number_bits(next->block, numbers_);
      }
    };
    for (std::size_t i = 0; i < program_.references.size(); ++i) {
      const Reference& known = program_.references[i];
      const bool goes = std::binary_search(gone_.begin(), gone_.end(), known.word);
      if (goes) program_.words[known.word] += number_bits(known.block, numbers_);
      put_added(goes ? known.word : known.word + 1);
      if (!goes) put(known, with_lows ? program_.lows[i] : 0);
    }
    put_added(kNever);
    program_.references = std::move(all);
    program_.lows = std::move(lows);
  }

 private:
  Program& program_;
  const Numbers& numbers_;
  std::vector<Reference> added_;     // ascending by word
  std::vector<std::uint32_t> gone_;  // the same
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
        const Reference* const known = next_a.of(word);
        if (next_b.of(word) == nullptr && (known == nullptr || known->role == Role::kNumber)) settle(word, known);
      }
    }
    change_a_.make();
    change_b_.make();
    keep_alike();
    return learned_ ? Settled::kLearned : Settled::kKnown;
  }

 private:
  // `known`: a number's reference in `a`; null: a plain word.
  void settle(std::uint32_t word, const Reference* known) {
    const std::uint64_t a = change_a_.word(word, known), b = b_.words[word];
    if (known != nullptr) {
      const std::uint64_t mask = mask_of(unpacked(known->block));
      if ((b & mask) == number_bits(known->block, of_b_.numbers)) return change_b_.add(word, known->block);
      change_a_.take_out(word);  // another number that was like it
    }
    const NumberForm form = a == b ? NumberForm() : find_form(a, b);
    if (known != nullptr || form.packed() != 0) learned_ = true;
    if (form.packed() == 0) return;
    change_a_.add(word, form.packed());
    change_b_.add(word, form.packed());
  }

  // How a word that differs holds numbers in both runs.
  NumberForm find_form(std::uint64_t a, std::uint64_t b) {
    NumberForm form;
    form.whole = find_code(a, b, true);
    if (form.whole != 0) return form;
    const auto find_half = [&](int shift) -> std::uint8_t {
      const auto half_a = static_cast<std::uint32_t>(a >> shift), half_b = static_cast<std::uint32_t>(b >> shift);
      return half_a == half_b ? std::uint8_t{0} : find_code(half_a, half_b, false);
    };
    form.first = find_half(0);
    form.last = find_half(32);
    return form;
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
