#include "shim/memory/live_blocks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "shim/memory/block_journal.h"
#include "shim/memory/block_table.h"

namespace grape::memory {
namespace {

// Never destroyed: wrappers may run until the very end of the process.
std::mutex g_mutex;
BlockTable g_tables[kBlockSources];  // by BlockSource

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

// Segments that are marked already, by where a block lies, as long as no segment comes or goes.
struct Marked {
  std::uint64_t address = 0, bytes = 0;
};
constexpr std::size_t kMarked = 64;
constexpr int kMarkedBits = 21;  // PyTorch's smallest segments have 2 MiB
Marked g_marked[kMarked];

void forget_marked() noexcept { std::fill(std::begin(g_marked), std::end(g_marked), Marked{}); }

void mark_cached(std::uint64_t address, std::uint64_t bytes) noexcept {
  Marked& marked = g_marked[(address >> kMarkedBits) % kMarked];
  if (address >= marked.address && address + bytes <= marked.address + marked.bytes) return;
  for (auto at = segment_at(address); at != segments().end() && at->address < address + bytes; ++at) {
    at->cached = true;
    marked = {at->address, at->bytes};
  }
}

// False: no memory.
bool add_segment(std::uint64_t address, std::uint64_t bytes) noexcept {
  forget_marked();
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
  forget_marked();
  const auto place = segment_from(address);
  if (place != segments().end() && place->address == address) segments().erase(place);
}

std::uint64_t g_serial = 0;
std::atomic<std::uint32_t> g_epoch{1};
std::atomic<bool> g_complete{true};
std::atomic<bool> g_has_framework{false};

BlockTable& table(BlockSource source) noexcept { return g_tables[static_cast<std::size_t>(source)]; }

void note_freed(const Block& block) noexcept {
  if (block.references != 0) g_epoch.fetch_add(1, std::memory_order_release);
}

// 0: no memory. With the lock held, as the next one.
std::uint64_t add_block(BlockSource source, std::uint64_t address, std::uint64_t bytes,
                        std::uint64_t context) noexcept {
  Block* block = table(source).place_for(address);
  if (block == nullptr) {
    LiveBlocks::instance().set_incomplete();
    return 0;
  }
  if (block->address != 0) note_freed(*block);
  if (source == BlockSource::kFramework) {
    mark_cached(address, bytes);
  } else if (source == BlockSource::kDriver && !add_segment(address, bytes)) {
    LiveBlocks::instance().set_incomplete();
  }
  if (source == BlockSource::kFramework) g_has_framework.store(true, std::memory_order_relaxed);
  *block = {address, bytes, ++g_serial, context, 0};
  return block->serial;
}

std::uint64_t remove_block(BlockSource source, std::uint64_t address, std::uint64_t* bytes) noexcept {
  Block* block = table(source).find(address);
  if (block == nullptr) return 0;
  const std::uint64_t serial = block->serial;
  if (bytes != nullptr) *bytes = block->bytes;
  note_freed(*block);
  table(source).erase(*block);
  if (source == BlockSource::kDriver) remove_segment(address);
  return serial;
}

void use_note(const BlockNote& note) noexcept {
  if (note.address == 0) return;
  if (note.bytes > 0) {
    add_block(BlockSource::kFramework, note.address, static_cast<std::uint64_t>(note.bytes), 0);
  } else {
    remove_block(BlockSource::kFramework, note.address, nullptr);
  }
}

// With the lock held.
void use_notes() noexcept {
  constexpr std::uint32_t kAhead = 8;
  std::uint32_t count = 0;
  const BlockNote* notes = g_framework_notes.take(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) table(BlockSource::kFramework).fetch_ahead(notes[i + kAhead].address);
    use_note(notes[i]);
  }
}

// Holds the lock, and has the tables say what the journal knows.
class Settled {
 public:
  Settled() noexcept : lock_(g_mutex) {
    if (!g_framework_notes.empty()) use_notes();
  }

 private:
  const std::lock_guard<std::mutex> lock_;
};

void settle() noexcept {
  if (g_framework_notes.empty()) return;
  const Settled settled;
}

// With the lock held.
Block* find_serial(std::uint64_t address, std::uint64_t serial) noexcept {
  for (BlockTable& blocks : g_tables) {
    Block* block = blocks.find(address);
    if (block != nullptr && block->serial == serial) return block;
  }
  return nullptr;
}

template <class Condition>
void erase_if(BlockTable& blocks, const Condition& condition) {
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

constexpr auto kByAddress = [](const auto& a, const auto& b) { return a.address < b.address; };

template <class Condition>
std::vector<program::LiveBlock> sorted_if(const BlockTable& blocks, const Condition& condition) {
  std::vector<program::LiveBlock> result;
  result.reserve(blocks.used());
  for (const Block& block : blocks) {
    if (block.address != 0 && condition(block)) result.push_back({block.address, block.bytes, block.serial});
  }
  std::sort(result.begin(), result.end(), kByAddress);
  return result;
}

std::vector<program::LiveBlock> sorted(const BlockTable& blocks) {
  return sorted_if(blocks, [](const Block&) { return true; });
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
    const Settled settled;
    blocks = sorted(table(source));
  }
  make_disjoint(blocks);
  return blocks;
}

// False: no memory, and `out` is empty.
template <class Out, class Fill>
bool filled(Out& out, const Fill& fill) noexcept {
  out.clear();
  try {
    fill();
    return true;
  } catch (const std::bad_alloc&) {
    out.clear();
    return false;
  }
}

bool overlaps_any(const std::vector<program::LiveBlock>& blocks, const program::LiveBlock& block) {
  const auto next = std::lower_bound(blocks.begin(), blocks.end(), block, kByAddress);
  if (next != blocks.end() && next->address < block.address + block.bytes) return true;
  return next != blocks.begin() && (next - 1)->address + (next - 1)->bytes > block.address;
}

// Of memory of the host's. It is alive: the lock is held, and its end waits for that.
std::uint64_t value_in(std::uint64_t address, std::uint64_t bytes) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), std::min<std::uint64_t>(bytes, sizeof value));
  return value;
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

BlockJournal g_framework_notes;

void note_framework_block_aside(BlockNote note) noexcept {
  const int saved_errno = errno;
  const Settled settled;
  use_note(note);
  errno = saved_errno;
}

LiveBlocks& LiveBlocks::instance() noexcept {
  static LiveBlocks blocks;
  return blocks;
}

std::uint64_t LiveBlocks::add(BlockSource source, std::uint64_t address, std::uint64_t bytes,
                              std::uint64_t context) noexcept {
  if (address == 0) return 0;
  const Settled settled;
  return add_block(source, address, bytes, context);
}

std::uint64_t LiveBlocks::remove(BlockSource source, std::uint64_t address, std::uint64_t* bytes) noexcept {
  const Settled settled;
  return remove_block(source, address, bytes);
}

void LiveBlocks::remove_range(BlockSource source, std::uint64_t address, std::uint64_t bytes) noexcept {
  try {
    const Settled settled;
    erase_if(table(source), [&](const Block& block) { return block.address - address < bytes; });
  } catch (const std::bad_alloc&) {
    set_incomplete();
  }
}

void LiveBlocks::remove_context(std::uint64_t context) noexcept {
  try {
    const Settled settled;
    const auto belongs = [context](const Block& block) { return block.context == context; };
    const std::vector<program::LiveBlock> gone = sorted_if(table(BlockSource::kDriver), belongs);
    for (const auto source :
         {BlockSource::kDriver, BlockSource::kHost, BlockSource::kLibrary, BlockSource::kEvent, BlockSource::kStream}) {
      erase_if(table(source), belongs);
    }
    erase_if(table(BlockSource::kFramework), [&](const Block& block) {
      return overlaps_any(gone, {block.address, block.bytes, 0});
    });
  } catch (const std::bad_alloc&) {
    set_incomplete();
  }
}

void LiveBlocks::clear() noexcept {
  const Settled settled;
  for (BlockTable& blocks : g_tables) {
    for (const Block& block : blocks) note_freed(block);
    blocks.clear();
  }
  segments().clear();
  forget_marked();
}

void LiveBlocks::set_incomplete() noexcept {
  g_complete.store(false);
  g_epoch.fetch_add(1, std::memory_order_release);
}

bool LiveBlocks::snapshot(std::vector<program::LiveBlock>& out) const noexcept {
  return filled(out,
                [&] {
                  std::vector<program::LiveBlock> outer;
                  {
                    const Settled settled;
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
                                     kByAddress);
                }) &&
         complete();
}

bool LiveBlocks::snapshot_segments(std::vector<program::Extent>& out) const noexcept {
  return filled(out,
                [&] {
                  for (const program::LiveBlock& block : disjoint(BlockSource::kDriver))
                    out.push_back({block.address, block.bytes});
                }) &&
         complete();
}

bool LiveBlocks::snapshot_host(std::vector<program::LiveBlock>& out) const noexcept {
  return filled(out, [&] { out = disjoint(BlockSource::kHost); }) && complete();
}

bool LiveBlocks::snapshot_library(std::vector<program::HostWord>& out) const noexcept {
  return filled(out, [&] {
    const Settled settled;
    for (const Block& block : table(BlockSource::kLibrary)) {
      if (block.address != 0)
        out.push_back({block.address, block.bytes, block.serial, value_in(block.address, block.bytes)});
    }
  });
}

bool LiveBlocks::hold(const std::vector<program::HostWord>& words) const noexcept {
  if (words.empty()) return true;
  const Settled settled;
  return std::all_of(words.begin(), words.end(), [](const program::HostWord& word) {
    const Block* const block = table(BlockSource::kLibrary).find(word.address);
    return block != nullptr && block->serial == word.serial && value_in(word.address, word.bytes) == word.value;
  });
}

bool LiveBlocks::snapshot_streams(std::vector<std::uint64_t>& out) const noexcept {
  return filled(out, [&] {
    const Settled settled;
    for (const Block& stream : table(BlockSource::kStream)) {
      if (stream.address != 0) out.push_back(stream.address);
    }
  });
}

bool LiveBlocks::refer(std::uint64_t address, std::uint64_t serial) noexcept {
  const Settled settled;
  Block* block = find_serial(address, serial);
  if (block == nullptr) return false;
  ++block->references;
  return true;
}

void LiveBlocks::release(std::uint64_t address, std::uint64_t serial) noexcept {
  const Settled settled;
  Block* block = find_serial(address, serial);
  if (block != nullptr && block->references != 0) --block->references;
}

bool LiveBlocks::alive(std::uint64_t address, std::uint64_t serial) const noexcept {
  const Settled settled;
  return find_serial(address, serial) != nullptr;
}

bool LiveBlocks::find(BlockSource source, std::uint64_t address, program::LiveBlock& out) const noexcept {
  const Settled settled;
  const Block* block = table(source).find(address);
  if (block == nullptr) return false;
  out = {block->address, block->bytes, block->serial};
  return true;
}

std::uint64_t LiveBlocks::last_serial() const noexcept {
  const Settled settled;
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

std::uint32_t LiveBlocks::epoch() const noexcept {
  settle();
  return g_epoch.load(std::memory_order_relaxed);
}
bool LiveBlocks::complete() const noexcept {
  settle();
  return g_complete.load(std::memory_order_relaxed);
}
bool LiveBlocks::has_framework() const noexcept {
  settle();
  return g_has_framework.load(std::memory_order_relaxed);
}

}  // namespace grape::memory
