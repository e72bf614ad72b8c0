// The one door to CPython. Symbols are found at run time, since this library also lands in processes without Python;
// structures are read by tables of offsets, one row per version. No other file knows a version or an offset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace grape::python {

struct Object;       // PyObject
struct ThreadState;  // PyThreadState
using Vectorcall = Object* (*)(Object* callable, Object* const* arguments, std::size_t count, Object* keyword_names);
using Destructor = void (*)(Object*);
using ProfileFunction = int (*)(Object* object, Object* frame, int event, Object* argument);
using DictWatcherFunction = int (*)(int event, Object* dict, Object* key, Object* value);
using FunctionWatcherFunction = int (*)(int event, Object* function, Object* value);
using MethodWithKeywords = Object* (*)(Object* self, Object* arguments, Object* keywords);

// PyMethodDef, the same in every version.
struct MethodDefinition {
  const char* name;
  void* method;
  int flags;
  const char* documentation;
};

// Py_buffer, the same in every version.
struct Buffer {
  void* data;
  Object* object;
  std::ptrdiff_t bytes;
  std::ptrdiff_t rest[10];  // not used here
};

// One row per function: needed (1) or not (0), result, name, arguments.
#define GRAPE_PYTHON_FUNCTIONS(X)                                                                         \
  X(1, const char*, Py_GetVersion, ())                                                                    \
  X(1, int, Py_IsInitialized, ())                                                                         \
  X(0, int, Py_IsFinalizing, ())  /* 3.13 */                                                              \
  X(0, int, _Py_IsFinalizing, ()) /* up to 3.12 */                                                        \
  X(1, int, Py_AddPendingCall, (int (*)(void*), void*))                                                   \
  X(1, void, Py_IncRef, (Object*))                                                                        \
  X(1, void, Py_DecRef, (Object*))                                                                        \
  X(1, ThreadState*, PyGILState_GetThisThreadState, ())                                                   \
  X(1, int, PyGILState_Check, ())                                                                         \
  X(1, int, PyGILState_Ensure, ())                                                                        \
  X(1, void, PyGILState_Release, (int))                                                                   \
  X(1, ThreadState*, PyThreadState_Get, ())                                                               \
  X(1, void*, PyInterpreterState_Get, ())                                                                 \
  X(1, void*, PyInterpreterState_Main, ())                                                                \
  X(1, ThreadState*, PyInterpreterState_ThreadHead, (void*))                                              \
  X(1, ThreadState*, PyThreadState_Next, (ThreadState*))                                                  \
  X(0, void*, _PyInterpreterState_GetEvalFrameFunc, (void*))                                              \
  X(0, Object*, _PyEval_EvalFrameDefault, (ThreadState*, void*, int))                                     \
  X(1, Object*, PyThreadState_GetFrame, (ThreadState*))                                                   \
  X(1, Object*, PyFrame_GetBack, (Object*))                                                               \
  X(1, Object*, PyFrame_GetCode, (Object*))                                                               \
  X(1, int, PyFrame_GetLineNumber, (Object*))                                                             \
  X(1, Object*, PyObject_Str, (Object*))                                                                  \
  X(1, void, PyErr_Fetch, (Object**, Object**, Object**))                                                 \
  X(1, void, PyErr_Restore, (Object*, Object*, Object*))                                                  \
  X(1, void, PyErr_GetExcInfo, (Object**, Object**, Object**))                                            \
  X(1, void, PyErr_Clear, ())                                                                             \
  X(1, int, PyErr_ExceptionMatches, (Object*))                                                            \
  X(1, Object*, PyEval_GetBuiltins, ())                                                                   \
  X(1, Object*, PyEval_EvalCode, (Object*, Object*, Object*))                                             \
  X(1, Object*, Py_CompileString, (const char*, const char*, int))                                        \
  X(1, Object*, PyImport_GetModuleDict, ())                                                               \
  X(1, Object*, PyModule_GetDict, (Object*))                                                              \
  X(1, Object*, PyCFunction_NewEx, (MethodDefinition*, Object*, Object*))                                 \
  X(0, Vectorcall, PyVectorcall_Function, (Object*))                                     /* 3.11 */       \
  X(0, Object*, _PyFunction_Vectorcall, (Object*, Object* const*, std::size_t, Object*)) /* up to 3.12 */ \
  X(0, void, PyFunction_SetVectorcall, (Object*, Vectorcall))                            /* 3.12 */       \
  X(1, Object*, PyObject_Call, (Object*, Object*, Object*))                                               \
  X(1, Object*, PyObject_CallObject, (Object*, Object*))                                                  \
  X(1, Object*, PyObject_CallFunctionObjArgs, (Object*, ...)) /* the last argument: nullptr */            \
  X(1, Object*, PyObject_CallMethod, (Object*, const char*, const char*, ...))                            \
  X(1, Object*, Py_BuildValue, (const char*, ...))                                                        \
  X(1, Object*, PyDict_Copy, (Object*))                                                                   \
  X(1, long, PyLong_AsLong, (Object*))                                                                    \
  X(1, Object*, PyObject_GetAttrString, (Object*, const char*))                                           \
  X(1, int, PyObject_SetAttrString, (Object*, const char*, Object*))                                      \
  X(1, Object*, PyObject_GenericGetDict, (Object*, void*))                                                \
  X(1, Object*, PyDict_New, ())                                                                           \
  X(1, std::ptrdiff_t, PyDict_Size, (Object*))                                                            \
  X(1, void, PyDict_Clear, (Object*))                                                                     \
  X(1, int, PyDict_SetItemString, (Object*, const char*, Object*))                                        \
  X(1, Object*, PyDict_GetItemWithError, (Object*, Object*))                                              \
  X(1, Object*, PyDict_Items, (Object*))                                                                  \
  X(1, Object*, PyMapping_Items, (Object*))                                                               \
  X(1, std::ptrdiff_t, PyList_Size, (Object*))                                                            \
  X(1, Object*, PyList_GetItem, (Object*, std::ptrdiff_t))                                                \
  X(1, Object*, PyTuple_GetItem, (Object*, std::ptrdiff_t))                                               \
  X(1, Object*, PyTuple_New, (std::ptrdiff_t))                                                            \
  X(1, int, PyTuple_SetItem, (Object*, std::ptrdiff_t, Object*))                                          \
  X(1, Object*, PyUnicode_InternFromString, (const char*))                                                \
  X(1, Object*, PyUnicode_FromString, (const char*))                                                      \
  X(1, const char*, PyUnicode_AsUTF8AndSize, (Object*, std::ptrdiff_t*))                                  \
  X(1, unsigned long, PyType_GetFlags, (Object*))                                                         \
  X(1, int, PyType_IsSubtype, (Object*, Object*))                                                         \
  X(1, Object*, PyWeakref_NewRef, (Object*, Object*))                                                     \
  X(1, void*, PyCapsule_GetPointer, (Object*, const char*))                                               \
  X(1, const char*, PyCapsule_GetName, (Object*))                                                         \
  X(0, void, _PyInterpreterState_SetEvalFrameFunc, (void*, void*))                                        \
  X(1, void, PyEval_SetProfile, (ProfileFunction, Object*))                                               \
  X(1, ThreadState*, PyEval_SaveThread, ())                                                               \
  X(1, void, PyEval_RestoreThread, (ThreadState*))                                                        \
  X(1, Object*, PyErr_NoMemory, ())                                                                       \
  X(1, void, PyErr_SetString, (Object*, const char*))                                                     \
  X(1, Object*, PyErr_Occurred, ())                                                                       \
  X(1, Object*, PyLong_FromLong, (long))                                                                  \
  X(1, int, PyDict_Next, (Object*, std::ptrdiff_t*, Object**, Object**))                                  \
  X(1, Object*, PyFunction_GetCode, (Object*))                                                            \
  X(1, Object*, PyFunction_GetGlobals, (Object*))                                                         \
  X(1, int, PyThreadState_SetAsyncExc, (unsigned long, Object*))                                          \
  X(1, unsigned long, PyThread_get_thread_ident, ())                                                      \
  X(1, long long, PyLong_AsLongLongAndOverflow, (Object*, int*))                                          \
  X(1, unsigned long long, PyLong_AsUnsignedLongLong, (Object*))                                          \
  X(1, unsigned long long, PyLong_AsUnsignedLongLongMask, (Object*))                                      \
  X(1, Object*, PyLong_FromUnsignedLongLong, (unsigned long long))                                        \
  X(1, double, PyFloat_AsDouble, (Object*))                                                               \
  X(1, int, PyObject_GetBuffer, (Object*, Buffer*, int))                                                  \
  X(1, void, PyBuffer_Release, (Buffer*))                                                                 \
  X(1, Object*, PyNumber_ToBase, (Object*, int))                                                          \
  X(1, Object*, PyNumber_Index, (Object*))                                                                \
  X(1, Object*, PyNumber_Power, (Object*, Object*, Object*))                                              \
  X(1, Object*, PyFloat_FromDouble, (double))                                                             \
  X(0, Object**, _PyObject_GetDictPtr, (Object*))                                                         \
  X(0, Object*, _PyType_Lookup, (Object*, Object*))                                                       \
  X(0, int, PyUnstable_Type_AssignVersionTag, (Object*)) /* 3.12 */                                       \
  X(1, int, PyGC_Enable, ())                                                                              \
  X(1, int, PyGC_Disable, ())                                                                             \
  X(1, int, PyContextVar_Get, (Object*, Object*, Object**))                                               \
  X(1, int, PyDict_SetItem, (Object*, Object*, Object*))                                                  \
  X(1, int, PyDict_DelItem, (Object*, Object*))                                                           \
  X(0, int, PyDict_AddWatcher, (DictWatcherFunction)) /* 3.12, as the next three */                       \
  X(0, int, PyDict_ClearWatcher, (int))                                                                   \
  X(0, int, PyDict_Watch, (int, Object*))                                                                 \
  X(0, int, PyDict_Unwatch, (int, Object*))                                                               \
  X(0, int, PyFunction_AddWatcher, (FunctionWatcherFunction)) /* 3.12, as the next one */                 \
  X(0, int, PyFunction_ClearWatcher, (int))                                                               \
  X(0, int, PyODict_SetItem, (Object*, Object*, Object*))                                                 \
  X(0, int, PyODict_DelItem, (Object*, Object*))                                                          \
  X(1, Object*, PyList_New, (std::ptrdiff_t))                                                             \
  X(1, int, PyList_SetItem, (Object*, std::ptrdiff_t, Object*))                                           \
  X(1, int, PyList_Append, (Object*, Object*))                                                            \
  X(1, Object*, PyList_GetSlice, (Object*, std::ptrdiff_t, std::ptrdiff_t))                               \
  X(1, int, PyList_SetSlice, (Object*, std::ptrdiff_t, std::ptrdiff_t, Object*))                          \
  X(1, int, PySet_Add, (Object*, Object*))                                                                \
  X(1, std::ptrdiff_t, PyObject_Hash, (Object*))                                                          \
  X(1, int, PyObject_RichCompareBool, (Object*, Object*, int))

// Objects of the interpreter that are used by address.
#define GRAPE_PYTHON_OBJECTS(X) \
  X(1, PyCode_Type)             \
  X(1, PyFunction_Type)         \
  X(1, PyMethodDescr_Type)      \
  X(1, PyModule_Type)           \
  X(1, _Py_NoneStruct)          \
  X(1, PyExc_RecursionError)    \
  X(1, PyExc_MemoryError)       \
  X(1, PyExc_RuntimeError)      \
  X(0, _PyRuntime)              \
  X(1, PyCFunction_Type)        \
  X(1, PyCell_Type)             \
  X(1, PyTuple_Type)            \
  X(1, PyWrapperDescr_Type)     \
  X(1, _Py_EllipsisObject)      \
  X(1, _Py_TrueStruct)          \
  X(1, _Py_FalseStruct)         \
  X(1, PyBaseObject_Type)       \
  X(1, PyType_Type)             \
  X(1, PyUnicode_Type)          \
  X(1, PyBytes_Type)            \
  X(1, PyLong_Type)             \
  X(1, PyFloat_Type)            \
  X(1, PyComplex_Type)          \
  X(1, PyList_Type)             \
  X(1, PyDict_Type)             \
  X(1, PySet_Type)              \
  X(1, PyFrozenSet_Type)        \
  X(1, PyRange_Type)            \
  X(1, PySlice_Type)            \
  X(1, PyMethod_Type)           \
  X(1, PyMemberDescr_Type)      \
  X(1, PyGetSetDescr_Type)      \
  X(1, PyClassMethodDescr_Type) \
  X(1, PyProperty_Type)         \
  X(1, PyStaticMethod_Type)     \
  X(1, PyClassMethod_Type)      \
  X(1, _PyWeakref_RefType)      \
  X(0, PyODict_Type)

struct Api {
#define GRAPE_PYTHON_FIELD(needed, result, name, arguments) result(*name) arguments = nullptr;
  GRAPE_PYTHON_FUNCTIONS(GRAPE_PYTHON_FIELD)
#undef GRAPE_PYTHON_FIELD
#define GRAPE_PYTHON_FIELD(needed, name) Object* name = nullptr;
  GRAPE_PYTHON_OBJECTS(GRAPE_PYTHON_FIELD)
#undef GRAPE_PYTHON_FIELD
};

// Where things stand, in bytes from the start of their structure.
struct Layout {
  int minor = 0;                     // 3.minor; 0: unknown
  bool frame_objects = false;        // 3.10: frames are objects and hold an instruction number, not an address
  std::uint32_t thread_frame = 0;    // thread state: innermost frame, or the _PyCFrame that holds it
  std::int32_t cframe_frame = -1;    // _PyCFrame: innermost frame; -1: thread_frame is the frame itself
  std::uint32_t frame_previous = 0;  // the caller's frame
  std::uint32_t frame_code = 0;
  std::uint32_t frame_instruction = 0;
  std::uint32_t frame_owner = 0;  // a byte; not where frame_objects
  std::uint32_t code_file = 0;
  std::uint32_t code_name = 0;  // qualified from 3.11
  std::uint32_t code_first_line = 0;
  std::uint32_t code_lines = 0;            // the line table, a bytes object
  std::uint32_t code_first_traceable = 0;  // instruction at which a frame is complete; not where frame_objects
  std::uint32_t code_instructions = 0;     // the first instruction; not where frame_objects
  std::uint32_t frame_globals = 0;
  std::uint32_t frame_locals = 0;        // the first local variable
  std::int32_t frame_function = -1;      // the function that runs; -1: frames do not say
  std::uint32_t frame_object_frame = 0;  // from 3.11: a frame object's frame
  std::uint32_t ascii_text = 48;         // text of an ASCII str
  std::uint32_t compact_text = 72;       // text of any other compact str
  std::uint32_t text_kind_shift = 2;     // bits of a str's state below its kind; found by check_text()
  std::uint32_t tuple_items = 24;

  // Of a function object, in every version.
  static constexpr std::uint32_t function_globals = 16;
  static constexpr std::uint32_t function_code = 48;
  static constexpr std::uint32_t function_defaults = 56;                 // behind them: keyword defaults, closure
  static constexpr std::uint32_t function_attributes = 88;               // its __dict__
  static constexpr std::uint32_t function_texts[4] = {32, 40, 80, 104};  // name, qualified name, documentation, module
};

constexpr std::uint8_t kFirstShimOwner = 3;  // from 3.12: frames with this owner or a higher one run no Python code

extern Api g_api;
extern Layout g_layout;

// Finds the interpreter's symbols. False: there is no interpreter, or (with one notice) one of an unknown version or
// without a GIL; `permanent` tells which. Any thread, one at a time.
bool load_api(bool& permanent) noexcept;

// Is the interpreter going away (or did note_shutdown run)? Then nothing of it may be read any more. Any thread.
extern std::atomic<bool> g_shutdown;
bool shutting_down() noexcept;

// Raw reads, valid for every version in the table.
template <typename T>
inline T field(const void* object, std::size_t offset) noexcept {
  return *reinterpret_cast<const T*>(static_cast<const char*>(object) + offset);
}
template <typename T>
inline const T& place(const void* object, std::size_t offset) noexcept {
  return *reinterpret_cast<const T*>(static_cast<const char*>(object) + offset);
}
inline Object* type_of(const Object* object) noexcept { return field<Object*>(object, 8); }
// References to the object; of an immortal one very many.
inline std::uint32_t reference_count(const Object* object) noexcept { return field<std::uint32_t>(object, 0); }
bool is_text(Object* object) noexcept;
bool is_dict(Object* object) noexcept;
bool is_type(Object* object) noexcept;
inline bool is_function(Object* object) noexcept { return type_of(object) == g_api.PyFunction_Type; }

// The bytes of a bytes object.
inline const std::uint8_t* bytes_data(const Object* object) noexcept {
  return reinterpret_cast<const std::uint8_t*>(object) + 32;
}
inline std::size_t bytes_size(const Object* object) noexcept { return field<std::size_t>(object, 16); }

// Copies a str as UTF-8 into `out`, at most `room` bytes, whole characters only; needs no GIL. Returns the bytes.
std::size_t copy_text(const Object* text, char* out, std::size_t room) noexcept;
// With the GIL: finds how this interpreter marks the width of a str's characters. False: unknown.
bool check_text() noexcept;

// The object that a weak reference still refers to (None when it is gone).
inline Object* referent(const Object* reference) noexcept { return field<Object*>(reference, 16); }

// A type's destructor slot.
inline Destructor& destructor_of(Object* type) noexcept {
  return *reinterpret_cast<Destructor*>(reinterpret_cast<char*>(type) + 48);
}

// What is called when Python calls `function` (a Python function); null: its layout is not what was expected.
Vectorcall vectorcall_of(Object* function) noexcept;
// Of a vectorcall's `count`, whose highest bit says something else.
constexpr std::size_t positional_count(std::size_t count) { return count & ~(std::size_t{1} << 63); }
// With the GIL, after vectorcall_of() gave one: replaces it.
void set_vectorcall(Object* function, Vectorcall call) noexcept;

// The definition behind a method descriptor of a C type; null: it is none.
MethodDefinition* method_of(Object* descriptor) noexcept;
// The definition behind a builtin function, a bound builtin method, a method descriptor, a method made with pybind11 or
// a function compiled by Cython; null: it is none of these.
MethodDefinition* definition_of(Object* callable) noexcept;

// A type's slot for making an instance, for its end, for its initialisation, and for the next item of an iterator. For
// what only replaces it and puts it back.
void** new_slot(Object* type) noexcept;
void** dealloc_slot(Object* type) noexcept;
void** init_slot(Object* type) noexcept;
void** next_slot(Object* type) noexcept;
// What reads the attribute that a descriptor of a C type stands for, and behind it what sets it; null: it is none such.
void** getter_of(Object* descriptor) noexcept;
// What a slot's method, as `type.__init__`, calls; null: it is no such method.
void** wrapped_slot(Object* method) noexcept;

inline Object* tuple_item(const Object* tuple, std::size_t index) noexcept {
  return field<Object*>(tuple, g_layout.tuple_items + index * 8);
}

// A frame as the interpreter's frame evaluation gets it (also a frame object's, by frame_of()).
inline Object* unmarked(std::uintptr_t reference) noexcept {  // from 3.14 the low bits of a reference are marks
  return reinterpret_cast<Object*>(reference & ~std::uintptr_t{3});
}
inline Object* frame_code(const void* frame) noexcept {
  return unmarked(field<std::uintptr_t>(frame, g_layout.frame_code));
}
inline Object* frame_globals(const void* frame) noexcept { return field<Object*>(frame, g_layout.frame_globals); }
// The function that runs, or null: not known, or it is no plain function.
Object* frame_function(const void* frame) noexcept;
// May be null, or a cell.
inline Object* frame_local(const void* frame, std::size_t index) noexcept {
  return unmarked(field<std::uintptr_t>(frame, g_layout.frame_locals + index * 8));
}
inline const void* frame_of(const Object* frame_object) noexcept {
  return g_layout.frame_objects ? frame_object : field<const void*>(frame_object, g_layout.frame_object_frame);
}

// Keeps the exception that is set, if any, over calls of the API, and leaves none that was not there.
class KeepException {
 public:
  KeepException() noexcept { g_api.PyErr_Fetch(&type_, &value_, &traceback_); }
  ~KeepException() noexcept { g_api.PyErr_Restore(type_, value_, traceback_); }
  KeepException(const KeepException&) = delete;
  KeepException& operator=(const KeepException&) = delete;

 private:
  Object *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// A reference that is given up at the end; null after an error, which is cleared.
class Reference {
 public:
  explicit Reference(Object* owned) noexcept : object_(owned) {
    if (owned == nullptr) g_api.PyErr_Clear();
  }
  ~Reference() noexcept {
    if (object_ != nullptr) g_api.Py_DecRef(object_);
  }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Object* get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  Object* object_;
};

// A new reference to the same object; null stays null.
inline Object* new_reference(Object* object) noexcept {
  if (object != nullptr) g_api.Py_IncRef(object);
  return object;
}

// An exception of the interpreter by its symbol (which is a variable that holds it).
inline Object* exception(Object* const symbol) noexcept { return *reinterpret_cast<Object**>(symbol); }

// Runs Python code of Grape's, as the module "grape", whose names stay in `globals`, a dictionary; a new reference.
// Null: it raised, and the exception is set. With the GIL. `code`: of compile_text().
Object* compile_text(const char* text, const char* file = "<grape>") noexcept;
Object* run_code(Object* code, Object* globals) noexcept;
Object* run_text(const char* text, Object* globals, const char* file = "<grape>") noexcept;

// Does the interpreter run Python code as it came, or has somebody hooked its frame evaluation just now?
bool runs_plainly() noexcept;

// The module of that name, if it is imported; borrowed. With the GIL.
Object* imported_module(const char* name) noexcept;
// `dict[key]` without running Python code, for a plain key; borrowed, null: none. With the GIL.
inline Object* dict_item(Object* dict, Object* key) noexcept {
  Object* item = g_api.PyDict_GetItemWithError(dict, key);
  if (item == nullptr) g_api.PyErr_Clear();
  return item;
}
Object* dict_item(Object* dict, const char* key) noexcept;
// The dictionary of a module object, borrowed; null: it is no plain module.
Object* module_dict(Object* module) noexcept;
// The same of the module of that name; null: it is not imported, or no plain module.
Object* imported_dict(const char* name) noexcept;
// Calls `found(key, value)` for each pair of a list of pairs, as PyDict_Items() gives it (owned; may be null).
template <typename Found>
void each_pair(Object* pairs, Found found) {
  const Reference list(pairs);
  const std::ptrdiff_t count = list ? g_api.PyList_Size(pairs) : 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    Object* pair = g_api.PyList_GetItem(pairs, i);
    found(g_api.PyTuple_GetItem(pair, 0), g_api.PyTuple_GetItem(pair, 1));
  }
}
// "package.module:Qualified.name" of a class or function; false: it has no such names. With the GIL.
bool qualified_name(Object* object, char* out, std::size_t room) noexcept;

}  // namespace grape::python
