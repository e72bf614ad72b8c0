// Lets Python scripts observe calls, and guard what their code names: called by ctypes with the GIL held.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "python_hooks/guards/globals_guard.h"
#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/stack_steps.h"
#include "python_hooks/observation/executed_code.h"
#include "python_hooks/torch/torch_api.h"
#include "tests/python_hooks/probes/cold_time.h"

#define PROBE extern "C" __attribute__((visibility("default")))

using grape::python::guards::GlobalsGuard;
using grape::python::host_draws::HostRandom;
using grape::python::observation::ExecutedCode;

namespace {
grape::refusal::Refusal g_refusal;
std::string g_words;
}  // namespace

PROBE int code_load() {
  bool permanent = false;
  return grape::python::load_api(permanent) && grape::python::check_objects() ? 1 : 0;
}
PROBE int code_load_torch() { return grape::python::torch::load_torch_api() ? 1 : 0; }

PROBE ExecutedCode* code_new() { return new ExecutedCode; }
PROBE void code_delete(ExecutedCode* code) { delete code; }
PROBE int code_begin(ExecutedCode* code) { return code->begin() ? 1 : 0; }
PROBE int code_end(ExecutedCode* code) { return code->end() ? 1 : 0; }
PROBE const char* code_reason(ExecutedCode* code) {
  const grape::refusal::Refusal& refusal = code->refusal();
  g_words = refusal.place.empty() ? refusal.text : refusal.text + " at " + refusal.place;
  return g_words.c_str();
}

// What an instruction of a co_code does, as the words of a StackStep. 0: a prefix; -1: not known for this interpreter.
PROBE int code_stack_step(grape::python::Object* instructions, std::size_t offset, std::int64_t* words) {
  grape::python::StackStep step;
  if (!grape::python::stack_steps_known()) return -1;
  if (!grape::python::stack_step_at(instructions, offset, step)) return 0;
  const auto word = [](auto value) { return static_cast<std::int64_t>(value); };
  const std::int64_t all[] = {word(step.kind),
                              word(step.asks),
                              word(step.pops),
                              word(step.pushes),
                              word(step.depth),
                              word(step.locals[0].use),
                              word(step.locals[0].variable),
                              word(step.locals[1].use),
                              word(step.locals[1].variable),
                              word(step.next),
                              word(step.target)};
  std::copy(std::begin(all), std::end(all), words);
  return 1;
}

// How many numbers of PyTorch's were drawn, if it is known what became of them; -1: it is not.
PROBE int code_followed_draws(ExecutedCode* code) {
  const auto* draws = code->followed_draws();
  return draws != nullptr ? static_cast<int>(draws->count()) : -1;
}
PROBE int code_same_draws(ExecutedCode* code, ExecutedCode* other) {
  return code->followed_draws()->same_as(*other->followed_draws()) ? 1 : 0;
}
PROBE int code_decisions(ExecutedCode* code) { return static_cast<int>(code->followed_draws()->decisions()); }
PROBE int code_decide_the_same(ExecutedCode* code) { return code->followed_draws()->decide_the_same() ? 1 : 0; }
PROBE int code_repeat_draws(ExecutedCode* code) { return code->followed_draws()->repeat() ? 1 : 0; }
PROBE HostRandom* host_random_new() {
  auto* random = new HostRandom;
  random->take();
  return random;
}
PROBE void host_random_delete(HostRandom* random) { delete random; }
PROBE int host_random_moved_by(HostRandom* random, ExecutedCode* code) {
  return random->moved_by(*code->followed_draws()) ? 1 : 0;
}

PROBE std::uint64_t code_digest(ExecutedCode* code) { return code->digest().low; }
PROBE std::uint64_t globals_digest(GlobalsGuard* guard) { return guard->digest().low; }

PROBE GlobalsGuard* globals_take(ExecutedCode* code) {
  g_refusal = {};
  return GlobalsGuard::take(*code, g_refusal).release();
}
PROBE const char* globals_reason() { return g_refusal.text.c_str(); }
PROBE std::uint64_t globals_plans() { return GlobalsGuard::plans(); }
PROBE void globals_delete(GlobalsGuard* guard) { delete guard; }
PROBE int globals_holds(GlobalsGuard* guard) { return guard->holds() ? 1 : 0; }
PROBE const char* globals_change(GlobalsGuard* guard) { return guard->change().c_str(); }
PROBE std::size_t globals_extents(GlobalsGuard* guard) { return guard->extents().size(); }
// Microseconds that a holds() takes, on average; -1: it does not hold. `trash`: see microseconds_cold().
PROBE double globals_time(GlobalsGuard* guard, int calls, std::size_t trash) {
  bool all = true;
  const double time = grape::test::microseconds_cold(calls, trash, [&] { all = guard->holds() && all; });
  return all ? time : -1;
}
