#include "python_hooks/torch/optimizer_functions.h"

#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python::torch {
namespace {

// Others in these modules look at gradients by way of the weights (Tensor.grad), which no region may.
constexpr char kNames[] =
    "torch.optim.*:_fused_*,torch.optim.*:_multi_tensor_*,torch.optim.*:_single_tensor_*,"
    "torch.nn.utils.clip_grad:_get_total_norm";

struct KnownFunctions {
  const char* names;
  KnownOptimizer kind;
  const std::uint64_t (&files)[4];
};
// Digests (XXH3) of their file in PyTorch 2.8 to 2.11.
constexpr std::uint64_t kAdamFiles[] = {0x430b37a4dfae7fea, 0x6adc5fa31ae2f7fd, 0x5c164311a9581b1c, 0xb1b36e8974c5280e},
                        kSgdFiles[] = {0xac1a292f5bbb9694, 0x32c4fc478768deea, 0xc0264fadb6a34b6e, 0xc0264fadb6a34b6e};
constexpr KnownFunctions kKnown[] = {
    {"torch.optim.sgd:_*_sgd", KnownOptimizer::kByRate, kSgdFiles},
    {"torch.optim.adam:_fused_adam", KnownOptimizer::kByRate, kAdamFiles},
    {"torch.optim.adam:_single_tensor_adam,torch.optim.adam:_multi_tensor_adam", KnownOptimizer::kAdam, kAdamFiles},
};

// False: it cannot be read.
bool digest_of_file(const std::string& path, std::uint64_t& digest) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  digest = XXH3_64bits(text.data(), text.size());
  return file.good() || file.eof();
}

}  // namespace

KnownOptimizer known_optimizer(Object* function, const char* name) noexcept {
  try {
    if (!is_optimizer_function(name) || !is_function(function)) return KnownOptimizer::kNone;
    const std::string path = text_or_empty<4096>(field<Object*>(function_parts(function).code, g_layout.code_file));
    std::string_view below;
    std::uint64_t digest = 0;
    if (!is_torch_file(path, below) || !digest_of_file(path, digest)) return KnownOptimizer::kNone;
    for (const KnownFunctions& known : kKnown) {
      if (matches(known.names, name) &&
          std::find(std::begin(known.files), std::end(known.files), digest) != std::end(known.files))
        return known.kind;
    }
  } catch (const std::exception&) {  // no memory, or no such file
  }
  return KnownOptimizer::kNone;
}

bool is_optimizer_function(const char* name) noexcept { return matches(kNames, name); }

void find_optimizer_functions(const FoundFunction& found) {
  Object* modules = g_api.PyImport_GetModuleDict();
  if (modules == nullptr || !is_dict(modules) || !check_objects()) return;
  const KeepException exception;
  const FoundFunction if_named = [&found](Object* function, const char* name) {
    if (is_optimizer_function(name)) found(function, name);
  };
  each_pair(g_api.PyDict_Items(modules), [&](Object* key, Object* module) {
    const std::string name = text_or_empty<256>(key);
    if (!name.empty() && may_match_module(kNames, name.c_str())) each_function(name.c_str(), module, if_named);
  });
}

}  // namespace grape::python::torch
