// The rows as types, and their wrappers in the order of the rows.
#include "shim/interpose/wrapper.h"

namespace grape::interpose {

using driver::CodeEffect;
using driver::GraphDoor;
using driver::HostData;
using driver::InCall;
using driver::kNoEffect;

// NOLINTBEGIN(bugprone-macro-parentheses): the parameters are types and names
#define GRAPE_HOOK(base, symbol, version, type, per_thread, class_, action, arguments, effects) \
  struct Row_##symbol {                                                                         \
    using Type = type;                                                                          \
    static constexpr RowIndex kIndex = kRow_##symbol;                                           \
    static constexpr bool kPerThread = per_thread != 0;                                         \
    static constexpr trace::ApiClass kClass = trace::ApiClass::k##class_;                       \
    static constexpr Action kAction = Action::k##action;                                        \
    static constexpr driver::FunctionFacts kFacts = effects;                                    \
    static constexpr char kArguments[] = arguments;                                             \
  };
#include "shim/driver/hooks.def"
// NOLINTEND(bugprone-macro-parentheses)

#define GRAPE_HOOK(base, symbol, ...) reinterpret_cast<void*>(&Wrapper<Row_##symbol>::call),
void* const grape_wrappers[kRowCount] = {
#include "shim/driver/hooks.def"
};
#define GRAPE_HOOK(base, symbol, ...) reinterpret_cast<void*>(&Wrapper<Row_##symbol>::call),
void* grape_linked[kRowCount] = {
#include "shim/driver/hooks.def"
};

}  // namespace grape::interpose
