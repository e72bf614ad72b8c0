#include "python_hooks/observation/host_effects.h"

#include <cstdio>
#include <cstring>
#include <string_view>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/interpreter/memory_map.h"
#include "shim/lifecycle/log.h"

namespace grape::python::state {
namespace {

// METH_VARARGS | METH_KEYWORDS, of the flags that say how a function gets its arguments.
constexpr int kVarargsAndKeywords = 1 | 2, kMethodFlags = 1 | 2 | 4 | 8 | 0x80 | 0x200;

// C functions of a module, or methods of a class of it ("Class.method"). "*" and "Class.*": all but those that
// follow with a minus sign. In brackets stands a class's slot, "Class[init]", "Class[new]", "Class[next]", or what
// reads or sets an attribute: "Class[get:grad]", "Class[set:grad]".
struct Row {
  const char* module;
  const char* names;  // separated by blanks
  EffectKind kind = EffectKind::kRefused;
  const char* said = nullptr;  // what a person calls it, where the name says little
  bool done = false;
};

Row g_native[] = {
    {"builtins", "print input breakpoint"},
    {"builtins", "globals id type.__subclasses__", EffectKind::kFromUsers},
    {"builtins", "hash", EffectKind::kHash},
    // What else reads a local variable than the code whose it is.
    {"builtins", "locals vars dir eval exec", EffectKind::kLocals},
    {"types", "FrameType[get:f_locals]", EffectKind::kLocals},
    {"_abc", "_abc_instancecheck _abc_subclasscheck get_cache_token", EffectKind::kAbstract},
    {"sys",
     "settrace _settraceallthreads addaudithook setswitchinterval setdlopenflags _current_frames _current_exceptions"},
    // Where calls fail by them, no name shows it.
    {"sys", "setrecursionlimit set_int_max_str_digits", EffectKind::kSetting},
    {"sys", "setprofile _setprofileallthreads", EffectKind::kProfile},
    {"sys", "exc_info exception", EffectKind::kHandled},
    // Numbers of references, frames, settings and what else the interpreter keeps to itself.
    {"sys", "* -intern -exit -getdefaultencoding -getfilesystemencoding -getfilesystemencodeerrors -is_finalizing",
     EffectKind::kFromUsers},
    {"_lsprof", "Profiler.enable Profiler.disable", EffectKind::kProfile},
    {"time",
     "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time "
     "thread_time_ns clock_gettime clock_gettime_ns clock_settime clock_settime_ns sleep localtime gmtime ctime "
     "asctime "
     "strftime tzset pthread_getcpuclockid"},
    {"_datetime", "datetime.now datetime.utcnow datetime.today date.today"},
    // By the time zone that is set.
    {"_datetime", "datetime.fromtimestamp datetime.timestamp datetime.astimezone date.fromtimestamp"},
    // What comes of it depends on the thread's context: precision, rounding, traps.
    {"_decimal", "getcontext setcontext localcontext Decimal[new] Decimal.from_float Decimal.from_number"},
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
    {"_io", "StringIO.getvalue BytesIO.getvalue BytesIO.getbuffer", EffectKind::kFromUsers},
    // Functions by their names, which nothing else shows.
    {"_pickle", "load loads Unpickler.load"},
    {"_thread", "start_new_thread start_new start_joinable_thread interrupt_main stack_size _set_sentinel"},
    {"_thread", "get_ident get_native_id", EffectKind::kThread},
    {"_thread", "_count", EffectKind::kFromUsers},
    {"_asyncio", "get_running_loop _get_running_loop get_event_loop current_task", EffectKind::kFromUsers},
    {"_weakref", "ReferenceType[init] proxy", EffectKind::kWeak},
    {"_weakref", "getweakrefcount getweakrefs", EffectKind::kFromUsers},
    {"_queue", "SimpleQueue.put SimpleQueue.put_nowait SimpleQueue.get SimpleQueue.get_nowait"},
    {"_multiprocessing", "SemLock.acquire SemLock.release send recv sem_unlink"},
    {"_posixsubprocess", "fork_exec"},
    {"_posixshmem", "*"},
    {"_signal", "* -strsignal -valid_signals -default_int_handler"},
    {"select", "* epoll.poll epoll.register epoll.modify epoll.unregister"},
    {"_socket",
     "socket[init] socket.* -fileno -gettimeout * -htons -htonl -ntohs -ntohl -inet_aton -inet_ntoa -inet_pton "
     "-inet_ntop -CMSG_LEN -CMSG_SPACE"},
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
    // Memory by its address: nobody knows whose it is.
    {"_ctypes",
     "_SimpleCData.from_address Structure.from_address Union.from_address Array.from_address _Pointer.from_address "
     "CFuncPtr.from_address",
     EffectKind::kRefused, "from_address() of ctypes"},
    {"_ctypes", "_SimpleCData.in_dll Structure.in_dll Union.in_dll Array.in_dll _Pointer.in_dll CFuncPtr.in_dll",
     EffectKind::kRefused, "in_dll() of ctypes"},
    {"_ctypes", "_SimpleCData[get:value]", EffectKind::kFromUsers, "a value of ctypes"},
    {"_locale", "setlocale localeconv nl_langinfo strcoll strxfrm bindtextdomain textdomain"},
    {"_tracemalloc", "start stop clear_traces get_traced_memory reset_peak"},
    {"faulthandler", "*"},
    {"atexit", "* -_ncallbacks"},
    {"gc", "enable disable collect set_debug set_threshold freeze unfreeze get_count get_objects get_stats"},
    {"gc", "*", EffectKind::kFromUsers},
    {"_testcapi", "*"},
};

Row g_native_installed[] = {
    {"numpy.random.mtrand", "RandomState.*"},
    {"numpy.random._generator", "Generator.*", EffectKind::kRandom},
    {"numpy.random.bit_generator", "BitGenerator.random_raw"},
    {"torch._C",
     "Generator.manual_seed Generator.seed Generator.set_state Generator.set_offset Generator.get_state "
     "Generator.get_offset Generator.initial_seed Generator.graphsafe_set_state Generator.graphsafe_get_state "
     "Generator.clone_state",
     EffectKind::kRandom},
    {"torch._C",
     "_VariableFunctionsClass.rand _VariableFunctionsClass.randn _VariableFunctionsClass.randint "
     "_VariableFunctionsClass.randperm",
     EffectKind::kDraws},
    // Gradients are tensors that nothing else leads to, also where a library works on them (an optimizer's step).
    {"torch._C", "TensorBase[get:grad] TensorBase[get:_grad] TensorBase[set:grad] TensorBase[set:_grad]"},
    // What stands beside a tensor's values and its form, and is no part of a signature; addresses.
    {"torch._C",
     "TensorBase[get:grad_fn] TensorBase[get:_grad_fn] TensorBase[get:is_leaf] "
     "TensorBase[get:output_nr] TensorBase[get:_version] TensorBase[get:_base] TensorBase[get:_cdata] "
     "TensorBase[get:_backward_hooks] TensorBase[get:retains_grad] TensorBase._is_view TensorBase._use_count "
     "TensorBase[get:_post_accumulate_grad_hooks] TensorBase.is_pinned StorageBase[get:_cdata] "
     "TensorBase.data_ptr StorageBase.data_ptr",
     EffectKind::kFromUsers},
    {"torch._C",
     "StorageBase.nbytes TensorBase.as_strided TensorBase.as_strided_ TensorBase.set_ TensorBase.resize_ "
     "TensorBase.resize_as_ _VariableFunctionsClass.as_strided _VariableFunctionsClass.as_strided_ "
     "_VariableFunctionsClass.resize_as_",
     EffectKind::kStorage},
    // The allocator is told who uses memory: it is given to others later, which a replay would not see to.
    {"torch._C", "TensorBase.record_stream"},
    // What is known of a storage, and that nothing else shows; memory that others write to.
    {"torch._C",
     "StorageBase.resizable StorageBase.is_shared StorageBase.from_file StorageBase._new_with_file "
     "StorageBase._set_from_file StorageBase._new_shared_cuda StorageBase._new_shared_fd_cpu "
     "StorageBase._new_shared_filename_cpu StorageBase._share_cuda_ StorageBase._share_fd_cpu_ "
     "StorageBase._share_filename_cpu_ _VariableFunctionsClass.from_file"},
    {"torch._C", "_ImperativeEngine.run_backward", EffectKind::kBackward, "backward()"},
    // What autograd notes of a tensor beside what a call is compared by: errors of detach_() depend on how a view was
    // made, and gradients are of the type that was asked for.
    {"torch._C",
     "TensorBase.detach_ _VariableFunctionsClass.detach_ TensorBase.retain_grad TensorBase[set:grad_dtype] "
     "TensorBase._register_hook_dict "
     "_ImperativeEngine.queue_callback _ImperativeEngine.clone_execution"},
    {"torch._C", "TensorBase[get:grad_dtype] _current_graph_task_id _current_autograd_node", EffectKind::kFromUsers},
    {"torch._C",
     "_cuda_emptyCache _cuda_memoryStats _cuda_memorySnapshot _cuda_resetPeakMemoryStats "
     "_cuda_resetPeakHostMemoryStats _cuda_resetAccumulatedMemoryStats _cuda_hostMemoryStats _cuda_setMemoryFraction "
     "_cuda_setAllocatorSettings _cuda_attach_out_of_memory_observer _cuda_record_memory_history_legacy "
     "_cuda_record_memory_history _cuda_isHistoryEnabled _cuda_ipc_collect"},
    {"torch._C",
     "_cuda_beginAllocateToPool _cuda_beginAllocateCurrentThreadToPool _cuda_beginAllocateCurrentStreamToPool "
     "_cuda_endAllocateToPool _cuda_setCheckpointPoolState",
     EffectKind::kPool},
    // How far the device is, and how much memory is free.
    {"torch._C",
     "_CudaStreamBase.query _CudaEventBase.query _CudaEventBase.elapsed_time _cudart.cudaMemGetInfo "
     "_cuda_getMemoryMetadata _cuda_getCheckpointState"},
    // Which kernels are chosen, and what waiting for the device does.
    {"torch._C",
     "_cuda_set_sync_debug_mode _cuda_tunableop_enable _cuda_tunableop_tuning_enable _cuda_tunableop_read_file "
     "_cuda_tunableop_set_numerical_check_tolerances",
     EffectKind::kSetting},
    // From now on memory is shared that is copied when somebody writes to it. Its address stays until then.
    {"torch._C", "_VariableFunctionsClass._lazy_clone TensorBase._lazy_clone", EffectKind::kSetting},
    {"torch._C", "_set_qengine set_flush_denormal _set_check_sparse_tensor_invariants", EffectKind::kSetting},
    // Which processes there are besides, and how many.
    {"torch._C._distributed_c10d", "_register_process_group _unregister_process_group _unregister_all_process_groups",
     EffectKind::kSetting},
    // What a call has kept so far: a replay only adds to it. The end of an autocast block does it as well.
    {"torch._C", "clear_autocast_cache", EffectKind::kFromUsers},
    // Nothing but an answer depends on these in a call that is replayed.
    {"torch._C", "set_anomaly_enabled set_num_threads set_num_interop_threads _set_warnAlways"},
    {"torch._C", "is_anomaly_enabled is_anomaly_check_nan_enabled", EffectKind::kFromUsers},
    // An error, where the program forbids it.
    {"torch._C._autograd", "_push_saved_tensors_default_hooks", EffectKind::kRefused,
     "torch.autograd.graph.saved_tensors_hooks()"},
    {"torch._C._autograd",
     "_saved_tensors_hooks_is_enabled _saved_tensors_hooks_get_disabled_error_message "
     "_top_saved_tensors_default_hooks",
     EffectKind::kFromUsers},
    // What an operator does.
    {"torch._C",
     "_DispatchModule.impl _DispatchModule.impl_t_t _DispatchModule.impl_with_aoti_compile _DispatchModule.fallback "
     "_DispatchModule.reset",
     EffectKind::kSetting},
    {"torch._C",
     "get_num_threads get_num_interop_threads _get_warnAlways _cuda_getMemoryFraction _cuda_get_sync_debug_mode",
     EffectKind::kFromUsers},
};

// Functions written in Python: "function" or "Class.method".
Row g_python[] = {
    {"importlib._bootstrap", "_find_and_load", EffectKind::kImport},
    {"os", "_Environ.__getitem__ _Environ.__iter__ _Environ.__len__ _Environ.copy", EffectKind::kEnvironment},
    {"logging", "Logger._log Logger.handle Logger.callHandlers Handler.handle Handler.flush basicConfig"},
    {"logging", "Logger.findCaller Logger.hasHandlers", EffectKind::kFromUsers},
    {"pickle", "_load _loads _Unpickler.load"},
    {"logging", "Logger.isEnabledFor Logger.getEffectiveLevel", EffectKind::kLogger},
    {"warnings", "_showwarnmsg showwarning _showwarning_orig"},
    {"threading", "current_thread main_thread", EffectKind::kThread},
    {"weakref", "KeyedRef.__new__ WeakMethod.__new__", EffectKind::kWeak},
    {"inspect",
     "stack trace getouterframes getinnerframes signature getfullargspec get_annotations Signature.from_callable "
     "currentframe getframeinfo getclosurevars getgeneratorlocals getcoroutinelocals getasyncgenlocals findsource "
     "getsource getsourcelines getsourcefile getcomments",
     EffectKind::kFromUsers},
    {"typing", "get_type_hints", EffectKind::kFromUsers},
    {"traceback", "extract_stack format_stack print_stack walk_stack", EffectKind::kFromUsers},
    {"threading",
     "Thread.start Thread.join Event.set Event.clear Event.wait Event.is_set Condition.wait Condition.wait_for "
     "Condition.notify Condition.notify_all Semaphore.acquire Semaphore.release BoundedSemaphore.release Barrier.wait "
     "settrace setprofile settrace_all_threads setprofile_all_threads active_count enumerate"},
    // They ask a tensor, for whoever called them.
    {"torch.storage", "_StorageBase.is_pinned TypedStorage.is_pinned"},
    // Nodes of autograd's graph, which show what no signature does, and hooks on tensors and nodes.
    {"torch.autograd.graph", "get_gradient_edge register_multi_grad_hook"},
    {"torch._tensor", "Tensor.register_hook Tensor.register_post_accumulate_grad_hook"},
    {"torch.nn.utils.rnn", "PackedSequence.is_pinned"},
    {"ctypes", "string_at wstring_at memoryview_at cast"},
    // Hooks of it, and which buffers are in it, are no part of what is guarded of a module.
    {"torch.nn.modules.module",
     "Module.state_dict Module._save_to_state_dict Module.load_state_dict Module._load_from_state_dict"},
    {"torch.cuda", "utilization temperature power_draw clock_rate memory_usage device_memory_used list_gpu_processes"},
    {"torch.cuda.memory", "mem_get_info device_memory_used list_gpu_processes"},
    {"pynvml",
     "nvmlDeviceGetMemoryInfo nvmlDeviceGetUtilizationRates nvmlDeviceGetTemperature nvmlDeviceGetPowerUsage"},
    {"queue", "Queue.put Queue.get Queue.join Queue.task_done Queue.qsize Queue.empty Queue.full"},
    {"concurrent.futures.thread", "ThreadPoolExecutor.submit"},
    {"concurrent.futures.process", "ProcessPoolExecutor.submit"},
    {"random", "SystemRandom.random SystemRandom.getrandbits"},
    {"torch.distributed.distributed_c10d",
     "all_reduce all_gather all_gather_into_tensor all_gather_object all_to_all all_to_all_single barrier broadcast "
     "broadcast_object_list gather gather_object irecv isend monitored_barrier recv reduce reduce_scatter "
     "reduce_scatter_tensor scatter scatter_object_list send batch_isend_irecv new_group"},
};

FlatMap<AddressKey, const HostEffect*>& effects_by_code() {
  static auto* effects = new FlatMap<AddressKey, const HostEffect*>;
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
void name_effect(HostEffect& effect, const Row& row, std::string_view owner, std::string_view name,
                 bool is_attribute = false) {
  char(&out)[sizeof(HostEffect::name)] = effect.name;
  effect.attribute = is_attribute;
  if (row.said != nullptr) {
    std::snprintf(out, sizeof(out), "%s", row.said);
    return;
  }
  if (owner == "TensorBase") owner = "Tensor";
  if (owner == "StorageBase") owner = "UntypedStorage";
  if (is_attribute) {
    std::snprintf(out, sizeof(out), "%.*s.%.*s", static_cast<int>(owner.size()), owner.data(),
                  static_cast<int>(name.size()), name.data());
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
        if (type && is_type(type.get())) add_special(type.get(), word.substr(0, bracket), word.substr(bracket));
      } else if (dot != std::string_view::npos) {
        const Reference type(attribute(module, word.substr(0, dot)));
        if (!type) continue;  // a class, or a module of its own
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
  void add_place(void** place, std::string_view owner, std::string_view name, bool is_attribute = false) {
    HostEffect effect;
    effect.kind = row_.kind;
    name_effect(effect, row_, owner, name, is_attribute);
    // A place that cannot be written is no interpreter's that we know: what is called there would be missed.
    if (!memory_->has(place, sizeof(*place)) || !add_trap(place, effect)) complete_ = false;
  }

  void add(Object* callable, std::string_view owner, std::string_view name) {
    MethodDefinition* definition = definition_of(callable);
    if (definition == nullptr) return;
    // What was drawn is asked for its arguments as such functions get them.
    const bool usual = (definition->flags & kMethodFlags) == kVarargsAndKeywords;
    if (row_.kind != EffectKind::kDraws || usual) add_place(&definition->method, owner, name);
  }

  void add_named(Object* holder, std::string_view owner, std::string_view name) {
    const Reference callable(attribute(holder, name));
    if (callable) add(callable.get(), owner, name);
  }

  void add_special(Object* type, std::string_view owner, std::string_view special) {
    constexpr std::string_view kGet = "[get:", kSet = "[set:";
    if (special == "[new]") return add_place(new_slot(type), owner, "__new__");
    const std::string_view what = special.substr(0, kGet.size());
    if (what != kGet && what != kSet) return add_slot(type, owner, special);
    const std::string_view name = special.substr(kGet.size(), special.size() - kGet.size() - 1);
    const Reference descriptor(attribute(type, name));
    void** getter = descriptor ? getter_of(descriptor.get()) : nullptr;
    if (getter != nullptr) add_place(what == kGet ? getter : getter + 1, owner, name, true);
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
  auto* effect = new HostEffect;  // for good, as the code: it belongs to a module of the system's
  name_effect(*effect, row, owner, name);
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

const HostEffect* effect_of(Object* code) noexcept {
  const HostEffect* const* effect = effects_by_code().find({code});
  return effect != nullptr ? *effect : nullptr;
}

}  // namespace grape::python::state
