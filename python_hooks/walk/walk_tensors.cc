#include <xxhash.h>

#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/walk/walker.h"

namespace grape::python::walk {
namespace {

constexpr std::uint64_t kMostContent = 64 << 10;  // bytes of a tensor on the CPU
// What kernels may depend on; blocks of the allocators begin at multiples of it.
constexpr std::uint64_t kAlignment = 512, kCpuAlignment = 64;

}  // namespace

bool Walker::tensor(Object* tensor, Kind, const Path& path) {
  WalkedTensor walked;
  torch::TensorView& view = walked.view;
  if (!torch::view_tensor(tensor, view)) {
    return refuse(torch::cloned_lazily(tensor) ? refusal::lazy_clone : refusal::not_dense, path);
  }
  touch_tensor(view);
  if (watch_ != nullptr) watch_->object(tensor);
  if (!class_reference(type_of(tensor), path)) return false;
  if (watch_ != nullptr) watch_->tensor(tensor);
  const bool on_device = torch::is_on_device(view);
  const struct {
    std::int32_t type, device_type, device_index;
    std::uint32_t autograd;
    std::uint64_t keys;
    std::int64_t dimensions;
  } facts = {view.type, view.device_type, view.device_index, torch::autograd_facts(tensor), view.keys, view.dimensions};
  put(facts);
  put_numbers(&view.offset, 1);
  put_numbers(view.sizes, static_cast<std::size_t>(view.dimensions));
  put_numbers(view.strides, static_cast<std::size_t>(view.dimensions));

  bool added = true;
  // Without memory there is nothing to share.
  const void* storage = view.storage != 0 ? reinterpret_cast<const void*>(view.storage) : tensor;
  const std::uint32_t number = walk_.storages_.number_of(storage, added);
  if (added) {
    const bool extent = on_device && view.storage != 0;
    walk_.storage_extents_.push_back(extent ? static_cast<std::uint32_t>(walk_.extents_.size()) : kNoExtent);
    if (extent) walk_.extents_.push_back({view.storage, view.storage_bytes});
  } else if (walk_.storage_extents_[number] != kNoExtent &&
             walk_.extents_[walk_.storage_extents_[number]].bytes != view.storage_bytes) {
    return refuse(refusal::memory_in_common, path);
  }
  put(number);
  walked.extent = walk_.storage_extents_[number];
  walk_.tensors_.push_back(walked);
  walk_.note_device(view);
  if (walk_.keep_addresses_) {
    if (!walk_.portable_) {
      put(view.data);
      put(view.storage);
    }
    put(view.storage_bytes);
  }
  if (on_device && (walk_.portable_ || !walk_.keep_addresses_)) {
    put(static_cast<std::uint32_t>(view.data % (view.device_type == 0 ? kCpuAlignment : kAlignment)));
  }
  if (!on_device && !tensor_content(view, path)) return false;
  return attributes(tensor, instance_dict(tensor), path);
}

void Walker::touch_tensor(const torch::TensorView& view) {
  for (const void* place : torch::places_of_tensor(view).at) touch(place);
}

bool Walker::tensor_content(const torch::TensorView& view, const Path& path) {
  const std::uint64_t bytes = torch::span_of(view);
  const std::uint64_t begin = static_cast<std::uint64_t>(view.offset) * view.item_bytes;
  if (bytes != 0 && begin + bytes > view.storage_bytes) {
    return refuse(refusal::memory_taken, path);
  }
  if (bytes > kMostContent) {
    return refuse(refusal::large_on_cpu, path, std::to_string(bytes));
  }
  if (!walk_.contents_) return true;
  const auto* data = reinterpret_cast<const void*>(view.data);
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  put(hash.low64);
  put(hash.high64);
  if (watch_ != nullptr && bytes != 0) watch_->memory(data, bytes);
  return true;
}

}  // namespace grape::python::walk
