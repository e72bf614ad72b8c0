// Checks quickly whether all that a walk has read is unchanged: versions of dictionaries and classes, items of lists,
// memory of tensors. The order of the checks is the order of the walk: a container is checked before its items. So no
// check follows a dead pointer: an object is alive as long as everything before it is unchanged. With the GIL.
//
// A dictionary that reports its changes (dict_reports.h) is checked only after a report.
//
// A watch keeps alive only plain immutable values, code objects, weak references and tuples of these: an equal address
// then means the same value.
#pragma once

#include <cstdint>
#include <vector>

#include "python_hooks/interpreter/cpython.h"
#include "python_hooks/interpreter/dict_reports.h"
#include "python_hooks/torch/torch_api.h"
#include "python_hooks/walk/type_info.h"

namespace grape::python::walk {

class Watch {
 public:
  // Whether dictionaries are asked to report their changes: what is checked once does without.
  enum class Reports : std::uint8_t { kNone, kAsked };
  explicit Watch(Reports reports = Reports::kAsked) noexcept : asks_(reports == Reports::kAsked) {}
  ~Watch() { clear(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Filled by a Walk. All may throw std::bad_alloc.
  void object(Object* object);                               // its class and its attributes' dictionary
  void items(Object* container, Kind kind);                  // which are not read before
  void empty_dict(Object* dict);                             // that it stays empty
  void word(const Object* object, std::size_t offset);       // a pointer or number inside of an object
  void reference(const Object* object, std::size_t offset);  // a pointer to what may be a plain value
  void function(Object* function);
  void type(Object* type);
  void identity(Object* object);  // that it is this one: refers to it weakly
  void tensor(Object* tensor);
  void memory(const void* data, std::size_t bytes);
  void keep(Object* immutable);                   // alive
  void give_up() noexcept { complete_ = false; }  // something that shows no changes: walk each time

  // False: something is not as it was, or may not be: walk to know.
  bool holds() noexcept;
  void clear() noexcept;
  std::size_t size() const noexcept { return checks_.size(); }
  bool complete() const noexcept { return complete_; }

 private:
  // Nearly all that is looked at are words, which are to be what they were. The address's lowest bit says that there is
  // more to it: then `expected` is the number of an entry, and the address is only asked for ahead.
  struct Check {
    std::uintptr_t address;
    std::uint64_t expected;
  };
  enum class What : std::uint8_t { kItems, kType, kGrad, kTensor, kMemory };
  struct Entry {
    What what;
    Kind kind;  // kItems
    std::uint32_t count;
    const Object* object;
    std::uint64_t a;  // a version, a hash, or where its words begin
  };

  // `reported`: looked at only when a dictionary has reported a change.
  void check(const Check& check, bool reported);
  void expect(const void* address, std::uint64_t expected, bool reported = false);
  void more(const Entry& entry, bool reported = false);
  bool all_hold(const std::vector<Check>& checks) const noexcept;
  bool entry_holds(const Entry& entry) const noexcept;
  bool items_hold(const Entry& entry) const noexcept;

  std::vector<Check> checks_;  // in the order of the walk
  std::vector<Check> always_;  // the same without those of dictionaries that report
  DictReports reports_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> words_;  // items, marks
  std::vector<Object*> kept_;
  bool complete_ = true;
  const bool asks_;
};

}  // namespace grape::python::walk
