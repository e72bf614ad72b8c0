// Memory for temporary blocks of graphs. Work on a stream never overlaps, so all graphs that are launched as a whole
// share one arena a stream. With the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/replay/work_place.h"

namespace grape::python::replay {

struct Arena;

// What one region, or one backward pass, needs.
class ArenaUse {
 public:
  ArenaUse() = default;
  ~ArenaUse();
  ArenaUse(const ArenaUse&) = delete;
  ArenaUse& operator=(const ArenaUse&) = delete;

  // At least `bytes` for work at `place`: its address, which holds until somebody calls this for the same stream again.
  // `shared`: nothing but the graph's own launch lies between the call and the end of its use of the arena. Else nobody
  // else gets this memory. `replaced`: gets owned tensors, to be dropped once the graph is launched. False: no memory.
  bool reserve(const WorkPlace& place, std::uint64_t bytes, bool shared, std::uint64_t& address,
               std::vector<Object*>& replaced) noexcept;
  std::uint64_t bytes() const noexcept;  // that it needs

 private:
  struct Part {
    std::shared_ptr<Arena> arena;
    std::uint64_t bytes = 0;  // that it needs
  };
  Part& find(const WorkPlace& place, bool shared);
  std::vector<Part> parts_;  // one for each stream
};

}  // namespace grape::python::replay
