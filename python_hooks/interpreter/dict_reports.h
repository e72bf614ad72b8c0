// Reports of changed dictionaries: from 3.12 the interpreter calls a function before it changes or frees a watched
// dictionary (PyDict_Watch). Without a report no watched dictionary needs to be read. With the GIL.
//
// All reports use one watcher, the last of the interpreter's eight. It is called behind those of others, so that
// nobody's code runs between the report and the change. There are no reports if that watcher is taken, or once a second
// interpreter was made.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"

namespace grape::python {

class DictReports {
 public:
  DictReports() = default;
  ~DictReports() { clear(); }
  DictReports(const DictReports&) = delete;
  DictReports& operator=(const DictReports&) = delete;

  // Are there reports at all?
  static bool possible() noexcept;
  // Reports changes of `dict` from now on; to be called before it is read, under KeepException. False: not possible.
  // reports_changes() in dict_versions.h tells which dictionaries report all changes. Adding one again does no harm.
  bool add(Object* dict) noexcept;
  // May one have changed since the last look()? Then all are to be read.
  bool changed() const noexcept;
  // Call before all are read: only later reports count, unless a dictionary is gone.
  void look() noexcept { count_ = 0; }
  // One of them has changed for good: changed() stays true.
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

}  // namespace grape::python
