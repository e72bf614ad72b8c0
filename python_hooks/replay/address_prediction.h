// Predicts where the inputs of the next replay will lie. Learns from addresses where each input comes from: most are
// inputs or outputs of the region's last program, or outputs of other regions (a model's cache that a function
// reorders). A prediction may be wrong; users must check it. Throws std::bad_alloc only. With the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace grape::python::replay {

// Of a region: where what its replays use lies. Other regions read it, and refer to it weakly.
struct RunAddresses {
  std::vector<std::uint64_t> inputs, outputs;  // of its last replay
  std::vector<std::uint64_t> ready;            // outputs, made for its next one; empty: nothing is
  std::uint64_t ran = 0, ran_before = 0;       // its last two replays, counted among those of all regions; 0: none
};

// Its region was replayed; inputs and outputs are set.
void note_replay(const std::shared_ptr<RunAddresses>& addresses);

struct Origin {
  enum class Kind : std::uint8_t {
    kElsewhere,
    kOutput,        // of the region's own last replay
    kInput,         // the same
    kOtherOutput,   // of another region's last replay, which came before that one
    kComingOutput,  // of another region's next replay, which comes between that one and this
  };
  Kind kind = Kind::kElsewhere;
  std::uint8_t wrong = 1;    // predictions since the last good one; before any was made, as after one
  std::uint16_t region = 0;  // index into those that the program's inputs come from
  std::uint32_t index = 0;
};

// Of all inputs of a program that comes after a certain one in its region.
class AddressPrediction {
 public:
  // The program is replayed, its inputs at `inputs`, where `predicted` was said before; empty: nothing was. `own`: its
  // region's, as of the replay before. What was predicted well costs a comparison.
  void learn(const std::vector<std::uint64_t>& inputs, const std::vector<std::uint64_t>& predicted,
             const RunAddresses& own);
  // Puts in where the program's inputs will lie, as far as that is known; `own`: of the replay before.
  void predict(const RunAddresses& own, std::vector<std::uint64_t>& inputs) const;

 private:
  // `budget`: addresses that may still be compared; 0 afterwards: that was not enough.
  Origin find(std::uint64_t address, const RunAddresses& own, std::size_t& budget);
  bool find_elsewhere(std::uint64_t address, const RunAddresses& own, bool coming, std::size_t& budget, Origin& origin);
  bool number_of(const std::shared_ptr<const RunAddresses>& region, std::uint16_t& number);
  std::uint64_t address_of(const Origin& origin, const RunAddresses& own) const;

  std::vector<Origin> inputs_;
  std::vector<std::weak_ptr<const RunAddresses>> regions_;
  std::size_t first_ = 0;  // input that is looked for first
};

}  // namespace grape::python::replay
