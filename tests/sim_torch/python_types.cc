// The small types: dtype, device, layout, memory_format, Generator, storage, key sets.
#include "tests/sim_torch/python_types.h"

#include <cstring>

namespace simtorch {
namespace {

PyTypeObject *g_type_type, *g_device_type, *g_generator_type, *g_name_type;
PyObject *g_size_class, *g_out_of_memory;

struct NamedObject {  // torch.layout, torch.memory_format, a key
  PyObject head;
  const char* name;
};

constexpr struct {
  const char* name;
  ScalarType type;
} kTypes[] = {
    {"uint8", ScalarType::kByte},        {"int16", ScalarType::kShort},
    {"int32", ScalarType::kInt},         {"int64", ScalarType::kLong},
    {"float32", ScalarType::kFloat},     {"float64", ScalarType::kDouble},
    {"bool", ScalarType::kBool},         {"complex64", ScalarType::kComplexFloat},
    {"bfloat16", ScalarType::kBFloat16},
};
PyObject* g_type_objects[std::size(kTypes)];

void free_object(PyObject* object) {
  PyTypeObject* type = object->type;
  reinterpret_cast<void (*)(void*)>(PyType_GetSlot(type, kFree))(object);
  Py_DecRef(reinterpret_cast<PyObject*>(type));
}

template <typename Object>
Object* make(PyTypeObject* type) {
  auto* object = reinterpret_cast<Object*>(PyType_GenericAlloc(type, 0));
  if (object == nullptr) throw PythonError();
  return object;
}

PyObject* type_repr(PyObject* self) {
  return PyUnicode_FromString((std::string("torch.") + reinterpret_cast<TypeObject*>(self)->name).c_str());
}
PyObject* name_repr(PyObject* self) {
  return PyUnicode_FromString((std::string("torch.") + reinterpret_cast<NamedObject*>(self)->name).c_str());
}

std::string device_text(Device device) {
  if (device.type == kCpu.type) return "cpu";
  return "cuda:" + std::to_string(device.index < 0 ? 0 : device.index);
}
Device& device_in(PyObject* self) { return reinterpret_cast<DeviceObject*>(self)->device; }
PyObject* device_repr(PyObject* self) { return PyUnicode_FromString(device_text(device_in(self)).c_str()); }
PyObject* device_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  const char* text = nullptr;
  if (PyArg_ParseTuple(arguments, "s", &text) == 0) return nullptr;
  return guarded([&] {
    auto* made = make<DeviceObject>(type);
    const bool cuda = std::strncmp(text, "cuda", 4) == 0;
    made->device = cuda ? Device{kCuda.type, -1} : kCpu;
    if (const char* colon = std::strchr(text, ':')) made->device.index = static_cast<std::int8_t>(colon[1] - '0');
    return &made->head;
  });
}
PyObject* device_compare(PyObject* self, PyObject* other, int operation) {
  constexpr int kEqual = 2, kNotEqual = 3;
  if (other->type != g_device_type || (operation != kEqual && operation != kNotEqual)) {
    Py_IncRef(&_Py_NotImplementedStruct);
    return &_Py_NotImplementedStruct;
  }
  const bool same = std::memcmp(&device_in(self), &device_in(other), sizeof(Device)) == 0;
  return PyBool_FromLong(same == (operation == kEqual));
}
std::ptrdiff_t device_hash(PyObject* self) { return device_in(self).type * 256 + device_in(self).index + 1; }
PyObject* device_get_type(PyObject* self, void*) {
  return PyUnicode_FromString(device_in(self).type == kCpu.type ? "cpu" : "cuda");
}
PyGetSetDef g_device_fields[] = {{"type", device_get_type, nullptr, nullptr, nullptr}, {}};

// Of the host: the state is a tensor. Of the device: seed and offset.
GeneratorObject& generator(PyObject* self) { return *reinterpret_cast<GeneratorObject*>(self); }
PyObject* generator_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* device = nullptr;
  if (PyArg_ParseTuple(arguments, "|O", &device) == 0) return nullptr;
  return guarded([&] {
    auto* made = make<GeneratorObject>(type);
    made->device = device != nullptr ? device_of(device) : kCpu;
    made->seed = 67280421310721;
    return &made->head;
  });
}
PyObject* generator_manual_seed(PyObject* self, PyObject* seed) {
  generator(self).seed = PyLong_AsUnsignedLongLongMask(seed);
  generator(self).offset = 0;
  Py_IncRef(self);
  return self;
}
PyObject* generator_initial_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(generator(self).seed);
}
PyObject* generator_get_offset(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(generator(self).offset);
}
PyObject* generator_set_offset(PyObject* self, PyObject* offset) {
  generator(self).offset = PyLong_AsUnsignedLongLongMask(offset);
  return none();
}
PyObject* generator_get_state(PyObject* self, PyObject*) {
  return guarded([&] {
    Tensor state = empty({16}, ScalarType::kByte, kCpu);
    const std::uint64_t words[2] = {generator(self).seed, generator(self).offset};
    write(state.get(), words);
    return wrap(std::move(state));
  });
}
PyObject* generator_set_state(PyObject* self, PyObject* state) {
  return guarded([&] {
    std::uint64_t words[2];
    read(tensor_of(state), words);
    generator(self).seed = words[0];
    generator(self).offset = words[1];
    return none();
  });
}
PyMethodDef g_generator_methods[] = {
    {"manual_seed", reinterpret_cast<void*>(generator_manual_seed), kOneArgument, nullptr},
    {"initial_seed", reinterpret_cast<void*>(generator_initial_seed), kNoArguments, nullptr},
    {"get_offset", reinterpret_cast<void*>(generator_get_offset), kNoArguments, nullptr},
    {"set_offset", reinterpret_cast<void*>(generator_set_offset), kOneArgument, nullptr},
    {"get_state", reinterpret_cast<void*>(generator_get_state), kNoArguments, nullptr},
    {"set_state", reinterpret_cast<void*>(generator_set_state), kOneArgument, nullptr},
    {},
};

PyTypeObject* add_type(PyObject* module, const char* name, int size, PyType_Slot* slots) {
  const std::string full = std::string("torch._C.") + name;
  PyType_Spec spec{strdup(full.c_str()), size, 0, kDefaultFlags, slots};  // older interpreters keep the name
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw PythonError();
  Py_IncRef(type);
  PyModule_AddObject(module, name, type);
  return reinterpret_cast<PyTypeObject*>(type);
}

void add_named(PyObject* module, PyTypeObject* type, const char* name) {
  auto* made = make<NamedObject>(type);
  made->name = name;
  PyModule_AddObject(module, name, &made->head);
}

}  // namespace

void set_size_class(PyObject* type) {
  Py_IncRef(type);
  g_size_class = type;
}
PyObject* out_of_memory_error() { return g_out_of_memory; }

PyObject* type_object(ScalarType type) {
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].type != type) continue;
    Py_IncRef(g_type_objects[i]);
    return g_type_objects[i];
  }
  throw std::runtime_error("an unknown dtype");
}

PyObject* device_object(Device device) {
  auto* made = make<DeviceObject>(g_device_type);
  made->device = device;
  return &made->head;
}

ScalarType type_of(PyObject* object) {
  if (object->type != g_type_type) throw std::runtime_error("not a dtype");
  return reinterpret_cast<TypeObject*>(object)->type;
}

Device device_of(PyObject* object) {
  if (object->type != g_device_type) {
    PyObject* made = PyObject_CallFunction(reinterpret_cast<PyObject*>(g_device_type), "O", object);
    if (made == nullptr) throw PythonError();
    const Device device = device_in(made);
    Py_DecRef(made);
    return device.type == kCuda.type ? kCuda : kCpu;
  }
  return device_in(object).type == kCuda.type ? kCuda : kCpu;
}

Sizes sizes_of(PyObject* sequence) {
  if (sequence->type == &PyLong_Type) return {PyLong_AsLongLong(sequence)};
  const std::ptrdiff_t count = PySequence_Size(sequence);
  if (count < 0) throw PythonError();
  Sizes sizes;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(sequence, i);
    if (item == nullptr) throw PythonError();
    sizes.push_back(PyLong_AsLongLong(item));
    Py_DecRef(item);
  }
  if (PyErr_Occurred() != nullptr) throw PythonError();
  return sizes;
}

PyObject* size_tuple(const Sizes& sizes) {
  PyObject* tuple = PyTuple_New(static_cast<std::ptrdiff_t>(sizes.size()));
  if (tuple == nullptr) throw PythonError();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    PyTuple_SetItem(tuple, static_cast<std::ptrdiff_t>(i), PyLong_FromLongLong(sizes[i]));
  }
  if (g_size_class == nullptr) return tuple;
  PyObject* size = PyObject_CallFunction(g_size_class, "(N)", tuple);
  if (size == nullptr) throw PythonError();
  return size;
}

bool is_number(PyObject* object) {
  return object->type == &PyLong_Type || object->type == &PyFloat_Type || object->type == &PyBool_Type;
}
double number_of(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

bool add_types(PyObject* module) try {
  const auto slot = [](auto* function) { return reinterpret_cast<void*>(function); };
  PyType_Slot type_slots[] = {{kDealloc, slot(free_object)}, {kRepr, slot(type_repr)}, {}};
  PyType_Slot name_slots[] = {{kDealloc, slot(free_object)}, {kRepr, slot(name_repr)}, {}};
  PyType_Slot device_slots[] = {{kDealloc, slot(free_object)},
                                {kRepr, slot(device_repr)},
                                {kNew, slot(device_new)},
                                {kCompare, slot(device_compare)},
                                {kHash, slot(device_hash)},
                                {kGetSet, g_device_fields},
                                {}};
  PyType_Slot generator_slots[] = {
      {kDealloc, slot(free_object)}, {kNew, slot(generator_new)}, {kMethods, g_generator_methods}, {}};
  g_type_type = add_type(module, "dtype", sizeof(TypeObject), type_slots);
  g_device_type = add_type(module, "device", sizeof(DeviceObject), device_slots);
  g_generator_type = add_type(module, "Generator", sizeof(GeneratorObject), generator_slots);
  g_name_type = add_type(module, "layout", sizeof(NamedObject), name_slots);
  add_named(module, g_name_type, "strided");
  PyTypeObject* formats = add_type(module, "memory_format", sizeof(NamedObject), name_slots);
  add_named(module, formats, "contiguous_format");
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    auto* made = make<TypeObject>(g_type_type);
    made->type = kTypes[i].type;
    made->name = kTypes[i].name;
    Py_IncRef(&made->head);
    g_type_objects[i] = &made->head;
    PyModule_AddObject(module, kTypes[i].name, &made->head);
  }
  g_out_of_memory = PyErr_NewException("torch.OutOfMemoryError", PyExc_RuntimeError, nullptr);
  Py_IncRef(g_out_of_memory);
  return PyModule_AddObject(module, "OutOfMemoryError", g_out_of_memory) == 0;
} catch (const PythonError&) {
  return false;
}

}  // namespace simtorch
