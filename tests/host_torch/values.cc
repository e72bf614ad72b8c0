#include "tests/host_torch/values.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>
#include <string>

namespace host_torch {
namespace {

// In the lowest byte of a value's first word; what stands above is said beside each.
enum Tag : std::uint64_t {
  kNone,
  kTensor,      // type, dimensions; then address, sizes, strides
  kUndefined,   // a tensor
  kHostScalar,  // type, whether it is a wrapped number; then 16 bytes
  kTensors,     // count; then these
  kOptionals,   // the same, of which some may be none
  kInt,         // then the value, as for the next ones
  kDouble,
  kBool,
  kInts,  // count; then these, as for the next ones
  kDoubles,
  kBools,
  kString,  // an index
  kDevice,
  kGenerator,          // seed, offset, 0
  kCapturedGenerator,  // where these stand, and what is to be added to the offset
  kComplex,
  kNumbers,  // count; then these, of any kind
};
constexpr unsigned kSecond = 8, kThird = 24;  // bits

// Strings by number: parameters have to be alike from call to call.
struct Strings {
  std::mutex mutex;
  std::vector<std::string> known;
  std::uint64_t number_of(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] == text) return i;
    }
    known.push_back(text);
    return known.size() - 1;
  }
  std::string at(std::uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex);
    return known.at(number);
  }
};
Strings& strings() {
  static auto* made = new Strings;
  return *made;
}

template <typename Value>
std::uint64_t bits_of(Value value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename Value>
Value value_of(std::uint64_t bits) {
  Value value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint64_t scrambled(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
  return word ^ (word >> 31);
}

std::size_t bytes_of(at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t item) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += static_cast<std::size_t>((sizes[i] - 1) * strides[i]);
  }
  return (last + 1) * item;
}

}  // namespace

void Encoder::put(std::uint64_t tag, std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  words_.push_back(tag | first << kSecond | second << kThird | third << 40);
}

void Encoder::put_host_scalar(const at::Tensor& tensor) {
  put(kHostScalar, static_cast<std::uint64_t>(tensor.scalar_type()), tensor.unsafeGetTensorImpl()->is_wrapped_number(),
      0);
  std::uint64_t bytes[2] = {};
  std::memcpy(bytes, tensor.const_data_ptr(), tensor.element_size());
  words_.insert(words_.end(), bytes, bytes + 2);
}

void Encoder::put_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return put(kUndefined, 0, 0, 0);
  if (tensor.is_cpu() && tensor.dim() == 0) return put_host_scalar(tensor);
  if (tensor.is_cpu()) {
    copies_.push_back(tensor.to(at::kCUDA));
    return put_tensor(copies_.back());
  }
  TORCH_CHECK(tensor.is_cuda() && tensor.layout() == at::kStrided, "host_torch: a tensor that is not simulated");
  put(kTensor, static_cast<std::uint64_t>(tensor.scalar_type()), static_cast<std::uint64_t>(tensor.dim()), 0);
  addresses_.push_back(words_.size());
  words_.push_back(reinterpret_cast<std::uint64_t>(tensor.const_data_ptr()));
  for (const std::int64_t size : tensor.sizes()) words_.push_back(static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : tensor.strides()) words_.push_back(static_cast<std::uint64_t>(stride));
}

template <typename List>
void Encoder::put_list(std::uint64_t tag, const List& list) {
  put(tag, list.size(), 0, 0);
  for (const auto& item : list) words_.push_back(bits_of(item));
}

void Encoder::put_generator(std::uint64_t seed, std::uint64_t offset) {
  put(kGenerator, 0, 0, 0);
  words_.insert(words_.end(), {seed, offset, 0});  // as at::PhiloxCudaState, whose third word says: not captured
}

void Encoder::put_captured_generator(std::uint64_t seed_at, std::uint64_t offset_at, std::uint64_t more) {
  put(kCapturedGenerator, 0, 0, 0);
  addresses_.insert(addresses_.end(), {words_.size(), words_.size() + 1});
  words_.insert(words_.end(), {seed_at, offset_at, more});
}

void Encoder::put(const c10::IValue& value) {
  if (value.isNone()) return put(kNone, 0, 0, 0);
  if (value.isTensor()) return put_tensor(value.toTensor());
  if (value.isInt()) return put(kInt, 0, 0, 0), words_.push_back(bits_of(value.toInt()));
  if (value.isDouble()) return put(kDouble, 0, 0, 0), words_.push_back(bits_of(value.toDouble()));
  if (value.isBool()) return put(kBool, 0, 0, 0), words_.push_back(value.toBool() ? 1 : 0);
  if (value.isString()) return put(kString, 0, 0, 0), words_.push_back(strings().number_of(value.toStringRef()));
  if (value.isDevice()) return put(kDevice, 0, 0, 0);
  if (value.isComplexDouble()) {
    put(kComplex, 0, 0, 0);
    words_.push_back(bits_of(value.toComplexDouble().real()));
    return words_.push_back(bits_of(value.toComplexDouble().imag()));
  }
  if (value.isTensorList() || value.isOptionalTensorList() || value.isList()) {
    const auto list = value.toListRef();
    const bool tensors = value.isTensorList() || value.isOptionalTensorList();
    if (tensors || (!list.empty() && (list[0].isTensor() || list[0].isNone()))) {
      put(value.isTensorList() ? kTensors : kOptionals, list.size(), 0, 0);
      for (const c10::IValue& item : list) put(item);
      return;
    }
  }
  if (value.isIntList()) return put_list(kInts, value.toIntVector());
  if (value.isDoubleList()) return put_list(kDoubles, value.toDoubleVector());
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    put(kBools, list.size(), 0, 0);
    for (const bool item : list) words_.push_back(item ? 1 : 0);
    return;
  }
  if (value.isList()) {
    put(kNumbers, value.toListRef().size(), 0, 0);
    for (const c10::IValue& item : value.toListRef()) put(item);
    return;
  }
  TORCH_CHECK(false, "host_torch: an argument of type ", value.tagKind(), " is not simulated");
}

at::Tensor Decoder::read_tensor(std::uint64_t header) {
  const auto type = static_cast<at::ScalarType>(header >> kSecond & 0xFF);
  const std::size_t dimensions = header >> kThird & 0xFF;
  const std::uint64_t address = get_word();
  const auto* numbers = reinterpret_cast<const std::int64_t*>(next_);
  next_ += 2 * dimensions;
  const at::IntArrayRef sizes(numbers, dimensions), strides(numbers + dimensions, dimensions);
  const std::size_t bytes = bytes_of(sizes, strides, c10::elementSize(type));
  if (memory_ == nullptr || bytes == 0) return at::empty_strided(sizes, strides, type).fill_(stand_in_);
  void* data = (*memory_)(address, bytes);
  TORCH_CHECK(data != nullptr, "a tensor's memory is not there");
  return at::from_blob(data, sizes, strides, at::TensorOptions(type));
}

at::Tensor Decoder::read_host_scalar(std::uint64_t header) {
  at::Tensor tensor = at::empty({}, static_cast<at::ScalarType>(header >> kSecond & 0xFF));
  std::memcpy(tensor.mutable_data_ptr(), next_, tensor.element_size());
  next_ += 2;
  if ((header >> kThird & 1) != 0) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Generator Decoder::read_generator(bool captured) {
  std::uint64_t seed = get_word(), offset = get_word();
  const std::uint64_t more = get_word();
  if (captured) {
    const auto read = [this](std::uint64_t at) {
      const void* place = memory_ != nullptr ? (*memory_)(at, sizeof(std::uint64_t)) : nullptr;
      return place != nullptr ? *static_cast<const std::uint64_t*>(place) : 0;
    };
    seed = read(seed);
    offset = read(offset) + more;
  }
  return at::detail::createCPUGenerator(scrambled(scrambled(seed + 1) ^ offset));
}

at::Tensor Decoder::get_tensor() { return get().toTensor(); }

c10::IValue Decoder::get() {
  const std::uint64_t header = get_word();
  const std::uint64_t count = header >> kSecond & 0xFFFF;
  const auto numbers = [&](auto read) {
    c10::List<decltype(read(0))> list;
    for (std::uint64_t i = 0; i < count; ++i) list.push_back(read(get_word()));
    return c10::IValue(list);
  };
  switch (static_cast<Tag>(header & 0xFF)) {
    case kNone:
      return {};
    case kTensor:
      return read_tensor(header);
    case kUndefined:
      return at::Tensor();
    case kHostScalar:
      return read_host_scalar(header);
    case kTensors: {
      c10::List<at::Tensor> list;
      for (std::uint64_t i = 0; i < count; ++i) list.push_back(get_tensor());
      return list;
    }
    case kOptionals: {
      c10::List<std::optional<at::Tensor>> list;
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto item = get().toOptional<at::Tensor>();
        list.push_back(item.has_value() && item->defined() ? item : std::nullopt);
      }
      return list;
    }
    case kInt:
      return value_of<std::int64_t>(get_word());
    case kDouble:
      return value_of<double>(get_word());
    case kBool:
      return get_word() != 0;
    case kInts:
      return numbers([](std::uint64_t word) { return value_of<std::int64_t>(word); });
    case kDoubles:
      return numbers([](std::uint64_t word) { return value_of<double>(word); });
    case kBools:
      return numbers([](std::uint64_t word) { return word != 0; });
    case kString:
      return strings().at(get_word());
    case kDevice:
      return c10::Device(at::kCPU);
    case kGenerator:
      return read_generator(false);
    case kCapturedGenerator:
      return read_generator(true);
    case kComplex: {
      const auto real = value_of<double>(get_word());
      return c10::complex<double>(real, value_of<double>(get_word()));
    }
    case kNumbers: {
      c10::impl::GenericList list(c10::NumberType::get());
      for (std::uint64_t i = 0; i < count; ++i) list.push_back(get());
      return list;
    }
  }
  TORCH_CHECK(false, "host_torch: a parameter that is not understood");
}

}  // namespace host_torch
