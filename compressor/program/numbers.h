// Numbers of a call that its kernels are handed: a learning rate, a bias correction. Where two runs of one call had
// other numbers, the words that differ are shown to be these numbers, and become references (Role::kNumber).
// Throws std::bad_alloc only.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/program.h"

namespace grape::program {

// In the same order in each run of one call.
using Numbers = std::vector<double>;

constexpr std::size_t kMostNumbers = 64;

// How a word holds numbers: Reference::block of Role::kNumber. Its first four bytes are a float, its last four, or all
// eight are a double. The rest of the word is in Program::words. A code of 0 means no number. Else it is
// 1 + 3 * index + form. The forms are the number (0), its inverse computed in the word's type (1), and its inverse
// computed as a double (2). Kernels that divide are handed one of the inverses.
struct NumberForm {
  std::uint8_t first = 0, last = 0, whole = 0;

  std::uint32_t packed() const noexcept { return first | std::uint32_t{last} << 8 | std::uint32_t{whole} << 16; }
};
bool is_number_form(std::uint32_t packed) noexcept;

// The bits that the numbers have in a word. Numbers that are missing have none.
std::uint64_t number_bits(std::uint32_t packed, const Numbers& numbers) noexcept;

// What runs have shown of their numbers, up to one of them.
struct NumberEvidence {
  // Two codes that had the same bits in all runs so far, so that a word may hold either.
  struct Alike {
    std::uint8_t taken, other;
    bool whole;  // as doubles; else as floats
  };
  Numbers numbers;                        // of that run
  std::vector<bool> moved, floats_moved;  // per number: two runs had other ones; and other ones as floats
  std::vector<Alike> alike;
};

enum class Settled : std::uint8_t {
  kKnown,    // words that hold numbers are those that were known for it
  kLearned,  // some were not known
  kUnlike,   // a number differs on which code may branch (see is_ordinary()), so that nothing can be told
};
// Kernels' words in which the runs differ, and that hold numbers in both, become references in both. So do words of `b`
// that are such references in `a`. Other differences are left to compare(), for which they may be padding: so each
// number that words are made of must be here. Sets what is known `of_b` but for its numbers. kUnlike: all is as it was.
Settled settle_numbers(Program& a, const NumberEvidence& of_a, Program& b, NumberEvidence& of_b);

// Can a kernel be handed the number with nothing branching on it? Not 0, infinite, or out of a float's range. Of 1 it
// is as if nothing did: what skips a multiplication by it has the same bits.
bool is_ordinary(double number) noexcept;

// May a run that `evidence` proves have these numbers?
enum class NumbersFit : std::uint8_t {
  kYes,
  kNotSeen,      // runs have not shown which words follow one of them, or which of two
  kNotOrdinary,  // one is in words, and code may branch on it
};
NumbersFit numbers_fit(const NumberEvidence& evidence, const std::vector<bool>& used, const Numbers& now) noexcept;

// Per number: is it in a word of the program?
std::vector<bool> used_numbers(const Program& program, std::size_t count);

}  // namespace grape::program
