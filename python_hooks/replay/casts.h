// Handles the casts of weights that autocast keeps (torch/autocast.h). A call finds some of them and leaves others
// behind. Casts that it finds are inputs of its program, like arguments. Casts that it leaves are kept by PyTorch as
// soon as a replay is launched: under autograd those that the graph made, else PyTorch casts once more. The nodes that
// made casts are outside of the call: whoever uses a cast later adds to its gradient. Where nobody does in a pass, the
// pass has them inside. With the GIL.
#pragma once

#include <cstdint>
#include <vector>

#include "compressor/program/record.h"
#include "python_hooks/bridge/bridge.h"
#include "python_hooks/interpreter/cpython.h"

namespace grape::python::walk {
class Walk;
}

namespace grape::python::replay {

struct Border;
struct Call;
struct OutputRecipe;
struct Proven;
struct Region;
struct WorkPlace;

// A cast that an observed call left.
struct LeftCast {
  std::uint32_t weight = 0;  // index into ProvenState::cast_weights
  std::uint64_t address = 0, bytes = 0;
  std::int32_t device = 0;
  std::uint64_t node = 0;  // its number among autograd's nodes
  Reference cast;
};

// The kept casts that a call found, for as long as it is looked at and runs.
class FoundCasts {
 public:
  FoundCasts() = default;
  ~FoundCasts();
  FoundCasts(const FoundCasts&) = delete;
  FoundCasts& operator=(const FoundCasts&) = delete;

  // Adds to a call's arguments for each weight whether there is a kept cast, and that. The guard holds. False: refused,
  // see `walk.refusal()`. Throws std::bad_alloc.
  bool write(const Region& region, const Call& call, walk::Walk& walk);

 private:
  std::vector<Object*> held_;  // owned
};

// Are calls like this one told apart by kept casts?
bool depends_on_kept_casts(const Region& region, const Call& call) noexcept;

// Which of the blocks at `addresses`, that an observed call left alive beside its result, are casts that autocast
// keeps: `casts`, in the order in which they were made. False: it left or used some of weights that no call was known
// to; from now on these are known, and calls are told apart by them. Throws std::bad_alloc.
bool find_left_casts(Region& region, const Call& call, const program::RegionRecord& record,
                     const std::vector<std::uint64_t>& addresses, std::vector<LeftCast>& casts);

// What a call under autograd leaves beside its result: the casts of weights, in the order of the recipes, and the
// pieces of what only its backward pass needs.
class LeftBlocks {
 public:
  LeftBlocks() = default;
  ~LeftBlocks();
  LeftBlocks(const LeftBlocks&) = delete;
  LeftBlocks& operator=(const LeftBlocks&) = delete;

  // Before the launch: memory on the device, `addresses` per Program::outputs, and where each of the pieces begins.
  // False: there is none. Throws std::bad_alloc.
  bool make(const Proven& proven, std::int32_t device, std::vector<std::uint64_t>& addresses,
            std::vector<std::uint64_t>& pieces);
  // Before the launch as well: keeps what is in memory of the module's that the call writes to, if what the call leaves
  // depends on it. False: there is no memory, or the driver refuses.
  bool keep_written(const Border& border, const WorkPlace& work);
  // After it: has PyTorch keep the casts as the graph has made them. False: no memory. Throws std::bad_alloc.
  bool keep_casts(const Region& region, const Proven& proven);

  const std::vector<bridge::KeptCast>& casts() const noexcept { return casts_; }
  Object* written_before() const noexcept { return written_before_; }
  const bridge::Blocks* blocks() const noexcept { return blocks_; }
  std::size_t pieces() const noexcept { return pieces_; }  // the blocks behind the casts

 private:
  bridge::Blocks* blocks_ = nullptr;
  Object* written_before_ = nullptr;  // owned
  std::vector<bridge::KeptCast> casts_;
  std::size_t pieces_ = 0;
};

// After a launch without autograd: has PyTorch keep the casts that the call would have left. They stand for `tensors`
// behind `made`, the memory that the graph has written them to. Null: there is no memory for it, and an operator that
// comes will cast.
void keep_casts(const Region& region, const Proven& proven, std::vector<Object*>& tensors, std::size_t made) noexcept;

// Adds the cast that a recipe is of, after the call itself. False: there is none.
bool find_kept_cast(const Region& region, const OutputRecipe& recipe, std::vector<LeftCast>& casts);

}  // namespace grape::python::replay
