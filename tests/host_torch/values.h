// Arguments and results of PyTorch's operators as words: what a kernel of the simulated device gets as its parameter.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace host_torch {

using Words = std::vector<std::uint64_t>;

// Writes values. Addresses of the device's memory stand in words of their own.
class Encoder {
 public:
  explicit Encoder(Words& words) : words_(words) {}

  // Throws c10::Error for what no operator here takes. Tensors of several numbers on the host are copied to the device
  // first, as PyTorch's own kernels do.
  void put(const c10::IValue& value);
  void put_generator(std::uint64_t seed, std::uint64_t offset);
  void put_captured_generator(std::uint64_t seed_at, std::uint64_t offset_at, std::uint64_t more);
  void put_tensor(const at::Tensor& tensor);

  const std::vector<std::size_t>& addresses() const { return addresses_; }  // their indices in the words
  const std::vector<at::Tensor>& copies() const { return copies_; }         // that were made

 private:
  void put(std::uint64_t tag, std::uint64_t first, std::uint64_t second, std::uint64_t third);
  void put_host_scalar(const at::Tensor& tensor);
  template <typename List>
  void put_list(std::uint64_t tag, const List& list);

  Words& words_;
  std::vector<std::size_t> addresses_;
  std::vector<at::Tensor> copies_;
};

// Reads them again, as tensors of the host. What stands for the device's memory is asked for: `memory(address, bytes)`;
// for null there are tensors full of `stand_in` in its place, which tell an operator's results' shapes.
class Decoder {
 public:
  using Memory = std::function<void*(std::uint64_t address, std::size_t bytes)>;
  Decoder(const std::uint64_t* words, const Memory* memory, double stand_in = 0)
      : next_(words), memory_(memory), stand_in_(stand_in) {}

  c10::IValue get();
  at::Tensor get_tensor();
  std::uint64_t get_word() { return *next_++; }

 private:
  at::Tensor read_tensor(std::uint64_t header);
  at::Tensor read_host_scalar(std::uint64_t header);
  at::Generator read_generator(bool captured);

  const std::uint64_t* next_;
  const Memory* memory_;
  double stand_in_;
};

}  // namespace host_torch
