#include "python_hooks/torch/optimizer_functions.h"

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/patterns.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python::torch {
namespace {

// Others in these modules look at gradients by way of the weights (Tensor.grad), which no region may.
constexpr char kNames[] =
    "torch.optim.*:_fused_*,torch.optim.*:_multi_tensor_*,torch.optim.*:_single_tensor_*,"
    "torch.nn.utils.clip_grad:_get_total_norm";

}  // namespace

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
