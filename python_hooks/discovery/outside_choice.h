// Chooses from sampled stacks the functions whose calls would make good regions. Knows neither Python nor CUDA.
#pragma once

#include <cstdint>
#include <vector>

namespace grape::python::discovery {

// A function, by its code.
struct CalledCode {
  bool candidate = false;  // GRAPE_REGIONS can name it, and it may be of use
  bool training = false;   // a backward pass or an optimizer's step: nothing that calls it is replayed
  bool calls_modules = false;
};

// Stacks as a tree of functions. The first node is the root, which is no function; parents stand before their children.
struct CallNode {
  std::uint32_t parent = 0;  // by index
  std::uint32_t code = 0;    // by index
  std::uint64_t weight = 0;  // launches whose stack ends here
  bool several = false;      // it was seen at several of its instructions
  std::uint64_t graded = 0;  // of them, while gradients were enabled
};

struct Choice {
  std::uint32_t code = 0;
  double share = 0;  // of all launches, those that are in no other choice that was called farther out
};

// The functions whose calls would make good regions, the largest share first. Of each stack it is the outermost one
// that holds at most 90% of all launches. What holds more is the program's main loop, or what that calls all the time:
// of these it is the innermost one that does more than one thing, if nothing is chosen that it calls or is called by.
// `callers_known`: of each function it is known whether it calls modules, so that those that do need not be guessed
// from their share: none of them is chosen, and of each stack it is the outermost other one. Throws std::bad_alloc.
std::vector<Choice> choose(const std::vector<CalledCode>& codes, const std::vector<CallNode>& nodes,
                           bool callers_known = false);

}  // namespace grape::python::discovery
