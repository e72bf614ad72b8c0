#include "python_hooks/state/versions.h"

namespace grape::python::state {

void take_versions(const std::vector<WalkedTensor>& tensors, std::vector<TensorVersion>& out) {
  for (const WalkedTensor& tensor : tensors) {
    Object* const object = tensor.view.object;
    VersionCounter* const counter = version_counter(object);
    out.push_back({object, counter, counter != nullptr ? counter->load() : 0});
  }
}

}  // namespace grape::python::state
