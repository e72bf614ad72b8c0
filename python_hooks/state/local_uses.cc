#include "python_hooks/state/local_uses.h"

#include <string_view>

#include "python_hooks/cpython_objects.h"

namespace grape::python::state {
namespace {

// What an instruction does with its argument (Python's module `opcode`).
enum class Use : std::uint8_t { kNothing, kRead, kSet, kUnset, kSetThenRead, kSetBoth, kReadBoth, kUnknown, kDrop };

struct Opcodes {
  bool known = false;
  std::size_t extended_arg = 0, cache = 0;
  Use uses[256] = {};
};

Use use_of(std::string_view name) noexcept {
  if (name == "LOAD_FAST" || name == "LOAD_FAST_CHECK" || name == "LOAD_FAST_BORROW" || name == "LOAD_FAST_AND_CLEAR")
    return Use::kRead;
  if (name == "STORE_FAST") return Use::kSet;
  if (name == "DELETE_FAST") return Use::kUnset;
  if (name == "STORE_FAST_LOAD_FAST") return Use::kSetThenRead;
  if (name == "STORE_FAST_STORE_FAST") return Use::kSetBoth;
  if (name == "LOAD_FAST_LOAD_FAST" || name == "LOAD_FAST_BORROW_LOAD_FAST_BORROW") return Use::kReadBoth;
  return Use::kUnknown;
}

bool read_opcodes(Opcodes& out) {
  Object* names = module_member("opcode", "opname");
  Object* local = module_member("opcode", "haslocal");
  const std::ptrdiff_t count = names != nullptr ? g_api.PyList_Size(names) : -1;
  const std::ptrdiff_t locals = local != nullptr ? g_api.PyList_Size(local) : -1;
  if (count < 1 || locals < 1) return false;
  bool extended = false, cache = false;
  for (std::ptrdiff_t i = 0; i < count && i < 256; ++i) {
    Object* name = g_api.PyList_GetItem(names, i);
    if (text_is(name, "EXTENDED_ARG")) out.extended_arg = static_cast<std::size_t>(i), extended = true;
    if (text_is(name, "CACHE")) out.cache = static_cast<std::size_t>(i), cache = true;
    if (text_is(name, "POP_TOP")) out.uses[i] = Use::kDrop;
  }
  for (std::ptrdiff_t i = 0; i < locals; ++i) {
    const long number = g_api.PyLong_AsLong(g_api.PyList_GetItem(local, i));
    char name[64];
    if (number < 0 || number >= 256 || number >= count) continue;
    Object* text = g_api.PyList_GetItem(names, number);
    out.uses[number] = use_of({name, copy_text(text, name, sizeof(name))});
  }
  return extended && cache;
}

const Opcodes& opcodes() noexcept {
  static Opcodes found;
  if (!found.known) found.known = read_opcodes(found);
  return found;
}

LocalUse read_use(Use use, std::uint32_t argument) noexcept {
  LocalUse out;
  const auto one = static_cast<std::uint16_t>(argument);
  const auto upper = static_cast<std::uint16_t>(argument >> 4), lower = static_cast<std::uint16_t>(argument & 15);
  switch (use) {
    case Use::kNothing:
    case Use::kUnset:  // nobody sees what it was
      break;
    case Use::kRead:
      out.reads[0] = one;
      break;
    case Use::kSet:
      out.sets = one;
      break;
    case Use::kSetThenRead:
      out.sets = upper;
      out.reads[0] = lower;
      break;
    case Use::kSetBoth:
      out.sets = upper;
      break;
    case Use::kReadBoth:
      out.reads[0] = upper;
      out.reads[1] = lower;
      break;
    case Use::kUnknown:
      out.reads[0] = LocalUse::kAny;
      break;
    case Use::kDrop:
      out.drops = true;
      break;
  }
  return out;
}

}  // namespace

bool LocalUses::read(Object* code) noexcept {
  const Opcodes& ops = opcodes();
  const Reference instructions(ops.known ? g_api.PyObject_GetAttrString(code, "co_code") : nullptr);
  if (!instructions) return false;
  const std::uint8_t* data = bytes_data(instructions.get());
  const std::size_t units = bytes_size(instructions.get()) / 2;
  try {
    uses_.assign(units, LocalUse());
    cache_.assign(units, false);
  } catch (...) {
    return false;
  }
  std::uint32_t extension = 0;
  for (std::size_t at = 0, first = 0; at < units; ++at) {
    const std::uint8_t op = data[2 * at];
    const std::uint32_t argument = extension | data[2 * at + 1];
    cache_[at] = op == ops.cache;
    extension = op == ops.extended_arg ? argument << 8 : 0;
    if (op == ops.extended_arg || op == ops.cache) continue;
    // Also for its prefixes: it may be told by where they begin.
    const LocalUse use = argument < LocalUse::kAny ? read_use(ops.uses[op], argument) : read_use(Use::kUnknown, 0);
    for (first = at; first > 0 && data[2 * (first - 1)] == ops.extended_arg; --first) uses_[first - 1] = use;
    uses_[at] = use;
  }
  return true;
}

std::size_t LocalUses::behind(std::size_t offset) const noexcept {
  std::size_t unit = offset / 2 + 1;
  while (unit < cache_.size() && cache_[unit]) ++unit;
  return unit * 2;
}

}  // namespace grape::python::state
