#include "python_hooks/state/host_effects.h"

#include <cstdio>
#include <cstring>
#include <string_view>

#include "python_hooks/cpython_objects.h"
#include "python_hooks/flat_map.h"
#include "python_hooks/memory_map.h"
#include "shim/lifecycle/log.h"

namespace grape::python::state {
namespace {

// C functions of a module, or methods of a class of it ("Class.method"). "*" and "Class.*": all but those that
// follow with a minus sign. A name in brackets is a class's slot: "Class[init]", "Class[next]".
struct Row {
  const char* module;
  const char* names;  // separated by blanks
  EffectKind kind = EffectKind::kRefused;
  const char* said = nullptr;  // what a person calls it, where the name says little
  bool done = false;
};

Row g_native[] = {
    {"builtins", "print input breakpoint"},
    {"builtins", "globals id", EffectKind::kFromUsers},
    {"sys",
     "settrace _settraceallthreads addaudithook setrecursionlimit setswitchinterval "
     "setdlopenflags set_int_max_str_digits _current_frames _current_exceptions"},
    {"sys", "setprofile _setprofileallthreads", EffectKind::kProfile},
    {"_lsprof", "Profiler.enable Profiler.disable", EffectKind::kProfile},
    {"time",
     "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time "
     "thread_time_ns clock_gettime clock_gettime_ns clock_settime clock_settime_ns sleep localtime gmtime ctime "
     "asctime "
     "strftime tzset pthread_getcpuclockid"},
    {"_datetime", "datetime.now datetime.utcnow datetime.today date.today"},
    // What remains is pure, or the same as long as the process lives.
    {"posix",
     "* -fspath -getpid -cpu_count -strerror -_path_normpath -_path_splitroot_ex -_path_splitroot -WIFEXITED "
     "-WIFSIGNALED -WIFSTOPPED -WIFCONTINUED -WCOREDUMP -WEXITSTATUS -WTERMSIG -WSTOPSIG -waitstatus_to_exitcode "
     "-major -minor -makedev -get_inheritable"},
    // A call in another context reads other values than a guard finds here.
    {"_contextvars", "copy_context Context.run"},
    {"_contextvars", "ContextVar.get ContextVar.set ContextVar.reset", EffectKind::kContext},
    {"_io", "open open_code FileIO[init] FileIO[next] BufferedReader[next] BufferedRandom[next] TextIOWrapper[next]"},
    {"_io",
     "FileIO.read FileIO.readall FileIO.readinto FileIO.write FileIO.seek FileIO.tell FileIO.truncate FileIO.close "
     "_IOBase.readline _IOBase.readlines _IOBase.writelines _RawIOBase.read _RawIOBase.readall"},
    {"_io",
     "BufferedReader.* BufferedWriter.* BufferedRandom.* BufferedRWPair.* TextIOWrapper.* StringIO.* BytesIO.* "
     "-readable -writable -seekable -isatty -fileno -closed -_dealloc_warn -__getstate__ -__setstate__ -__sizeof__ "
     "-__reduce__ -__reduce_ex__ -getvalue -getbuffer"},
    {"_thread", "start_new_thread start_new start_joinable_thread interrupt_main stack_size _set_sentinel"},
    {"_queue", "SimpleQueue.put SimpleQueue.put_nowait SimpleQueue.get SimpleQueue.get_nowait"},
    {"_multiprocessing", "SemLock.acquire SemLock.release send recv sem_unlink"},
    {"_posixsubprocess", "fork_exec"},
    {"_posixshmem", "*"},
    {"_signal", "* -getsignal -strsignal -valid_signals -default_int_handler"},
    {"select", "* epoll.poll epoll.register epoll.modify epoll.unregister"},
    {"_socket",
     "socket[init] socket.* -fileno -gettimeout * -htons -htonl -ntohs -ntohl -inet_aton -inet_ntoa -inet_pton "
     "-inet_ntop -getdefaulttimeout -CMSG_LEN -CMSG_SPACE"},
    {"_ssl", "_SSLSocket.read _SSLSocket.write _SSLSocket.do_handshake _SSLSocket.shutdown RAND_bytes RAND_add"},
    {"mmap", "mmap.* -closed -size"},
    {"fcntl", "*"},
    {"termios", "*"},
    {"resource", "*"},
    {"syslog", "*"},
    {"_random", "Random.random Random.getrandbits Random.seed Random.getstate Random.setstate"},
    {"_uuid", "*"},
    {"_sqlite3", "connect Connection.* Cursor.*"},
    {"_ctypes", "dlopen dlclose"},
    {"_locale", "setlocale bindtextdomain textdomain"},
    {"_tracemalloc", "start stop clear_traces get_traced_memory reset_peak"},
    {"faulthandler", "*"},
    {"atexit", "* -_ncallbacks"},
    {"gc", "enable disable collect set_debug set_threshold freeze unfreeze get_count get_objects get_stats"},
    {"_testcapi", "*"},
};

Row g_native_installed[] = {
    {"numpy.random.mtrand", "RandomState.*"},
    {"numpy.random._generator", "Generator.*"},
    {"numpy.random.bit_generator", "BitGenerator.random_raw"},
    {"torch._C",
     "Generator.manual_seed Generator.seed Generator.set_state Generator.set_offset Generator.get_state "
     "Generator.get_offset Generator.initial_seed Generator.graphsafe_set_state Generator.graphsafe_get_state "
     "Generator.clone_state"},
    {"torch._C", "_ImperativeEngine.run_backward", EffectKind::kRefused, "backward()"},
    {"torch._C",
     "_cuda_emptyCache _cuda_memoryStats _cuda_memorySnapshot _cuda_resetPeakMemoryStats "
     "_cuda_resetPeakHostMemoryStats _cuda_resetAccumulatedMemoryStats _cuda_hostMemoryStats _cuda_setMemoryFraction "
     "_cuda_setAllocatorSettings _cuda_attach_out_of_memory_observer _cuda_record_memory_history_legacy "
     "_cuda_record_memory_history _cuda_isHistoryEnabled _cuda_beginAllocateToPool "
     "_cuda_beginAllocateCurrentThreadToPool _cuda_endAllocateToPool _cuda_ipc_collect"},
};

// Functions written in Python: "function" or "Class.method".
Row g_python[] = {
    {"importlib._bootstrap", "_find_and_load", EffectKind::kImport},
    {"os", "_Environ.__getitem__ _Environ.__iter__ _Environ.__len__ _Environ.copy", EffectKind::kEnvironment},
    {"logging", "Logger._log Logger.handle Logger.callHandlers Handler.handle Handler.flush basicConfig"},
    {"logging", "Logger.isEnabledFor Logger.getEffectiveLevel", EffectKind::kLogger},
    {"warnings", "_showwarnmsg showwarning _showwarning_orig"},
    {"threading",
     "Thread.start Thread.join Event.set Event.clear Event.wait Event.is_set Condition.wait Condition.wait_for "
     "Condition.notify Condition.notify_all Semaphore.acquire Semaphore.release BoundedSemaphore.release Barrier.wait "
     "settrace setprofile settrace_all_threads setprofile_all_threads active_count enumerate"},
    {"queue", "Queue.put Queue.get Queue.join Queue.task_done Queue.qsize Queue.empty Queue.full"},
    {"concurrent.futures.thread", "ThreadPoolExecutor.submit"},
    {"concurrent.futures.process", "ProcessPoolExecutor.submit"},
    {"random", "SystemRandom.random SystemRandom.getrandbits"},
    {"torch.distributed.distributed_c10d",
     "all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single barrier broadcast "
     "broadcast_object_list gather gather_object irecv isend monitored_barrier recv reduce reduce_scatter "
     "reduce_scatter_tensor scatter scatter_object_list send batch_isend_irecv new_group"},
};

FlatMap<AddressKey, const Effect*>& effects_by_code() {
  static auto* effects = new FlatMap<AddressKey, const Effect*>;
  return *effects;
}

bool next_word(std::string_view& words, std::string_view& word) {
  while (!words.empty() && words.front() == ' ') words.remove_prefix(1);
  const std::size_t end = words.find(' ');
  word = words.substr(0, end);
  words.remove_prefix(end == std::string_view::npos ? words.size() : end);
  return !word.empty();
}

bool excluded(const char* names, std::string_view name) {
  std::string_view words = names, word;
  while (next_word(words, word)) {
    if (word.front() == '-' && word.substr(1) == name) return true;
  }
  return false;
}

Object* attribute(Object* object, std::string_view name) {  // a new reference, or null
  char text[64];
  if (name.size() >= sizeof(text)) return nullptr;
  std::memcpy(text, name.data(), name.size());
  text[name.size()] = 0;
  Object* value = g_api.PyObject_GetAttrString(object, text);
  if (value == nullptr) g_api.PyErr_Clear();
  return value;
}

// "time.sleep", "datetime.now": as a user would write it, without the C module's underscore.
void name_effect(char (&out)[sizeof(Effect::name)], const Row& row, std::string_view owner, std::string_view name) {
  if (row.said != nullptr) {
    std::snprintf(out, sizeof(out), "%s", row.said);
    return;
  }
  const char* module = row.module;
  if (const char* dot = std::strrchr(module, '.')) module = dot + 1;
  while (*module == '_') ++module;
  if (std::strcmp(module, "posix") == 0) module = "os";
  if (std::strcmp(module, "C") == 0) module = "torch";
  if (std::strcmp(row.module, "builtins") == 0) {
    std::snprintf(out, sizeof(out), "%.*s()", static_cast<int>(name.size()), name.data());
  } else if (!owner.empty()) {
    std::snprintf(out, sizeof(out), "%.*s.%.*s()", static_cast<int>(owner.size()), owner.data(),
                  static_cast<int>(name.size()), name.data());
  } else {
    std::snprintf(out, sizeof(out), "%s.%.*s()", module, static_cast<int>(name.size()), name.data());
  }
}

class NativeFinder {
 public:
  explicit NativeFinder(const Row& row) : row_(row) {}
  bool complete() const { return complete_; }

  void find(Object* module, const WritableMemory& memory) {
    memory_ = &memory;
    std::string_view words = row_.names, word;
    while (next_word(words, word)) {
      const std::size_t bracket = word.find('['), dot = word.find('.');
      if (word == "*") {
        add_all(module, "");
      } else if (word.front() == '-') {
        continue;
      } else if (bracket != std::string_view::npos) {
        const Reference type(attribute(module, word.substr(0, bracket)));
        if (type && is_type(type.get())) add_slot(type.get(), word.substr(0, bracket), word.substr(bracket));
      } else if (dot != std::string_view::npos) {
        const Reference type(attribute(module, word.substr(0, dot)));
        if (!type || !is_type(type.get())) continue;
        if (word.substr(dot + 1) == "*") {
          add_all(type.get(), word.substr(0, dot));
        } else {
          add_named(type.get(), word.substr(0, dot), word.substr(dot + 1));
        }
      } else {
        add_named(module, "", word);
      }
    }
  }

 private:
  void add_place(void** place, std::string_view owner, std::string_view name) {
    char text[sizeof(Effect::name)];
    name_effect(text, row_, owner, name);
    // A place that cannot be written is no interpreter's that we know: what is called there would be missed.
    if (!memory_->has(place, sizeof(*place)) || !add_trap(place, text, row_.kind)) complete_ = false;
  }

  void add(Object* callable, std::string_view owner, std::string_view name) {
    if (MethodDefinition* definition = definition_of(callable)) add_place(&definition->method, owner, name);
  }

  void add_named(Object* holder, std::string_view owner, std::string_view name) {
    const Reference callable(attribute(holder, name));
    if (callable) add(callable.get(), owner, name);
  }

  void add_slot(Object* type, std::string_view owner, std::string_view slot) {
    const bool init = slot == "[init]";
    const char* name = init ? "__init__" : "__next__";
    add_place(init ? init_slot(type) : next_slot(type), owner, name);
    const Reference method(attribute(type, name));  // what subclasses call
    if (method && wrapped_slot(method.get()) != nullptr) add_place(wrapped_slot(method.get()), owner, name);
  }

  void add_all(Object* holder, std::string_view owner) {
    const Reference dict(attribute(holder, "__dict__"));
    const Reference items(dict ? g_api.PyMapping_Items(dict.get()) : nullptr);
    const std::ptrdiff_t count = items ? g_api.PyList_Size(items.get()) : 0;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      Object* pair = g_api.PyList_GetItem(items.get(), i);
      char name[64];
      if (!is_text(tuple_data(pair)[0])) continue;
      const std::size_t size = copy_text(tuple_data(pair)[0], name, sizeof(name));
      const std::string_view view(name, size);
      // Construction, comparison, pickling: nothing outside. Context managers close files.
      if (view.substr(0, 2) == "__" && view != "__enter__" && view != "__exit__") continue;
      if (!excluded(row_.names, view)) add(tuple_data(pair)[1], owner, view);
    }
  }

  const Row& row_;
  const WritableMemory* memory_ = nullptr;
  bool complete_ = true;
};

bool add_code(const Row& row, Object* function, std::string_view owner, std::string_view name) {
  if (!is_function(function)) return true;
  Object* code = g_api.PyFunction_GetCode(function);
  if (effects_by_code().find({code}) != nullptr) return true;
  auto* effect = new Effect;  // for good, as the code: it belongs to a module of the system's
  name_effect(effect->name, row, owner, name);
  effect->kind = row.kind;
  g_api.Py_IncRef(code);
  return effects_by_code().put({code}, effect);
}

bool find_python(const Row& row, Object* module) {
  std::string_view words = row.names, word;
  bool complete = true;
  while (next_word(words, word)) {
    const std::size_t dot = word.find('.');
    const bool method = dot != std::string_view::npos;
    const Reference owner(method ? attribute(module, word.substr(0, dot)) : nullptr);
    if (method && !owner) continue;
    const Reference function(attribute(method ? owner.get() : module, method ? word.substr(dot + 1) : word));
    if (!function) continue;
    complete = add_code(row, function.get(), method ? word.substr(0, dot) : "", method ? word.substr(dot + 1) : word) &&
               complete;
  }
  return complete;
}

template <std::size_t count>
bool find_native(Row (&rows)[count], const WritableMemory*& memory) {
  bool complete = true;
  for (Row& row : rows) {
    Object* module = row.done ? nullptr : imported_module(row.module);
    if (module == nullptr || module == g_api._Py_NoneStruct) continue;
    if (memory == nullptr) memory = new WritableMemory;
    NativeFinder finder(row);
    finder.find(module, *memory);
    row.done = true;
    complete = finder.complete() && complete;
  }
  return complete;
}

bool g_complete = true;

void find_all() {
  const WritableMemory* memory = nullptr;
  g_complete = find_native(g_native, memory) && g_complete;
  g_complete = find_native(g_native_installed, memory) && g_complete;
  delete memory;
  for (Row& row : g_python) {
    Object* module = row.done ? nullptr : imported_module(row.module);
    if (module == nullptr || module == g_api._Py_NoneStruct) continue;
    g_complete = find_python(row, module) && g_complete;
    row.done = true;
  }
}

}  // namespace

bool find_effects() noexcept {
  if (!g_complete) return false;
  try {
    find_all();
  } catch (...) {  // no memory
    g_complete = false;
  }
  if (!g_complete) notice("no replay: what a call does outside the process's state cannot be watched");
  return g_complete;
}

const Effect* effect_of(Object* code) noexcept {
  const Effect* const* effect = effects_by_code().find({code});
  return effect != nullptr ? *effect : nullptr;
}

}  // namespace grape::python::state
