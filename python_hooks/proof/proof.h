// From two observed runs that tell the same program to a graph that may stand in for it: shadow replays. With the GIL;
// throw std::bad_alloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compressor/program/padding.h"
#include "python_hooks/observation/host_draws.h"
#include "python_hooks/replay/call.h"
#include "shim/observation/region_sink.h"
#include "shim/replay/shadow.h"

namespace grape::python::replay {

// What one observed call was, and what became of it.
struct Seen {
  grape::replay::CallScope call;  // the thread that observes
  state::ExecutedCode code;
  grape::replay::RegionSink sink;
  grape::replay::Shadow shadow;
  std::unique_ptr<state::Before> before;
  std::uint64_t nodes_before = 0;                    // state::autograd_nodes()
  std::vector<state::TensorVersion> globals_before;  // of what the last observed call's code names
  program::RandomState random;
  state::HostRandom host_random;  // before it
  std::uint32_t module_epoch = 0;
  bool shadowed = false;     // what it can reach was copied before it ran
  bool learned = false;      // from that: something that was taken for padding may be a pointer
  bool differed = false;     // a graph of the same work left other bytes
  bool autograd = false;     // of no use because autograd is at work
  bool again = false;        // of no use this time, but maybe next time: a first call, ...
  cache::Call name;          // what other processes can know of it; no region: not asked yet
  refusal::Refusal refusal;  // why it is of no use, or did not come to a proof
};

// What is known to be padding, in all regions. Never destroyed.
program::PaddingKnowledge& padding();

// What this process has at an address now.
program::HostPlaces host_places();

// The observed runs of a program up to `second`, which is the same as the last one but for `noise`.
std::unique_ptr<Trial> trial_of(Observation& last, const Observation& second, const std::vector<std::uint32_t>& noise);

// What differs between the runs, and is not known to be padding: two shadow replays must have had other bytes there, of
// this program, or of any with the same kernel.
std::vector<program::NoiseWord> unknown_padding(const Trial& trial, const program::Program& program);

// Another observed call told the same program: its graph runs in the shadow, with the padding of the others. Null:
// `seen.refusal` says why not.
std::unique_ptr<Proven> prove(Region& region, const Call& call, Trial& trial, Observation& second, Seen& seen);

// Does all work end on the current stream? Then whoever waits for the stream that the graph is launched on waits for
// all of it, as in the eager call.
bool joins(const Observation& observation);

// The kernel's name as its author wrote it.
std::string readable(const std::string& name);

// What was proven, for the next processes; once, at the end. Any thread.
void write_cache() noexcept;

}  // namespace grape::python::replay
