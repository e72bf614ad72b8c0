// Dictionaries that the interpreter reports on: from 3.12 it calls a function before it changes a dictionary that is
// watched, or frees it (PyDict_Watch). While nothing was reported none of them needs to be read. With the GIL.
//
// One watcher of the process's, the last of the interpreter's eight: it is called behind those of others, so that
// nobody's code runs between the report and the change. Where that one is taken there are no reports, nor once there
// was a second interpreter.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python::state {

class DictReports {
 public:
  DictReports() = default;
  ~DictReports() { clear(); }
  DictReports(const DictReports&) = delete;
  DictReports& operator=(const DictReports&) = delete;

  // Are there any? Not where the watcher is taken, or once there was a second interpreter.
  static bool possible() noexcept;
  // From now on changes of `dict` are reported; to be called before it is read, under KeepException. False: they
  // are not. Which dictionaries report all changes is another matter (reports_changes() in module_guard.h). Adding one
  // again does no harm.
  bool add(Object* dict) noexcept;
  // May one be another than it was at the last look()? Then all are to be looked at.
  bool changed() const noexcept;
  // All are about to be looked at: only what is reported from here on counts, unless one is gone.
  void look() noexcept { count_ = 0; }
  // The look found that they are not as they were: changed() stays true.
  void give_up() noexcept { lost_ = true; }
  std::uint64_t count() const noexcept { return count_; }  // of reports since the last look
  bool lost() const noexcept { return lost_; }             // one of them is gone, or is watched no more
  void clear() noexcept;

 private:
  friend struct DictWatcher;
  void note(bool gone) noexcept;

  std::vector<Object*> dicts_;  // borrowed: alive as long as the watcher has an entry for it
  std::uint64_t count_ = 0;
  bool lost_ = false;
};

}  // namespace grape::python::state
