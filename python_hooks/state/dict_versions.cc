// Do dictionaries tell of every change? Asked of the interpreter itself, once, by changing some in every way there is.
#include "python_hooks/cpython_objects.h"
#include "python_hooks/state/module_guard.h"

namespace grape::python::state {
namespace {

// Each of `changes` changes `target`'s attributes, or the dictionary `plain`, or the order of `ordered`, at each call.
// Attributes are stored often enough for the interpreter to put its quick instructions in place.
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
    "target, fresh, late = Target(), Target(), Slotted()\n"
    "late.x = 0\n"
    "plain = {'a': 1, 'b': [2], 'c': 3}\n"
    "sub = Sub(a=1)\n"
    "ordered = collections.OrderedDict(a=1, b=2, c=3)\n"
    "default = collections.defaultdict(list)\n"
    "def again(f):\n"
    "  return lambda: [f(i) for i in range(64)] and None\n"
    "def merge():\n"
    "  global plain\n"
    "  plain |= {'m': object()}\n"
    "def swap(i): plain['b'] = [i]\n"
    "for_target = [lambda: store(target), lambda: store_other(target, object()), lambda: setattr(target, 'x', 5.5),\n"
    "  lambda: object.__setattr__(target, 'y', object()), lambda: target.__dict__.update(y=object()),\n"
    "  lambda: vars(target).__setitem__('x', 7), lambda: delattr(target, 'y'), lambda: setattr(target, 'w', 1),\n"
    "  lambda: target.__dict__.pop('w'), again(lambda i: store(target)), again(lambda i: store_other(target, i))]\n"
    "apart = Target()\n"
    "apart.__dict__ = dict(x=1, y=2)\n"
    "for_apart = [lambda: store(apart), lambda: store_other(apart, object()), again(lambda i: store(apart)),\n"
    "  again(lambda i: store_other(apart, i)), lambda: delattr(apart, 'y'), lambda: setattr(apart, 'y', 3)]\n"
    "for_late = [lambda: store(late), lambda: store_other(late, object()), again(lambda i: store(late))]\n"
    "for_fresh = [again(lambda i: store(fresh)), lambda: store(fresh), lambda: store_other(fresh, object())]\n"
    "for_plain = [lambda: swap(1), again(swap), lambda: plain.update(a=2), lambda: plain.setdefault('d', 4),\n"
    "  lambda: plain.pop('d'), merge, lambda: plain.popitem(), lambda: plain.__delitem__('c'),\n"
    "  lambda: plain.__ior__({'q': 1}), lambda: dict.__setitem__(plain, 'a', 9),\n"
    "  lambda: plain.update({str(i): i for i in range(100)}), lambda: plain.clear(), lambda: plain.update({'z': 1})]\n"
    "for_sub = [lambda: sub.update(a=object()), lambda: sub.__setitem__('b', 1), lambda: sub.pop('b'),\n"
    "  lambda: sub.clear()]\n"
    "for_default = [lambda: default['new'], lambda: default.__setitem__('new', 2), lambda: default.clear()]\n"
    "for_ordered = [lambda: ordered.move_to_end('a'), lambda: ordered.move_to_end('a', last=False),\n"
    "  lambda: ordered.__setitem__('b', 5), lambda: ordered.pop('b'), lambda: ordered.popitem(last=False),\n"
    "  lambda: ordered.update(n=1), lambda: ordered.setdefault('o', 1), lambda: ordered.clear()]\n";

Object* items_of(Object* object) noexcept { return is_dict(object) ? object : instance_dict(object); }

// After each change of the list another version than ever before.
bool tells(Object* names, const char* what, const char* changes, bool ordered) noexcept {
  Object *target = dict_item(names, what), *list = dict_item(names, changes);
  if (target == nullptr || list == nullptr || !is_exactly(list, g_api.PyList_Type)) return false;
  for (std::size_t i = 0; i < item_count(list); ++i) {
    Object* dict = items_of(target);
    if (dict == nullptr) return false;
    const std::uint64_t version = dict_version(dict), order = ordered ? order_version(dict) : 0;
    const Reference done(g_api.PyObject_CallObject(list_data(list)[i], nullptr));
    if (!done || items_of(target) != dict) return false;
    if (dict_version(dict) == version && (!ordered || order_version(dict) == order)) return false;
  }
  return true;
}

enum class Tell { kNone, kNotSplit, kAll };

Tell ask() noexcept {
  if (!check_objects() || g_layout.minor > 13) return Tell::kNone;  // 3.14 has no versions any more
  const Reference names(g_api.PyDict_New());
  const Reference name(g_api.PyUnicode_FromString("grape"));
  const Reference code(g_api.Py_CompileString(kChanges, "<grape>", 257));
  if (!names || !name || !code) return Tell::kNone;
  if (g_api.PyDict_SetItemString(names.get(), "__builtins__", g_api.PyEval_GetBuiltins()) != 0 ||
      g_api.PyDict_SetItemString(names.get(), "__name__", name.get()) != 0) {
    return Tell::kNone;
  }
  const Reference done(g_api.PyEval_EvalCode(code.get(), names.get(), names.get()));
  if (!done) return Tell::kNone;
  Object* dict = names.get();
  Tell tell = Tell::kNone;
  if (tells(dict, "plain", "for_plain", false) && tells(dict, "apart", "for_apart", false) &&
      tells(dict, "sub", "for_sub", false) && tells(dict, "default", "for_default", false) &&
      tells(dict, "ordered", "for_ordered", true)) {
    tell = Tell::kNotSplit;
    if (tells(dict, "target", "for_target", false) && tells(dict, "late", "for_late", false) &&
        tells(dict, "fresh", "for_fresh", false)) {
      tell = Tell::kAll;
    }
  }
  g_api.PyDict_Clear(dict);
  return tell;
}

}  // namespace

bool tells_of_changes(const Object* dict) noexcept {
  static bool asked = false;
  static Tell known = Tell::kNone;
  if (!asked) {
    asked = true;
    const KeepException keep;
    known = ask();
    g_api.PyErr_Clear();
  }
  return known == Tell::kAll || (known == Tell::kNotSplit && !has_split_values(dict));
}

}  // namespace grape::python::state
