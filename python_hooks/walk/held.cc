#include "python_hooks/walk/held.h"

#include <utility>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/identity.h"
#include "python_hooks/walk/type_info.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::walk {
namespace {

constexpr int kDeepest = 4;

bool is_plain(Object* object, int depth) noexcept {
  Object* type = type_of(object);
  if (is_plain_type(type) || type == g_api.PyRange_Type) return true;
  const torch::TorchType torch = torch::torch_type(type);
  if (torch == torch::TorchType::kConstant || torch == torch::TorchType::kDevice) return true;
  if ((type != g_api.PyTuple_Type && torch != torch::TorchType::kSize) || depth >= kDeepest) return false;
  for (std::size_t i = 0; i < item_count(object); ++i) {
    if (!is_plain(tuple_data(object)[i], depth + 1)) return false;
  }
  return true;
}

}  // namespace

bool is_constant(Object* object) noexcept { return is_plain(object, 0); }

bool same_constants(Object* first, Object* second) noexcept {
  if (type_of(first) != type_of(second)) return false;
  Walk one(true), other(true);
  return one.add(first, "") && other.add(second, "") && one.bytes() == other.bytes();
}

Held::Held(Object* value, bool keep_any) noexcept : value_(value) {
  if (value == nullptr) return;
  plain_ = is_constant(value);
  if (!plain_ && type::weak_list_offset(type_of(value)) != 0) {
    reference_ = g_api.PyWeakref_NewRef(value, nullptr);
    weak_ = reference_ != nullptr;
    if (weak_) return;
    g_api.PyErr_Clear();
  }
  if (!plain_ && !keep_any) return;
  reference_ = value;
  g_api.Py_IncRef(value);
}

Held::~Held() {
  if (reference_ != nullptr) g_api.Py_DecRef(reference_);
}

std::uint64_t Held::identity() const noexcept {
  const bool gone = weak_ && referent(reference_) != value_;
  const std::uint64_t number = weak_ && !gone ? identity_of(value_) : 0;
  return number != 0 ? number : reinterpret_cast<std::uint64_t>(value_);
}

void Held::swap(Held& other) noexcept {
  std::swap(value_, other.value_);
  std::swap(reference_, other.reference_);
  std::swap(weak_, other.weak_);
  std::swap(plain_, other.plain_);
}

}  // namespace grape::python::walk
