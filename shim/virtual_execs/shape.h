// The part of a graph that no call for a single node changes. An exec can take over each graph of its own shape without
// a new instantiation.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/virtual_execs/sequence.h"

namespace grape::virtual_execs {

struct NodeShape {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  bool kernel_handle = false;  // the kernel is a CUkernel, with a context of its own
  CUcontext context = nullptr;
  std::uint32_t attributes_at = 0, attribute_count = 0;  // in Shape::attributes; those that are not all zeros
};

inline bool does_work(const NodeShape& node) noexcept { return node.type != CU_GRAPH_NODE_TYPE_EMPTY; }

struct EdgeShape {
  std::uint32_t from = 0, to = 0;
  CUgraphEdgeData data{};
};

// Counts whether execs of a shape serve enough graphs before others need their memory. Building an exec costs as much
// as launching several graphs node by node.
class AheadAccount {
 public:
  void built() noexcept { ++built_; }
  void served() noexcept { ++served_; }
  bool pays() noexcept {
    if (served_ + kAtFirst * kLeastServed >= built_ * kLeastServed) return true;
    if (++refused_ < kRefusals) return false;
    *this = {};  // the order may be another one by now
    return true;
  }

 private:
  static constexpr std::uint32_t kLeastServed = 10, kAtFirst = 3, kRefusals = 1000;
  std::uint32_t built_ = 0, served_ = 0, refused_ = 0;
};

struct Shape {
  std::vector<NodeShape> nodes;
  std::vector<EdgeShape> edges;
  std::vector<CUlaunchAttribute> attributes;
  // Words of copies and memsets that no call changes: all words if there are rows, else the kinds of memory.
  std::vector<std::uint64_t> fixed;
  CUcontext context = nullptr;  // that was current when it was instantiated
  cuuint64_t flags = 0;         // of the instantiation, but for the upload
  // Guarded as their owner is:
  bool can_be_rebuilt = false;  // one was built, and read back as it was
  std::uint32_t users = 0;      // virtual execs
  AheadAccount ahead;
  bool sequenced = false;
  Sequence sequence;  // once `sequenced`: how its nodes are launched one by one; no lanes: they are not
};

// Nodes, edges, attributes and fixed words, as bytes: the same for equal ones. Throws std::bad_alloc.
std::string content_of(const Shape& shape);

// Keeps every shape once. One thread at a time.
class Shapes {
 public:
  // The one equal to `shape`. Throws std::bad_alloc.
  std::shared_ptr<Shape> intern(Shape&& shape);

 private:
  std::unordered_map<std::string, std::weak_ptr<Shape>> shapes_;  // by their bytes
  std::size_t sweep_at_ = 64;
};

}  // namespace grape::virtual_execs
