// Walks some state once, and tells later whether it is unchanged: by a quick check of all that the walk saw, else by
// another walk. Keeps the same objects alive as a Watch. With the GIL; all but quick() throw std::bad_alloc.
#pragma once

#include <string>

#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/watch.h"

namespace grape::python::guards {

class GuardedWalk {
 public:
  // `roots(walk)` adds what is walked; the same each time. False: refused.
  template <typename Roots>
  bool take(const Roots& roots, refusal::Refusal& refusal) {
    begin(walk_, nullptr);
    if (roots(walk_)) return true;
    refusal = walk_.refusal();
    return false;
  }
  // Did nothing move since the last walk? False: same() knows more.
  bool quick() noexcept { return watch_.holds(); }
  // Walks again: is the state the same, of the same objects? An object that looks alike is another one all the same: to
  // `is`, as a key, and where a call returns it. False: change() says what is not as it was.
  template <typename Roots>
  bool same(const Roots& roots) {
    begin(again_, &walk_.bytes());
    return settle(roots(again_));
  }
  const walk::Walk& walk() const noexcept { return walk_; }
  const std::string& change() const noexcept { return change_; }
  std::uint32_t walks() const noexcept { return walks_; }  // how often everything was walked

 private:
  void begin(walk::Walk& into, const std::vector<std::uint8_t>* expected) noexcept;
  bool settle(bool taken);

  walk::Walk walk_{true}, again_{true};
  walk::Watch watch_;
  std::string change_;
  std::uint32_t walks_ = 0;
};

}  // namespace grape::python::guards
