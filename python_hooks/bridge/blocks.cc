// Memory on a device that a replay's graph fills. Comes from PyTorch's allocator itself: the way through its operators
// takes longer than all else that a replay does before the launch.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>

#include "python_hooks/bridge/cut.h"

namespace grape::python::bridge {

// It stays the same one once it has given memory.
c10::Allocator* device_allocator() {
  static c10::Allocator* const allocator =
      at::empty({0}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA)).storage().allocator();
  return allocator;
}

namespace {

constexpr std::size_t kAlignment = 512;  // as PyTorch's allocator has it

// A part of memory that lives as long as any of its parts.
c10::DataPtr part_of(const std::shared_ptr<c10::DataPtr>& whole, std::size_t offset) {
  using Held = std::shared_ptr<c10::DataPtr>;
  const auto release = [](void* held) { delete static_cast<Held*>(held); };
  return {static_cast<char*>(whole->get()) + offset, new Held(whole), release, whole->device()};
}

}  // namespace

Blocks* make_blocks(const std::uint64_t* bytes, std::size_t count, std::size_t joined, std::int32_t device,
                    std::uint64_t* addresses) noexcept {
  try {
    const c10::DeviceGuard on_device(c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    c10::Allocator* const allocator = device_allocator();
    auto made = std::make_unique<Blocks>();
    made->storages.reserve(count);
    const auto room_of = [](std::uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
    std::size_t room = 0, taken = 0;
    for (std::size_t i = 0; i < joined; ++i) room += room_of(bytes[i]);
    const auto whole = std::make_shared<c10::DataPtr>(room != 0 ? allocator->allocate(room) : c10::DataPtr());
    for (std::size_t i = 0; i < count; ++i) {
      const auto size = static_cast<std::size_t>(bytes[i]);
      c10::DataPtr memory = i < joined && size != 0 ? part_of(whole, taken) : allocator->allocate(size);
      if (i < joined) taken += room_of(size);
      made->storages.emplace_back(c10::Storage::use_byte_size_t(), size, std::move(memory), allocator, true);
      addresses[i] = reinterpret_cast<std::uint64_t>(made->storages.back().data());
    }
    return made.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

at::Tensor make_tensor(const Contribution& like, c10::DeviceIndex current) {
  const Shape shape = like.is_view ? like.of_base : Shape{like.dimensions, like.sizes, like.strides};
  const at::IntArrayRef sizes(shape.sizes, static_cast<std::size_t>(shape.dimensions));
  const at::IntArrayRef strides(shape.strides, static_cast<std::size_t>(shape.dimensions));
  const auto type = static_cast<at::ScalarType>(like.type);
  const c10::Device device(static_cast<at::DeviceType>(like.device_type),
                           static_cast<c10::DeviceIndex>(like.device_index));
  if (device.is_cuda() && device.index() == current) {
    return at::detail::empty_strided_generic(sizes, strides, device_allocator(),
                                             c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
  }
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(type).device(device));
}

void free_blocks(Blocks* blocks) noexcept { delete blocks; }

}  // namespace grape::python::bridge
