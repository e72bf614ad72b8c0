// A backward pass came that no graph stands in for. Then the call is made again, as always: its nodes are those that it
// would have had, and they compute the pass.
#include <algorithm>
#include <utility>

#include "python_hooks/bridge/loaded.h"
#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/replay/run.h"
#include "shim/device/copy_memory.h"
#include "shim/device/device_hash.h"
#include "shim/device/thread_context.h"

namespace grape::python::replay {
namespace {

__thread bool t_makes_again __attribute__((tls_model("initial-exec")));

// While it lives the thread works as it did at the call, with the random numbers that the call drew, and what the call
// writes to is put back at the end.
class AsThen {
 public:
  explicit AsThen(ReplayedCall& call) : call_(call) {
    entered_ = bridge::loaded()->enter_modes(call.modes);
    good_ = entered_ != nullptr && torch::random_state(call.work.device, seed_, offset_) && seed_ == call.seed &&
            torch::set_random_offset(call.work.device, call.offset);
    if (call.host_random != nullptr && good_) {
      host_now_ = host_draws::generator_state();
      good_ = host_now_ != nullptr && host_draws::set_generator_state(call.host_random);
    }
    for (const program::Extent& written : call.border->written) good_ = good_ && keep(written);
    good_ = good_ && restore();
    t_makes_again = true;
  }
  ~AsThen() {
    t_makes_again = false;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const program::Extent& written = call_.border->written[i];
      device::copy_on_device(call_.work.driver_stream(), written.address, copies_[i], written.bytes);
    }
    for (Object* tensor : owned_) g_api.Py_DecRef(tensor);
    if (good_) torch::set_random_offset(call_.work.device, offset_);
    if (host_now_ != nullptr) {
      const KeepException exception;
      host_draws::set_generator_state(host_now_);
      g_api.Py_DecRef(host_now_);
    }
    if (entered_ != nullptr) bridge::loaded()->leave_modes(entered_);
  }
  AsThen(const AsThen&) = delete;
  AsThen& operator=(const AsThen&) = delete;
  bool good() const noexcept { return good_; }

 private:
  bool keep(const program::Extent& written) {
    std::uint64_t copy = 0;
    Object* const tensor = new_bytes(written.bytes, torch::kCudaDevice, call_.work.device, copy);
    if (tensor == nullptr) return false;
    owned_.push_back(tensor);
    copies_.push_back(copy);
    return device::copy_on_device(call_.work.driver_stream(), copy, written.address, written.bytes);
  }

  // What the call found where it writes to.
  bool restore() {
    torch::TensorView before;
    if (call_.written_before == nullptr) return true;
    if (!torch::view_tensor(call_.written_before, before)) return false;
    std::uint64_t from = before.storage;
    const auto& all = call_.border->written;
    return std::all_of(all.begin(), all.end(), [&](const program::Extent& written) {
      return device::copy_on_device(call_.work.driver_stream(), written.address,
                                    std::exchange(from, from + written.bytes), written.bytes);
    });
  }

  ReplayedCall& call_;
  void* entered_ = nullptr;
  std::uint64_t seed_ = 0, offset_ = 0;
  Object* host_now_ = nullptr;  // owned
  std::vector<Object*> owned_;
  std::vector<std::uint64_t> copies_;
  bool good_ = false;
};

// Versions of tensors of modules, which the call moves once more: its own, and the one that a function was called with.
class Versions {
 public:
  Versions(Object* root, const std::vector<Object*>& arguments) : walk_(true) {
    static_cast<void>(walk_.add(root, "module"));
    for (Object* const argument : arguments) static_cast<void>(walk_.add(argument, "argument"));
    for (const walk::WalkedTensor& tensor : walk_.tensors()) {
      const torch::VersionCounter* const counter = torch::version_counter(tensor.view.object);
      counts_.push_back(counter != nullptr ? counter->load() : 0);
    }
  }
  ~Versions() {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      torch::VersionCounter* const counter = torch::version_counter(walk_.tensors()[i].view.object);
      if (counter != nullptr) counter->store(counts_[i]);
    }
  }
  Versions(const Versions&) = delete;
  Versions& operator=(const Versions&) = delete;

 private:
  walk::Walk walk_;
  std::vector<std::uint32_t> counts_;
};

// Memory that a node of the new call keeps, and the same of the replayed one.
struct KeptPair {
  program::Extent made, then;
  bool own = false;  // the call made it
};

// Is memory of the module's, or a global's, that the replayed call's node keeps, what the new one keeps? It lies where
// it lay, or where `kept` (as Border::kept) says that its tensor has it now.
bool keeps_the_same(const ReplayedCall& call, const bridge::Remains* kept, std::uint32_t saved, std::uint64_t storage) {
  const std::uint64_t then = call.border->fixed_storages[saved];
  if (then == 0 || then == storage) return true;
  const std::vector<KeptTensor>& known = call.border->kept;
  const auto at = std::find_if(known.begin(), known.end(), [saved](const KeptTensor& one) {
    return one.known && !one.freed && one.saved == saved;
  });
  return at != known.end() && kept[at - known.begin()].storage == storage;
}

// In the order of the nodes; not what lies in the same place. False: they keep other things.
bool pair_kept(const ReplayedCall& call, const bridge::Remains* kept, const bridge::Border& border,
               std::vector<KeptPair>& pairs) {
  const auto& tensors = call.border->saved_tensors;
  if (border.saved_count != tensors.size() || border.constants != call.border->constants) return false;
  for (std::uint32_t i = 0; i < border.saved_count; ++i) {
    const auto [place, bytes] = tensors[i];
    const std::uint64_t value = call.border->host_values[i];
    if (value != 0 && border.saved[i].value != value) return false;
    if (!keeps_the_same(call, kept, i, border.saved[i].storage)) return false;
    if (place == Border::kNone) continue;
    const program::Extent& then = call.saved[place];
    const std::uint64_t size = bytes != Border::kOfTheCall ? bytes : then.bytes;
    if (border.saved[i].bytes != size) return false;
    if (border.saved[i].storage == then.address) continue;
    const bool own = call.border->saved[place].of == SavedMemory::Of::kBlock;
    pairs.push_back({{border.saved[i].storage, size}, {then.address, size}, own});
  }
  return true;
}

// Leaves the pairs whose bytes differ. False: the driver does not tell.
bool keep_different(const ReplayedCall& call, std::vector<KeptPair>& pairs) {
  std::vector<device::DeviceHash::Range> ranges;
  for (const KeptPair& pair : pairs) {
    ranges.push_back({pair.made.address, pair.made.bytes});
    ranges.push_back({pair.then.address, pair.then.bytes});
  }
  refusal::Refusal ignored;
  std::vector<std::uint64_t> hashes;
  device::DeviceHash* const hash = device::DeviceHash::of_current_context(ignored);
  if (hash == nullptr || hash->hash(call.work.driver_stream(), ranges, hashes) != CUDA_SUCCESS) return false;
  std::vector<KeptPair> different;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (hashes[2 * i] != hashes[2 * i + 1]) different.push_back(pairs[i]);
  }
  pairs = std::move(different);
  return true;
}

// Does any of it belong to an argument, or to the module?
bool touches(const std::vector<KeptPair>& pairs, const std::vector<Object*>& arguments, Object* root) {
  walk::Walk walk(true);
  bool known = walk.add(root, "module");
  for (Object* const argument : arguments) known = known && (argument == root || walk.add(argument, "argument"));
  return !known || std::any_of(pairs.begin(), pairs.end(), [&](const KeptPair& pair) {
    return std::any_of(walk.extents().begin(), walk.extents().end(),
                       [&](const walk::StorageExtent& extent) { return program::overlap(pair.made, extent); });
  });
}

// The nodes are the same, and keep what the replayed call left: what is the call's own, and has other bytes, gets
// those. Memory that no kernel writes has others each time (the random state of an attention without dropout), and an
// argument that no node keeps may have been worked on since. What is not the call's own must be the same memory, or
// have the same bytes: a call that takes another way may have the same nodes, of other weights. False: they cannot.
bool keep_what_was_left(const ReplayedCall& call, const bridge::Remains* kept, const bridge::Border& border,
                        const std::vector<Object*>& arguments, Object* root) {
  std::vector<KeptPair> pairs;
  if (!pair_kept(call, kept, border, pairs)) return false;
  if (!keep_different(call, pairs)) return false;
  if (pairs.empty()) return true;
  const bool own = std::all_of(pairs.begin(), pairs.end(), [](const KeptPair& pair) { return pair.own; });
  return own && !touches(pairs, arguments, root) && std::all_of(pairs.begin(), pairs.end(), [&](const KeptPair& pair) {
           return device::copy_on_device(call.work.driver_stream(), pair.made.address, pair.then.address,
                                         pair.made.bytes);
         });
}

// Null: it is gone.
Object* living(const Object* weak) noexcept {
  Object* const object = referent(weak);
  return object != g_api._Py_NoneStruct ? object : nullptr;
}

// The results that require grad, in their order; owned by `result`. False: it is another one.
bool find_results(const Border& border, const walk::Walk& walk, std::vector<bridge::Tensor>& results) {
  for (const ResultPlace& place : border.result_places) {
    if (place.tensor >= walk.tensors().size()) return false;
    Object* const walked = walk.tensors()[place.tensor].view.object;
    // A view keeps its base, and that its Python object.
    const Reference tensor(place.base ? torch::new_reference_to_base(walked) : new_reference(walked));
    torch::TensorView view;
    if (!tensor || !torch::requires_grad(tensor.get()) || !torch::view_tensor(tensor.get(), view)) return false;
    results.push_back(view.handle);
  }
  return true;
}

// What the call raised: no memory is the pass's own error. False: it is another one.
bool note_error(bridge::Cut* cut) {
  Object *type = nullptr, *value = nullptr, *traceback = nullptr;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  const Reference types(type), values(value), traces(traceback);
  if (type == nullptr || full_type_name(type) != "torch.OutOfMemoryError") return false;
  const Reference text(value != nullptr ? g_api.PyObject_Str(value) : nullptr);
  const char* words = text ? g_api.PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  if (words == nullptr) g_api.PyErr_Clear();
  bridge::loaded()->fail_for_memory(cut, words != nullptr ? words : "CUDA out of memory.");
  return true;
}

}  // namespace

bool makes_again() noexcept { return t_makes_again; }

void forget(ReplayedCall& replayed) noexcept {
  const std::vector<HeldArgument> arguments = std::move(replayed.arguments);
  replayed.arguments.clear();
  for (const HeldArgument& held : arguments) release(held);
  for (Object** const owned : {&replayed.written_before, &replayed.host_random}) {
    if (Object* const before = std::exchange(*owned, nullptr)) g_api.Py_DecRef(before);
  }
}

ReplayedCall::~ReplayedCall() {
  if (modes != nullptr) bridge::loaded()->release_modes(modes);
  if (shutting_down()) return;
  forget(*this);
  for (Object* object : {function, names, weak_root}) {
    if (object != nullptr) g_api.Py_DecRef(object);
  }
}

bool remember(ReplayedCall& replayed, const Region& region, const Call& call) {
  replayed.eager = call.eager;
  replayed.count = call.count;
  const auto hold = [](Object* object) {
    if (object != nullptr) g_api.Py_IncRef(object);
    return object;
  };
  replayed.function = call.function == call.root ? nullptr : hold(call.function);
  replayed.names = hold(call.names);
  replayed.weak_root = hold(region.weak_root);
  const std::size_t named = call.names != nullptr ? static_cast<std::size_t>(item_count(call.names)) : std::size_t{0};
  for (std::size_t i = 0; i < positional_count(call.count) + named; ++i)
    replayed.arguments.push_back(hold_argument(call.arguments[i] == call.root ? nullptr : call.arguments[i]));
  replayed.modes = bridge::loaded()->take_modes();
  return replayed.modes != nullptr;
}

const char* make_again(ReplayedCall& call, const bridge::Remains* kept, bridge::Cut* cut, char* error,
                       std::size_t room) {
  const device::ContextScope scope(call.work.context);
  if (!scope.entered()) return "there is no context";
  if (bridge::loaded()->was_run_again(cut))
    return bridge::loaded()->run_again(cut, nullptr, error, room) ? nullptr : "";
  if (call.arguments.empty()) return "it was forgotten";
  Object* const root = living(call.weak_root);
  if (root == nullptr) return "its module is gone";
  bridge::Border* border = nullptr;
  bool same = false;
  {
    const Strong keeps(root);
    const ArgumentsAgain again(call.arguments, root);
    if (!again.good()) return "an argument is gone";
    const std::vector<Object*>& arguments = again.objects();
    const Versions versions(root, arguments);
    const AsThen then(call);
    if (!then.good()) return "its random numbers are not known any more";
    const std::uint64_t first = torch::autograd_nodes();
    Object* const made = call.eager(call.function != nullptr ? call.function : root, arguments.data(),
                                    positional_count(call.count), call.names);
    if (made == nullptr) return note_error(cut) ? "" : "it raised an error";
    const Reference result(made);
    walk::Walk walk(false);
    std::vector<bridge::Tensor> results;
    if (!walk.add(result.get(), "result") || !find_results(*call.border, walk, results))
      return "its result is another one";
    bridge::Unfit unfit{};
    char name[64];
    const bridge::CallNodes nodes = {
        results.data(), results.size(), results.size(), nullptr, 0, first, cut, nullptr, nullptr, 0};
    border = bridge::loaded()->find_border(nodes, &unfit, name, sizeof name);
    same = border != nullptr && keep_what_was_left(call, kept, *border, arguments, root);
  }
  if (border == nullptr) return "its nodes are other ones";
  if (!same) {
    bridge::loaded()->free_border(border);
    return "its arguments or its module have changed since";
  }
  return bridge::loaded()->run_again(cut, border, error, room) ? nullptr : "";
}

}  // namespace grape::python::replay
