#include "tests/host_torch/replacements.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <set>

namespace host_torch {
namespace {

using torch::jit::Stack;

at::Tensor tensor_at(const Stack& stack, std::size_t index) {
  return stack[index].isNone() ? at::Tensor() : stack[index].toTensor();
}

void answer(Stack& stack, std::initializer_list<at::Tensor> results) {
  stack.clear();
  for (const at::Tensor& result : results) stack.push_back(result);
}

// Gates, hidden gates, cell; biases.
void lstm_cell(Stack& stack) {
  at::Tensor gates = tensor_at(stack, 0) + tensor_at(stack, 1);
  if (tensor_at(stack, 3).defined()) gates = gates + tensor_at(stack, 3) + tensor_at(stack, 4);
  const auto parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid(), next = forget * tensor_at(stack, 2) + in * cell;
  answer(stack, {out * next.tanh(), next, at::cat({in, forget, cell, out}, 1)});
}

void gru_cell(Stack& stack) {
  at::Tensor input = tensor_at(stack, 0), hidden = tensor_at(stack, 1);
  if (tensor_at(stack, 3).defined()) input = input + tensor_at(stack, 3), hidden = hidden + tensor_at(stack, 4);
  const auto a = input.chunk(3, 1), b = hidden.chunk(3, 1);
  const at::Tensor reset = (a[0] + b[0]).sigmoid(), update = (a[1] + b[1]).sigmoid();
  const at::Tensor fresh = (a[2] + reset * b[2]).tanh();
  answer(stack, {fresh + update * (tensor_at(stack, 2) - fresh),
                 at::cat({reset, update, fresh, b[2], tensor_at(stack, 2)}, 1)});
}

// Input, weight, kernel size, bias, stride, padding, dilation.
void depthwise_convolution(Stack& stack) {
  const at::Tensor input = tensor_at(stack, 0);
  const auto at_place = [&stack](std::size_t i) { return stack[i].toIntVector(); };
  answer(stack, {at::conv2d(input, tensor_at(stack, 1), tensor_at(stack, 3), at_place(4), at_place(5), at_place(6),
                            input.size(1))});
}

// Query, key, value, bias, whether the logarithms of sums are wanted, dropout, whether it is causal, scale; generator.
void attention(Stack& stack) {
  TORCH_CHECK(stack[5].toDouble() == 0, "host_torch: attention with dropout is not simulated");
  const at::Tensor query = tensor_at(stack, 0), bias = tensor_at(stack, 3);
  const auto [result, weights] = at::_scaled_dot_product_attention_math(
      query, tensor_at(stack, 1), tensor_at(stack, 2), bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt,
      0, stack[6].toBool(), std::nullopt, stack[7].toOptional<double>());
  const at::Tensor sums = at::zeros({query.size(0), query.size(1), query.size(2)}, at::kFloat);
  answer(stack, {result, sums, at::zeros({}, at::kLong), at::zeros({}, at::kLong)});
}

// Input, probability, whether in training; generator.
void dropout(Stack& stack) {
  const at::Tensor input = tensor_at(stack, 0);
  const double kept = stack[2].isNone() || stack[2].toBool() ? 1 - stack[1].toDouble() : 1;
  at::Tensor mask = at::empty_like(input, at::kBool);
  mask.bernoulli_(kept, stack[3].toGenerator());
  answer(stack, {input * mask * (kept == 0 ? 0 : 1 / kept), mask});
}

// Of whole numbers too: input, bins, least, most; and what is written to, for one overload.
void histogram(Stack& stack) {
  const at::Tensor input = tensor_at(stack, 0);
  const at::Tensor made = at::histc(input.to(at::kDouble), stack[1].toInt(), stack[2].toScalar(), stack[3].toScalar());
  const bool writes = stack.size() > 4;
  at::Tensor to = writes ? tensor_at(stack, 4) : at::Tensor();
  if (writes) to.resize_(made.sizes()).copy_(made);
  answer(stack, {writes ? to : made.to(input.scalar_type())});
}

}  // namespace

const Replacement* find_replacement(const std::string& name) {
  static const auto& known = *new std::map<std::string, Replacement>{
      {"aten::_scaled_dot_product_efficient_attention", attention},
      {"aten::histc", histogram},
      {"aten::native_dropout", dropout},
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_conv_depthwise2d", depthwise_convolution},
  };
  const auto found = known.find(name);
  return found != known.end() ? &found->second : nullptr;
}

bool is_kept(const std::string& name) {
  static const std::set<std::string> names = {
      "_local_scalar_dense",
      "_reshape_alias",
      "_resize_output_",
      "as_strided",
      "empty",
      "empty_strided",
      "is_set_to",
      "record_stream",
      "resize_",
      "set_",
      "unfold",
      "view",
      "view_as_complex",
      "view_as_real",
      "_efficientzerotensor",
      "_pin_memory",
      "is_pinned",
      "_nested_view_from_buffer",
      "_sparse_coo_tensor_with_dims_and_tensors",
  };
  return names.count(name) != 0;
}

}  // namespace host_torch
