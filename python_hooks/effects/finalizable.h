// Finds the objects of the arguments whose end a program can see. They have a finalizer (__del__) or weak references,
// or they refer to such objects. An observed call may let go of them: they must end when they would without Grape. With
// the GIL. Internal to python_hooks/effects.
#pragma once

#include <string>

#include "python_hooks/effects/argument_snapshot_state.h"

namespace grape::python::effects {

// Before anything of Grape's refers to it: has it a finalizer, or is it weakly referred to? Not asked of what lives as
// long as the program does: classes, enumerations' members, functions. Throws std::bad_alloc.
bool end_is_seen(Object* object);

// Lets go of all that is finalizable; `seen`: for each object what end_is_seen() said. False: `refusal`.
bool let_go_of_finalizable(ArgumentSnapshotState& state, const std::vector<bool>& seen, refusal::Refusal& refusal);

}  // namespace grape::python::effects
