// Do dictionaries tell of every change, by their versions or by reports? Asked of the interpreter once, by changing
// dictionaries in every way there is, also by specialised bytecode. With the GIL.
#pragma once

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

// Does the version of this dictionary tell of every change? Of all of them up to 3.12; not in 3.13 where the values
// stand inside of an instance; of none in 3.14. Otherwise its items are to be compared one by one.
bool tells_of_changes(const Object* dict) noexcept;
// Does this dictionary report every change of its items, and its end, once it is watched (dict_reports.h)? Of all from
// 3.12 on; not in 3.13 where the values stand inside of an instance. An OrderedDict's order is not reported.
bool reports_changes(const Object* dict) noexcept;
// Asks the interpreter both questions, by running Python code of Grape's: call it before anything is read.
void ask_dictionaries() noexcept;

}  // namespace grape::python
