#include "shim/replay/live_blocks.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace grape::replay {
namespace {

struct Block {
  std::uint64_t address = 0;  // 0: a free place
  std::uint64_t bytes = 0;
  std::uint64_t serial = 0;
  std::uint64_t context = 0;
  std::uint32_t references = 0;
};

// Blocks by address: open addressing, at most half full, so that an allocation costs no memory allocation of its own.
class Table {
 public:
  // The block at the address, or the free place for it. Precondition: room() > 0.
  Block& place_of(std::uint64_t address) const noexcept {
    std::size_t i = home_of(address);
    while (places_[i].address != 0 && places_[i].address != address) i = (i + 1) & (room_ - 1);
    return places_[i];
  }

  Block* find(std::uint64_t address) const noexcept {
    if (room_ == 0 || address == 0) return nullptr;
    Block& place = place_of(address);
    return place.address == address ? &place : nullptr;
  }

  // Null: no memory. The place of a new block has address 0.
  Block* place_for(std::uint64_t address) noexcept {
    if (used_ * 2 >= room_ && !grow()) return nullptr;
    Block& place = place_of(address);
    if (place.address == 0) ++used_;
    return &place;
  }

  // Closes the gap, so that searches still find what lies behind it.
  void erase(Block& block) noexcept {
    auto gap = static_cast<std::size_t>(&block - places_);
    for (std::size_t i = (gap + 1) & (room_ - 1); places_[i].address != 0; i = (i + 1) & (room_ - 1)) {
      const std::size_t home = home_of(places_[i].address);
      const bool stays = gap <= i ? gap < home && home <= i : gap < home || home <= i;
      if (stays) continue;
      places_[gap] = places_[i];
      gap = i;
    }
    places_[gap] = Block{};
    --used_;
  }

  void clear() noexcept {
    std::fill(places_, places_ + room_, Block{});
    used_ = 0;
  }

  std::size_t used() const noexcept { return used_; }
  const Block* begin() const noexcept { return places_; }
  const Block* end() const noexcept { return places_ + room_; }

 private:
  std::size_t home_of(std::uint64_t address) const noexcept {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15ull) >> 32) & (room_ - 1);
  }

  bool grow() noexcept {
    const std::size_t larger = room_ == 0 ? 1024 : room_ * 2;
    auto* fresh = static_cast<Block*>(std::calloc(larger, sizeof(Block)));
    if (fresh == nullptr) return false;
    Block* old = places_;
    const std::size_t old_room = room_;
    places_ = fresh;
    room_ = larger;
    for (std::size_t i = 0; i < old_room; ++i) {
      if (old[i].address != 0) place_of(old[i].address) = old[i];
    }
    std::free(old);
    return true;
  }

  Block* places_ = nullptr;
  std::size_t room_ = 0;  // a power of two
  std::size_t used_ = 0;
};

// Never destroyed: wrappers may run until the very end of the process.
std::mutex g_mutex;
Table g_tables[kBlockSources];  // by BlockSource

// What the driver gave, by address. `cached`: the framework's allocator makes its blocks in it, so that what lies in no
// block is nobody's.
struct Segment {
  std::uint64_t address = 0, bytes = 0;
  bool cached = false;
};
std::vector<Segment>& segments() {
  static auto& all = *new std::vector<Segment>;
  return all;
}

std::vector<Segment>::iterator segment_from(std::uint64_t address) noexcept {
  return std::lower_bound(segments().begin(), segments().end(), address,
                          [](const Segment& segment, std::uint64_t at) { return segment.address < at; });
}

// The first segment that ends behind the address.
std::vector<Segment>::iterator segment_at(std::uint64_t address) noexcept {
  const auto next = segment_from(address);
  const bool before = next != segments().begin() && address - (next - 1)->address < (next - 1)->bytes;
  return before ? next - 1 : next;
}

// The segment that was marked last, as long as no segment comes or goes: most blocks lie in the one of the block
// before.
Segment g_marked;

void mark_cached(std::uint64_t address, std::uint64_t bytes) noexcept {
  if (address >= g_marked.address && address + bytes <= g_marked.address + g_marked.bytes) return;
  for (auto at = segment_at(address); at != segments().end() && at->address < address + bytes; ++at) {
    at->cached = true;
    g_marked = *at;
  }
}

// False: no memory.
bool add_segment(std::uint64_t address, std::uint64_t bytes) noexcept {
  g_marked = {};
  const auto next = segment_from(address);
  if (next != segments().end() && next->address == address) {
    *next = {address, bytes, false};
    return true;
  }
  try {
    segments().insert(next, {address, bytes, false});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void remove_segment(std::uint64_t address) noexcept {
  g_marked = {};
  const auto place = segment_from(address);
  if (place != segments().end() && place->address == address) segments().erase(place);
}
std::uint64_t g_serial = 0;
std::atomic<std::uint32_t> g_epoch{1};
std::atomic<bool> g_complete{true};
std::atomic<bool> g_has_framework{false};

Table& table(BlockSource source) noexcept { return g_tables[static_cast<std::size_t>(source)]; }

void note_freed(const Block& block) noexcept {
  if (block.references != 0) g_epoch.fetch_add(1, std::memory_order_release);
}

// With the lock held.
Block* find_serial(std::uint64_t address, std::uint64_t serial) noexcept {
  for (Table& blocks : g_tables) {
    Block* block = blocks.find(address);
    if (block != nullptr && block->serial == serial) return block;
  }
  return nullptr;
}

template <class Condition>
void erase_if(Table& blocks, const Condition& condition) {
  std::vector<std::uint64_t> addresses;
  for (const Block& block : blocks) {
    if (block.address != 0 && condition(block)) addresses.push_back(block.address);
  }
  for (const std::uint64_t address : addresses) {
    Block* block = blocks.find(address);
    note_freed(*block);
    blocks.erase(*block);
    if (&blocks == &table(BlockSource::kDriver)) remove_segment(address);
  }
}

void clear_all() noexcept {
  for (Table& blocks : g_tables) {
    for (const Block& block : blocks) note_freed(block);
    blocks.clear();
  }
  segments().clear();
  g_marked = {};
}

std::vector<program::LiveBlock> sorted(const Table& blocks) {
  std::vector<program::LiveBlock> result;
  result.reserve(blocks.used());
  for (const Block& block : blocks) {
    if (block.address != 0) result.push_back({block.address, block.bytes, block.serial});
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return result;
}

// Of blocks that overlap, which none should, the one that came last holds.
void make_disjoint(std::vector<program::LiveBlock>& blocks) {
  std::size_t kept = 0;
  for (const program::LiveBlock& block : blocks) {
    while (kept > 0 && blocks[kept - 1].address + blocks[kept - 1].bytes > block.address &&
           blocks[kept - 1].serial < block.serial) {
      --kept;
    }
    const bool hidden = kept > 0 && blocks[kept - 1].address + blocks[kept - 1].bytes > block.address;
    if (!hidden) blocks[kept++] = block;
  }
  blocks.resize(kept);
}

std::vector<program::LiveBlock> disjoint(BlockSource source) {
  std::vector<program::LiveBlock> blocks;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    blocks = sorted(table(source));
  }
  make_disjoint(blocks);
  return blocks;
}

bool overlaps_any(const std::vector<program::LiveBlock>& blocks, const program::LiveBlock& block) {
  auto next = std::lower_bound(blocks.begin(), blocks.end(), block.address,
                               [](const auto& a, std::uint64_t address) { return a.address < address; });
  if (next != blocks.end() && next->address < block.address + block.bytes) return true;
  return next != blocks.begin() && (next - 1)->address + (next - 1)->bytes > block.address;
}

// Until one says false.
template <class Use>
bool for_all_needed(const program::Program& program, const Use& use) {
  for (const program::StaticBlock& block : program.statics) {
    if (!use(block.address, block.serial)) return false;
  }
  for (const auto* handles : {&program.waited_events, &program.recorded_events, &program.streams}) {
    for (const program::LiveHandle& handle : *handles) {
      if (!use(handle.handle, handle.serial)) return false;
    }
  }
  return true;
}

}  // namespace

LiveBlocks& LiveBlocks::instance() noexcept {
  static LiveBlocks blocks;
  return blocks;
}

std::uint64_t LiveBlocks::add(BlockSource source, std::uint64_t address, std::uint64_t bytes,
                              std::uint64_t context) noexcept {
  if (address == 0) return 0;
  const std::lock_guard<std::mutex> lock(g_mutex);
  Block* block = table(source).place_for(address);
  if (block == nullptr) {
    set_incomplete();
    return 0;
  }
  if (block->address != 0) note_freed(*block);
  if (source == BlockSource::kFramework) {
    mark_cached(address, bytes);
  } else if (source == BlockSource::kDriver && !add_segment(address, bytes)) {
    set_incomplete();
  }
  if (source == BlockSource::kFramework) g_has_framework.store(true, std::memory_order_relaxed);
  *block = {address, bytes, ++g_serial, context, 0};
  return block->serial;
}

std::uint64_t LiveBlocks::remove(BlockSource source, std::uint64_t address, std::uint64_t* bytes) noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  Block* block = table(source).find(address);
  if (block == nullptr) return 0;
  const std::uint64_t serial = block->serial;
  if (bytes != nullptr) *bytes = block->bytes;
  note_freed(*block);
  table(source).erase(*block);
  if (source == BlockSource::kDriver) remove_segment(address);
  return serial;
}

void LiveBlocks::remove_range(BlockSource source, std::uint64_t address, std::uint64_t bytes) noexcept {
  try {
    const std::lock_guard<std::mutex> lock(g_mutex);
    erase_if(table(source), [&](const Block& block) { return block.address - address < bytes; });
  } catch (const std::bad_alloc&) {
    set_incomplete();
  }
}

void LiveBlocks::remove_context(std::uint64_t context) noexcept {
  try {
    const std::lock_guard<std::mutex> lock(g_mutex);
    std::vector<program::LiveBlock> gone;
    for (const Block& block : table(BlockSource::kDriver)) {
      if (block.address != 0 && block.context == context) gone.push_back({block.address, block.bytes, block.serial});
    }
    std::sort(gone.begin(), gone.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
    const auto belongs = [context](const Block& block) { return block.context == context; };
    erase_if(table(BlockSource::kDriver), belongs);
    erase_if(table(BlockSource::kHost), belongs);
    erase_if(table(BlockSource::kEvent), belongs);
    erase_if(table(BlockSource::kStream), belongs);
    erase_if(table(BlockSource::kFramework), [&](const Block& block) {
      return overlaps_any(gone, {block.address, block.bytes, 0});
    });
  } catch (const std::bad_alloc&) {
    set_incomplete();
  }
}

void LiveBlocks::clear() noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  clear_all();
}

void LiveBlocks::set_incomplete() noexcept {
  g_complete.store(false);
  g_epoch.fetch_add(1, std::memory_order_release);
}

bool LiveBlocks::snapshot(std::vector<program::LiveBlock>& out) const noexcept {
  try {
    std::vector<program::LiveBlock> outer;
    {
      const std::lock_guard<std::mutex> lock(g_mutex);
      out = sorted(table(BlockSource::kFramework));
      outer = sorted(table(BlockSource::kDriver));
      const auto cached = [](const program::LiveBlock& block) {
        const auto segment = segment_from(block.address);
        return segment != segments().end() && segment->address == block.address && segment->cached;
      };
      outer.erase(std::remove_if(outer.begin(), outer.end(), cached), outer.end());
    }
    make_disjoint(out);
    make_disjoint(outer);
    const std::size_t inner = out.size();
    const std::vector<program::LiveBlock> framework(out);
    std::copy_if(outer.begin(), outer.end(), std::back_inserter(out),
                 [&](const program::LiveBlock& block) { return !overlaps_any(framework, block); });
    std::inplace_merge(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(inner), out.end(),
                       [](const auto& a, const auto& b) { return a.address < b.address; });
  } catch (const std::bad_alloc&) {
    out.clear();
    return false;
  }
  return complete();
}

bool LiveBlocks::snapshot_segments(std::vector<program::Extent>& out) const noexcept {
  try {
    out.clear();
    for (const program::LiveBlock& block : disjoint(BlockSource::kDriver)) out.push_back({block.address, block.bytes});
  } catch (const std::bad_alloc&) {
    out.clear();
    return false;
  }
  return complete();
}

bool LiveBlocks::snapshot_host(std::vector<program::LiveBlock>& out) const noexcept {
  try {
    out = disjoint(BlockSource::kHost);
  } catch (const std::bad_alloc&) {
    out.clear();
    return false;
  }
  return complete();
}

bool LiveBlocks::snapshot_streams(std::vector<std::uint64_t>& out) const noexcept {
  try {
    out.clear();
    const std::lock_guard<std::mutex> lock(g_mutex);
    for (const Block& stream : table(BlockSource::kStream)) {
      if (stream.address != 0) out.push_back(stream.address);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool LiveBlocks::refer(std::uint64_t address, std::uint64_t serial) noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  Block* block = find_serial(address, serial);
  if (block == nullptr) return false;
  ++block->references;
  return true;
}

void LiveBlocks::release(std::uint64_t address, std::uint64_t serial) noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  Block* block = find_serial(address, serial);
  if (block != nullptr && block->references != 0) --block->references;
}

bool LiveBlocks::alive(std::uint64_t address, std::uint64_t serial) const noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return find_serial(address, serial) != nullptr;
}

bool LiveBlocks::find(BlockSource source, std::uint64_t address, program::LiveBlock& out) const noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const Block* block = table(source).find(address);
  if (block == nullptr) return false;
  out = {block->address, block->bytes, block->serial};
  return true;
}

std::uint64_t LiveBlocks::last_serial() const noexcept {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_serial;
}

bool LiveBlocks::refer(const program::Program& program) noexcept {
  std::size_t done = 0;
  const bool all = for_all_needed(program, [&](std::uint64_t address, std::uint64_t serial) {
    if (!refer(address, serial)) return false;
    ++done;
    return true;
  });
  if (all) return true;
  for_all_needed(program, [&](std::uint64_t address, std::uint64_t serial) {
    if (done == 0) return false;
    --done;
    release(address, serial);
    return true;
  });
  return false;
}

void LiveBlocks::release(const program::Program& program) noexcept {
  for_all_needed(program, [&](std::uint64_t address, std::uint64_t serial) {
    release(address, serial);
    return true;
  });
}

bool LiveBlocks::alive(const program::Program& program) const noexcept {
  return for_all_needed(program, [&](std::uint64_t address, std::uint64_t serial) { return alive(address, serial); });
}

std::uint32_t LiveBlocks::epoch() const noexcept { return g_epoch.load(std::memory_order_relaxed); }
bool LiveBlocks::complete() const noexcept { return g_complete.load(std::memory_order_relaxed); }
bool LiveBlocks::has_framework() const noexcept { return g_has_framework.load(std::memory_order_relaxed); }

}  // namespace grape::replay
