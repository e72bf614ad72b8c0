// Keeps the bytes that a walk wrote for one argument, for the next call's walk. Some arguments live on from call to
// call (a cache of keys and values, a module). They are walked after a replay, while the device works; at the next call
// a quick check (watch.h) tells whether they are unchanged. With the GIL.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "python_hooks/walk/walk.h"
#include "python_hooks/walk/watch.h"

namespace grape::python::walk {

class WalkMemo {
 public:
  static constexpr std::uint32_t kLeastValues = 24;  // of an argument: fewer are walked as fast as they are checked

  WalkMemo() noexcept;
  ~WalkMemo();
  WalkMemo(const WalkMemo&) = delete;
  WalkMemo& operator=(const WalkMemo&) = delete;

  // Keeps what `add(walk)` writes of `root`, one of the arguments that it adds to the walk, as it is now. The next walk
  // that is told to recall() this takes it from here, if it has come to what this one came to before. False: this is no
  // argument that can be kept. `root` is not held, nor anything that is no plain value.
  template <typename Add>
  bool record(Object* root, Add add) noexcept {
    begin(root);
    return add(walk_) && kept_;
  }
  // Is what is kept that of `root`, which is alive, as it is now?
  bool keeps(Object* root) noexcept;
  void clear() noexcept;
  // Those that were taken from here.
  std::uint64_t recalled() const noexcept { return recalled_; }

 private:
  friend class Walk;
  friend class Walker;
  // How far the walk had come.
  struct Position {
    std::size_t bytes = 0, tensors = 0, extents = 0, storages = 0, objects = 0;
    std::uint32_t values = 0;
  };

  static Position position_of(const Walk& walk) noexcept;
  void begin(Object* root) noexcept;
  // Of the walk that is recorded.
  bool records(const Walk& walk) const noexcept { return &walk == &walk_; }
  void enter();
  void leave(bool taken);
  void refuse() noexcept { fit_ = false; }
  // While `root` is walked.
  void met_again(std::uint32_t number, Object* object) {
    if (number < from_.objects) before_.emplace_back(number, object);
  }
  // Nothing is written of an object's __dict__ for as long as nobody else refers to it.
  void only_owner(Object* dict) { watch_.word(dict, 0); }
  // To another one, which is about to come to `root_`. False: it has to walk. May throw std::bad_alloc.
  bool give(Walk& walk);
  bool fits_behind(Walk& walk);

  Walk walk_;
  Watch watch_;
  Object* root_ = nullptr;
  bool kept_ = false;
  bool fit_ = true;  // so far
  Position from_, to_;
  // What was met ahead of `root` and in it once more, by its number.
  std::vector<std::pair<std::uint32_t, Object*>> before_;
  std::uint64_t recalled_ = 0;
};

}  // namespace grape::python::walk
