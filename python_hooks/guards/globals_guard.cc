#include "python_hooks/guards/globals_guard.h"

#include <algorithm>
#include <memory>
#include <new>
#include <unordered_set>

#include "python_hooks/guards/globals_plan.h"
#include "python_hooks/guards/guarded_walk.h"
#include "python_hooks/guards/plan_key.h"
#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"
#include "python_hooks/interpreter/function_reports.h"
#include "python_hooks/interpreter/texts.h"
#include "python_hooks/walk/portable.h"

namespace grape::python::guards {
namespace {

constexpr std::size_t kAhead = 24;  // things that are asked for ahead
constexpr std::uint64_t kNotLooked = ~std::uint64_t{0};
std::uint64_t g_plans = 0;

template <typename Thing>
void fetch_first(const std::vector<Thing>& things) noexcept {
  for (std::size_t i = 0; i < std::min(kAhead, things.size()); ++i) things[i].fetch();
}

// While the one of that index is looked at.
template <typename Thing>
void fetch_ahead(const std::vector<Thing>& things, std::size_t index) noexcept {
  if (index + kAhead < things.size()) things[index + kAhead].fetch();
}

// A function of the user's that ran, and that no name leads to.
struct Alone {
  Object* reference;  // weak; borrowed from the plan
  std::unique_ptr<GuardedWalk> walked;

  bool add_to(walk::Walk& walk) const noexcept { return walk.add(referent(reference), "a function that ran"); }
  bool take(refusal::Refusal& refusal) {
    return walked->take([this](walk::Walk& walk) { return add_to(walk); }, refusal);
  }
  // True as well when it is gone: who led to it has changed, then.
  bool holds() {
    if (referent(reference) == g_api._Py_NoneStruct || walked->quick()) return true;
    return walked->same([this](walk::Walk& walk) { return add_to(walk); });
  }
};

}  // namespace

struct GlobalsGuard::State {
  GlobalsPlan plan;
  PlanKey key;
  GuardedWalk walked;
  std::vector<Alone> alone;
  std::vector<std::uint64_t> form;  // with the walks' bytes: equal for guards of the same
  std::string change;

  bool take(const observation::ExecutedCode::State& code, refusal::Refusal& refusal);
  void ask_for_reports();  // once, after take(): before, all is looked at
  bool holds();
  bool same_as(const State& other) const;
  const AliasRelation& shared_with();

  bool walk_into(walk::Walk& walk) const;

 private:
  bool take_alone(refusal::Refusal& refusal);
  bool closures_known(const std::vector<Object*>& objects, refusal::Refusal& refusal) const;
  void identify();
  bool all_hold();
  bool names_hold(bool& walk_to_know);
  bool functions_hold();
  bool marks_hold();
  bool values_hold(bool walk_to_know);

  AliasRelation sharing_;
  std::uint64_t shared_walks_ = 0;  // the walks that it was taken of
  // Of libraries' names: while none is reported to have changed, and they all were looked at since, they hold.
  DictReports reports_;
  bool looked_at_all_ = false;
  std::vector<std::size_t> asked_names_;  // the others' indices
  // As it was when all functions were looked at; then only those with closures are.
  std::uint64_t function_changes_ = kNotLooked;
  std::vector<std::size_t> closures_;  // their indices
};

bool GlobalsGuard::State::walk_into(walk::Walk& walk) const {
  // What is named of classes comes first: to who meets a library's class, its containers are which objects they hold.
  for (const bool modules : {false, true}) {
    for (const NamedValues& names : plan.names) {
      if (names.of_module() == modules && !names.walk(walk)) return false;
    }
  }
  for (const Strong& type : plan.types) {
    if (!walk.add(type.get(), type::name(type.get()))) return false;
  }
  for (const ContextVariable& variable : plan.contexts) {
    if (!variable.walk(walk)) return false;
  }
  return plan.environment.get() == nullptr || walk.add(plan.environment.get(), "os.environ");
}

bool GlobalsGuard::State::take_alone(refusal::Refusal& refusal) {
  const std::vector<Object*>& objects = walked.walk().objects();
  const std::unordered_set<Object*> known(objects.begin(), objects.end());
  for (const Strong& reference : plan.alone) {
    if (known.count(referent(reference.get())) != 0) continue;
    alone.push_back({reference.get(), std::make_unique<GuardedWalk>()});
    if (!alone.back().take(refusal)) return false;
  }
  return closures_known(objects, refusal);
}

bool GlobalsGuard::State::closures_known(const std::vector<Object*>& objects, refusal::Refusal& refusal) const {
  std::unordered_set<Object*> codes;
  for (Object* object : objects) {
    if (is_function(object)) codes.insert(function_parts(object).code);
  }
  for (Object* code : plan.closures) {
    if (codes.count(code) != 0) continue;
    return refusal::refuse(refusal, refusal::closure_without_global,
                           text_value<256>(field<Object*>(code, g_layout.code_name)));
  }
  return true;
}

void GlobalsGuard::State::identify() {
  for (const NamedValues& names : plan.names) names.identify(form);
  for (const Strong& type : plan.types) form.push_back(reinterpret_cast<std::uint64_t>(type.get()));
  for (const ModuleClass& one : plan.modules) form.push_back(reinterpret_cast<std::uint64_t>(one.module.get()));
  form.push_back(plan.settings);
  for (const long asked :
       {plan.abstract_token, static_cast<long>(plan.thread), long{plan.nothing_handled}, long{plan.sees_storages}}) {
    form.push_back(static_cast<std::uint64_t>(asked));
  }
  for (const ContextVariable& variable : plan.contexts) {
    form.push_back(reinterpret_cast<std::uint64_t>(variable.variable()));
  }
  for (const FunctionMark& mark : plan.functions) form.push_back(reinterpret_cast<std::uint64_t>(mark.function()));
}

bool GlobalsGuard::State::take(const observation::ExecutedCode::State& code, refusal::Refusal& refusal) {
  if (!plan.make(code, refusal)) return false;
  if (!walked.take([this](walk::Walk& walk) { return walk_into(walk); }, refusal)) return false;
  if (!take_alone(refusal)) return false;
  identify();
  key.take(code, plan);
  return true;
}

// A program sets names of its own all the time: these are looked at in each call.
void GlobalsGuard::State::ask_for_reports() {
  for (std::size_t i = 0; i < plan.names.size(); ++i) {
    Object* dict = plan.names[i].dict();
    const bool reported = !plan.names[i].users() && reports_changes(dict) && reports_.add(dict);
    if (!reported) asked_names_.push_back(i);
  }
  for (std::size_t i = 0; i < plan.functions.size(); ++i) {
    if (plan.functions[i].has_closure()) closures_.push_back(i);
  }
}

bool GlobalsGuard::State::names_hold(bool& walk_to_know) {
  const bool all = !looked_at_all_ || reports_.changed();
  if (all) {
    looked_at_all_ = false;  // until they are found to hold
    reports_.look();
    fetch_first(plan.names);
  }
  const std::size_t count = all ? plan.names.size() : asked_names_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (all) fetch_ahead(plan.names, i);
    NamedValues& names = plan.names[all ? i : asked_names_[i]];
    if (names.untouched()) continue;
    const NamedValues::Change found = names.compare(change);
    if (found == NamedValues::Change::kOther) return false;
    if (found == NamedValues::Change::kMaybe) walk_to_know = true;
  }
  for (const ContextVariable& variable : plan.contexts) {
    if (!variable.untouched()) walk_to_know = true;
  }
  return true;
}

bool GlobalsGuard::State::functions_hold() {
  const std::uint64_t changes = functions_report() ? function_changes() : kNotLooked;
  const bool all = changes == kNotLooked || changes != function_changes_;
  if (all) fetch_first(plan.functions);
  const std::size_t count = all ? plan.functions.size() : closures_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (all) fetch_ahead(plan.functions, i);
    const FunctionMark& mark = plan.functions[all ? i : closures_[i]];
    if (mark.holds()) continue;
    change = mark.name() + ": its code, its defaults or its closure are others";
    return false;
  }
  function_changes_ = changes;
  return true;
}

// What the interpreter and PyTorch keep beside names. `what`: for the report, where it is not as it was.
struct Mark {
  bool (*holds)(const GlobalsPlan& plan);
  const char* what;
};

constexpr Mark kMarks[] = {
    {[](const GlobalsPlan& plan) {
       for (std::size_t i = 0; i < plan.modules.size(); ++i) {
         fetch_ahead(plan.modules, i);
         if (type_of(plan.modules[i].module.get()) != plan.modules[i].type) return false;
       }
       return true;
     },
     "the class of a module"},
    {[](const GlobalsPlan& plan) { return plan.settings == observation::setting_changes(); },
     "a setting of torch or of the interpreter (an operator was defined anew, a process group came or went, tunable "
     "operators, what waiting for the device does, a lazy clone of a tensor, limits of recursion and of numbers' "
     "digits)"},
    {[](const GlobalsPlan& plan) { return plan.abstract_token < 0 || plan.abstract_token == abstract_token(); },
     "which classes abstract ones have registered"},
    {[](const GlobalsPlan& plan) { return plan.thread == 0 || plan.thread == g_api.PyThread_get_thread_ident(); },
     "the thread, which its code asks for"},
    {[](const GlobalsPlan& plan) { return !plan.nothing_handled || !handles_exception(); },
     "that no exception is handled, which its code asks for"},
    {[](const GlobalsPlan& plan) { return plan.filters.hold(); }, "warnings.filters"},
};

bool GlobalsGuard::State::marks_hold() {
  for (const Mark& mark : kMarks) {
    if (mark.holds(plan)) continue;
    change = mark.what;
    return false;
  }
  return true;
}

bool GlobalsGuard::State::values_hold(bool walk_to_know) {
  if (walk_to_know || !walked.quick()) {
    const NoCollection no_collection;
    if (!walked.same([this](walk::Walk& walk) { return walk_into(walk); })) {
      change = walked.change();
      return false;
    }
    for (NamedValues& names : plan.names) names.take_again();
    for (ContextVariable& variable : plan.contexts) variable.take_again();
  }
  for (Alone& one : alone) {
    if (one.holds()) continue;
    change = one.walked->change();
    return false;
  }
  return true;
}

bool GlobalsGuard::State::all_hold() {
  bool walk_to_know = false;
  if (!names_hold(walk_to_know)) return false;
  fetch_first(plan.modules);
  return functions_hold() && marks_hold() && values_hold(walk_to_know);
}

bool GlobalsGuard::State::holds() {
  looked_at_all_ = all_hold();  // else what was found may still be so, and is not reported again
  return looked_at_all_;
}

bool GlobalsGuard::State::same_as(const State& other) const {
  if (form != other.form || walked.walk().bytes() != other.walked.walk().bytes()) return false;
  if (alone.size() != other.alone.size()) return false;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (alone[i].reference != other.alone[i].reference) return false;
    if (alone[i].walked->walk().bytes() != other.alone[i].walked->walk().bytes()) return false;
  }
  return true;
}

const AliasRelation& GlobalsGuard::State::shared_with() {
  std::uint64_t walks = walked.walks();
  for (const Alone& one : alone) walks += one.walked->walks();
  if (walks != shared_walks_) {
    sharing_.clear();
    sharing_.add(walked.walk());
    for (const Alone& one : alone) sharing_.add(one.walked->walk());
    shared_walks_ = walks;
  }
  return sharing_;
}

namespace {

// Most observed calls of a model name the same: their guards share one state, and one check of it.
template <typename State>
class KnownStates {
 public:
  // One that holds, and that a call which ran this code shares; null: none is known.
  std::shared_ptr<State> of(const observation::ExecutedCode::State& code) {
    forget_dead();
    return first([&](const State& state) { return state.key.fits(code); });
  }
  // An equal one that holds; else `state`, which the next ones may share.
  std::shared_ptr<State> add(std::shared_ptr<State> state) {
    if (std::shared_ptr<State> same = first([&](const State& other) { return other.same_as(*state); })) return same;
    states_.push_back(state);
    state->ask_for_reports();
    return state;
  }

 private:
  void forget_dead() {
    states_.erase(std::remove_if(states_.begin(), states_.end(), [](const auto& weak) { return weak.expired(); }),
                  states_.end());
  }
  template <typename Same>
  std::shared_ptr<State> first(Same same) {
    for (const std::weak_ptr<State>& weak : states_) {
      std::shared_ptr<State> state = weak.lock();
      if (state != nullptr && same(*state) && state->holds()) return state;
    }
    return nullptr;
  }

  std::vector<std::weak_ptr<State>> states_;
};

}  // namespace

GlobalsGuard::GlobalsGuard() = default;
GlobalsGuard::~GlobalsGuard() {
  const KeepException keep;
  state_.reset();
}

std::unique_ptr<GlobalsGuard> GlobalsGuard::take(const observation::ExecutedCode& code,
                                                 refusal::Refusal& refusal) noexcept {
  const KeepException keep;
  try {
    static auto& known = *new KnownStates<State>;
    ask_dictionaries();
    functions_report();
    const NoCollection no_collection;
    if (!check_objects()) return refusal::refuse(refusal, refusal::unknown_layout);
    std::unique_ptr<GlobalsGuard> guard(new GlobalsGuard);
    guard->state_ = known.of(code.state());
    if (guard->state_ != nullptr) return guard;
    auto state = std::make_shared<State>();
    ++g_plans;
    if (!state->take(code.state(), refusal)) return nullptr;
    guard->state_ = known.add(std::move(state));
    return guard;
  } catch (const std::bad_alloc&) {
    refusal = refusal::out_of_memory();
  }
  return nullptr;
}

std::uint64_t GlobalsGuard::plans() noexcept { return g_plans; }

bool GlobalsGuard::holds() noexcept {
  const KeepException keep;
  try {
    return state_->holds();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

cache::Digest GlobalsGuard::digest() const {
  walk::Walk walk = walk::Walk::portable(true);
  bool whole = state_->walk_into(walk);
  for (const Alone& one : state_->alone) whole = whole && one.add_to(walk);
  return whole ? walk::digest_of(walk.bytes()) : cache::Digest();
}

const AliasRelation& GlobalsGuard::sharing() { return state_->shared_with(); }

void GlobalsGuard::take_versions(std::vector<walk::TensorVersion>& out) const {
  walk::take_versions(state_->walked.walk().tensors(), out);
  for (const Alone& one : state_->alone) walk::take_versions(one.walked->walk().tensors(), out);
}

Object* GlobalsGuard::tensor(std::size_t number) const noexcept {
  const auto in = [&number](const walk::Walk& walk) -> Object* {
    const auto& tensors = walk.tensors();
    if (number < tensors.size()) return tensors[number].view.object;
    number -= tensors.size();
    return nullptr;
  };
  Object* found = in(state_->walked.walk());
  for (std::size_t i = 0; found == nullptr && i < state_->alone.size(); ++i)
    found = in(state_->alone[i].walked->walk());
  return found;
}

const std::string& GlobalsGuard::change() const noexcept { return state_->change; }

bool GlobalsGuard::sees_storages() const noexcept { return state_->plan.sees_storages; }

const std::vector<walk::StorageExtent>& GlobalsGuard::extents() const noexcept {
  return state_->walked.walk().extents();
}

}  // namespace grape::python::guards
