#include "python_hooks/discovery/outside_stacks.h"

#include <xxhash.h>

#include <utility>

#include "python_hooks/interpreter/code_deaths.h"
#include "python_hooks/scopes/frames.h"

namespace grape::python::discovery {

void read_code(const Object* code, SampledCode& out, bool with_texts) {
  constexpr std::size_t kMostText = 1024;
  char file[kMostText], name[kMostText];
  const std::size_t file_bytes = copy_text(field<Object*>(code, g_layout.code_file), file, sizeof file);
  const std::size_t name_bytes = copy_text(field<Object*>(code, g_layout.code_name), name, sizeof name);
  out.line = field<int>(code, g_layout.code_first_line);
  out.hash = XXH3_64bits_withSeed(file, file_bytes, static_cast<XXH64_hash_t>(out.line));
  out.hash = XXH3_64bits_withSeed(name, name_bytes, out.hash) | 1;
  if (!with_texts) return;
  out.file.assign(file, file_bytes);
  out.name.assign(name, name_bytes);
}

void SampledStacks::add(std::uint64_t weight, bool gradients) {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (instructions_.empty()) {
    nodes_.resize(1);
    instructions_.resize(1);
  }
  forget_dead_codes();
  const std::size_t count = scopes::read_frames(frames_, scopes::kMaxDepth);
  std::uint32_t node = 0;
  ++stacks_;
  // A stack that was cut says nothing of who called whom first.
  for (std::size_t i = count < scopes::kMaxDepth ? count : 0; i-- > 0;) {
    if (scopes::code_of(frames_[i]) == nullptr) continue;
    const std::uint32_t known = code_at(frames_[i].code);
    const std::uintptr_t instruction = frames_[i].instruction - (g_layout.frame_objects ? 0 : frames_[i].code);
    const std::uint32_t next = known != kNone ? child_of(node, known, instruction) : kNone;
    if (next == kNone) break;
    if (met_.size() <= known) met_.resize(codes_.size());
    codes_[known].calls_itself = codes_[known].calls_itself || met_[known] == stacks_;
    met_[known] = stacks_;
    node = next;
    if (instructions_[node] != instruction) nodes_[node].several = true;
  }
  nodes_[node].weight += weight;
  nodes_[node].graded += gradients ? weight : 0;
}

void SampledStacks::add_callers() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  forget_dead_codes();
  const std::size_t count = scopes::read_frames(frames_, scopes::kMaxDepth);
  for (std::size_t i = 0; i < count; ++i) {
    if (scopes::code_of(frames_[i]) == nullptr) continue;
    const std::uint32_t known = code_at(frames_[i].code);
    if (known != kNone) codes_[known].calls_modules = true;
  }
}

void SampledStacks::copy(std::vector<SampledCode>& codes, std::vector<CallNode>& nodes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  codes = codes_;
  nodes = nodes_;
}

void SampledStacks::forget_dead_codes() noexcept {
  const std::uint32_t epoch = g_code_epoch.load(std::memory_order_acquire);
  if (epoch == epoch_ && addresses_ < kMostAddresses) return;
  epoch_ = epoch;
  addresses_ = 0;
  by_address_.clear();
}

std::uint32_t SampledStacks::code_at(std::uintptr_t address) {
  const AddressKey key{reinterpret_cast<const void*>(address)};
  if (const std::uint32_t* known = by_address_.find(key)) return *known;
  remember_code(address);
  SampledCode code;
  read_code(reinterpret_cast<const Object*>(address), code, true);
  const HashKey content{code.hash};
  const std::uint32_t* known = by_hash_.find(content);
  const auto id = known != nullptr ? *known : static_cast<std::uint32_t>(codes_.size());
  if (known == nullptr) {
    if (codes_.size() >= kMostCodes) return kNone;
    codes_.push_back(std::move(code));
    by_hash_.put(content, id);
  }
  if (by_address_.put(key, id)) ++addresses_;
  return id;
}

// A function that calls itself is where it was.
std::uint32_t SampledStacks::child_of(std::uint32_t node, std::uint32_t code, std::uintptr_t instruction) {
  if (node != 0 && nodes_[node].code == code) return node;
  const ChildKey key{node, code + 1};
  if (const std::uint32_t* known = by_parent_.find(key)) return *known;
  if (nodes_.size() >= kMostNodes) return kNone;
  const auto child = static_cast<std::uint32_t>(nodes_.size());
  instructions_.resize(child);  // one of the two may have found no memory before
  instructions_.push_back(instruction);
  nodes_.push_back({node, code, 0, false});
  by_parent_.put(key, child);  // without memory it is added again next time
  return child;
}

}  // namespace grape::python::discovery
