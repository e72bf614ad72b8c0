#include "python_hooks/scopes/stack_tree.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "python_hooks/interpreter/code_deaths.h"
#include "python_hooks/scopes/line_table.h"
#include "shim/lifecycle/config.h"

namespace grape::python::scopes {
namespace {

using trace::EventKind;
using trace::pack;

constexpr std::size_t kMaxText = 2048;  // of a file name or a qualified name, in bytes

// Bytes from the code object's first instruction; -1: nothing was executed yet.
std::int64_t offset_in(const RawFrame& frame) {
  if (g_layout.frame_objects) {
    const int number = static_cast<int>(frame.instruction);
    return number < 0 ? -1 : std::int64_t{number} * 2;
  }
  const auto offset = static_cast<std::int64_t>(frame.instruction - frame.code - g_layout.code_instructions);
  return offset < 0 ? -1 : offset;
}

// A frame that has not reached its first traceable instruction (it is making its cells), or runs a shim of the
// interpreter: no frame for Python's own stacks either. A generator's frame is past that point whenever it calls.
bool incomplete(const RawFrame& frame, std::int64_t offset) {
  if (g_layout.frame_objects) return false;
  return offset < std::int64_t{field<int>(reinterpret_cast<Object*>(frame.code), g_layout.code_first_traceable)} * 2;
}

int line_at(const Object* code, std::int64_t offset) {
  const Object* table = field<Object*>(code, g_layout.code_lines);
  const auto format = g_layout.frame_objects ? LineFormat::kRanges : LineFormat::kLocations;
  const int line =
      line_of(format, bytes_data(table), bytes_size(table), field<int>(code, g_layout.code_first_line), offset);
  return line > 0 ? line : 0;
}

std::uint64_t hash_of(const RawFrame* frames, std::size_t count) {
  std::uint64_t hash = kNoFrames;
  for (std::size_t i = 0; i < count; ++i) hash = hash_with(hash, frames[i]);
  return hash;
}

}  // namespace

bool position_of(const RawFrame& frame, Position& out) noexcept {
  const Object* code = code_of(frame);
  if (code == nullptr) return false;
  out.offset = offset_in(frame);
  if (incomplete(frame, out.offset)) return false;
  out.line = line_at(code, out.offset);
  return true;
}

void StackTree::forget_dead_codes() noexcept {
  const std::uint32_t epoch = g_code_epoch.load(std::memory_order_acquire);
  if (__builtin_expect(epoch == epoch_, 1)) return;
  epoch_ = epoch;
  by_address_.clear();
  last_count_ = 0;
  for (Seen& one : seen_) one.count = 0;
}

std::uint32_t StackTree::stack(record::ThreadLog& log, std::uint32_t base, std::size_t count) noexcept {
  forget_dead_codes();
  hit_ = nullptr;
  if (count == 0 || count > kMostSeen) return whole_stack(log, base, count);
  const std::uint64_t hash = hash_of(buffer_, count);
  if (const Seen* found = known_as(hash, base, count)) {
    hit_ = found;
    return found->ids[0];
  }
  const std::uint32_t id = whole_stack(log, base, count);
  if (id == 0) return 0;
  Seen& known = new_place(hash, base);
  known.hash = hash;
  known.base = base;
  known.count = static_cast<std::uint32_t>(count);
  for (std::size_t i = 0; i < count; ++i) known.ids[i] = id_at(i);
  return id;
}

std::uint32_t StackTree::whole_stack(record::ThreadLog& log, std::uint32_t base, std::size_t count) noexcept {
  const std::size_t most = base == last_base_ ? std::min(count, last_count_) : 0;
  last_base_ = base;
  std::size_t common = 0;
  while (common < most && buffer_[count - 1 - common] == last_[common]) ++common;
  std::uint32_t id = common == 0 ? base : last_ids_[common - 1];
  for (std::size_t i = common; i < count; ++i) {
    const RawFrame& frame = buffer_[count - 1 - i];
    if (add(log, id, frame, id) == Found::kFailed) {
      last_count_ = i;
      return 0;
    }
    last_[i] = frame;
    last_ids_[i] = id;
  }
  last_count_ = count;
  return id;
}

std::uint32_t StackTree::leaf(record::ThreadLog& log, const RawFrame& frame) noexcept {
  forget_dead_codes();
  const std::uint64_t hash = hash_of(&frame, 1);
  if (const Seen* found = known_as(hash, kLeafBase, 1)) return found->ids[0];
  std::uint32_t id = 0;
  if (add(log, 0, frame, id) == Found::kFailed) return 0;
  Seen& known = new_place(hash, kLeafBase);
  known.hash = hash;
  known.base = kLeafBase;
  known.count = 1;
  known.ids[0] = id;
  return id;
}

// `id` becomes the frame's, or `parent` where there is nothing to add.
StackTree::Found StackTree::add(record::ThreadLog& log, std::uint32_t parent, const RawFrame& frame,
                                std::uint32_t& id) noexcept {
  const Object* code = code_of(frame);
  id = parent;
  if (code == nullptr) return Found::kNothing;
  const std::int64_t offset = offset_in(frame);
  if (incomplete(frame, offset)) return Found::kNothing;
  const std::uint32_t code_number = code_id(log, frame.code);
  if (code_number == 0) return Found::kFailed;
  const NodeKey key{parent, code_number, static_cast<std::uint32_t>(offset), 1};
  if (const std::uint32_t* known = by_parent_.find(key)) {
    id = *known;
    return Found::kFrame;
  }
  std::uint64_t* words = log.begin(EventKind::kDefFrame, code_number, 3, record::Stamp{record::ticks(), 0});
  if (words == nullptr) return Found::kFailed;
  const int line = line_at(code, offset);
  words[0] = pack(nodes_ + 1, parent);
  words[1] = pack(code_number, static_cast<std::uint32_t>(line));
  words[2] = pack(offset > 0 ? static_cast<std::uint32_t>(offset) : 0, 0);
  log.commit();
  id = ++nodes_;
  if (FrameNames* names = kept_names()) names->add_frame(id, parent, code_number, line);
  by_parent_.put(key, id);  // without memory it is defined again next time
  return Found::kFrame;
}

std::uint32_t StackTree::code_id(record::ThreadLog& log, std::uintptr_t address) noexcept {
  const AddressKey key{reinterpret_cast<const void*>(address)};
  if (const std::uint32_t* known = by_address_.find(key)) return *known;
  remember_code(address);
  const std::uint32_t id = define_code(log, reinterpret_cast<const Object*>(address));
  if (id != 0) by_address_.put(key, id);
  return id;
}

std::uint32_t StackTree::define_code(record::ThreadLog& log, const Object* code) noexcept {
  char file[kMaxText], name[kMaxText];
  const std::size_t file_bytes = copy_text(field<Object*>(code, g_layout.code_file), file, sizeof(file));
  const std::size_t name_bytes = copy_text(field<Object*>(code, g_layout.code_name), name, sizeof(name));
  const Object* lines = field<Object*>(code, g_layout.code_lines);
  const int first_line = field<int>(code, g_layout.code_first_line);
  std::uint64_t hash = XXH3_64bits_withSeed(file, file_bytes, static_cast<XXH64_hash_t>(first_line));
  hash = XXH3_64bits_withSeed(name, name_bytes, hash);
  hash = XXH3_64bits_withSeed(bytes_data(lines), bytes_size(lines), hash) | 1;
  if (const std::uint32_t* known = by_content_.find(HashKey{hash})) return *known;

  const auto count = static_cast<std::uint32_t>(3 + trace::words_for(file_bytes) + trace::words_for(name_bytes));
  std::uint64_t* words =
      log.begin(EventKind::kDefCode, static_cast<std::uint32_t>(hash), count, record::Stamp{record::ticks(), 0});
  if (words == nullptr) return 0;
  words[0] = pack(codes_ + 1, first_line > 0 ? static_cast<std::uint32_t>(first_line) : 0);
  words[1] = hash;
  words[2] = pack(static_cast<std::uint32_t>(file_bytes), static_cast<std::uint32_t>(name_bytes));
  const std::size_t used = put_text(words + 3, file, file_bytes);
  put_text(words + 3 + used, name, name_bytes);
  log.commit();
  by_content_.put(HashKey{hash}, ++codes_);
  if (FrameNames* names = kept_names()) names->add_code(codes_, {file, file_bytes}, {name, name_bytes});
  return codes_;
}

FrameNames* StackTree::kept_names() noexcept {
  if (names_ == nullptr && config().mode == Mode::kReplay) names_.reset(new (std::nothrow) FrameNames);
  return names_.get();
}

}  // namespace grape::python::scopes
