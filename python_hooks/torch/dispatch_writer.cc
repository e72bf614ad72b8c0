#include "python_hooks/torch/dispatch_writer.h"

#include <new>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/torch/constant_names.h"

namespace grape::python::torch {
namespace {

std::uint64_t constant_word(Object* constant) noexcept {
  try {
    return portable_constant(constant);
  } catch (const std::bad_alloc&) {
    return reinterpret_cast<std::uint64_t>(constant);  // like no other process's
  }
}

}  // namespace

void DispatchWriter::put_constant(Object* constant) noexcept {
  put('c');
  put(portable_ ? constant_word(constant) : reinterpret_cast<std::uint64_t>(constant));
}

void DispatchWriter::put_value(Object* value) noexcept {
  if (value == nullptr) {
    g_api.PyErr_Clear();
    put_failure();  // the switches contradict each other: the same each time
  } else if (value == g_api._Py_NoneStruct) {
    put_none();
  } else if (value == g_api._Py_TrueStruct || value == g_api._Py_FalseStruct) {
    put_bool(value == g_api._Py_TrueStruct);
  } else if (torch_type(type_of(value)) == TorchType::kConstant) {
    put_constant(value);
  } else if (is_text(value)) {
    char text[16];
    put_text(text, static_cast<std::uint8_t>(copy_text(value, text, sizeof text)));
  } else if (is_exactly(value, g_api.PyTuple_Type) || is_exactly(value, g_api.PyList_Type)) {
    put_items(static_cast<std::uint8_t>(item_count(value)));
    Object* const* items = is_exactly(value, g_api.PyTuple_Type) ? tuple_data(value) : list_data(value);
    for (std::size_t i = 0; i < item_count(value); ++i) put_value(items[i]);
  } else {
    const Reference index(g_api.PyNumber_Index(value));
    int overflow = 0;
    put_number(index ? g_api.PyLong_AsLongLongAndOverflow(index.get(), &overflow) : -1LL);
  }
}

}  // namespace grape::python::torch
