#include "shim/observation/call_scope.h"

#include <algorithm>

namespace grape::observation {
namespace {

__thread CallScope* t_call __attribute__((tls_model("initial-exec")));
// Of an attached thread.
__thread CallScope::Works t_works __attribute__((tls_model("initial-exec")));
__thread const void* t_works_of __attribute__((tls_model("initial-exec")));
__thread bool t_attached __attribute__((tls_model("initial-exec")));

}  // namespace

CallScope* CallScope::current() noexcept { return t_call; }
bool CallScope::is_attached() noexcept { return t_attached; }
bool CallScope::works_now() noexcept { return t_works == nullptr || t_works(t_works_of); }

CallScope::CallScope() noexcept {
  if (t_call == nullptr) t_call = this;
}

CallScope::~CallScope() {
  if (t_call == this) t_call = nullptr;
}

bool CallScope::attach(Works works, const void* of) noexcept {
  if (t_call != nullptr) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count_; ++i) {
    if (followers_[i]->attached()) continue;
    while (i-- > 0) followers_[i]->detached();
    return false;
  }
  ++attached_;
  t_call = this;
  t_works = works;
  t_works_of = of;
  t_attached = true;
  return true;
}

void CallScope::detach() noexcept {
  if (t_attached) leave();
}

void CallScope::leave() noexcept {
  if (t_call != this) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = count_; i-- > 0;) followers_[i]->detached();
  if (t_attached) --attached_;
  t_call = nullptr;
  t_works = nullptr;
  t_attached = false;
}

bool CallScope::follow(Follower& follower) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (attached_ != 0 || count_ == kMostFollowers) return false;
  followers_[count_++] = &follower;
  return true;
}

void CallScope::unfollow(Follower& follower) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  count_ = static_cast<int>(std::remove(followers_, followers_ + count_, &follower) - followers_);
}

}  // namespace grape::observation
