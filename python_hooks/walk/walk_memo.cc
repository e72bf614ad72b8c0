#include "python_hooks/walk/walk_memo.h"

#include <algorithm>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_versions.h"

namespace grape::python::walk {
namespace {

// By what a walk tells a tensor's memory.
const void* storage_of(const WalkedTensor& tensor) noexcept {
  return tensor.view.storage != 0 ? reinterpret_cast<const void*>(tensor.view.storage) : tensor.view.object;
}

}  // namespace

WalkMemo::WalkMemo() noexcept : walk_(Walk::unkept()), watch_(Watch::Reports::kNone) { walk_.memo_ = this; }
WalkMemo::~WalkMemo() {
  const KeepException keep;
  watch_.clear();
}

void WalkMemo::clear() noexcept {
  root_ = nullptr;
  kept_ = false;
  const KeepException keep;
  watch_.clear();
}

bool WalkMemo::keeps(Object* root) noexcept {
  const KeepException keep;
  const NoCollection no_collection;
  return kept_ && root_ == root && watch_.holds();
}

void WalkMemo::begin(Object* root) noexcept {
  clear();
  ask_dictionaries();
  walk_.clear();
  before_.clear();
  root_ = root;
  fit_ = true;
}

WalkMemo::Position WalkMemo::position_of(const Walk& walk) noexcept {
  Position position;
  position.bytes = walk.bytes_.size();
  position.tensors = walk.tensors_.size();
  position.extents = walk.extents_.size();
  position.storages = walk.storage_extents_.size();
  position.objects = walk.objects_.size();
  position.values = walk.values_;
  return position;
}

void WalkMemo::enter() {
  from_ = position_of(walk_);
  walk_.set_watch(&watch_);
  watch_.word(root_, 8);  // another object may lie there by then
}

void WalkMemo::leave(bool taken) {
  walk_.set_watch(nullptr);
  to_ = position_of(walk_);
  for (std::size_t i = from_.tensors; i < to_.tensors; ++i) {
    const std::uint32_t* number = walk_.storages_.find(storage_of(walk_.tensors_[i]));
    if (number == nullptr || *number < from_.storages) refuse();
  }
  // Who refers to a dictionary that is somebody's __dict__ as well is another matter for each walk.
  if (!walk_.attribute_dicts_.empty() || to_.values - from_.values < kLeastValues) refuse();
  kept_ = taken && fit_ && watch_.complete();
}

// Numbers that the bytes hold are to mean the same, and what is in here must not have been met.
bool WalkMemo::fits_behind(Walk& walk) {
  const Position now = position_of(walk);
  if (now.extents != from_.extents || now.storages != from_.storages || now.objects != from_.objects ||
      !walk.attribute_dicts_.empty()) {
    return false;
  }
  const bool same = std::all_of(before_.begin(), before_.end(),
                                [&](const auto& known) { return walk.objects_[known.first] == known.second; });
  if (!same) return false;
  for (std::size_t i = from_.objects; i < to_.objects; ++i) {
    if (walk.seen_.find(walk_.objects_[i]) != nullptr) return false;
  }
  for (std::size_t i = from_.tensors; i < to_.tensors; ++i) {
    if (walk.storages_.find(storage_of(walk_.tensors_[i])) != nullptr) return false;
  }
  return true;
}

bool WalkMemo::give(Walk& walk) {
  // First of all, since nothing else here may be alive.
  if (!kept_ || !watch_.holds() || !fits_behind(walk)) return false;
  const auto append = [](auto& to, const auto& from, std::size_t begin, std::size_t end) {
    const auto at = from.begin();
    to.insert(to.end(), at + static_cast<std::ptrdiff_t>(begin), at + static_cast<std::ptrdiff_t>(end));
  };
  append(walk.bytes_, walk_.bytes_, from_.bytes, to_.bytes);
  append(walk.tensors_, walk_.tensors_, from_.tensors, to_.tensors);
  append(walk.extents_, walk_.extents_, from_.extents, to_.extents);
  append(walk.storage_extents_, walk_.storage_extents_, from_.storages, to_.storages);
  append(walk.objects_, walk_.objects_, from_.objects, to_.objects);
  bool added = false;
  for (std::size_t i = from_.objects; i < to_.objects; ++i) walk.seen_.number_of(walk_.objects_[i], added);
  for (std::size_t i = from_.tensors; i < to_.tensors; ++i) {
    walk.storages_.number_of(storage_of(walk_.tensors_[i]), added);
    walk.note_device(walk_.tensors_[i].view);
  }
  walk.values_ += to_.values - from_.values;
  walk.note_root(root_, to_.values - from_.values);
  ++recalled_;
  return true;
}

}  // namespace grape::python::walk
