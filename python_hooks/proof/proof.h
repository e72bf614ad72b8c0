// Proves that a graph may stand in for a call: two observed runs gave the same program, and the graph, run in the
// shadow of the second one, leaves the same bytes. With the GIL; all throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/program/padding.h"
#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/proof/border.h"
#include "python_hooks/proof/look_room.h"
#include "python_hooks/proof/member_call.h"
#include "python_hooks/replay/call.h"
#include "shim/observation/region_sink.h"
#include "shim/replay/shadow.h"

namespace grape::python::proof {

// What one observed call was, and what became of it.
struct ObservedCall {
  template <std::size_t count, typename... Parts>
  refusal::Nothing refuse(refusal::Form<count> form, const Parts&... parts) {
    return refusal::refuse(refusal, form, parts...);
  }

  ObservedCall() = default;
  ~ObservedCall() {
    if (saved_memory != nullptr) g_api.Py_DecRef(saved_memory);
  }
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

  grape::observation::CallScope call;  // the thread that observes
  observation::ExecutedCode code;
  grape::observation::RegionSink sink;
  grape::replay::Shadow shadow;
  std::unique_ptr<effects::ArgumentSnapshot> before;
  std::uint64_t nodes_before = 0;                   // torch::autograd_nodes()
  std::vector<walk::TensorVersion> globals_before;  // of what the last observed call's code names
  program::RandomState random;
  host_draws::HostRandom host_random;  // before it
  std::uint32_t module_epoch = 0;
  GradientTargets targets;         // of what requires grad
  ObservedBorder border;           // null: nothing of its results requires grad
  Object* saved_memory = nullptr;  // owned; null: there is none
  LookRoom room;                   // for that, and for looking at its backward pass
  bool trains = false;             // its results may require grad
  bool shadowed = false;           // what it can reach was copied before it ran
  bool learned = false;            // something that was taken for padding may be a pointer, by that or by how it moved
  bool differed = false;           // a graph of the same work left other bytes
  bool autograd = false;           // of no use because autograd is at work
  bool again = false;              // of no use this time, but maybe next time: a first call, ...
  cache::Call name;                // what other processes can know of it; no region: not asked yet
  MemberCall member;
  refusal::Refusal refusal;  // why it is of no use, or did not come to a proof
};

// Kernels with the same number are the same code, as far as it is known; else each handle has another one.
std::uint64_t kernel_identity(const program::FunctionInfo& function);

// Which bytes of kernels' parameters are known to be padding, in all regions. Never destroyed.
program::PaddingKnowledge& padding();

// Tells what kind of memory this process has at an address now.
program::HostPlaces host_places();

// The observed runs of a program up to `second`, which is the same as the last one but for `noise`.
std::unique_ptr<replay::PaddingTrial> trial_of(replay::Observation& last, const replay::Observation& second,
                                               const std::vector<std::uint32_t>& noise,
                                               const program::HostPlaces& host = {});

// The words that differ between the runs and are not known to be padding yet. They are known once two shadow replays,
// of this program or of any with the same kernel, had other bytes there.
std::vector<program::NoiseWord> unknown_padding(const replay::PaddingTrial& trial, const program::Program& program);

// Gives the program other padding than the observed run's: of its other runs, and where an earlier process had other
// bytes. `tried`: where. False: `refusal`.
bool exchange_padding(std::int32_t device, const replay::PaddingTrial& trial, std::uint32_t module_epoch,
                      program::Program& program, std::vector<program::NoiseWord>& tried, refusal::Refusal& refusal);

// The runs of a graph that may stand in for work that varies: what they tell of the padding that was tried.
void note_varying(grape::replay::Shadow::Found found, const program::Program& program,
                  const std::vector<program::NoiseWord>& tried, replay::PaddingTrial& trial);

// Runs the graph of `second` in the shadow, with the padding of the other runs of the same program. Null:
// `observed.refusal` says why the graph may not stand in. What it left for the backward pass is
// `observed.saved_memory`.
std::unique_ptr<replay::Proven> prove(replay::Region& region, const replay::Call& call, replay::PaddingTrial& trial,
                                      replay::Observation& second, ObservedCall& observed);

// On which streams the recorded work was: which of them is the current one, and the others.
void note_streams(const program::RegionRecord& record, const replay::WorkPlace& work, replay::Observation& observation);

// Does all work end on the current stream? Then a wait for the stream of the graph's launch waits for all work, as it
// does after the eager call.
bool joins(const replay::Observation& observation);

// The kernel's name as its author wrote it.
std::string readable(const std::string& name);

// Writes proofs to GRAPE_CACHE for later processes; once, at the end. Any thread.
void write_cache() noexcept;

}  // namespace grape::python::proof
