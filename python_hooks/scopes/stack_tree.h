// One thread's Python stacks as a tree of frames, each written once as a definition into the thread's log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/scopes/frame_names.h"
#include "shim/record/thread_log.h"

namespace grape::python::scopes {

// Copies text into whole words of an event, the rest zeroed. Returns the words.
inline std::size_t put_text(std::uint64_t* words, const char* text, std::size_t bytes) noexcept {
  const std::size_t count = trace::words_for(bytes);
  if (count != 0) words[count - 1] = 0;
  std::memcpy(words, text, bytes);
  return count;
}

constexpr std::size_t kMaxDepth = 512;  // deeper stacks lose their outermost frames

// A frame as read: the code object's address, and the instruction's address (3.10: its number).
struct RawFrame {
  std::uintptr_t code;
  std::uintptr_t instruction;
  bool operator==(const RawFrame& other) const noexcept {
    return code == other.code && instruction == other.instruction;
  }
};

// The code object; null: it runs none (yet).
inline const Object* code_of(const RawFrame& frame) noexcept {
  const auto* code = reinterpret_cast<const Object*>(frame.code);
  return code != nullptr && type_of(code) == g_api.PyCode_Type ? code : nullptr;
}

// Where a frame stands; needs the frame's code object alive, but no GIL.
struct Position {
  std::int64_t offset = -1;  // bytes from the code's first instruction; negative: nothing was executed yet
  int line = 0;              // 0: none
};

// False: the frame runs no Python code (yet), and Python's own stacks leave it out too.
bool position_of(const RawFrame& frame, Position& out) noexcept;

// A hash over all that is read of frames, innermost first, by folded products: begins with kNoFrames.
constexpr std::uint64_t kNoFrames = 0x9E3779B97F4A7C15u;
inline std::uint64_t hash_with(std::uint64_t hash, const RawFrame& frame) noexcept {
  const auto product =
      static_cast<unsigned __int128>(hash ^ frame.code) * (frame.instruction ^ std::uint64_t{0xD6E8FEB86659FD93u});
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Belongs to one thread. Frames given to it are the thread's own, and live during the call.
class StackTree {
 public:
  static constexpr std::uint32_t kMostSeen = 12;

  // The ids of a short run of frames that was seen before inside the stack `base`, innermost first; null: it was not.
  // Precondition: g_code_epoch is still what looked_at() says.
  const std::uint32_t* seen(std::uint64_t hash, std::uint32_t base, std::uint32_t count) const noexcept {
    const Seen* known = known_as(hash, base, count);
    return known != nullptr ? known->ids : nullptr;
  }

  // g_code_epoch, when it was last looked at.
  std::uint32_t looked_at() const noexcept { return epoch_; }

  // Room for reading the next stack, innermost frame first.
  RawFrame* buffer() noexcept { return buffer_; }

  // The id of the `count` frames in buffer() inside the stack `base` (0: whole stacks). 0: none, or its definition
  // found no room.
  __attribute__((hot)) std::uint32_t stack(record::ThreadLog& log, std::uint32_t base, std::size_t count) noexcept;

  // After stack() gave an id: that of the stack whose innermost frame is buffer()[index].
  std::uint32_t id_at(std::size_t index) const noexcept {
    return hit_ != nullptr ? hit_->ids[index] : last_ids_[last_count_ - 1 - index];
  }

  // What the ids stand for; null: not kept (shim/lifecycle/config.h: only in mode replay), or nothing is known yet.
  const FrameNames* names() const noexcept { return names_.get(); }

  // The id of one frame without parent.
  __attribute__((hot)) std::uint32_t leaf(record::ThreadLog& log, const RawFrame& frame) noexcept;

 private:
  struct NodeKey {
    std::uint32_t parent, code, offset, used;
    bool empty() const noexcept { return used == 0; }
    std::uint64_t hash() const noexcept {
      return mix((std::uint64_t{parent} << 32 | code) ^ mix(std::uint64_t{offset} + 1));
    }
    bool operator==(const NodeKey& other) const noexcept {
      return parent == other.parent && code == other.code && offset == other.offset;
    }
  };
  // A short run of frames that was seen before, in one cache line: between two launches of a real program most else of
  // this has left the near caches. The frames are known by 64 bits of a hash over all of them.
  struct alignas(64) Seen {
    std::uint64_t hash = 0;
    std::uint32_t base = 0;
    std::uint32_t count = 0;  // 0: empty
    std::uint32_t ids[kMostSeen] = {};
    bool holds(std::uint64_t wanted, std::uint32_t inside, std::size_t frames) const noexcept {
      return hash == wanted && base == inside && count == frames;
    }
  };
  static_assert(sizeof(Seen) == 64, "one cache line");
  static constexpr std::size_t kSeenSlots = 512;
  static constexpr std::uint32_t kLeafBase = ~0u;  // in Seen::base: a frame without parent

  // Two places side by side: of some dozen stacks that a program has again and again, a few would push each other out
  // of one.
  static std::size_t place_of(std::uint64_t hash, std::uint32_t base) noexcept {
    return (hash ^ base * 0x9E3779B1u) % kSeenSlots;
  }
  const Seen* known_as(std::uint64_t hash, std::uint32_t base, std::size_t count) const noexcept {
    const std::size_t place = place_of(hash, base);
    if (__builtin_expect(seen_[place].holds(hash, base, count), 1)) return &seen_[place];
    return seen_[place ^ 1].holds(hash, base, count) ? &seen_[place ^ 1] : nullptr;
  }
  // Room for one that is not known.
  Seen& new_place(std::uint64_t hash, std::uint32_t base) noexcept {
    const std::size_t place = place_of(hash, base);
    if (seen_[place].count != 0) seen_[place ^ 1] = seen_[place];
    return seen_[place];
  }

  std::uint32_t whole_stack(record::ThreadLog& log, std::uint32_t base, std::size_t count) noexcept;

  enum class Found { kFrame, kNothing, kFailed };  // kNothing: the frame runs no Python code (yet)

  void forget_dead_codes() noexcept;
  Found add(record::ThreadLog& log, std::uint32_t parent, const RawFrame& frame, std::uint32_t& id) noexcept;
  std::uint32_t code_id(record::ThreadLog& log, std::uintptr_t address) noexcept;
  std::uint32_t define_code(record::ThreadLog& log, const Object* code) noexcept;

  FrameNames* kept_names() noexcept;

  // What each call touches lies together.
  std::uint32_t epoch_ = 0;
  std::uint32_t codes_ = 0, nodes_ = 0;  // ids given out
  const Seen* hit_ = nullptr;            // the last stack, where it was one of these
  RawFrame buffer_[kMaxDepth];
  alignas(2 * sizeof(Seen)) Seen seen_[kSeenSlots];
  FlatMap<AddressKey, std::uint32_t> by_address_;  // code objects; void when one of them has died
  FlatMap<HashKey, std::uint32_t> by_content_;     // the same, for good
  FlatMap<NodeKey, std::uint32_t> by_parent_;      // frames
  std::uint32_t last_base_ = 0;                    // the last stack: what it is inside of,
  std::size_t last_count_ = 0;                     // its frames, outermost first, and their ids
  RawFrame last_[kMaxDepth];
  std::uint32_t last_ids_[kMaxDepth];
  std::unique_ptr<FrameNames> names_;
};

}  // namespace grape::python::scopes
