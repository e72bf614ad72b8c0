// The threads that work for one call: the thread that makes it, and threads that are attached to it, as autograd's are
// for a backward pass. Recording (region_sink.h), the Python code that ran, and the exclusion of others
// (device_exclusion.h) follow the call, and with it all of these threads.
#pragma once

#include <mutex>

namespace grape::observation {

class CallScope {
 public:
  // Somebody who follows the threads of a call. Both functions run on the thread that they are about, one at a time.
  class Follower {
   public:
    // The calling thread works for the call from now on. False: that cannot be followed.
    virtual bool attached() noexcept = 0;
    virtual void detached() noexcept = 0;

    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;

   protected:
    Follower() = default;
    ~Follower() = default;
  };

  // The calling thread makes the call, and ends the scope. Where it works for another call already, it goes on to do
  // so, and nobody can be attached to this scope.
  CallScope() noexcept;
  ~CallScope();  // all attached threads are detached before
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  // Where a thread works for others in between: does it work for the call just now?
  using Works = bool (*)(const void* of) noexcept;
  // The calling thread works for this call, too, until detach(). Where Python code is followed: with the GIL. False: it
  // works for a call already, or a follower cannot follow; then it stays a stranger. `works`: null: all that it does is
  // the call's.
  bool attach(Works works = nullptr, const void* of = nullptr) noexcept;
  // By a thread that is attached. Does nothing once it has left.
  void detach() noexcept;
  // The calling thread goes on with other work, on another stack, and may come back without a word. From here on it
  // does nothing for the call, and the followers are told as by detach(). Does nothing where the thread works for
  // another call. The scope must not lie on the thread's stack.
  void leave() noexcept;
  // The thread that makes the call waits for those that are attached, and does nothing itself, or no longer does.
  void set_waits(bool waits) noexcept { waits_ = waits; }
  bool waits() const noexcept { return waits_; }  // asked by that thread

  // On the thread that makes the call, which is followed already, until unfollow(). False: other threads work for it by
  // now, or there are too many followers.
  bool follow(Follower& follower) noexcept;
  void unfollow(Follower& follower) noexcept;

  // The call that the calling thread works for; null: none.
  static CallScope* current() noexcept;
  // Is the calling thread attached to it?
  static bool is_attached() noexcept;
  // Does the calling thread work for that call just now?
  static bool works_now() noexcept;

 private:
  static constexpr int kMostFollowers = 4;
  std::mutex mutex_;
  Follower* followers_[kMostFollowers] = {};
  int count_ = 0;
  int attached_ = 0;  // threads
  bool waits_ = false;
};

}  // namespace grape::observation
