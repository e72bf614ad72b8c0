#include "shim/record/native_stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <unwind.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/lifecycle/config.h"

namespace grape::record {
namespace {

constexpr int kMaxDepth = 128;
constexpr std::size_t kMaxText = 1024;

// A thread's native stack tree: (parent, return address) → frame id, open addressing.
struct Tree {
  struct Entry {
    std::uint64_t address;
    std::uint32_t parent;
    std::uint32_t id;  // 0: empty
  };
  Entry* entries = nullptr;
  std::uint32_t capacity = 0;  // a power of two
  std::uint32_t count = 0;
};

void destroy_tree(void* data) {
  auto* tree = static_cast<Tree*>(data);
  std::free(tree->entries);
  delete tree;
}

std::size_t position(const Tree& tree, std::uint64_t address, std::uint32_t parent) {
  std::uint64_t hash = (address ^ (std::uint64_t{parent} << 40)) * 0x9e3779b97f4a7c15u;
  std::size_t at = hash >> 32;
  for (;; ++at) {
    at &= tree.capacity - 1;
    const Tree::Entry& entry = tree.entries[at];
    if (entry.id == 0 || (entry.address == address && entry.parent == parent)) return at;
  }
}

bool grow(Tree& tree) {
  Tree bigger;
  bigger.capacity = tree.capacity == 0 ? 1024 : tree.capacity * 2;
  bigger.count = tree.count;
  bigger.entries = static_cast<Tree::Entry*>(std::calloc(bigger.capacity, sizeof(Tree::Entry)));
  if (bigger.entries == nullptr) return false;
  for (std::uint32_t i = 0; i < tree.capacity; ++i) {
    const Tree::Entry& entry = tree.entries[i];
    if (entry.id != 0) bigger.entries[position(bigger, entry.address, entry.parent)] = entry;
  }
  std::free(tree.entries);
  tree = bigger;
  return true;
}

Tree* tree_of(ThreadLog& log) {
  if (log.native.data == nullptr) {
    log.native.data = new (std::nothrow) Tree;
    log.native.destroy = destroy_tree;
  }
  return static_cast<Tree*>(log.native.data);
}

// Text and its padding; returns the word after it.
std::uint64_t* put_text(std::uint64_t* word, const char* text, std::size_t bytes) {
  const std::size_t words = trace::words_for(bytes);
  if (words > 0) word[words - 1] = 0;
  std::memcpy(word, text, bytes);
  return word + words;
}

bool define(ThreadLog& log, std::uint32_t id, std::uint32_t parent, std::uint64_t address) {
  Dl_info info{};
  const bool known = dladdr(reinterpret_cast<void*>(address - 1), &info) != 0;
  const char* object = known && info.dli_fname != nullptr ? info.dli_fname : "";
  const char* symbol = known && info.dli_sname != nullptr ? info.dli_sname : "";
  const std::uint64_t base = known ? reinterpret_cast<std::uint64_t>(info.dli_fbase) : 0;
  const std::size_t object_bytes = std::min(std::strlen(object), kMaxText);
  const std::size_t symbol_bytes = std::min(std::strlen(symbol), kMaxText);
  const auto words = static_cast<std::uint32_t>(3 + trace::words_for(object_bytes) + trace::words_for(symbol_bytes));
  std::uint64_t* word = log.begin(trace::EventKind::kDefNativeFrame, 0, words, Stamp{ticks(), 0});
  if (word == nullptr) return false;
  word[0] = trace::pack(id, parent);
  word[1] = address - base;
  word[2] = trace::pack(static_cast<std::uint32_t>(object_bytes), static_cast<std::uint32_t>(symbol_bytes));
  put_text(put_text(word + 3, object, object_bytes), symbol, symbol_bytes);
  log.commit();
  return true;
}

struct Addresses {
  std::uint64_t at[kMaxDepth];
  int count = 0;
};

_Unwind_Reason_Code collect(_Unwind_Context* context, void* data) {
  auto* addresses = static_cast<Addresses*>(data);
  const std::uint64_t address = _Unwind_GetIP(context);
  if (addresses->count == kMaxDepth || address == 0) return _URC_END_OF_STACK;  // 0: nothing has called _start
  addresses->at[addresses->count++] = address;
  return _URC_NO_REASON;
}

}  // namespace

// The linker's: where this library (or the program that it was linked into) begins and ends. Asking dladdr() would walk
// through all symbols of the library that launches.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

namespace {

bool in_this_library(std::uint64_t address) {
  return address >= reinterpret_cast<std::uint64_t>(__ehdr_start) && address < reinterpret_cast<std::uint64_t>(_end);
}

}  // namespace

std::uint32_t current_native_stack(ThreadLog& log) noexcept {
  if (config().stacks != Stacks::kNative) return 0;
  const int saved = errno;
  Addresses addresses;
  _Unwind_Backtrace(collect, &addresses);
  Tree* tree = tree_of(log);
  int own = 0;
  while (own < addresses.count && in_this_library(addresses.at[own])) ++own;
  std::uint32_t parent = 0;
  for (int i = addresses.count - 1; i >= own && tree != nullptr; --i) {
    if (tree->count * 2 >= tree->capacity && !grow(*tree)) break;
    const std::uint64_t address = addresses.at[i];
    Tree::Entry& entry = tree->entries[position(*tree, address, parent)];
    if (entry.id == 0) {
      if (!define(log, tree->count + 1, parent, address)) break;
      entry = {address, parent, ++tree->count};
    }
    parent = entry.id;
  }
  errno = saved;
  return parent;
}

}  // namespace grape::record
