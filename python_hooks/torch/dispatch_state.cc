// The switches beside arguments and modules that decide which kernels run.
#include <initializer_list>

#include "python_hooks/interpreter/observers.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/dispatch_writer.h"
#include "python_hooks/torch/torch_switches.h"
#include "python_hooks/torch/torch_symbols.h"

namespace grape::python::torch {
namespace {

constexpr std::int8_t kCpu = 0, kCuda = 1;

// What is called for each state, references held for good.
struct Getters {
  Object* cuda_dict = nullptr;                               // torch.cuda's
  Object* initialized = nullptr;                             // "_initialized"
  Object *forward_dict = nullptr, *forward_level = nullptr;  // torch.autograd.forward_ad's, "_current_level"
  Object *device = nullptr, *stream = nullptr, *mode_at = nullptr, *device_mode = nullptr;
};

Getters make_getters() noexcept {
  Getters getters;
  getters.cuda_dict = new_reference(imported_dict("torch.cuda"));
  getters.forward_dict = new_reference(imported_dict("torch.autograd.forward_ad"));
  getters.forward_level = g_api.PyUnicode_InternFromString("_current_level");
  getters.initialized = g_api.PyUnicode_InternFromString("_initialized");
  getters.device = new_reference(module_member("torch._C", "_cuda_getDevice"));
  getters.stream = new_reference(module_member("torch._C", "_cuda_getCurrentRawStream"));
  getters.mode_at = new_reference(module_member("torch._C", "_get_function_stack_at"));
  getters.device_mode = new_reference(module_member("torch.utils._device", "DeviceContext"));
  g_api.PyErr_Clear();
  return getters;
}

const Getters& getters() noexcept {
  static const Getters made = make_getters();
  return made;
}

// function(argument), a new reference; null: it raised.
Object* call_with(Object* function, long argument) noexcept {
  const Reference number(g_api.PyLong_FromLong(argument));
  return number ? g_api.PyObject_CallFunctionObjArgs(function, number.get(), nullptr) : nullptr;
}

// torch.set_default_device is a mode, too; any other mode sees every call of torch.
refusal::Form<0> put_function_modes(DispatchWriter& writer) noexcept {
  const std::int64_t modes = g_torch.function_modes();
  writer.put(static_cast<std::uint8_t>(modes));
  writer.put(static_cast<std::uint8_t>(g_torch.functions_disabled()));
  if (modes == 0) return {};
  const Getters& get = getters();
  const Reference mode(modes == 1 && get.mode_at != nullptr ? call_with(get.mode_at, 0) : nullptr);
  if (mode && is_exactly(mode.get(), get.device_mode)) {
    Object* attributes = instance_dict(mode.get());
    Object* device = attributes != nullptr ? dict_item(attributes, "device") : nullptr;
    if (device != nullptr && torch_type(type_of(device)) == TorchType::kDevice) {
      writer.put(device_value(device));
      return {};
    }
  }
  return refusal::function_mode;
}

refusal::Form<0> put_modes(DispatchWriter& writer, DispatchState& out) noexcept {
  out.grad_enabled = g_torch.aoti_torch_grad_mode_is_enabled();
  out.inference_mode = g_torch.inference_mode();
  writer.put(out.inference_mode);
  writer.put(autograd_modes());
  writer.put(saved_tensors_hooks_allowed());
  if (saved_tensors_hooks_active()) return refusal::saved_tensors_seen;
  const std::uint64_t* keys = local_keys();
  if (keys == nullptr || g_torch.any_dispatch_modes(false)) return refusal::dispatch_mode;
  writer.put(keys, 16);
  // Inference mode takes keys away; what adds keys watches operations or changes them.
  const std::uint64_t ordinary = g_torch.allowed_keys;
  if ((keys[0] & ~ordinary) != 0) return refusal::transform;
  if (g_torch.has_callbacks()) return refusal::profiler;
  const Getters& get = getters();
  Object* level = get.forward_dict != nullptr && get.forward_level != nullptr
                      ? g_api.PyDict_GetItemWithError(get.forward_dict, get.forward_level)
                      : nullptr;
  int overflow = 0;
  if (level != nullptr && g_api.PyLong_AsLongLongAndOverflow(level, &overflow) >= 0) return refusal::forward_mode;
  for (const std::int8_t device : {kCpu, kCuda}) {
    writer.put(g_torch.autocast_enabled(device));
    writer.put(g_torch.autocast_type(device));  // while it is off, too: a call may enter it without naming one
  }
  writer.put(g_torch.autocast_cache());
  // Where the outermost context ends, the weights that were cast for it go. There is no other way to ask.
  g_torch.autocast_enter();
  writer.put(g_torch.autocast_leave());
  return put_function_modes(writer);
}

// Current device and stream.
struct Place {
  std::int32_t device = 0;
  std::uint64_t stream = 0;
  bool operator==(const Place& other) const noexcept { return device == other.device && stream == other.stream; }
};

// As torch's own functions tell it. False: they do not.
bool stream_by_python(const Getters& get, std::int32_t device, std::uint64_t& out) noexcept {
  int overflow = 0;
  const Reference stream(call_with(get.stream, device));
  if (!stream) return false;
  out = static_cast<std::uint64_t>(g_api.PyLong_AsLongLongAndOverflow(stream.get(), &overflow));
  return true;
}

bool place_by_python(const Getters& get, Place& out) noexcept {
  int overflow = 0;
  const Reference number(g_api.PyObject_CallObject(get.device, nullptr));
  if (!number) return false;
  out.device = static_cast<std::int32_t>(g_api.PyLong_AsLongLongAndOverflow(number.get(), &overflow));
  return stream_by_python(get, out.device, out.stream);
}

// The same without Python: neither throws.
struct PlaceFunctions {
  int (*device)(void* number) = nullptr;  // of 8 or 32 bits, by version; an error's number
  int (*stream)(std::int32_t device, void** stream) = nullptr;
};

bool stream_directly(const PlaceFunctions& functions, std::int32_t device, std::uint64_t& out) noexcept {
  void* stream = nullptr;
  if (functions.stream == nullptr || functions.stream(device, &stream) != 0) return false;
  out = reinterpret_cast<std::uint64_t>(stream);
  return true;
}

bool place_directly(const PlaceFunctions& functions, Place& out) noexcept {
  std::int32_t device = 0;  // the bytes that are not written stay 0
  if (functions.device == nullptr || functions.device(&device) != 0 || device < 0) return false;
  out.device = device;
  return stream_directly(functions, device, out.stream);
}

PlaceFunctions find_place_functions(const Getters& get) noexcept {
  PlaceFunctions found;
  if (!find_function(found.device, "libc10_cuda.so", "_ZN3c104cuda9GetDeviceEPa")) {
    find_function(found.device, "libc10_cuda.so", "_ZN3c104cuda9GetDeviceEPi");
  }
  find_function(found.stream, "libtorch_cuda.so", "aoti_torch_get_current_cuda_stream");
  Place said, read;
  if (found.stream == nullptr || !place_by_python(get, said)) return {};
  return place_directly(found, read) && read == said ? found : PlaceFunctions{};
}

// CUDA is in use by now.
const PlaceFunctions& place_functions(const Getters& get) noexcept {
  static const PlaceFunctions functions = find_place_functions(get);
  return functions;
}

bool current_place(const Getters& get, Place& out) noexcept {
  return place_directly(place_functions(get), out) || place_by_python(get, out);
}

// Current device and stream, without waking up a CUDA that the program has not used.
refusal::Form<0> put_device(DispatchWriter& writer, DispatchState& out) noexcept {
  const Getters& get = getters();
  Place place;
  Object* ready = get.cuda_dict != nullptr && get.initialized != nullptr
                      ? g_api.PyDict_GetItemWithError(get.cuda_dict, get.initialized)
                      : nullptr;
  const bool in_use = ready == g_api._Py_TrueStruct && get.device != nullptr && get.stream != nullptr;
  if (in_use && !current_place(get, place)) return refusal::stream_unknown;
  out.device = place.device;
  out.stream = place.stream;
  writer.put(out.device);
  writer.put(writer.portable_ ? std::uint64_t{out.stream != 0} : out.stream);
  return {};
}

// None: nobody traces or profiles this thread.
refusal::Form<0> refusal_of(Observer observer) noexcept {
  if (observer == Observer::kTracer) return refusal::line_tracer;
  if (observer == Observer::kProfiler) return refusal::call_profiler;
  return observer == Observer::kMonitor ? refusal::code_monitor : refusal::Form<0>();
}

refusal::Form<0> take(DispatchWriter writer, DispatchState& out) noexcept {
  const KeepException keep;
  fetch_switches();
  if (const refusal::Form<0> refused = put_modes(writer, out)) return refused;
  if (const refusal::Form<0> refused = put_device(writer, out)) return refused;
  if (const refusal::Form<0> refused = refusal_of(observer_of_thread())) return refused;
  put_switches(writer);
  return writer.full() ? refusal::too_many_switches : refusal::Form<0>();
}

}  // namespace

bool take_dispatch_state(DispatchState& out, refusal::Form<0>& refusal) noexcept {
  refusal = take(DispatchWriter(out, false), out);
  return !refusal;
}

bool current_stream_of(std::int32_t device, std::uint64_t& stream) noexcept {
  const KeepException keep;
  const Getters& get = getters();
  if (get.device == nullptr || get.stream == nullptr) return false;
  return stream_directly(place_functions(get), device, stream) || stream_by_python(get, device, stream);
}

bool take_portable_dispatch_state(DispatchState& out) noexcept { return !take(DispatchWriter(out, true), out); }

}  // namespace grape::python::torch
