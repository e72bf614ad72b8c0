// One observed call's backward passes, as they run. Internal to python_hooks/proof.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "python_hooks/proof/observe_backward.h"

namespace grape::python::proof {

// A gradient as it was when it came or was passed on.
struct SeenGradient {
  bridge::Gradient as;  // its sizes and strides are in the vectors
  std::vector<std::int64_t> sizes, strides;
  std::vector<std::int64_t> base_sizes, base_strides;
  std::uint64_t serial = 0;           // of its block; 0: not known
  std::uint64_t copy = 0, bytes = 0;  // of its storage (given) or of its elements (contribution); 0: none was made

  // From the first to behind the last element, in bytes.
  std::uint64_t span() const noexcept { return span_of(sizes, strides); }
  std::uint64_t span_of_base() const noexcept { return span_of(base_sizes, base_strides); }
  // What autograd knows it as a view of, or itself.
  const void* root() const noexcept { return as.base != nullptr ? as.base : as.identity; }

 private:
  std::uint64_t span_of(const std::vector<std::int64_t>& sizes_of,
                        const std::vector<std::int64_t>& strides_of) const noexcept {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < sizes_of.size(); ++i) {
      if (sizes_of[i] == 0) return 0;
      last += (sizes_of[i] - 1) * strides_of[i];
    }
    return (static_cast<std::uint64_t>(last) + 1) * as.item_bytes;
  }
};

// One pass. Copies are made where it may be proven.
struct SeenPass {
  bool keeps_graph = false;
  torch::DispatchState dispatch;            // on the thread that runs it
  std::vector<SeenGradient> given;          // per slot
  std::vector<SeenGradient> contributions;  // per edge, then per cast
  std::vector<std::uint8_t> runs;           // of these: is it asked for?
  std::vector<program::Extent> saved;       // per Border::saved; nothing where it has gone with dropped results
  std::vector<std::uint64_t> saved_copies;  // of these
  program::RandomState random;              // before it
  refusal::Refusal refusal;
};

class BackwardWatch {
 public:
  BackwardWatch(std::shared_ptr<replay::Passes> passes, AwaitedCall call, const bridge::Border& border);
  ~BackwardWatch();  // with the GIL
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;

  static const bridge::Watcher& callbacks() noexcept;

 private:
  void begin(const bridge::Began& pass);
  void give(std::uint32_t slot, const bridge::Gradient& gradient);
  void leave(const bridge::Left& left);
  void seal();
  void note_ended(const bridge::Left& left);
  void end();
  void conclude();
  void abandon() noexcept;
  void settle() noexcept;

  SeenGradient seen(const bridge::Gradient& gradient) const;
  // Of memory as it is now, in the order of the stream; 0: no memory.
  std::uint64_t copy(std::uint64_t address, std::uint64_t bytes);
  std::unique_ptr<replay::ObservedPass> symbolise();
  bool find_contributions(const program::RegionRecord& record, replay::ObservedPass& observed);
  bool relate(std::uint32_t edge, bridge::Contribution& form) const;
  bool may_be_made(std::uint32_t edge) const;
  replay::MadeContribution contribution(std::uint32_t edge, const std::vector<program::BlockEvent>& outputs);
  bool is_again(const replay::ProvenPass& proven, replay::ObservedPass& observed);
  void compare(std::unique_ptr<replay::ObservedPass> observed);
  refusal::Refusal difference(const replay::ObservedPass& last, const replay::ObservedPass& observed,
                              const program::Comparison& comparison) const;
  std::unique_ptr<replay::ProvenPass> prove_by(replay::ObservedPass& last, replay::ObservedPass& observed);
  program::LentMemory lent_memory() const;
  std::uint64_t most_arena(const program::Program& whole) const;
  void plan(const program::Program& whole, replay::ProvenPass& pass) const;
  bool place(const program::Program& whole, replay::ProvenPass& pass, std::vector<grape::replay::Shadow::Fresh>& fresh);
  std::vector<grape::replay::Shadow::Watched> watched_by(const program::Program& whole) const;
  bool run_in_shadow(replay::ProvenPass& pass, const std::vector<grape::replay::Shadow::Watched>& watched,
                     std::vector<grape::replay::Shadow::Fresh> fresh, grape::replay::Shadow::Found& found,
                     refusal::Refusal& difference);
  std::unique_ptr<replay::ProvenPass> prove(replay::ObservedPass& observed, replay::PaddingTrial& trial);
  void check(const replay::ObservedPass* observed);
  bool is_replayed_as(const replay::ObservedPass& observed, refusal::Refusal& difference);
  bool check_in_shadow(replay::ProvenPass& pass, refusal::Refusal& difference);
  std::vector<grape::replay::Shadow::Range> replayed_ranges(const replay::ProvenPass& pass) const;

  const std::shared_ptr<replay::Passes> passes_;
  AwaitedCall call_;
  const std::vector<bridge::Link> links_;
  const std::uint32_t slots_, contribution_count_;
  std::vector<std::uint64_t> serials_;                    // per AwaitedCall::saved, of its block
  bool passed_ = false;                                   // there was a pass
  bool made_again_ = false;                               // a replay would have been, for a pass that was before
  bool under_way_ = false;                                // a pass, which is observed
  bool learned_ = false;                                  // as ObservedCall::learned
  std::unique_ptr<grape::observation::RegionSink> sink_;  // null: its record is closed, or there is none
  grape::observation::RegionSink::Result recorded_;       // of a pass whose record is closed
  double began_ = 0;                                      // that pass
  std::uint64_t loads_ = 0;                               // driver::code_loads() then
  double seconds_ = 0;                                    // that were spent on it, beside itself
  std::thread::id thread_;                                // whose sink it is
  SeenPass pass_;
  std::vector<Object*> owned_;  // tensors with the copies of the pass
};

}  // namespace grape::python::proof
