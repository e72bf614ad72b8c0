#include "python_hooks/replay/arena.h"

#include <algorithm>
#include <new>
#include <set>

#include "python_hooks/replay/run.h"

namespace grape::python::replay {

struct Arena {
  Arena(const WorkPlace& place, bool for_all) : stream(place.stream), device(place.device), shared(for_all) {}
  ~Arena() { give_back(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool is_for(const WorkPlace& place, bool for_all) const noexcept {
    return stream == place.stream && device == place.device && shared == for_all;
  }
  void give_back() noexcept {
    if (tensor != nullptr && !shutting_down()) g_api.Py_DecRef(tensor);
    tensor = nullptr;
    address = bytes = 0;
  }

  const std::uint64_t stream;  // CUstream
  const std::int32_t device;
  const bool shared;
  std::multiset<std::uint64_t> needs;  // in bytes, one of each use that has reserved
  Object* tensor = nullptr;            // owned: bytes
  std::uint64_t address = 0, bytes = 0;
};

namespace {

// Never destroyed: what uses them may end later.
std::vector<std::weak_ptr<Arena>>& shared_arenas() {
  static auto& arenas = *new std::vector<std::weak_ptr<Arena>>;
  return arenas;
}

std::shared_ptr<Arena> find_shared(const WorkPlace& place) {
  auto& arenas = shared_arenas();
  arenas.erase(std::remove_if(arenas.begin(), arenas.end(), [](const auto& arena) { return arena.expired(); }),
               arenas.end());
  for (const std::weak_ptr<Arena>& known : arenas) {
    std::shared_ptr<Arena> arena = known.lock();
    if (arena->is_for(place, true)) return arena;
  }
  auto arena = std::make_shared<Arena>(place, true);
  arenas.push_back(arena);
  return arena;
}

// The allocator hands the old one's memory to work that comes later in this stream.
bool grow(Arena& arena, std::uint64_t bytes, std::vector<Object*>& replaced) {
  replaced.reserve(replaced.size() + 1);
  std::uint64_t address = 0;
  Object* const tensor = new_bytes(bytes, torch::kCudaDevice, arena.device, address);
  if (tensor == nullptr) return false;
  if (arena.tensor != nullptr) replaced.push_back(arena.tensor);
  arena.tensor = tensor;
  arena.address = address;
  arena.bytes = bytes;
  return true;
}

}  // namespace

// A large arena is given back with the last one that needed it so large.
ArenaUse::~ArenaUse() {
  for (const Part& part : parts_) {
    auto& needs = part.arena->needs;
    if (part.bytes != 0) needs.erase(needs.find(part.bytes));
    const std::uint64_t most = needs.empty() ? 0 : *needs.rbegin();
    if (part.arena->bytes / 2 > most) part.arena->give_back();
  }
}

ArenaUse::Part& ArenaUse::find(const WorkPlace& place, bool shared) {
  for (Part& known : parts_) {
    if (known.arena->is_for(place, shared)) return known;
  }
  return parts_.emplace_back(Part{shared ? find_shared(place) : std::make_shared<Arena>(place, false)});
}

bool ArenaUse::reserve(const WorkPlace& place, std::uint64_t bytes, bool shared, std::uint64_t& address,
                       std::vector<Object*>& replaced) noexcept {
  // Each thread has a default stream of its own, under one handle.
  shared = shared && place.driver_stream() != CU_STREAM_PER_THREAD;
  try {
    Part& part = find(place, shared);
    Arena& arena = *part.arena;
    if (bytes > arena.bytes && !grow(arena, bytes, replaced)) return false;
    if (bytes > part.bytes) {
      arena.needs.insert(bytes);
      if (part.bytes != 0) arena.needs.erase(arena.needs.find(part.bytes));
      part.bytes = bytes;
    }
    address = arena.address;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::uint64_t ArenaUse::bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.bytes;
  return bytes;
}

}  // namespace grape::python::replay
