// Watches names of one dictionary (a module's globals, the builtins, an object's attributes): have they the values that
// they had? With the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/strong.h"
#include "python_hooks/walk/held.h"
#include "python_hooks/walk/walk.h"

namespace grape::python::guards {

// Of a library's: may what code reads of it be another one while it stays the same object? Functions, classes, and what
// is made in C, are taken for what they are called; not so what hands out one thing after the other, or bare memory.
bool is_data(Object* value);  // throws std::bad_alloc

class NamedValues {
 public:
  // `users`: the values count by what they hold; else each is the same as long as it is the same object, or an equal
  // plain value, and if it is data of a `module`'s, refers to the same objects. Keeps `dict` alive.
  NamedValues(Object* dict, bool users, std::string owner, bool module);

  // The value that the name has now, borrowed; null: none. `set_by_code`: the observed code may set it, so another
  // object is another value, even an equal one. Adding a name again does no harm.
  // `by_value`: what the user's code names in a library's module, by what it holds if that is data.
  Object* add(Object* name, bool set_by_code, bool by_value);
  // After all names were added: others are not to appear either.
  void take_whole();
  // A name that the code sets to what can be neither compared nor told from another; null: none.
  Object* set_to_unknown() const noexcept;

  // Nothing was set or deleted since the last look: one comparison, for most dictionaries.
  bool untouched() const noexcept;
  void fetch() const noexcept;  // has what that looks at fetched ahead
  enum class Change {
    kNone,
    kMaybe,  // of the user's: walk to know
    kOther,  // `what` says what
  };
  Change compare(std::string& what);
  // After a walk found all to be the same: these are the objects now.
  void take_again();

  // Writes down the values that count by what they hold. False: refused, see the walk's refusal().
  bool walk(walk::Walk& into) const;
  // All that identifies the values that count by identity.
  void identify(std::vector<std::uint64_t>& out) const;

  // Is it one of those that count where all do?
  static bool counts(Object* name, bool users) noexcept;

  Object* dict() const noexcept { return dict_.get(); }
  bool users() const noexcept { return users_; }
  bool of_module() const noexcept { return module_; }
  std::size_t size() const noexcept { return names_.size(); }
  std::string name_of(Object* name) const;  // "torch.nn.functional.gelu"

 private:
  struct Named {
    Strong name;
    walk::Held value;
    bool set_by_code;
    bool by_value;     // though a library's
    bool by_identity;  // or an equal constant
  };

  Object* now(const Named& named) const noexcept;
  void hold(Named& named, Object* value) const;
  std::size_t count() const noexcept;
  Change compare_one(const Named& named, std::string& what) const;

  Strong dict_;
  bool users_, module_;
  std::string owner_;
  std::uint64_t version_ = 0;
  bool tells_ = false;
  std::size_t whole_ = 0;  // how many names there are, if all count
  std::vector<Named> names_;
};

}  // namespace grape::python::guards
