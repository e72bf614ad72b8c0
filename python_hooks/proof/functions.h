// How calls of functions differ from calls of modules, where functions are regions. Also modules that their own calls
// change: they become arguments like others. With the GIL.
#pragma once

#include "python_hooks/replay/call.h"

namespace grape::python::proof {

// The module that is the first argument of a function's call: it is guarded, as that of a module's own call is, and not
// walked each time. Null: there is none.
Object* self_of(Object* const* arguments, std::size_t count) noexcept;

// Do its calls change that module, or the one that the region is of? Not the first one alone, which may make what is
// there from then on.
bool takes_self_as_argument(const replay::Region& region) noexcept;
// What is changed can be an effect on an argument: from here on the module is one like others. For a module's own calls
// what is guarded in its place is the function that is called, torch.nn.Module's __call__.
void give_self_as_argument(replay::Region& region, replay::Call& call) noexcept;
// The module, where it is an argument: its caller holds it. Null: it is none.
Object* lasting_argument(const replay::Region& region) noexcept;
// An observed call changed it (as it cannot be found out of a module that is an argument already).
void note_change_of_self(replay::Region& region, const replay::Call& call) noexcept;
// A module that is an argument, and another one in each call (it counts them, say): no call of it will ever come again.
bool never_comes_again(replay::Region& region, const replay::Signature& signature) noexcept;

// What calling the function gives in place of running its code ("a generator"); null: calling it runs its code.
const char* deferred(Object* function) noexcept;
// Before the first call: gives a function up whose code does not run in its call (a generator's).
void refuse_deferred(replay::Region& region, Object* root) noexcept;

}  // namespace grape::python::proof
