#include "python_hooks/report/advice.h"

namespace grape::python::replay {
namespace {

constexpr const char kHostRead[] =
    "Python looks at a value that is on the GPU (.item(), .cpu(), .tolist(), print or bool of a tensor, indexing "
    "with a mask, torch.cuda.synchronize). Keep it on the GPU (torch.where, fixed sizes), or do it outside of the "
    "module.";
constexpr const char kHostCopy[] =
    "Data is copied from the CPU to the GPU inside the call (torch.tensor(...), .to(device), .cuda()). Make it once, "
    "in __init__ as a buffer, or make it on the GPU with device=x.device.";
constexpr const char kPinned[] =
    "What lies in pinned or managed memory may change while a replay runs. Copy it to the GPU before the call, and "
    "pass "
    "it the tensor there.";
constexpr const char kEffect[] =
    "A replay runs no Python, so this would not happen any more. Move it out of forward, to where the module is "
    "called.";
constexpr const char kHidden[] =
    "What this answers with may be another thing in the next call, and nothing shows it. Ask before the call, and pass "
    "the answer as an argument.";
constexpr const char kEnds[] =
    "What ends in the call would end later in a replay. Keep the object in a variable of the caller, and leave it "
    "in the argument until the call has returned.";
constexpr const char kStorage[] =
    "Code that looks behind a tensor's own elements (as_strided, set_, resize_, nbytes of its storage) is replayed "
    "where "
    "the storage has one size. Pass tensors that lie in memory of the same size, or copies of them.";
constexpr const char kImport[] =
    "Import it at the top of the file: the first call of this kind is then like the others.";
constexpr const char kHostRandom[] =
    "Random numbers are drawn on the CPU (random, numpy, torch's CPU generator). Draw them on the GPU: "
    "torch.rand(..., device=x.device).";
constexpr const char kRandom[] =
    "Random numbers on the GPU are followed only from PyTorch's default generator, and in equal amounts each call.";
constexpr const char kGradients[] =
    "Gradients are no part of what is guarded. Zero, clip and use them outside of modules and functions that are to be "
    "replayed.";
constexpr const char kAutograd[] =
    "In training nothing needs to be changed: such calls run as always. For inference, call the module under "
    "torch.inference_mode() or torch.no_grad().";
constexpr const char kSavedTensors[] =
    "Nothing needs to be changed: inside of a checkpoint, save_on_cpu or saved_tensors_hooks calls run as always.";
constexpr const char kOtherView[] = "Return a copy (clone()) of the view, or make the view outside of the call.";
constexpr const char kModuleChanged[] =
    "The call changes its own module. Keep counters, caches and flags outside of it, or pass them as arguments.";
constexpr const char kFunctionChanged[] =
    "The call changes what its function holds: variables of the closure, default values, attributes. Pass them as "
    "arguments.";
constexpr const char kDeferred[] =
    "Name the function that consumes it in GRAPE_REGIONS, or what it calls; modules that it calls are regions by "
    "themselves.";
constexpr const char kNoGpu[] = "Leave it out of GRAPE_REGIONS.";
constexpr const char kStateChanged[] =
    "What the module or its code refers to was changed between calls. Leave it as it is while the module is in use; "
    "the next calls prove it anew.";
constexpr const char kGlobals[] =
    "The call changes, or its code names, something outside of the module. Pass it as an argument, or keep it "
    "constant.";
constexpr const char kHooks[] = "Remove backward hooks, and hooks that are registered for all modules.";
constexpr const char kDispatchState[] =
    "The call switches grad mode, autocast, the stream or a setting of torch and leaves it so. Switch outside of the "
    "call.";
constexpr const char kObserver[] =
    "Something watches or redirects PyTorch's or Python's calls (a profiler, debugger, mode, transform or "
    "torch.compile). Without it the call can be replayed.";
constexpr const char kArgument[] =
    "Only what can be compared between calls can be guarded: tensors, numbers, strings, lists, dicts, dataclasses "
    "and plain objects of these. Keep other objects out of the arguments and the module's attributes.";
constexpr const char kVaries[] =
    "Two calls with equal arguments did different work on the GPU: something else decides (a counter, a cache, "
    "torch.backends.cudnn.benchmark). Make it an argument, or keep it constant.";
constexpr const char kValueVaries[] =
    "A number from Python that changes with each call goes into a kernel. Pass it as an argument of the module, or "
    "as a tensor on the GPU.";
constexpr const char kKeeps[] =
    "The call keeps or returns memory in a way that cannot be made again. Return new tensors, and keep none "
    "elsewhere.";
constexpr const char kReturnsCpu[] = "Return tensors on the GPU, and bring them to the CPU outside of the module.";
constexpr const char kResult[] =
    "What the call returns, or does to its arguments, cannot be made again. Tensors, tuples, lists, dicts, "
    "dataclasses and ModelOutput can.";
constexpr const char kOwnGraph[] =
    "The call uses CUDA graphs itself (torch.cuda.graph, torch.compile with mode=\"reduce-overhead\"). Use one of "
    "the two.";
constexpr const char kStreams[] =
    "Work on other streams must begin and end inside the call: wait for it on the current stream before returning.";
constexpr const char kDevices[] =
    "Only calls that stay on one GPU are replayed, that of their tensors or the current one. Put what a model does on "
    "one GPU into one module: each of its parts is replayed by itself.";
constexpr const char kDeviceChanged[] =
    "Choose the GPU outside of the call (torch.cuda.set_device), or for a block inside of it: `with "
    "torch.cuda.device(1):`.";
constexpr const char kMemory[] = "Memory is short: use a smaller batch, or free what is not needed.";
constexpr const char kPassing[] =
    "Usual in first calls, and then not held against the module. In every call: leave out torch.cuda.empty_cache() "
    "and the making of streams.";
constexpr const char kAllocator[] =
    "PyTorch's own caching allocator must be in use (no PYTORCH_NO_CUDA_MEMORY_CACHING, no other allocator).";
constexpr const char kNotDeterministic[] =
    "The call itself may not give the same bytes twice (atomic additions). torch.use_deterministic_algorithms(True) "
    "chooses kernels that do.";
constexpr const char kException[] = "A call that raises is not replayed.";
constexpr const char kNewArguments[] =
    "Shapes and plain values of the arguments are part of what is proven. Pad to a few sizes, and pass numbers that "
    "change as tensors on the GPU.";
constexpr const char kValidation[] =
    "A guard does not see what made the difference. The module is left alone from here on; please report it, with "
    "the module's code if you can.";
constexpr const char kNoGain[] = "Nothing needs to be changed: the CPU does not hold this module up.";
constexpr const char kPutOff[] =
    "Only a small part of the time is spent on looking at modules inside of one that is not replayed as a whole, where "
    "what keeps that one from being replayed matters more, and at functions that nobody named: put them into "
    "GRAPE_REGIONS.";
constexpr const char kFound[] =
    "A function that was found and that does not pay is none any more. To have it looked at all the same, put it into "
    "GRAPE_REGIONS.";
constexpr const char kShared[] =
    "Pass it the same way each time: always the very object that the global holds, or never.";
constexpr const char kOverlap[] = "Two tensors of different origin (DLPack) share memory. Pass one of them, or a copy.";
constexpr const char kInTheWait[] =
    "Another thread, or a function that the GPU calls, changes the module, its arguments or what its code names during "
    "the call. Change them between calls.";
constexpr const char kBusy[] =
    "Let the other streams finish (torch.cuda.synchronize()) before the first calls of a shape. A kernel or a wait "
    "that stays on a stream for ever keeps everything from being replayed.";
constexpr const char kCasts[] =
    "What was cast lives until the autocast block ends, in a way that cannot be repeated here (a weight that the call "
    "writes to, blocks of several types, an older PyTorch). Switch gradients off for the parameters "
    "(model.requires_grad_(False)), give torch.autocast cache_enabled=False, or cast the model (model.half()).";
constexpr const char kCastsKnown[] =
    "Nothing needs to be changed: from then on such calls are told apart by what autocast has cast already.";
constexpr const char kNoContext[] = "Let the thread do some work on the GPU first, or call torch.cuda.init() in it.";
constexpr const char kBeside[] =
    "What another thread writes meanwhile to memory of the arguments or the module looks like a difference. Give it "
    "memory of its own (clone()), or let it start after the first calls of a shape.";
constexpr const char kThreads[] = "One thread at a time replays a module: give each thread a copy of its own.";

struct Row {
  const char* words;  // that the reason contains; with '^' in front: begins with
  Advice advice;
};

// The first that fits counts, so the narrow ones come first.
constexpr Row kRows[] = {
    {"its arguments had not come often enough", {"new_arguments", kNewArguments}},
    {"takes as long as running it", {"no_gain", kNoGain}},
    {"was put off", {"put_off", kPutOff}},
    {"nobody named it", {"found", kFound}},
    {"when it was checked", {"validation", kValidation}},
    {"other streams have work all the time", {"busy", kBusy}},
    {"that were not known before", {"autocast", kCastsKnown}},
    {"of which autocast keeps", {"autocast", kCasts}},
    {"autocast keeps", {"autocast", kCasts}},
    {"no context of the device", {"threads", kNoContext}},
    {"another thread put work", {"threads", kBeside}},
    {"while the host waited", {"threads", kInTheWait}},
    {"another thread", {"threads", kThreads}},
    {"host reads differs", {"host_read", kHostRead}},
    {"device memory to the host", {"host_read", kHostRead}},
    {"reads a value on the host", {"host_read", kHostRead}},
    {"the host read was not kept", {"host_read", kHostRead}},
    {"a read by the host", {"host_read", kHostRead}},
    {"the host reads more", {"host_read", kHostRead}},
    {"waits for the device", {"host_read", kHostRead}},
    {"copies more host memory to the device", {"host_copy", kHostCopy}},
    {"copy more host memory to the device", {"host_copy", kHostCopy}},
    {"copies other host data to the device", {"host_copy", kHostCopy}},
    {"copied from the host was not kept", {"host_copy", kHostCopy}},
    {"copies pinned memory of the host", {"host_copy", kPinned}},
    {"memory to the device that may not be the host's", {"host_copy", kHostCopy}},
    {"memory that may be the host's", {"host_copy", kHostCopy}},
    {"memory of the host (pinned", {"host_copy", kPinned}},
    {"calls back into the host", {"host_callback", kEffect}},
    {"draws random numbers on the host", {"host_random", kHostRandom}},
    {"random numbers", {"random", kRandom}},
    {"same random state", {"random", kRandom}},
    {"calls a driver function that Grape does not know", {"driver_call", ""}},
    {"calls backward()", {"autograd", kAutograd}},
    {"sees what autograd saves", {"autograd", kSavedTensors}},
    {"under autograd", {"autograd", kAutograd}},
    {"nodes of autograd's graph", {"autograd", kAutograd}},
    {"the call called its retain_grad()", {"autograd", kAutograd}},
    {"the call made it a view", {"autograd", kAutograd}},
    {"its .grad", {"autograd", kGradients}},
    {"another .grad", {"autograd", kGradients}},
    {"a hook on it", {"autograd", kAutograd}},
    {"its forward-mode gradient", {"autograd", kAutograd}},
    {"autograd notes of", {"autograd", kAutograd}},
    {"a view that was made in another grad mode", {"result", kOtherView}},
    {"a view of a tensor that requires grad and", {"result", kOtherView}},
    {"a view of a tensor that is also held elsewhere", {"result", kOtherView}},
    {"a view of a tensor in other memory", {"result", kOtherView}},
    {"shares its version with one in other memory", {"result", kOtherView}},
    {"its code names: the call", {"autograd", kAutograd}},
    {"requires grad", {"autograd", kAutograd}},
    {"requires_grad", {"autograd", kAutograd}},
    {"which cannot be guarded", {"hidden_state", kHidden}},
    {"asks for the exception that is handled", {"hidden_state", kHidden}},
    {"memory behind an argument", {"argument", kStorage}},
    {"lets go of", {"argument", kEnds}},
    {"in part another one's", {"shared", kOverlap}},
    {"another one's as well, in part", {"shared", kOverlap}},
    {"wrote to a tensor on the CPU", {"result", kResult}},
    {"^uses Tensor.grad", {"autograd", kGradients}},
    {"^imports ", {"import", kImport}},
    {"^calls Generator.", {"host_random", kHostRandom}},
    {"^calls ", {"effect", kEffect}},
    {"^raises ", {"exception", kException}},
    {"raised an exception", {"exception", kException}},
    {"runs code compiled by torch.compile", {"observer", kObserver}},
    {"TorchFunctionMode", {"observer", kObserver}},
    {"TorchDispatchMode", {"observer", kObserver}},
    {"torch.func, tracing", {"observer", kObserver}},
    {"profiler", {"observer", kObserver}},
    {"debugger", {"observer", kObserver}},
    {"forward-mode differentiation", {"observer", kObserver}},
    {"has hooks", {"hooks", kHooks}},
    {"a hook for all modules", {"hooks", kHooks}},
    {"changes the function itself", {"function_changed", kFunctionChanged}},
    {"whose code runs after the call", {"deferred", kDeferred}},
    {"does no work on a GPU", {"no_gpu_work", kNoGpu}},
    {"GRAPE_EXCLUDE names it", {"excluded", ""}},
    {"changes its module", {"module_changed", kModuleChanged}},
    {"the call changed the module", {"module_changed", kModuleChanged}},
    {"not as it was", {"state_changed", kStateChanged}},
    {"were freed or replaced", {"state_changed", kStateChanged}},
    {"changes what its code names", {"globals", kGlobals}},
    {"sets the global", {"globals", kGlobals}},
    {"that no global leads to", {"globals", kGlobals}},
    {"^global ", {"globals", kGlobals}},
    {"changes PyTorch's global state", {"dispatch_state", kDispatchState}},
    {"CUDA graph", {"own_graph", kOwnGraph}},
    {"graph of the application's own", {"own_graph", kOwnGraph}},
    {"left other bytes", {"not_deterministic", kNotDeterministic}},
    {"gives other bytes", {"not_deterministic", kNotDeterministic}},
    {"kernels were", {"passing", kPassing}},
    {"from the driver", {"passing", kPassing}},
    {"back to the driver", {"passing", kPassing}},
    {"streams were made", {"passing", kPassing}},
    {"contexts were made", {"passing", kPassing}},
    {"a stream is gone", {"passing", kPassing}},
    {"was loaded anew", {"passing", kPassing}},
    {"on another stream", {"streams", kStreams}},
    {"of another stream", {"streams", kStreams}},
    {"an event", {"streams", kStreams}},
    {"other CUDA events", {"streams", kStreams}},
    {"another number of streams", {"varies", kVaries}},
    {"orders whole contexts", {"streams", kStreams}},
    {"wait for too many others", {"streams", kStreams}},
    {"orders streams", {"streams", kStreams}},
    {"an argument is what", {"shared", kShared}},
    {"works on several devices", {"devices", kDevices}},
    {"makes another device the current one", {"devices", kDeviceChanged}},
    {"more than one device", {"devices", kDevices}},
    {"no memory", {"memory", kMemory}},
    {"no host memory", {"memory", kMemory}},
    {"no device memory", {"memory", kMemory}},
    {"enough free device memory", {"memory", kMemory}},
    {"allocator does not report", {"allocator", kAllocator}},
    {"returns a tensor on the CPU", {"returns_cpu", kReturnsCpu}},
    {"was not allocated during the call", {"keeps_memory", kKeeps}},
    {"keeps device memory", {"keeps_memory", kKeeps}},
    {"changes memory before it reads", {"host_read", kHostRead}},
    {"allocated memory in different ways", {"varies", kVaries}},
    {"arguments' memory has other sizes", {"varies", kVaries}},
    {" of the parameters of ", {"value_varies", kValueVaries}},
    {"^parameter ", {"value_varies", kValueVaries}},
    {"what its kernels get differs from call to call", {"value_varies", kValueVaries}},
    {"in one call and", {"varies", kVaries}},
    {"operations on the device", {"varies", kVaries}},
    {"was launched with", {"varies", kVaries}},
    {"is the first to differ", {"varies", kVaries}},
    {"Grape cannot replay", {"driver_call", ""}},
    {"parameters cannot be read", {"driver_call", ""}},
    {"driver call failed", {"driver_call", ""}},
    {"kernel launch failed", {"driver_call", ""}},
    {"driver refused", {"driver_call", ""}},
    {"has the device wait", {"driver_call", ""}},
    {"^argument", {"argument", kArgument}},
    {"^keyword", {"argument", kArgument}},
    {"^module", {"argument", kArgument}},
    {"^function", {"argument", kArgument}},
    {"^result", {"result", kResult}},
    {"the call changed", {"result", kResult}},
};

bool fits(std::string_view reason, std::string_view words) noexcept {
  if (words.front() == '^') return reason.substr(0, words.size() - 1) == words.substr(1);
  return reason.find(words) != std::string_view::npos;
}

}  // namespace

const Advice& advice_for(std::string_view reason) noexcept {
  static constexpr Advice kOther = {"other", ""};
  for (const Row& row : kRows) {
    if (fits(reason, row.words)) return row.advice;
  }
  return kOther;
}

}  // namespace grape::python::replay
