// Tells when certain C functions of the interpreter or of extensions are called, by whichever way (also from C: map,
// functools.partial, callbacks). While armed, the pointer through which a function is called leads to one of ours,
// which tells and then calls the function itself. With the GIL.
#pragma once

#include <cstdint>

namespace grape::python::state {

// What a call means for the observed one.
enum class EffectKind : std::uint8_t {
  kRefused,      // seen from outside, or answered by what no state shows
  kRandom,       // the same; draws random numbers from a generator, or sets one
  kPool,         // the same; memory comes from another pool from now on
  kSetting,      // the same; sets what calls depend on and what is not asked for at each call
  kBackward,     // the same; runs autograd's backward pass
  kProfile,      // the same; sets or removes this thread's profile function
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
  kDraws,        // draws random numbers: see on_draw()
};

struct HostEffect {
  char name[61];
  bool attribute;  // that is read, not a function that is called
  EffectKind kind;
};

// Set on a thread whose calls are to be told of.
extern __thread bool t_observing;
// Told on such a thread, before the call, with the C function's first two arguments: of methods, slots and getters the
// object comes first; of a module's function the module, then the argument if it takes just one.
void on_effect(const HostEffect& effect, void* first, void* second) noexcept;

// Told on such a thread, after a call of kind kDraws, with the place that its trap was added for: what it was called
// with (keywords: may be null), and what it returned (null: it raised).
void on_draw(const void* place, void* arguments, void* keywords, void* result) noexcept;

// From now on the function behind `*place` is one that is told of; a place that is known already stays as it is.
// False: there is no room. `place`: writable as long as the process lives.
bool add_trap(void** place, const HostEffect& effect) noexcept;

// How often functions of kind kPool, or kSetting, were called, by any thread, in observed calls and between them.
std::uint64_t pool_changes() noexcept;
std::uint64_t setting_changes() noexcept;
std::uint64_t setting_changes_of_others() noexcept;  // than this thread

// Between these calls the traps tell. They nest.
void arm_traps() noexcept;
void disarm_traps() noexcept;

}  // namespace grape::python::state
