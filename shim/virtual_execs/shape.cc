#include "shim/virtual_execs/shape.h"

#include <algorithm>
#include <cstring>

namespace grape::virtual_execs {
namespace {

template <class T>
void append(std::string& bytes, const T& value) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): handles are pointers, and it is the handle that counts
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
void append_all(std::string& bytes, const std::vector<T>& values) {
  append(bytes, values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

// Field by field: structs have padding. Attributes were filled over zeros.
std::string content_of(const Shape& shape) {
  std::string key;
  append(key, shape.nodes.size());
  for (const NodeShape& node : shape.nodes) {
    append(key, node.type);
    append(key, node.kernel_handle);
    append(key, node.context);
    append(key, node.attribute_count);
  }
  append(key, shape.edges.size());
  for (const EdgeShape& edge : shape.edges) {
    append(key, edge.from);
    append(key, edge.to);
    append(key, edge.data);
  }
  append_all(key, shape.attributes);
  append_all(key, shape.fixed);
  return key;
}

std::shared_ptr<Shape> Shapes::intern(Shape&& shape) {
  std::string key = content_of(shape);
  append(key, shape.context);
  append(key, shape.flags);
  const auto found = shapes_.find(key);
  if (found != shapes_.end()) {
    if (auto known = found->second.lock()) return known;
  }
  if (shapes_.size() >= sweep_at_) {
    for (auto at = shapes_.begin(); at != shapes_.end();) at = at->second.expired() ? shapes_.erase(at) : ++at;
    sweep_at_ = std::max<std::size_t>(64, shapes_.size() * 2);
  }
  auto made = std::make_shared<Shape>(std::move(shape));
  shapes_[std::move(key)] = made;
  return made;
}

}  // namespace grape::virtual_execs
