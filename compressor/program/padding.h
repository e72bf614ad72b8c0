// Learns which bytes of kernels' parameters are padding. compare() only says where padding could be. Shadow replays
// prove it: a graph with another run's bytes there left the same results, at least twice. Padding belongs to a kernel
// and a word of its parameters, so one program's shadow replays count for all programs. They are never the only proof:
// each replayed program itself ran in the shadow with another run's bytes.
//
// Bytes that only an earlier process had are tried with care (foreign_bytes.h), or not at all. They need no trial if
// they are known to be padding, or if several calls of this process, of any program, had the same bytes.
//
// Throws std::bad_alloc only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compressor/program/foreign_bytes.h"
#include "compressor/program/program.h"

namespace grape::program {

// Bytes in which runs of one program differ.
struct NoiseWord {
  std::uint32_t word = 0;  // index into Program::words
  // Bit i: byte i. The upper half, where any of the runs has an address; of the lower one what differs, as far as it is
  // known (Program::lows).
  std::uint8_t bytes = 0;
  bool operator==(const NoiseWord& other) const { return word == other.word && bytes == other.bytes; }
};

// Adds the noise of compare(a, b) to that of other runs of the same program. `all` is ascending and has each word once.
void add_noise(std::vector<NoiseWord>& all, const Program& a, const Program& b,
               const std::vector<std::uint32_t>& noise);

// Where a run of an earlier process differs from one of this process.
struct ForeignNoise {
  std::vector<NoiseWord> plain;      // neither has an address there, and this process no code of the host
  std::vector<std::uint64_t> other;  // per `plain`: the word of the earlier process
  std::vector<NoiseWord> addresses;  // one of them has, or both
  std::vector<NoiseWord> replaced;  // of `addresses` those of this process, with the bytes that settle_noise() replaces
};
// `noise`: of compare(own, earlier).
ForeignNoise foreign_noise(const Program& own, const Program& earlier, const std::vector<std::uint32_t>& noise,
                           const HostPlaces& host);

// For a log: "bytes 0x0f of word 3 of kernel f (operation 7)".
std::string describe(const Program& program, const NoiseWord& noise);

// Any thread.
class PaddingKnowledge {
 public:
  static constexpr std::uint8_t kEnough = 2;  // shadow replays in which a byte was another one

  // A word of a kernel's parameters. Bit i of a mask is byte i.
  struct Word {
    std::array<std::uint8_t, 8> seen{};  // in how many shadow replays each byte was another one
    std::uint8_t own = 0;     // the same in several calls of a process, and another one in an earlier process
    std::uint8_t varies = 0;  // not the same in several calls of a process
  };
  using Words = std::map<std::uint32_t, Word>;
  // Kernels with the same number are the same code, whatever their handles: cuDNN loads one anew for each shape. Odd
  // numbers, as handles are even; else the handle. Before all else.
  void set_identity(std::function<std::uint64_t(const FunctionInfo&)> identity) { identity_ = std::move(identity); }
  // Asked once for each kernel, when it is first met: what is known of it from elsewhere. Before all else.
  void set_source(std::function<Words(const FunctionInfo&)> source) { source_ = std::move(source); }
  Words known(const FunctionInfo& function) const;  // with what the source told

  // Kernels are known by handle and name, which may be given anew once a module is unloaded: with another number than
  // the last time all is forgotten.
  void set_module_epoch(std::uint32_t epoch) noexcept;
  // The part of `noise` that is not known to be padding: other bytes in fewer shadow replays than `enough`.
  std::vector<NoiseWord> unknown(const Program& program, const std::vector<NoiseWord>& noise,
                                 std::uint8_t enough = kEnough) const;
  // A shadow replay of `program` was equal to its call, which had other bytes at `tried`. Counts once for each byte of
  // a kernel's parameters, however often the kernel was launched.
  void confirm(const Program& program, const std::vector<NoiseWord>& tried);
  // It was not equal. Bytes that were not known to be padding are to blame; if there were none, all of them. True: of
  // what was taken for a stray something may be a pointer, and was not known to be.
  bool refute(const Program& program, const std::vector<NoiseWord>& tried);
  // An observed call of this process was the program `own`. Bytes that an earlier process had otherwise are compared
  // with those of the kernels' last call, of whichever program. Once for each call.
  void note_call(const Program& own, const ForeignNoise& foreign);
  // Bytes that are neither known to be padding nor known to be each process's own: where there are any, the earlier
  // process's run does not stand for an observed call of this one. One shadow replay of this process is enough: those
  // of the earlier one were equal as well.
  std::vector<NoiseWord> unsettled(const Program& own, const ForeignNoise& foreign) const;
  // Those of `foreign.plain` but for each process's own.
  std::vector<NoiseWord> not_own(const Program& own, const ForeignNoise& foreign) const;
  // Two runs of one program, with their lower halves. Where a word follows a block that moved, it is a pointer, and so
  // are the words in its place in other launches of the kernel. True: one of these was taken for a stray.
  bool note_pointers(const Program& a, const Program& b);
  // Did it follow a block that moved, or was it taken for a stray when a shadow replay was not equal? Then symbolise()
  // is not to doubt it again.
  bool may_be_pointer(const FunctionInfo& function, std::uint32_t word) const;

 private:
  struct Kernel {
    std::string name;
    Words words;
    std::map<std::uint32_t, std::uint64_t> in_last_call;  // words that an earlier process had otherwise
    std::set<std::uint32_t> pointers;                     // that may be some, by word of the parameters
  };

  std::uint8_t unknown_bytes(const Program& program, const NoiseWord& noise, std::uint8_t enough) const;
  std::array<std::uint8_t, 8>& counts_of(const Program& program, std::uint32_t word);
  // Those in which a launch of it has a stray.
  std::set<std::pair<Kernel*, std::uint32_t>> stray_places(const Program& program) const;
  std::uint8_t own_bytes(const Program& program, std::uint32_t word) const;
  Kernel& kernel_of(const FunctionInfo& function) const;

  mutable std::mutex mutex_;
  mutable std::unordered_map<std::uint64_t, Kernel> kernels_;  // by identity
  std::function<std::uint64_t(const FunctionInfo&)> identity_;
  std::function<Words(const FunctionInfo&)> source_;
  std::uint32_t module_epoch_ = 0;
};

// Gives each word of `noise` the bytes of a donor, for a shadow replay, and says which bytes are other ones now.
// `donors`: other runs of the program; of those that differ there the one that tries most of what is not known. A word
// that has an address in any of the runs, a symbol or a stray, might be a pointer after all: it gets `harmless`, an
// address of memory that nobody uses. Where the lower half of that is zero, there are 4 GiB of it, and the word keeps a
// lower half that a run had: it may be a number, and only what lies behind it padding. Statics that only noise referred
// to are gone, and so are Program::lows.
std::vector<NoiseWord> settle_noise(Program& program, const std::vector<const Program*>& donors,
                                    const std::vector<NoiseWord>& noise, const PaddingKnowledge& knowledge,
                                    std::uint64_t harmless);

// The same with bytes that are none of another run's (foreign_bytes.h), where an earlier process had others.
std::vector<NoiseWord> settle_foreign_noise(Program& program, const ForeignNoise& foreign,
                                            const PaddingKnowledge& knowledge, const HostPlaces& host,
                                            std::uint64_t harmless);

}  // namespace grape::program
