#include "python_hooks/guards/guarded_walk.h"

#include <utility>

namespace grape::python::guards {

void GuardedWalk::begin(walk::Walk& into, const std::vector<std::uint8_t>* expected) noexcept {
  ++walks_;
  watch_.clear();
  into.clear();
  into.set_watch(&watch_);
  into.compare_with(expected);
}

// After another walk, which was refused unless it was `taken`.
bool GuardedWalk::settle(bool taken) {
  const bool equal = taken && again_.bytes() == walk_.bytes();
  if (equal && again_.objects() == walk_.objects()) {
    std::swap(walk_, again_);
    return true;
  }
  watch_.clear();
  watch_.give_up();  // what it knew is void; should all be as before again, the next walk says so
  if (!taken) {
    change_ = again_.refusal().text;
  } else if (equal) {
    change_ = walk::other_object(walk_, again_);
  } else {
    change_ = again_.difference().empty() ? "there is less than before" : again_.difference();
  }
  return false;
}

}  // namespace grape::python::guards
