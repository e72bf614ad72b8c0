// Tells when certain C functions of the interpreter or of extensions are called, by whichever way (also from C: map,
// functools.partial, callbacks). While armed, the pointer through which a function is called leads to one of ours,
// which tells and then calls the function itself. With the GIL.
#pragma once

#include <cstdint>

namespace grape::python::state {

// What a call means for the observed one.
enum class EffectKind : std::uint8_t {
  kRefused,      // seen from outside, or answered by what no state shows
  kProfile,      // the same; sets or removes this thread's profile function
  kImport,       // the same; names the module
  kEnvironment,  // reads os.environ, whose content can be guarded
  kLogger,       // asks a logger for its level, which can be guarded
  kContext,      // reads or sets a context variable, whose value can be guarded
  kFromUsers,    // refused where the user's code calls it: it answers with what neither names nor values show
};

struct Effect {
  char name[62];
  EffectKind kind;
};

// Set on a thread whose calls are to be told of.
extern __thread bool t_observing;
// Told on such a thread, before the call. `first`: the function's first argument, for methods of slots and of
// builtin objects the object.
void on_effect(const Effect& effect, void* first) noexcept;

// From now on the function behind `*place` is one that is told of; a place that is known already stays as it is.
// False: there is no room. `place`: writable as long as the process lives.
bool add_trap(void** place, const char* name, EffectKind kind) noexcept;

// Between these calls the traps tell. They nest.
void arm_traps() noexcept;
void disarm_traps() noexcept;

}  // namespace grape::python::state
