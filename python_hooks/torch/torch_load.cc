// Finds PyTorch's symbols and types, and checks what is read from inside of its tensors.
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

#include "python_hooks/interpreter/memory_map.h"
#include "python_hooks/torch/autograd_state.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/torch/torch_symbols.h"
#include "shim/lifecycle/log.h"

namespace grape::python::torch {

TorchSymbols g_torch;

namespace {

// Tensors that differ in everything that is read from them, with what Python says of each.
constexpr char kSamples[] =
    "def make():\n"
    "  with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():\n"
    "    base = torch.arange(48, dtype=torch.float32, device='cpu').reshape(4, 3, 4)\n"
    "    plain = [base, base[1:, :, 1:3], base.t() if base.dim() == 2 else base.transpose(0, 2),\n"
    "             torch.zeros(3, 1, 4, 2, dtype=torch.int64, device='cpu'),\n"
    "             torch.zeros((), dtype=torch.int16, device='cpu'), torch.zeros(2, 0, dtype=torch.bool, "
    "device='cpu'),\n"
    "             torch.zeros(5, dtype=torch.float64, device='cpu', requires_grad=True),\n"
    "             torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.bfloat16, device='cpu'))]\n"
    "    other = [torch.zeros(2, dtype=torch.complex64, device='cpu').conj(),\n"
    "             torch.zeros(2, 2, dtype=torch.float32, device='cpu').to_sparse()]\n"
    "    with torch.no_grad():\n"
    "      for times, x in ((11, base), (5, plain[3]), (7, plain[4]), (2, plain[6])):\n"
    "        for _ in range(times): x.zero_()\n"
    "    with torch.inference_mode():\n"
    "      plain.append(torch.zeros(3, dtype=torch.float32, device='cpu'))\n"
    "    clone = getattr(torch, '_lazy_clone', None)\n"
    "    lazy = [clone(torch.zeros(n, device='cpu')) for n in (3, 5)] if clone else []\n"
    "    refer = getattr(torch._C, '_WeakTensorRef', None)\n"
    "    weak = [[refer(x) for _ in range(i)] for i, x in enumerate(plain)] if refer else []\n"
    "    def facts(x):\n"
    "      storage = x.untyped_storage()\n"
    "      return (x.data_ptr(), storage.data_ptr(), storage.nbytes(), storage._cdata, x.storage_offset(),\n"
    "              x.element_size(), int(x.requires_grad), torch._C._dispatch_keys(x).raw_repr(), tuple(x.shape),\n"
    "              x.stride(), -1 if x.is_inference() else x._version)\n"
    "    keys = lambda name: torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()\n"
    "    return (plain, [facts(x) for x in plain], other,\n"
    "            [torch._C._dispatch_keys(x).raw_repr() for x in other],\n"
    "            [keys('CPU'), keys('CUDA'), keys('AutocastCPU'), keys('AutocastCUDA'), keys('Dense')],\n"
    "            torch.device('cuda:3'), lazy, weak)\n"
    "samples = make()\n";

enum Fact {
  kData,
  kStorage,
  kStorageBytes,
  kStorageImpl,
  kOffset,
  kItemBytes,
  kGrad,
  kKeys,
  kSizes,
  kStrides,
  kVersion
};

std::uint64_t number(Object* integer) noexcept { return g_api.PyLong_AsUnsignedLongLongMask(integer); }

Object* list_item(Object* list, std::size_t index) noexcept { return list_data(list)[index]; }

bool same_numbers(const std::int64_t* numbers, Object* tuple) noexcept {
  for (std::size_t i = 0; i < item_count(tuple); ++i) {
    if (numbers[i] != static_cast<std::int64_t>(number(tuple_item(tuple, i)))) return false;
  }
  return true;
}

// Where the tensor's handle stands: 16, or 24 where a flag stands in front of it.
bool find_handle(Object* tensor, std::uint64_t storage_impl) noexcept {
  const CarefulReader reader;
  for (const std::size_t offset : {16U, 24U}) {
    const auto* impl = field<const char*>(tensor, offset);
    const auto address = reinterpret_cast<std::uintptr_t>(impl);
    if (address < 4096 || address % 8 != 0 || !reader.readable(impl, 256)) continue;
    if (field<std::uint64_t>(impl, kImplStorage) != storage_impl) continue;
    g_torch.handle = offset;
    return true;
  }
  return false;
}

// The one place in all of these tensors that holds their dispatch keys.
bool find_keys(Object* plain, Object* facts, Object* others, Object* other_keys) noexcept {
  g_torch.keys = only_place(24, 256, 8, [&](std::size_t offset) {
    const auto keys = [offset](Object* tensor) { return field<std::uint64_t>(impl_of(tensor), offset); };
    return for_all(plain,
                   [&](Object* tensor, std::size_t i) {
                     return keys(tensor) == number(tuple_item(list_item(facts, i), kKeys));
                   }) &&
           for_all(others,
                   [&](Object* tensor, std::size_t i) { return keys(tensor) == number(list_item(other_keys, i)); });
  });
  return g_torch.keys != 0;
}

// Where the versions stand that Python tells of these tensors: the one place with a pointer to the one place.
bool find_versions(Object* plain, Object* facts) noexcept {
  constexpr std::size_t kFirst = 24, kCounterBytes = 32;
  const CarefulReader reader;
  const auto fits = [&](std::size_t offset, std::size_t count_at) {
    return for_all(plain, [&](Object* tensor, std::size_t i) {
      const auto expected = static_cast<std::int64_t>(number(tuple_item(list_item(facts, i), kVersion)));
      const auto* version = field<const char*>(impl_of(tensor), offset);
      if (version == nullptr || expected < 0) return version == nullptr && expected < 0;
      return reinterpret_cast<std::uintptr_t>(version) % 8 == 0 && reader.readable(version, kCounterBytes) &&
             field<std::uint32_t>(version, count_at) == static_cast<std::uint64_t>(expected);
    });
  };
  int found = 0;
  for (std::size_t offset = kFirst; offset < g_torch.keys; offset += 8) {
    for (std::size_t count_at = 0; count_at < kCounterBytes; count_at += sizeof(std::uint32_t)) {
      if (!fits(offset, count_at)) continue;
      g_torch.version = offset;
      g_torch.version_count = count_at;
      ++found;
    }
  }
  return found == 1;
}

// The one place in all of these that holds the number which `number_of(i)` gives; 0: none, or several.
template <typename Number, typename Expected>
std::size_t place_of(const void* const* objects, std::size_t count, std::size_t first, std::size_t end,
                     Expected number_of) noexcept {
  return only_place(first, end, sizeof(Number), [&](std::size_t offset) {
    for (std::size_t i = 0; i < count; ++i) {
      if (static_cast<std::int64_t>(field<Number>(objects[i], offset)) != number_of(i)) return false;
    }
    return true;
  });
}

// Where the rest stands that PyTorch's functions tell of these tensors.
void find_places(Object* plain) noexcept {
  constexpr std::size_t kMost = 16, kFirst = 24, kStorageEnd = 64;
  const void *tensors[kMost], *storages[kMost];
  TensorView views[kMost];
  const std::size_t count = item_count(plain);
  if (count > kMost) return;
  TorchSymbols::Places at;
  for (std::size_t i = 0; i < count; ++i) {
    const void* impl = impl_of(list_item(plain, i));
    if (!view_tensor(list_item(plain, i), views[i]) || views[i].dimensions > kInsideDimensions) return;
    tensors[i] = impl;
    storages[i] = field<const void*>(impl, kImplStorage);
    if (storages[i] == nullptr) return;
    const auto inside = [impl](const std::int64_t* numbers) {
      return static_cast<std::size_t>(reinterpret_cast<const char*>(numbers) - static_cast<const char*>(impl));
    };
    if (i == 0) at.sizes = inside(views[i].sizes), at.strides = inside(views[i].strides);
    if (at.sizes != inside(views[i].sizes) || at.strides != inside(views[i].strides)) return;
  }
  at.dimensions =
      place_of<std::int64_t>(tensors, count, kFirst, g_torch.keys, [&](auto i) { return views[i].dimensions; });
  at.offset = place_of<std::int64_t>(tensors, count, kFirst, g_torch.keys, [&](auto i) { return views[i].offset; });
  at.type = place_of<std::uint16_t>(tensors, count, kFirst, g_torch.keys, [&](auto i) { return views[i].type; });
  at.storage_bytes = place_of<std::int64_t>(storages, count, kFirst, kStorageEnd,
                                            [&](auto i) { return static_cast<std::int64_t>(views[i].storage_bytes); });
  const auto fits = [](std::size_t place) { return place >= kFirst && place < g_torch.keys; };
  at.known = fits(at.sizes) && fits(at.strides) && at.dimensions != 0 && at.offset != 0 && at.type != 0 &&
             at.storage_bytes != 0;
  g_torch.places = at;
}

// Where a tensor counts those who refer to it weakly: sample `i` has i of them. The highest bit is another thing's.
void find_weak_count(Object* plain, Object* weak) noexcept {
  constexpr std::size_t kFirst = 8;
  if (item_count(weak) == 0) return;
  g_torch.weak_count = only_place(kFirst, kImplStorage, sizeof(std::uint32_t), [&](std::size_t offset) {
    return for_all(plain, [&](Object* tensor, std::size_t i) {
      return (field<std::uint32_t>(impl_of(tensor), offset) & kWeakCountBits) == i + 1;
    });
  });
}

// Where a storage keeps the function that frees its memory: a certain one of those that were cloned lazily. Older
// versions have none such.
bool find_lazy_clones(Object* plain, Object* lazy) noexcept {
  constexpr std::size_t kFirst = 24, kStorageEnd = 64;
  if (item_count(lazy) == 0) return true;
  if (!find_function(g_torch.lazy_end, "libc10.so", "_ZN3c104impl3cow11cow_deleterEPv")) return false;
  g_torch.storage_end = only_place(kFirst, kStorageEnd, 8, [&](std::size_t offset) {
    const auto ends_lazily = [offset](Object* tensor, std::size_t) {
      const auto* storage = field<const void*>(impl_of(tensor), kImplStorage);
      return field<const void*>(storage, offset) == g_torch.lazy_end;
    };
    return for_all(lazy, ends_lazily) &&
           for_all(plain, [&](Object* tensor, std::size_t i) { return !ends_lazily(tensor, i); });
  });
  return g_torch.storage_end != 0;
}

bool is_as_said(Object* tensor, Object* facts) noexcept {
  const auto fact = [facts](Fact which) { return number(tuple_item(facts, which)); };
  TensorView view;
  if (!is_plain_tensor(tensor) || !view_tensor(tensor, view)) return false;
  const auto dimensions = static_cast<std::size_t>(view.dimensions);
  return view.data == fact(kData) && view.storage == fact(kStorage) && view.storage_bytes == fact(kStorageBytes) &&
         static_cast<std::uint64_t>(view.offset) == fact(kOffset) && view.item_bytes == fact(kItemBytes) &&
         view.device_type == 0 && view.keys == fact(kKeys) && requires_grad(tensor) == (fact(kGrad) != 0) &&
         dimensions == item_count(tuple_item(facts, kSizes)) && same_numbers(view.sizes, tuple_item(facts, kSizes)) &&
         same_numbers(view.strides, tuple_item(facts, kStrides));
}

const char* g_unread = "";  // what could not be read of the samples, for people

bool fails(const char* what) noexcept {
  g_unread = what;
  return false;
}

bool check_tensors(Object* samples) noexcept {
  Object *plain = tuple_item(samples, 0), *facts = tuple_item(samples, 1), *others = tuple_item(samples, 2);
  Object *other_keys = tuple_item(samples, 3), *keys = tuple_item(samples, 4);
  if (!find_handle(list_item(plain, 0), number(tuple_item(list_item(facts, 0), kStorageImpl)))) return fails("handle");
  const auto has_storage = [facts](Object* tensor, std::size_t i) {
    return field<std::uint64_t>(impl_of(tensor), kImplStorage) == number(tuple_item(list_item(facts, i), kStorageImpl));
  };
  if (!for_all(plain, has_storage)) return fails("storage");
  if (!find_keys(plain, facts, others, other_keys)) return fails("dispatch keys");
  if (!find_versions(plain, facts)) return fails("versions");
  g_torch.needed_keys = number(list_item(keys, 4));  // Dense
  g_torch.allowed_keys = number(tuple_item(list_item(facts, 0), kKeys));
  for (std::size_t i = 0; i < 4; ++i) g_torch.allowed_keys |= number(list_item(keys, i));
  if (!find_lazy_clones(plain, tuple_item(samples, 6))) return fails("lazy clones");
  find_places(plain);
  find_weak_count(plain, tuple_item(samples, 7));
  const auto as_said = [facts](Object* tensor, std::size_t i) { return is_as_said(tensor, list_item(facts, i)); };
  if (!for_all(plain, as_said)) return fails("shapes");
  const auto is_refused = [](Object* tensor, std::size_t) {
    TensorView view;
    return !view_tensor(tensor, view);
  };
  if (!for_all(others, is_refused) || !for_all(tuple_item(samples, 6), is_refused)) {
    return fails("other kinds of tensors");
  }
  Object* device = tuple_item(samples, 5);
  return (is_exactly(device, g_torch.device) && device_value(device) == 0x0301) || fails("devices");
}

bool check_samples(Object* torch) noexcept {
  const Reference globals(g_api.PyDict_New());
  if (!globals || !run_with_torch(kSamples, torch, globals.get())) return fails("none could be made");
  Object* samples = dict_item(globals.get(), "samples");
  const bool right = samples != nullptr && check_tensors(samples);
  g_api.PyDict_Clear(globals.get());
  return right;
}

const char* find_functions() noexcept {
  const char* missing = nullptr;
#define GRAPE_TORCH_FIND(result, name, library, symbol, arguments) \
  if (!find_function(g_torch.name, library, symbol)) missing = symbol;
  GRAPE_TORCH_FUNCTIONS(GRAPE_TORCH_FIND)
#undef GRAPE_TORCH_FIND
  // By reference, or (older) by value, which is passed by reference too.
  if (!find_function(g_torch.wrap, "libtorch_python.so", "_Z16THPVariable_WrapRKN2at10TensorBaseE") &&
      !find_function(g_torch.wrap, "libtorch_python.so", "_Z16THPVariable_WrapN2at10TensorBaseE")) {
    missing = "THPVariable_Wrap";
  }
  find_function(g_torch.cached_cast, "libtorch_cpu.so",
                "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE");
  find_function(g_torch.new_undefined_tensor, "libtorch_cpu.so", "aoti_torch_new_uninitialized_tensor");
  g_torch.local_keys_library = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (g_torch.local_keys_library == nullptr) missing = "libc10.so";
  return missing;
}

bool hold(Object*& place, const char* module, const char* name) noexcept {
  place = new_reference(module_member(module, name));
  return place != nullptr;
}

const char* find_types() noexcept {
  const bool found =
      hold(g_torch.tensor, "torch", "Tensor") && hold(g_torch.parameter, "torch.nn.parameter", "Parameter") &&
      hold(g_torch.module, "torch.nn.modules.module", "Module") && hold(g_torch.device, "torch", "device") &&
      hold(g_torch.size, "torch", "Size") && hold(g_torch.type, "torch", "dtype") &&
      hold(g_torch.layout, "torch", "layout") && hold(g_torch.memory_format, "torch", "memory_format");
  if (!found) return "one of its classes";
  hold(g_torch.view_as_real, "torch", "view_as_real");
  hold(g_torch.view_as_complex, "torch", "view_as_complex");
  g_torch.as_strided = g_api.PyObject_GetAttrString(g_torch.tensor, "as_strided");
  return g_torch.as_strided != nullptr ? nullptr : "Tensor.as_strided";
}

bool is_being_imported(Object* module) noexcept {
  const Reference spec(g_api.PyObject_GetAttrString(module, "__spec__"));
  if (!spec) return false;
  const Reference initializing(g_api.PyObject_GetAttrString(spec.get(), "_initializing"));
  return initializing.get() == g_api._Py_TrueStruct;
}

// The thread's own keys against what Python says of them: the difference is what every thread begins with.
bool check_local_keys() noexcept {
  const std::uint64_t* local = local_keys();
  Object* include = module_member("torch._C", "_dispatch_tls_local_include_set");
  if (local == nullptr || include == nullptr) return false;
  const Reference set(g_api.PyObject_CallObject(include, nullptr));
  const Reference raw(set ? g_api.PyObject_CallMethod(set.get(), "raw_repr", nullptr) : nullptr);
  return raw && (number(raw.get()) ^ local[0]) != 0;
}

enum class Loaded { kNotYet, kYes, kNo };
Loaded g_loaded = Loaded::kNotYet;

// Tensors may be others than they are elsewhere where they are looked at: below autograd (the first call of the driver
// comes from inside of an operator), or while the program patches PyTorch. So they are looked at again, after twice as
// many calls each time.
constexpr int kMostAttempts = 12;
int g_attempts = 0;
std::uint64_t g_asked = 0, g_next_attempt = 0;

Loaded try_to_load() noexcept {
  if (++g_asked < g_next_attempt) return Loaded::kNotYet;
  if (!lifecycle::loaded("libtorch_python.so")) return Loaded::kNotYet;
  Object* torch = imported_module("torch");
  if (torch == nullptr || is_being_imported(torch)) return Loaded::kNotYet;
  const char* missing = check_objects() ? nullptr : "a Python whose objects are laid out as expected";
  if (missing == nullptr) missing = find_functions();
  if (missing == nullptr) missing = find_types();
  if (missing != nullptr) {
    notice("no replay: PyTorch lacks %s", missing);
    return Loaded::kNo;
  }
  // Under a mode that makes other tensors than the ordinary ones nothing can be said yet.
  if (g_torch.any_dispatch_modes(false)) return Loaded::kNotYet;
  g_unread = "the thread's dispatch keys";
  if (check_samples(torch) && check_local_keys()) {
    if (find_autograd_places(torch)) return Loaded::kYes;
    g_unread = "autograd's notes";
  }
  log_line(LogLevel::kDebug, "no replay yet: PyTorch's tensors cannot be read now: %s", g_unread);
  g_next_attempt = 2 * g_asked;
  if (++g_attempts != kMostAttempts) return Loaded::kNotYet;
  notice("no replay: this PyTorch's tensors are laid out in a way that is not known: %s", g_unread);
  return Loaded::kNo;
}

}  // namespace

bool run_with_torch(const char* text, Object* torch, Object* globals) noexcept {
  if (g_api.PyDict_SetItemString(globals, "torch", torch) != 0) return false;
  const Reference done(run_text(text, globals));
  return static_cast<bool>(done);
}

const std::uint64_t* local_keys() noexcept {
  static __thread const std::uint64_t* keys __attribute__((tls_model("initial-exec"))) = nullptr;
  if (keys == nullptr && g_torch.local_keys_library != nullptr) {
    auto* lookup = lifecycle::real_dlsym();
    if (lookup == nullptr) return nullptr;
    keys = static_cast<const std::uint64_t*>(
        lookup(g_torch.local_keys_library, "_ZN3c104impl26raw_local_dispatch_key_setE"));
  }
  return keys;
}

bool load_torch_api() noexcept {
  if (g_loaded == Loaded::kNotYet) {
    const KeepException keep;
    g_loaded = try_to_load();
    g_torch.loaded = g_loaded == Loaded::kYes;
    g_api.PyErr_Clear();
  }
  return g_loaded == Loaded::kYes;
}

Object* version_text() noexcept { return module_member("torch", "__version__"); }

bool torch_api_settled() noexcept { return g_loaded != Loaded::kNotYet; }

}  // namespace grape::python::torch
