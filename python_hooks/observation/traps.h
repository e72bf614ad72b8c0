// Reports calls of certain C functions of the interpreter and of extensions, wherever they are called from (also from
// C: map, functools.partial, callbacks). While armed, the pointer through which a function is called leads to one of
// ours, which reports the call and then calls the function itself. With the GIL.
#pragma once

#include <cstdint>

namespace grape::python::observation {

// What a call means for the observed one.
enum class EffectKind : std::uint8_t {
  kRefused,      // seen from outside, or answered by what no state shows
  kRandom,       // the same; draws random numbers from a generator, or sets one
  kPool,         // the same; memory comes from another pool from now on
  kSetting,      // the same; sets what calls depend on and what is not asked for at each call
  kBackward,     // the same; runs autograd's backward pass
  kProfile,      // the same; sets or removes this thread's profile function
  kSwitches,     // the same; another stack goes on on this thread, and this one later, or never
  kImport,       // the same; names the module
  kEnvironment,  // reads os.environ, whose content can be guarded
  kLogger,       // asks a logger for its level, which can be guarded
  kContext,      // reads or sets a context variable, whose value can be guarded
  kFromUsers,    // refused where the user's code calls it: it answers with what neither names nor values show
  kHash,         // the same, where it answers with the address of an object
  kAbstract,     // asks an abstract class, whose registered classes can be guarded
  kThread,       // asks which thread it is, which can be guarded
  kStorage,      // sees how much memory is behind a tensor, whose size can be guarded
  kWeak,         // makes a weak reference, which tells when an object ends
  kHandled,      // asks which exception is handled, which may be the caller's
  kLocals,       // sees local variables of frames
  kDraws,        // draws random numbers: see on_result(), as for the next two
  kCompares,     // compares a tensor
  kAsks,         // asks whether a tensor is true
};

struct HostEffect {
  char name[61];
  bool attribute;  // that is read, not a function that is called
  EffectKind kind;
};

// Set on a thread whose calls are to be reported.
extern __thread bool t_observing;
// Called on such a thread before the call, with the C function's first two arguments. For methods, slots and getters
// the object comes first; for a module's function the module, then the argument if the function takes just one.
void on_effect(const HostEffect& effect, void* first, void* second) noexcept;

// Called on such a thread after a call of one of the last three kinds. place: its trap's. first, second, third: its own
// arguments. result: null if the call raised.
void on_result(const HostEffect& effect, const void* place, void* first, void* second, void* third,
               void* result) noexcept;

// Reports calls of the function behind `*place` from now on, as `effect`. A place that is known already keeps its first
// effect. False: there is no room. `place`: writable as long as the process lives.
bool add_trap(void** place, const HostEffect& effect) noexcept;

// How often functions of kind kPool, or kSetting, were called, by any thread, in observed calls and between them.
std::uint64_t pool_changes() noexcept;
std::uint64_t setting_changes() noexcept;
std::uint64_t setting_changes_of_others() noexcept;  // than this thread

// Between these calls the traps report. They nest.
void arm_traps() noexcept;
void disarm_traps() noexcept;

}  // namespace grape::python::observation
