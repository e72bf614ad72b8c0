#include "python_hooks/walk/versions.h"

namespace grape::python::walk {

void take_versions(const std::vector<WalkedTensor>& tensors, std::vector<TensorVersion>& out) {
  for (const WalkedTensor& tensor : tensors) {
    Object* const object = tensor.view.object;
    torch::VersionCounter* const counter = torch::version_counter(object);
    out.push_back({object, counter, counter != nullptr ? counter->load() : 0, torch::AutogradNotes(object)});
  }
}

refusal::Form<1> moved_autograd(const std::vector<TensorVersion>& before) noexcept {
  for (const TensorVersion& tensor : before) {
    if (const auto moved = tensor.autograd.moved(tensor.tensor)) return moved;
  }
  return {};
}

void set_version(Object* tensor, std::uint32_t version) noexcept {
  if (torch::VersionCounter* counter = torch::version_counter(tensor)) counter->store(version);
}

void move_version(Object* tensor, std::uint32_t times) noexcept {
  if (torch::VersionCounter* counter = torch::version_counter(tensor)) counter->fetch_add(times);
}

}  // namespace grape::python::walk
