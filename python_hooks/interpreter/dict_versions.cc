#include "python_hooks/interpreter/dict_versions.h"

#include <cstdio>
#include <initializer_list>

#include "python_hooks/interpreter/cpython_objects.h"
#include "python_hooks/interpreter/dict_reports.h"

namespace grape::python {
namespace {

// Each of `changes` changes `target`'s attributes, or the dictionary `plain`, or the order of `ordered`, at each call.
// Attributes are stored often enough for the interpreter to put its quick instructions in place. `again` gives a list
// with an item for each change that it made.
constexpr char kChanges[] =
    "import collections\n"
    "class Target:\n"
    "  def __init__(self): self.x, self.y = 0, [0]\n"
    "class Slotted:\n"
    "  __slots__ = ('__dict__',)\n"
    "class Sub(dict): pass\n"
    "def store(o):\n"
    "  o.x = o.x + 1\n"
    "def store_other(o, v):\n"
    "  o.z = v\n"
    "warm = Target()\n"
    "for i in range(2000): store(warm)\n"
    "for i in range(2000): store_other(warm, i)\n"
    "target, fresh, cleared, late = Target(), Target(), Target(), Slotted()\n"
    "late.x = 0\n"
    "plain = {'a': 1, 'b': [2], 'c': 3}\n"
    "sub = Sub(a=1)\n"
    "ordered = collections.OrderedDict(a=1, b=2, c=3)\n"
    "default = collections.defaultdict(list)\n"
    "def again(f):\n"
    "  return lambda: [f(i) for i in range(64)]\n"
    "def merge():\n"
    "  global plain\n"
    "  plain |= {'m': object()}\n"
    "def swap(i): plain['b'] = [i]\n"
    "names = {'n': 0}\n"
    "exec('def count():\\n  global n\\n  n += 1\\ndef drop():\\n  global n\\n  del n\\n', names)\n"
    "for_names = [lambda: names['count'](), again(lambda i: names['count']()), lambda: exec('m = 1', names),\n"
    "  lambda: exec('del m', names), lambda: names['drop']()]\n"
    "for_target = [lambda: store(target), lambda: store_other(target, object()), lambda: setattr(target, 'x', 5.5),\n"
    "  lambda: object.__setattr__(target, 'y', object()), lambda: target.__dict__.update(y=object()),\n"
    "  lambda: vars(target).__setitem__('x', 7), lambda: delattr(target, 'y'), lambda: setattr(target, 'w', 1),\n"
    "  lambda: target.__dict__.pop('w'), again(lambda i: store(target)), again(lambda i: store_other(target, i))]\n"
    "for_cleared = [lambda: store(cleared), lambda: vars(cleared).popitem(),\n"
    "  lambda: vars(cleared).setdefault('q', 1), lambda: vars(cleared).__ior__({'m': 2}), lambda: exec('x = 1.5', {}, "
    "vars(cleared)), lambda: store(cleared),\n"
    "  lambda: vars(cleared).clear(), lambda: store_other(cleared, 1), again(lambda i: store_other(cleared, [i])),\n"
    "  lambda: setattr(cleared, 'x', 1), again(lambda i: store(cleared)), lambda: vars(cleared).clear()]\n"
    "apart = Target()\n"
    "apart.__dict__ = dict(x=1, y=2)\n"
    "for_apart = [lambda: store(apart), lambda: store_other(apart, object()), again(lambda i: store(apart)),\n"
    "  again(lambda i: store_other(apart, i)), lambda: delattr(apart, 'y'), lambda: setattr(apart, 'y', 3)]\n"
    "for_late = [lambda: store(late), lambda: store_other(late, object()), again(lambda i: store(late))]\n"
    "for_fresh = [again(lambda i: store(fresh)), lambda: store(fresh), lambda: store_other(fresh, object())]\n"
    "for_plain = [lambda: swap(1), again(swap), lambda: plain.update(a=2), lambda: plain.setdefault('d', 4),\n"
    "  lambda: plain.pop('d'), merge, lambda: plain.popitem(), lambda: plain.__delitem__('c'),\n"
    "  lambda: plain.__ior__({'q': 1}), lambda: dict.__setitem__(plain, 'a', 9),\n"
    "  lambda: plain.update({str(i): i for i in range(100)}), lambda: plain.clear(), lambda: plain.update({'z': 1}),\n"
    "  lambda: plain.__init__(y=2), lambda: plain.update([('x', 3)]), lambda: dict.pop(plain, 'x')]\n"
    "for_sub = [lambda: sub.update(a=object()), lambda: sub.__setitem__('b', 1), lambda: sub.pop('b'),\n"
    "  lambda: sub.setdefault('c', 1), again(lambda i: sub.__setitem__('c', [i])), lambda: sub.clear(),\n"
    "  lambda: sub.update({'d': 1}), lambda: sub.popitem()]\n"
    "for_default = [lambda: default['new'], lambda: default.__setitem__('new', 2),\n"
    "  again(lambda i: default[i]), lambda: default.__ior__({'q': 1}), lambda: default.popitem(),\n"
    "  lambda: default.clear()]\n"
    "order = collections.OrderedDict(a=1, b=2, c=3)\n"
    "for_order = [lambda: order.move_to_end('a'), lambda: order.move_to_end('a', last=False)]\n"
    "for_ordered = [lambda: ordered.__setitem__('b', 5), lambda: ordered.pop('b'), lambda: "
    "ordered.popitem(last=False),\n"
    "  lambda: ordered.update(n=1), lambda: ordered.setdefault('o', 1), lambda: ordered.__ior__({'p': 1}),\n"
    "  lambda: ordered.popitem(), lambda: ordered.__delitem__('o'), lambda: ordered.clear(),\n"
    "  again(lambda i: ordered.__setitem__('b', [i])), lambda: dict.clear(ordered)]\n"
    "dying = [{}, {'a': 1}, Sub(a=1), collections.defaultdict(list), collections.OrderedDict(a=1), Slotted()]\n"
    "dying_split = [Target(), Target()]\n"
    "store_other(dying_split[1], 1)\n";

Object* items_of(Object* object) noexcept { return is_dict(object) ? object : instance_dict(object); }

// kOrder: of an OrderedDict alone.
enum class Means { kVersion, kReport, kOrder };

// One change; false: it was not told of.
bool told(Object* change, Object* dict, DictReports& reports, Means means) noexcept {
  const std::uint64_t& number = means == Means::kOrder ? order_version(dict) : dict_version(dict);
  const std::uint64_t before = number;
  reports.look();
  const Reference done(g_api.PyObject_CallObject(change, nullptr));
  if (!done) return false;
  if (means != Means::kReport) return number != before;
  const std::size_t changes = is_exactly(done.get(), g_api.PyList_Type) ? item_count(done.get()) : 1;
  return reports.changed() && reports.count() >= changes;
}

// After each change of the list "for_..." another version than ever before, or a report.
bool tells(Object* names, const char* what, Means means) noexcept {
  char changes[32];
  std::snprintf(changes, sizeof changes, "for_%s", what);
  Object *target = dict_item(names, what), *list = dict_item(names, changes);
  if (target == nullptr || list == nullptr || !is_exactly(list, g_api.PyList_Type)) return false;
  Object* dict = items_of(target);
  DictReports reports;
  if (dict == nullptr || (means == Means::kReport && !reports.add(dict))) return false;
  for (std::size_t i = 0; i < item_count(list); ++i) {
    if (!told(list_data(list)[i], dict, reports, means) || items_of(target) != dict) return false;
  }
  return !reports.lost();
}

// The end of each of the list's dictionaries is reported as such.
bool tells_of_end(Object* names, const char* dying) noexcept {
  Object* list = dict_item(names, dying);
  if (list == nullptr || !is_exactly(list, g_api.PyList_Type)) return false;
  for (std::size_t i = 0; i < item_count(list); ++i) {
    Object* dict = items_of(list_data(list)[i]);
    DictReports reports;
    if (dict == nullptr || !reports.add(dict)) return false;
    g_api.Py_IncRef(g_api._Py_NoneStruct);
    if (g_api.PyList_SetItem(list, static_cast<std::ptrdiff_t>(i), g_api._Py_NoneStruct) != 0) return false;
    if (!reports.lost()) return false;
  }
  return true;
}

enum class Tell { kNone, kNotSplit, kAll };

Tell ask_with(Object* names, Means means) noexcept {
  for (const char* what : {"plain", "apart", "sub", "names", "default", "ordered"}) {
    if (!tells(names, what, means)) return Tell::kNone;
  }
  if (means == Means::kReport && !tells_of_end(names, "dying")) return Tell::kNone;
  if (!tells(names, "order", Means::kOrder)) return Tell::kNone;
  for (const char* what : {"target", "late", "fresh", "cleared"}) {
    if (!tells(names, what, means)) return Tell::kNotSplit;
  }
  return means == Means::kVersion || tells_of_end(names, "dying_split") ? Tell::kAll : Tell::kNotSplit;
}

// `changes`: the code of kChanges.
Tell ask(Means means, Object* changes) noexcept {
  if (means == Means::kVersion && g_layout.minor > 13) return Tell::kNone;  // 3.14 has no versions any more
  if (means == Means::kReport && g_layout.minor < 12) return Tell::kNone;
  const Reference names(g_api.PyDict_New());
  if (!names) return Tell::kNone;
  const Reference done(run_code(changes, names.get()));
  const Tell tell = done ? ask_with(names.get(), means) : Tell::kNone;
  g_api.PyDict_Clear(names.get());
  g_api.PyErr_Clear();
  return tell;
}

struct Answers {
  bool asked = false;
  Tell version = Tell::kNone, report = Tell::kNone;
};

// kNone while it is being asked.
const Answers& answers() noexcept {
  static Answers known;
  if (known.asked) return known;
  known.asked = true;
  if (!check_objects()) return known;
  const KeepException keep;
  if (const Reference changes(compile_text(kChanges)); changes) {
    known.version = ask(Means::kVersion, changes.get());
    known.report = ask(Means::kReport, changes.get());
  }
  g_api.PyErr_Clear();
  return known;
}

bool fits(Tell known, const Object* dict) noexcept {
  return known == Tell::kAll || (known == Tell::kNotSplit && !has_split_values(dict));
}

}  // namespace

void ask_dictionaries() noexcept { static_cast<void>(answers()); }

bool tells_of_changes(const Object* dict) noexcept { return fits(answers().version, dict); }
bool reports_changes(const Object* dict) noexcept { return fits(answers().report, dict); }

}  // namespace grape::python
