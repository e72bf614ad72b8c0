// Takes the last of the interpreter's eight watchers of one kind (dictionaries, functions). It is called behind those
// of others, so that nobody's code runs between its report and the change. With the GIL.
#pragma once

#include <type_traits>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

constexpr int kWatchers = 8;

// Its number; -1: there is none to be had. `add`, `clear`: the interpreter's functions for that kind.
template <typename Callback>
int take_last_watcher(int (*add)(Callback), int (*clear)(int), std::common_type_t<Callback> callback) noexcept {
  const KeepException keep;
  // The lowest that is free is given: the last one comes when all others are taken, and these are given back.
  int taken[kWatchers], count = 0, last = -1;
  while (count < kWatchers && (last = add(callback)) >= 0) taken[count++] = last;
  g_api.PyErr_Clear();
  const bool found = count != 0 && taken[count - 1] == kWatchers - 1;
  for (int i = 0; i < count - (found ? 1 : 0); ++i) clear(taken[i]);
  return found ? kWatchers - 1 : -1;
}

}  // namespace grape::python
