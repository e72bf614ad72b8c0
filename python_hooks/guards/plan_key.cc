#include "python_hooks/guards/plan_key.h"

#include <algorithm>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python::guards {
namespace {

using State = observation::ExecutedCode::State;

// Of the user's class statements that ran in the call: the next call makes other classes.
bool made_classes(const State& code, const GlobalsPlan& plan) {
  return !std::all_of(code.types.begin(), code.types.end(), [&](const Object* one) {
    return std::any_of(plan.types.begin(), plan.types.end(), [&](const Strong& type) { return type.get() == one; });
  });
}

}  // namespace

void PlanKey::keep(const std::vector<Object*>& objects) {
  for (Object* object : objects) kept_.emplace_back(object);
}

void PlanKey::take(const State& code, const GlobalsPlan& plan) {
  known_ = g_layout.frame_function >= 0 && !plan.looks_for_classes && !code.lost &&
           !code.has_met(observation::EffectKind::kEnvironment) && !made_classes(code, plan);
  if (!known_) return;
  met_ = code.met;
  origins_ = origins_epoch();
  codes_ = code.codes;
  types_ = code.types;
  loggers_ = code.loggers;
  contexts_ = code.contexts;
  for (const observation::CodeKey& key : codes_) keep({key.code, key.globals});
  for (const auto* objects : {&types_, &loggers_, &contexts_}) keep(*objects);
  for (Object* function : living_functions(code)) functions_.emplace_back(function, false);
  known_ = std::all_of(functions_.begin(), functions_.end(), [](const walk::Held& one) { return one.held(); });
}

bool PlanKey::fits(const State& code) const {
  const bool same = known_ && !code.lost && met_ == code.met && origins_ == origins_epoch() && codes_ == code.codes &&
                    types_ == code.types && loggers_ == code.loggers && contexts_ == code.contexts;
  if (!same) return false;
  const std::vector<Object*> functions = living_functions(code);
  return std::equal(functions_.begin(), functions_.end(), functions.begin(), functions.end(),
                    [](const walk::Held& one, const Object* other) { return one.is(other); });
}

}  // namespace grape::python::guards
