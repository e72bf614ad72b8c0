#include "python_hooks/guards/plan_key.h"

#include <algorithm>

#include "python_hooks/interpreter/code_origin.h"
#include "python_hooks/interpreter/cpython_objects.h"

namespace grape::python::guards {
namespace {

using State = observation::ExecutedCode::State;

void keep(const std::vector<Object*>& objects, std::vector<Strong>& out) {
  out.clear();
  for (Object* object : objects) out.emplace_back(object);
}

bool are(const std::vector<Strong>& kept, const std::vector<Object*>& objects) {
  return std::equal(kept.begin(), kept.end(), objects.begin(), objects.end(),
                    [](const Strong& one, const Object* other) { return one.get() == other; });
}

std::vector<Object*> with_globals(const std::vector<observation::CodeKey>& codes) {
  std::vector<Object*> objects;
  for (const observation::CodeKey& key : codes) {
    objects.push_back(key.code);
    objects.push_back(key.globals);
  }
  return objects;
}

// Of the user's class statements that ran in the call: the next call makes other classes.
bool made_classes(const State& code, const GlobalsPlan& plan) {
  return !std::all_of(code.types.begin(), code.types.end(), [&](const Object* one) {
    return std::any_of(plan.types.begin(), plan.types.end(), [&](const Strong& type) { return type.get() == one; });
  });
}

}  // namespace

void PlanKey::take(const State& code, const GlobalsPlan& plan) {
  known_ = g_layout.frame_function >= 0 && !plan.looks_for_classes && !code.lost &&
           !code.has_met(observation::EffectKind::kEnvironment) && !made_classes(code, plan);
  if (!known_) return;
  met_ = code.met;
  origins_ = origins_epoch();
  keep(with_globals(code.codes), codes_);
  keep(code.types, types_);
  keep(code.loggers, loggers_);
  keep(code.contexts, contexts_);
  for (Object* function : living_functions(code)) functions_.emplace_back(function, false);
  known_ = std::all_of(functions_.begin(), functions_.end(), [](const walk::Held& one) { return one.held(); });
}

bool PlanKey::fits(const State& code) const {
  if (!known_ || code.lost || met_ != code.met || origins_ != origins_epoch()) return false;
  if (codes_.size() != 2 * code.codes.size() || !are(types_, code.types) || !are(loggers_, code.loggers) ||
      !are(contexts_, code.contexts) || !are(codes_, with_globals(code.codes))) {
    return false;
  }
  const std::vector<Object*> functions = living_functions(code);
  return std::equal(functions_.begin(), functions_.end(), functions.begin(), functions.end(),
                    [](const walk::Held& one, const Object* other) { return one.is(other); });
}

}  // namespace grape::python::guards
