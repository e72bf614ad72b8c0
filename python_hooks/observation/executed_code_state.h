// What an observation collects; for the files of this room that make it and read it.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/host_draws/host_draws.h"
#include "python_hooks/interpreter/flat_map.h"
#include "python_hooks/observation/executed_code.h"
#include "python_hooks/observation/traps.h"

namespace grape::python::observation {

// Code with the globals that it ran on.
struct CodeKey {
  Object* code;
  Object* globals;
  bool empty() const noexcept { return code == nullptr; }
  std::uint64_t hash() const noexcept {
    return mix((reinterpret_cast<std::uintptr_t>(code) >> 4) * 31 + (reinterpret_cast<std::uintptr_t>(globals) >> 4));
  }
  bool operator==(const CodeKey& other) const noexcept { return code == other.code && globals == other.globals; }
};

struct ExecutedCode::State {
  struct Note {
    const HostEffect* effect;  // null: none
    bool takes_arguments;      // the first local variable is the first argument
  };
  std::vector<CodeKey> codes;  // references
  FlatMap<CodeKey, Note> code_notes;

  // Weak references: what closures hold lives no longer for our sake. Empty where frames do not name their functions.
  std::vector<Object*> functions;
  FlatMap<AddressKey, Object*> function_notes;  // the latest weak reference to what is, or was, at that address
  std::vector<Object*> types;  // references; heap types: of first arguments, or themselves first arguments
  FlatMap<AddressKey, char> type_notes;

  static constexpr std::size_t kMostLoggers = 4096;
  std::vector<Object*> loggers;  // references; one for each question

  std::vector<Object*> contexts;  // references, each once: the context variables that were read or set

  static constexpr std::uint32_t bit(EffectKind kind) noexcept { return 1U << static_cast<unsigned>(kind); }
  bool has_met(EffectKind kind) const noexcept { return (met & bit(kind)) != 0; }
  std::uint32_t met = 0;         // the kinds of effects, by bits
  bool backward = false;         // refused for a backward pass
  std::uint64_t first_node = 0;  // torch::autograd_nodes() at the begin
  refusal::Refusal pass;         // of a backward pass that has begun and is not followed; none: there is none
  refusal::Refusal followed;     // what would have been said of the first one that is followed; none: there is none
  std::vector<const Object*> differentiated;  // for which gradients were asked, by passes that are followed; identities
  bridge::InnerNodes* ran = nullptr;          // owned: by passes that are followed
  bool lost = false;                          // something could not be noted
  refusal::Refusal refusal;
  host_draws::DrawWatch draws;

  void follow(const std::vector<Object*>& inputs);  // the pass that has begun; for these gradients are asked
  void refuse_pass();                               // that is not followed, if there is one
  void clear() noexcept;                            // gives all references up
  ~State() { clear(); }
};

}  // namespace grape::python::observation
