#include "python_hooks/interpreter/cpython.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "shim/lifecycle/elf_lookup.h"
#include "shim/lifecycle/hot.h"
#include "shim/lifecycle/log.h"

namespace grape::python {

Api g_api;
Layout g_layout;
GRAPE_HOT std::atomic<bool> g_shutdown{false};

namespace {

constexpr int kFirstMinor = 10;
constexpr int kLastMinor = 14;
constexpr unsigned long kTextFlag = 1UL << 28, kDictFlag = 1UL << 29, kTypeFlag = 1UL << 31;

void* find_symbol(const char* library, const char* symbol) {
  if (library != nullptr) return lifecycle::symbol_in(library, symbol);
  auto* lookup = lifecycle::real_dlsym();
  return lookup != nullptr ? lookup(RTLD_DEFAULT, symbol) : nullptr;
}

// The interpreter is the executable or a library in the global scope, else a libpython that was loaded privately.
bool find_interpreter(char (&library)[32], const char*& name) {
  name = nullptr;
  if (find_symbol(nullptr, "Py_IsInitialized") != nullptr) return true;
  for (int minor = kLastMinor; minor >= kFirstMinor; --minor) {
    std::snprintf(library, sizeof(library), "libpython3.%d.so.1.0", minor);
    if (lifecycle::loaded(library)) {
      name = library;
      return true;
    }
  }
  return false;
}

bool find_symbols(const char* library) {
  const char* missing = nullptr;
#define GRAPE_PYTHON_FIND(needed, result, name, arguments)                         \
  g_api.name = reinterpret_cast<result(*) arguments>(find_symbol(library, #name)); \
  if ((needed) && g_api.name == nullptr) missing = #name;
  GRAPE_PYTHON_FUNCTIONS(GRAPE_PYTHON_FIND)
#undef GRAPE_PYTHON_FIND
#define GRAPE_PYTHON_FIND(needed, name)                           \
  g_api.name = static_cast<Object*>(find_symbol(library, #name)); \
  if ((needed) && g_api.name == nullptr) missing = #name;
  GRAPE_PYTHON_OBJECTS(GRAPE_PYTHON_FIND)
#undef GRAPE_PYTHON_FIND
  if (missing != nullptr) notice("no Python positions and regions: the interpreter lacks %s", missing);
  return missing == nullptr;
}

void set_frame_objects(Layout& layout) {
  layout.frame_objects = true;
  layout.thread_frame = 24;
  layout.frame_previous = 24;
  layout.frame_code = 32;
  layout.frame_instruction = 96;
  layout.frame_globals = 48;
  layout.frame_locals = 352;
  layout.code_first_line = 40;
  layout.code_file = 104;
  layout.code_name = 112;
  layout.code_lines = 120;
}

void set_interpreter_frames(Layout& layout, std::uint32_t first_line, std::uint32_t instructions) {
  layout.thread_frame = 56;
  layout.frame_instruction = 56;
  layout.frame_locals = 72;
  layout.frame_object_frame = 24;
  layout.code_first_line = first_line;
  layout.code_file = 112;
  layout.code_name = 128;
  layout.code_lines = 136;
  layout.code_first_traceable = instructions - 16;
  layout.code_instructions = instructions;
}

// From 3.12.
void set_function(Layout& layout) {
  layout.frame_function = 16;
  layout.frame_globals = 24;
}

// From 3.13 the interpreter says itself where things stand (_Py_DebugOffsets, the first thing in _PyRuntime). Only
// the number of words before its groups differs.
bool set_debug_offsets(Layout& layout, std::size_t thread_group, std::size_t frame_group, std::size_t code_group) {
  const Object* runtime = g_api._PyRuntime;
  if (runtime == nullptr || std::memcmp(runtime, "xdebugpy", 8) != 0) return false;
  const auto word = [&](std::size_t index) { return field<std::uint64_t>(runtime, index * 8); };
  const auto offset = [&](std::size_t index) { return static_cast<std::uint32_t>(word(index)); };
  if ((word(1) >> 16) != (0x0300U | static_cast<unsigned>(layout.minor)) || word(2) != 0) return false;
  layout.thread_frame = offset(thread_group + 4);
  layout.frame_previous = offset(frame_group + 1);
  layout.frame_code = offset(frame_group + 2);
  layout.frame_instruction = offset(frame_group + 3);
  layout.frame_locals = offset(frame_group + 4);
  layout.frame_owner = offset(frame_group + 5);
  layout.frame_object_frame = 24;
  set_function(layout);
  layout.code_file = offset(code_group + 1);
  layout.code_name = offset(code_group + 3);
  layout.code_lines = offset(code_group + 4);
  layout.code_first_line = offset(code_group + 5);
  layout.code_instructions = offset(code_group + 9);
  layout.code_first_traceable = layout.code_instructions - 16;
  // A wrong guess of the groups would show sizes or nonsense here; the self-check then compares with the API.
  return word(thread_group + 1) == 0 && word(thread_group + 2) == 8 && word(frame_group) < 256 &&
         word(code_group) < 512 && layout.thread_frame < word(thread_group) &&
         layout.frame_instruction < word(frame_group) && layout.code_lines < word(code_group);
}

bool set_layout(int minor) {
  Layout layout;
  layout.minor = minor;
  if (minor >= 14) layout.tuple_items = 32;  // behind its hash
  if (minor >= 12) {
    layout.ascii_text = 40;
    layout.compact_text = 56;
  }
  switch (minor) {
    case 10:
      set_frame_objects(layout);
      break;
    case 11:
      set_interpreter_frames(layout, 72, 184);
      layout.cframe_frame = 8;
      layout.frame_code = 32;
      layout.frame_previous = 48;
      layout.frame_owner = 69;
      layout.frame_function = 0;
      layout.frame_globals = 8;
      break;
    case 12:
      set_interpreter_frames(layout, 68, 192);
      layout.cframe_frame = 0;
      layout.frame_code = 0;
      layout.frame_previous = 8;
      layout.frame_owner = 70;
      set_function(layout);
      break;
    case 13:
      if (!set_debug_offsets(layout, 19, 28, 34)) return false;
      break;
    case 14:
      if (!set_debug_offsets(layout, 22, 31, 39)) return false;
      break;
    default:
      return false;
  }
  g_layout = layout;
  return true;
}

// "3.11.7 (main, ...)", "3.13.0 experimental free-threading build (...)" → the minor version; 0: not supported.
int supported_minor(const char* version) {
  if (std::strncmp(version, "3.", 2) != 0 || std::strstr(version, "free-threading") != nullptr) return 0;
  const long minor = std::strtol(version + 2, nullptr, 10);
  return minor >= kFirstMinor && minor <= kLastMinor ? static_cast<int>(minor) : 0;
}

bool has_flag(Object* object, unsigned long flag) { return (g_api.PyType_GetFlags(type_of(object)) & flag) != 0; }

std::size_t put_utf8(std::uint32_t point, char* out) {
  if (point >= 0xD800 && point < 0xE000) point = '?';  // file names that are not UTF-8 hold lone surrogates
  if (point < 0x80) {
    out[0] = static_cast<char>(point);
    return 1;
  }
  const std::size_t bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (std::size_t i = bytes - 1; i != 0; --i, point >>= 6) out[i] = static_cast<char>(0x80 | (point & 63));
  out[0] = static_cast<char>((0xF00 >> bytes) | point);  // as many leading ones as there are bytes
  return bytes;
}

}  // namespace

bool load_api(bool& permanent) noexcept {
  permanent = false;
  char library[32];
  const char* name = nullptr;
  if (!find_interpreter(library, name)) return false;
  permanent = true;
  auto* version = reinterpret_cast<const char* (*)()>(find_symbol(name, "Py_GetVersion"));
  const int minor = version != nullptr ? supported_minor(version()) : 0;
  if (minor == 0) {
    notice("no Python positions and regions: this is Python %.40s; supported is 3.%d to 3.%d with the GIL",
           version != nullptr ? version() : "of an unknown version", kFirstMinor, kLastMinor);
    return false;
  }
  if (!find_symbols(name)) return false;
  if (!set_layout(minor)) {
    notice("no Python positions and regions: the layout of Python %.40s is not known", version());
    return false;
  }
  return true;
}

bool shutting_down() noexcept {
  if (g_shutdown.load(std::memory_order_relaxed)) return true;
  if (g_api.Py_IsFinalizing != nullptr) return g_api.Py_IsFinalizing() != 0;
  return g_api._Py_IsFinalizing != nullptr && g_api._Py_IsFinalizing() != 0;
}

bool is_text(Object* object) noexcept { return has_flag(object, kTextFlag); }
bool is_dict(Object* object) noexcept { return has_flag(object, kDictFlag); }
bool is_type(Object* object) noexcept { return has_flag(object, kTypeFlag); }

std::size_t copy_text(const Object* text, char* out, std::size_t room) noexcept {
  // A str's state: ... kind (1, 2 or 4 bytes a character; 3 bits), compact (1), ascii (1), ...
  const std::uint32_t state = field<std::uint32_t>(text, 32) >> g_layout.text_kind_shift;
  const std::uint32_t kind = state & 7;
  if ((state & 8) == 0) return 0;  // of the old kind, not made by the compiler
  const auto length = field<std::size_t>(text, 16);
  const bool ascii = (state & 16) != 0;
  const char* data = reinterpret_cast<const char*>(text) + (ascii ? g_layout.ascii_text : g_layout.compact_text);
  std::size_t used = 0;
  if (ascii) {
    used = length < room ? length : room;
    std::memcpy(out, data, used);
    return used;
  }
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t point = 0;
    if (kind == 1) point = field<std::uint8_t>(data, i);
    if (kind == 2) point = field<std::uint16_t>(data, i * 2);
    if (kind == 4) point = field<std::uint32_t>(data, i * 4);
    char encoded[4];
    const std::size_t bytes = put_utf8(point, encoded);
    if (used + bytes > room) break;
    std::memcpy(out + used, encoded, bytes);
    used += bytes;
  }
  return used;
}

bool check_text() noexcept {
  // ASCII, Latin-1, two bytes, four bytes.
  static const char* const kSamples[] = {"grape", "caf\xC3\xA9", "\xE8\x91\xA1\xE8\x90\x84", "\xF0\x9F\x8D\x87!"};
  for (const std::uint32_t shift : {2U, 16U, 8U}) {
    g_layout.text_kind_shift = shift;
    bool right = true;
    for (const char* sample : kSamples) {
      const Reference text(g_api.PyUnicode_FromString(sample));
      if (!text) return false;
      char copy[32];
      const std::size_t bytes = copy_text(text.get(), copy, sizeof(copy));
      right = right && bytes == std::strlen(sample) && std::memcmp(copy, sample, bytes) == 0;
    }
    if (right) return true;
  }
  return false;
}

// Where functions keep their vectorcall: their type says it. 0: nonsense.
static std::size_t vectorcall_offset() {
  const auto offset = field<std::ptrdiff_t>(g_api.PyFunction_Type, 56);  // tp_vectorcall_offset
  return offset >= 16 && offset <= 512 && offset % 8 == 0 ? static_cast<std::size_t>(offset) : 0;
}

Vectorcall vectorcall_of(Object* function) noexcept {
  const std::size_t offset = vectorcall_offset();
  const auto call = offset != 0 ? field<Vectorcall>(function, offset) : nullptr;
  const Vectorcall expected =
      g_api.PyVectorcall_Function != nullptr ? g_api.PyVectorcall_Function(function) : g_api._PyFunction_Vectorcall;
  return call == expected ? call : nullptr;
}

void set_vectorcall(Object* function, Vectorcall call) noexcept {
  if (g_api.PyFunction_SetVectorcall != nullptr) {
    g_api.PyFunction_SetVectorcall(function, call);  // also makes the interpreter stop inlining calls of it
  } else {
    *reinterpret_cast<Vectorcall*>(reinterpret_cast<char*>(function) + vectorcall_offset()) = call;
  }
}

MethodDefinition* method_of(Object* descriptor) noexcept {
  return type_of(descriptor) == g_api.PyMethodDescr_Type ? field<MethodDefinition*>(descriptor, 40) : nullptr;
}

MethodDefinition* definition_of(Object* callable) noexcept {
  // What a class holds that was made with pybind11.
  if (std::strcmp(field<const char*>(type_of(callable), 24), "instancemethod") == 0)
    callable = field<Object*>(callable, 16);
  Object* type = type_of(callable);
  if (type == g_api.PyMethodDescr_Type) return method_of(callable);
  // Cython's functions begin as builtin functions do.
  if (g_api.PyType_IsSubtype(type, g_api.PyCFunction_Type) == 0 &&
      std::strstr(field<const char*>(type, 24), "cython_function_or_method") == nullptr) {
    return nullptr;
  }
  return field<MethodDefinition*>(callable, 16);
}

void** dealloc_slot(Object* type) noexcept { return reinterpret_cast<void**>(reinterpret_cast<char*>(type) + 48); }
void** new_slot(Object* type) noexcept { return reinterpret_cast<void**>(reinterpret_cast<char*>(type) + 312); }
void** init_slot(Object* type) noexcept { return reinterpret_cast<void**>(reinterpret_cast<char*>(type) + 296); }
void** next_slot(Object* type) noexcept { return reinterpret_cast<void**>(reinterpret_cast<char*>(type) + 224); }

void** getter_of(Object* descriptor) noexcept {
  if (type_of(descriptor) != g_api.PyGetSetDescr_Type) return nullptr;
  char* definition = field<char*>(descriptor, 40);  // PyGetSetDef, the same in every version: name, get, set, ...
  return reinterpret_cast<void**>(definition + 8);
}

void** wrapped_slot(Object* method) noexcept {
  return type_of(method) == g_api.PyWrapperDescr_Type ? reinterpret_cast<void**>(reinterpret_cast<char*>(method) + 48)
                                                      : nullptr;
}

Object* frame_function(const void* frame) noexcept {
  if (g_layout.frame_function < 0) return nullptr;
  Object* function = unmarked(field<std::uintptr_t>(frame, static_cast<std::size_t>(g_layout.frame_function)));
  return function != nullptr && is_function(function) ? function : nullptr;
}

Object* compile_text(const char* text, const char* file) noexcept {
  constexpr int kFileInput = 257;
  return g_api.Py_CompileString(text, file, kFileInput);
}

Object* run_code(Object* code, Object* globals) noexcept {
  Object* const name = g_api.PyUnicode_FromString("grape");
  Object* result = nullptr;
  if (name != nullptr && g_api.PyDict_SetItemString(globals, "__builtins__", g_api.PyEval_GetBuiltins()) == 0 &&
      g_api.PyDict_SetItemString(globals, "__name__", name) == 0) {
    result = g_api.PyEval_EvalCode(code, globals, globals);
  }
  const KeepException keep;
  if (name != nullptr) g_api.Py_DecRef(name);
  return result;
}

Object* run_text(const char* text, Object* globals, const char* file) noexcept {
  Object* const code = compile_text(text, file);
  Object* const result = code != nullptr ? run_code(code, globals) : nullptr;
  const KeepException keep;
  if (code != nullptr) g_api.Py_DecRef(code);
  return result;
}

bool runs_plainly() noexcept {
  if (g_api._PyInterpreterState_GetEvalFrameFunc == nullptr || g_api._PyEval_EvalFrameDefault == nullptr) return true;
  return g_api._PyInterpreterState_GetEvalFrameFunc(g_api.PyInterpreterState_Get()) ==
         reinterpret_cast<void*>(g_api._PyEval_EvalFrameDefault);
}

Object* dict_item(Object* dict, const char* key) noexcept {
  const Reference name(g_api.PyUnicode_InternFromString(key));
  return name ? dict_item(dict, name.get()) : nullptr;
}

Object* module_dict(Object* module) noexcept {
  if (g_api.PyType_IsSubtype(type_of(module), g_api.PyModule_Type) == 0) return nullptr;
  return g_api.PyModule_GetDict(module);
}

Object* imported_module(const char* name) noexcept {
  Object* modules = g_api.PyImport_GetModuleDict();
  return modules != nullptr && is_dict(modules) ? dict_item(modules, name) : nullptr;
}

Object* imported_dict(const char* name) noexcept {
  Object* module = imported_module(name);
  return module != nullptr ? module_dict(module) : nullptr;
}

bool qualified_name(Object* object, char* out, std::size_t room) noexcept {
  const Reference module(g_api.PyObject_GetAttrString(object, "__module__"));
  const Reference name(g_api.PyObject_GetAttrString(object, "__qualname__"));
  if (!module || !name || !is_text(module.get()) || !is_text(name.get()) || room < 2) return false;
  std::size_t used = copy_text(module.get(), out, room / 2);
  out[used++] = ':';
  used += copy_text(name.get(), out + used, room - used - 1);
  out[used] = 0;
  return true;
}

}  // namespace grape::python
