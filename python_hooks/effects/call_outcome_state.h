// The data of a CallOutcome: how to make the values, and where to put them. Internal to python_hooks/effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/effects/argument_snapshot_state.h"
#include "python_hooks/effects/call_outcome.h"
#include "python_hooks/walk/instance.h"

namespace grape::python::effects {

constexpr std::uint32_t kNoNode = ~0U;

enum class ValueKind : std::uint8_t {
  kPlain,     // a plain value
  kIdentity,  // an object that is known by what it is: a class, a function, an enum's member
  kForm,      // an immutable value known by the form that the walk gives it (torch.device, ...)
  kArgument,  // an object of the arguments
  kModule,    // an object of the module
  kMade,      // a tensor that the call made
  kView,      // a tensor in the memory of one of the arguments or of the module
  kBuilt,     // made anew from parts
};

struct Range {
  std::uint32_t first = 0, count = 0;
};

struct Node {
  ValueKind kind = ValueKind::kPlain;
  walk::Shape shape;         // kBuilt
  Strong held;               // kPlain, kIdentity, kForm: the value; kBuilt: its type
  Object* object = nullptr;  // kModule: borrowed, lives while the module's guard holds
  std::uint32_t index = 0;   // kArgument: place; kMade: tensor; kView: view; kForm: form
  Strong limit;              // of a deque: its greatest length
  Range links;               // kBuilt: its parts; kMade, kView: attributes, plain values
  std::uint32_t items = 0;   // how many of the links are items
};

// A part of a built object.
struct Link {
  enum class Place : std::uint8_t { kAttribute, kSlot, kItem };
  Place place = Place::kItem;
  Strong key;                  // of an attribute or of a dictionary's item
  std::size_t at = 0;          // bytes of a slot; an item's index
  const char* slot = nullptr;  // its name; the class has it
  std::uint32_t node = 0;

  std::string label() const {
    if (place == Place::kSlot) return std::string(".") + slot;
    return place == Place::kItem ? walk::item_label({key.get(), nullptr}, at) : walk::attribute_label(key.get());
  }
};

struct View : TensorForm {
  Object* module_tensor = nullptr;  // borrowed; null: of an argument
  std::uint32_t place = 0;          // the argument's
  std::uint64_t end = 0;            // bytes of the storage that it needs
  bool is_view = false;             // autograd knows it as one of the tensor, or of what that is a view of
  std::int32_t view_of = -1;   // autograd knows it as a view of another one of these, by index, which is none itself
  bool own_version = false;    // it does not share the tensor's
  std::uint32_t version = 0;   // of its own: how often it was written to
  std::uint32_t as_first = 0;  // of its own: index of the first one, that is no view, with the same version
};

enum class Action : std::uint8_t {
  kSet,
  kAppend,    // to a list
  kTruncate,  // a list, to `at` items
};

struct Effect {
  Action action = Action::kSet;
  walk::Kind of = walk::Kind::kPlain;  // kPlain: of an attribute, or of a slot (no key); else of an entry or item
  std::uint32_t place = 0;             // the argument's object
  Strong type;                         // its class
  Strong key;                          // of an attribute or entry
  std::size_t at = 0;                  // an item's index, bytes of a slot
  std::uint32_t node = kNoNode;        // the new value; kNoNode: the attribute or entry is deleted, the slot is empty
  std::string path;                    // for people

  bool of_attribute() const noexcept { return of == walk::Kind::kPlain && key.get() != nullptr; }
};

// Views, writes: the tensor that they are of.
template <typename Of>
Object* tensor_of(const Of& of, const walk::Walk& arguments) noexcept {
  return of.module_tensor != nullptr ? of.module_tensor : arguments.objects()[of.place];
}

// A tensor of the arguments whose memory a view is in, where several have it.
struct Face {
  std::uint32_t place = 0;
  std::uint32_t as_version = 0, as_root = 0;  // index of the first one with the same version, and of the first one that
                                              // is a view of the same tensor, or is that tensor
};

// A tensor whose version the call moved: it wrote to it, or to one that shares its version.
struct Write {
  Object* module_tensor = nullptr;  // borrowed; null: of an argument
  std::uint32_t place = 0;          // the argument's
  std::uint32_t times = 0;
  std::uint32_t as_first = 0;  // index of the first one that it shares its version with, maybe its own
  std::string path;            // for people
};

struct CallOutcomeState {
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<View> views;
  std::vector<Face> faces;
  std::vector<std::vector<std::uint8_t>> forms;
  std::vector<MadeTensor> made;
  std::vector<Effect> effects;
  std::vector<Write> writes;
  std::vector<std::uint32_t> made_to_require_grad;  // the arguments' tensors, by place
  std::vector<std::uint32_t> counted;               // those, on the CPU, that have one more
  std::vector<walk::StorageExtent> written;         // the storages of the tensors that `writes` are of, as observed
  std::vector<std::uint32_t>
      dropped;  // the arguments' objects, by place, that it let go of and that can be weakly held
  std::uint32_t result = kNoNode;
  std::size_t argument_objects = 0;
  bool autograd = false;                             // refused since autograd is at work
  std::vector<GradientResult>* gradients = nullptr;  // while it is learned; null: they are refused
};

// The first difference, if there is one.
refusal::Refusal outcome_difference(const CallOutcomeState& a, const CallOutcomeState& b);

}  // namespace grape::python::effects
