#include "python_hooks/observation/traps.h"

#include <array>
#include <utility>

#include "python_hooks/interpreter/flat_map.h"

namespace grape::python::observation {

__thread bool t_observing __attribute__((tls_model("initial-exec")));

namespace {

constexpr std::size_t kMostTraps = 1024;

// All C functions behind methods and slots take at most six words and give one back, whatever their types: on this
// processor they travel in the same registers, so one function can stand in for any of them.
using AnyFunction = void* (*)(void*, void*, void*, void*, void*, void*);

struct Trap {
  void** place = nullptr;
  AnyFunction function = nullptr;
  bool kept = false;  // somebody has put a function of his own over ours, and calls ours from there
  HostEffect effect = {};
};

Trap g_traps[kMostTraps];
std::size_t g_trap_count = 0;
unsigned g_armed = 0;
std::uint64_t g_pool_changes = 0, g_setting_changes = 0;
__thread std::uint64_t t_setting_changes = 0;  // this thread's of them

FlatMap<AddressKey, std::uint32_t>& known_places() {
  static auto* places = new FlatMap<AddressKey, std::uint32_t>;
  return *places;
}

bool tells_result(EffectKind kind) noexcept {
  return kind == EffectKind::kDraws || kind == EffectKind::kCompares || kind == EffectKind::kAsks;
}

template <std::size_t index>
void* tell_and_call(void* a, void* b, void* c, void* d, void* e, void* f) {
  const Trap& trap = g_traps[index];
  if (trap.effect.kind == EffectKind::kPool) ++g_pool_changes;
  if (trap.effect.kind == EffectKind::kSetting) {
    ++g_setting_changes;
    ++t_setting_changes;
  }
  if (!t_observing) return trap.function(a, b, c, d, e, f);
  if (!tells_result(trap.effect.kind)) {
    on_effect(trap.effect, a, b);
    return trap.function(a, b, c, d, e, f);
  }
  void* result = trap.function(a, b, c, d, e, f);
  on_result(trap.effect, trap.place, a, b, c, result);
  return result;
}

template <std::size_t... index>
constexpr std::array<AnyFunction, sizeof...(index)> all_functions(std::index_sequence<index...>) {
  return {{tell_and_call<index>...}};
}
constexpr auto kFunctions = all_functions(std::make_index_sequence<kMostTraps>());

bool counts(const HostEffect& effect) noexcept {
  return effect.kind == EffectKind::kPool || effect.kind == EffectKind::kSetting;
}

// Is it never taken back?
bool stays(const Trap& trap) noexcept { return trap.kept || counts(trap.effect); }

}  // namespace

std::uint64_t pool_changes() noexcept { return g_pool_changes; }
std::uint64_t setting_changes() noexcept { return g_setting_changes; }
std::uint64_t setting_changes_of_others() noexcept { return g_setting_changes - t_setting_changes; }

bool add_trap(void** place, const HostEffect& effect) noexcept {
  if (*place == nullptr || known_places().find({place}) != nullptr) return true;
  if (g_trap_count == kMostTraps || !known_places().put({place}, 1)) return false;
  Trap& trap = g_traps[g_trap_count];
  trap.place = place;
  trap.function = reinterpret_cast<AnyFunction>(*place);
  trap.effect = effect;
  if (g_armed != 0 || counts(effect)) *place = reinterpret_cast<void*>(kFunctions[g_trap_count]);
  ++g_trap_count;
  return true;
}

void arm_traps() noexcept {
  if (g_armed++ != 0) return;
  for (std::size_t i = 0; i < g_trap_count; ++i) {
    if (stays(g_traps[i])) continue;
    g_traps[i].function = reinterpret_cast<AnyFunction>(*g_traps[i].place);  // may be another one by now
    *g_traps[i].place = reinterpret_cast<void*>(kFunctions[i]);
  }
}

void disarm_traps() noexcept {
  if (--g_armed != 0) return;
  for (std::size_t i = 0; i < g_trap_count; ++i) {
    if (stays(g_traps[i])) continue;
    if (*g_traps[i].place == reinterpret_cast<void*>(kFunctions[i])) {
      *g_traps[i].place = reinterpret_cast<void*>(g_traps[i].function);
    } else {
      g_traps[i].kept = true;
    }
  }
}

}  // namespace grape::python::observation
