#include "python_hooks/replay/optimizer_numbers.h"

#include <cstring>
#include <new>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/texts.h"

namespace grape::python::replay {
namespace {

using torch::KnownOptimizer;

constexpr std::size_t kStepsOfAdam = 5;  // state_steps, among the arguments without a name

// The call's keyword of this name, by its number in `arguments`; kNone: it has none.
std::size_t keyword(const Call& call, const char* name) {
  const std::size_t keywords = call.names != nullptr ? item_count(call.names) : 0;
  for (std::size_t i = 0; i < keywords; ++i) {
    Object* const key = tuple_data(call.names)[i];
    if (is_text(key) && text_value<64>(key) == name) return positional_count(call.count) + i;
  }
  return Call::kNone;
}

// False: it is no float, or is not there.
bool real_at(const Call& call, std::size_t at, double& number) noexcept {
  if (at == Call::kNone || !is_exactly(call.arguments[at], g_api.PyFloat_Type)) return false;
  const std::uint64_t bits = float_bits(call.arguments[at]);
  std::memcpy(&number, &bits, sizeof number);
  return true;
}

bool real_at(const Call& call, const char* name, double& number) { return real_at(call, keyword(call, name), number); }

// The same, or an int: both become the same number of a product with a float.
bool number_at(const Call& call, const char* name, double& number) {
  const std::size_t at = keyword(call, name);
  if (at == Call::kNone || !is_exactly(call.arguments[at], g_api.PyLong_Type)) return real_at(call, at, number);
  number = g_api.PyFloat_AsDouble(call.arguments[at]);
  const bool fits = g_api.PyErr_Occurred() == nullptr;
  g_api.PyErr_Clear();
  return fits;
}

bool is_false(const Call& call, const char* name) {
  const std::size_t at = keyword(call, name);
  return at != Call::kNone && call.arguments[at] == g_api._Py_FalseStruct;
}

// How often the step was made so far, where all tensors of the list have counted the same. False: they have not, are
// none of one float each, or have counted further than a float can.
bool count_of_steps(Object* list, double& count) noexcept {
  if (!is_exactly(list, g_api.PyList_Type) || item_count(list) == 0) return false;
  float first = 0;
  for (std::size_t i = 0; i < item_count(list); ++i) {
    torch::TensorView view;
    if (!torch::view_tensor(list_data(list)[i], view) || !torch::is_step_count(view)) return false;
    float steps = 0;
    std::memcpy(&steps, reinterpret_cast<const void*>(view.data), sizeof steps);
    if (i != 0 && steps != first) return false;
    first = steps;
  }
  count = first;
  return first >= 0 && first < torch::kMostSteps;
}

// As Python computes it. False: an error.
bool power(double base, double exponent, double& result) {
  const Reference a(g_api.PyFloat_FromDouble(base)), b(g_api.PyFloat_FromDouble(exponent));
  const Reference raised(a && b ? g_api.PyNumber_Power(a.get(), b.get(), g_api._Py_NoneStruct) : nullptr);
  if (!raised || !is_exactly(raised.get(), g_api.PyFloat_Type)) {
    g_api.PyErr_Clear();
    return false;
  }
  result = g_api.PyFloat_AsDouble(raised.get());
  return true;
}

// Of _single_tensor_adam() and _multi_tensor_adam() with steps on the CPU, in their words.
bool add_corrections(Call& call, double rate) {
  double beta1 = 0, beta2 = 0, steps = 0;
  if (!real_at(call, "beta1", beta1) || !real_at(call, "beta2", beta2)) return false;
  if (positional_count(call.count) <= kStepsOfAdam || !count_of_steps(call.arguments[kStepsOfAdam], steps))
    return false;
  const double step = static_cast<float>(steps) + 1.0F;
  double power1 = 0, power2 = 0, root = 0;
  if (!power(beta1, step, power1) || !power(beta2, step, power2)) return false;
  const double correction1 = 1 - power1, correction2 = 1 - power2;
  if (!power(correction2, 0.5, root) || correction1 == 0) return false;
  for (const double number : {(rate / correction1) * -1, rate / correction1, root}) call.numbers.push_back(number);
  call.steps_at = kStepsOfAdam;
  return true;
}

bool find_numbers(const Region& region, Call& call) {
  double rate = 0, decay = 0;
  call.rate_at = keyword(call, "lr");
  if (!real_at(call, call.rate_at, rate)) return false;
  call.numbers = {rate, -rate};
  if (region.optimizer == KnownOptimizer::kByRate) return true;
  if (!number_at(call, "weight_decay", decay)) return false;
  call.numbers.push_back(1 - rate * decay);
  const bool on_device = !is_false(call, "capturable");
  return on_device || (is_false(call, "differentiable") && add_corrections(call, rate));
}

}  // namespace

void take_numbers(const Region& region, Call& call) {
  call.rate_at = call.steps_at = Call::kNone;
  call.numbers.clear();
  if (region.optimizer == KnownOptimizer::kNone || !check_objects()) return;
  const KeepException keep;
  if (find_numbers(region, call)) return;
  call.rate_at = call.steps_at = Call::kNone;
  call.numbers.clear();
}

}  // namespace grape::python::replay
