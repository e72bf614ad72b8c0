"""What code of the user's reads in modules of libraries, changed in place; names of modules read by other ways; classes that
were registered."""
import abc
import array
import builtins
import collections.abc
import functools
import inspect
import itertools
import json
import logging
import os
import string
import sys
import types
import warnings

import this_helper
import torch
from tiny import GUARDED, REFUSED, reads
from installed_state import Registry, registered, scale_of_table


def setter(holder, name, value):
    return lambda _: setattr(holder, name, value)


def pops(items):
    return lambda: items.pop()


# Containers.
@reads(GUARDED)
def arguments_of_the_program():
    return lambda _: 1.0 + sys.argv.count("more"), lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def arguments_of_the_program_exchanged():
    last = sys.argv[-1]
    change, back = (functools.partial(sys.argv.__setitem__, -1, to) for to in ("7", last))
    return lambda _: 3.0 if sys.argv[-1] == "7" else 1.0, lambda _: change(), back


@reads(GUARDED)
def path_of_imports():
    return lambda _: len(sys.path), lambda _: sys.path.append("/nowhere"), pops(sys.path)


@reads(GUARDED)
def arguments_of_a_module_imported_in_the_call():
    def read(_):
        import sys as system

        return 1.0 + system.argv.count("more")

    return read, lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def arguments_imported_in_the_call():
    def read(_):
        from sys import argv

        return 1.0 + argv.count("more")

    return read, lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def arguments_by_getattr():
    return lambda _: 1.0 + getattr(sys, "arg" + "v").count("more"), lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def arguments_by_the_modules_dictionary():
    return lambda _: 1.0 + sys.__dict__["argv"].count("more"), lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def arguments_by_vars():
    return lambda _: 1.0 + vars(sys)["argv"].count("more"), lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(REFUSED)
def modules_that_are_imported():
    def forget():
        del sys.modules["none_such"]

    return lambda _: 2.0 if sys.modules.get("none_such") else 1.0, lambda _: sys.modules.update(none_such=sys), forget


@reads(GUARDED)
def filters_of_warnings():
    added = ("ignore", None, ImportWarning, None, 7)
    return lambda _: len(warnings.filters), lambda _: warnings.filters.append(added), pops(warnings.filters)


@reads(GUARDED)
def handlers_of_a_logger():
    handler = logging.NullHandler()
    return (lambda _: 1.0 + len(logging.root.handlers), lambda _: logging.root.addHandler(handler),
            lambda: logging.root.removeHandler(handler))


@reads("[ep]{12}|eer{4}e[erp]{5}")
def known_loggers():
    return lambda _: 1.0 + ("made_late" in logging.Logger.manager.loggerDict), lambda _: logging.getLogger("made_late")


# What somebody has put into a library's module, as settings.
def in_json(name, value):
    setattr(json, name, value)
    return value


@reads(GUARDED)
def nested_in_a_library():
    table = in_json("case_nested", {"a": {"b": [1.0]}})
    return lambda _: json.case_nested["a"]["b"][0], lambda _: table["a"]["b"].__setitem__(0, 3.0)


@reads(GUARDED)
def object_in_a_library():
    thing = in_json("case_object", types.SimpleNamespace(x=1.0))
    return lambda _: json.case_object.x, setter(thing, "x", 3.0)


@reads(GUARDED)
def tensor_in_a_library():
    tensor = in_json("case_tensor", torch.ones(1))
    return lambda _: json.case_tensor.item(), lambda _: tensor.mul_(3.0)


@reads(REFUSED)
def bytes_in_a_library():
    memory = in_json("case_bytes", bytearray(b"\x01"))
    return lambda _: json.case_bytes[0], lambda _: memory.__setitem__(0, 3)


@reads(REFUSED)
def array_in_a_library():
    memory = in_json("case_array", array.array("d", [1.0]))
    return lambda _: json.case_array[0], lambda _: memory.__setitem__(0, 3.0)


@reads(REFUSED)
def iterator_in_a_library():
    in_json("case_iterator", itertools.count(1))
    return lambda _: next(json.case_iterator), lambda _: None


@reads(GUARDED)
def table_of_a_librarys_class():
    json.JSONEncoder.case_table = {"x": 1.0}
    return lambda _: json.JSONEncoder.case_table["x"], lambda _: json.JSONEncoder.case_table.update(x=3.0)


@reads(GUARDED)
def attribute_of_a_librarys_class():
    return (lambda _: getattr(string.Formatter, "case_scale", 1.0), setter(string.Formatter, "case_scale", 3.0),
            lambda: delattr(string.Formatter, "case_scale"))


@reads(GUARDED)
def attribute_of_a_librarys_function():
    json.dumps.case_scale = 1.0
    return lambda _: json.dumps.case_scale, setter(json.dumps, "case_scale", 3.0)


@reads(GUARDED)
def defaults_of_a_librarys_function():
    return (lambda _: 1.0 + len(inspect.cleandoc.__defaults__ or ()), setter(inspect.cleandoc, "__defaults__", ("",)),
            lambda: setattr(inspect.cleandoc, "__defaults__", None))


# What somebody has put in the place of a library's function, and what it is bound to.
class Patch:
    scale = 1.0

    def act(self, text):
        return self.scale


@reads(GUARDED)
def method_in_the_place_of_a_librarys_function():
    patch, old = Patch(), string.capwords
    string.capwords = patch.act
    return lambda _: string.capwords("1"), setter(patch, "scale", 3.0), lambda: setattr(string, "capwords", old)


@reads(GUARDED)
def partial_in_the_place_of_a_librarys_function():
    old = string.capwords
    string.capwords = functools.partial(lambda text, scale: scale, scale=1.0)
    return (lambda _: string.capwords("1"), lambda _: string.capwords.keywords.update(scale=3.0),
            lambda: setattr(string, "capwords", old))


@reads(GUARDED)
def method_in_the_place_of_a_librarys_method():
    patch, old = Patch(), string.Formatter.format
    string.Formatter.format = staticmethod(patch.act)
    return (lambda _: string.Formatter().format("1"), setter(patch, "scale", 3.0),
            lambda: setattr(string.Formatter, "format", old))


TABLE = {"scale": 1.0}


class Looking:
    look = TABLE.get


@reads(GUARDED)
def function_of_c_in_a_class():
    return lambda _: Looking.look("scale"), lambda _: TABLE.update(scale=3.0), lambda: TABLE.update(scale=1.0)


@reads(REFUSED)
def function_of_c_that_takes_away():
    class Taking:
        take = [float(i) for i in range(30)].pop

    return lambda _: Taking.take(), lambda _: None


# Of an installed package: what its own functions read, and anybody may register.
@reads(GUARDED)
def registry_of_a_package():
    registered["scale"] = float
    return lambda _: scale_of_table(), lambda _: registered.update(scale=len)


@reads(GUARDED)
def registry_of_a_packages_class():
    Registry.register("scale", float)
    return lambda _: Registry().call("scale"), lambda _: Registry.register("scale", len)


# Names of modules.
@reads(GUARDED)
def name_that_a_library_has_not():
    return (lambda _: 3.0 if hasattr(sys, "case_flag") else 1.0, setter(sys, "case_flag", 1),
            lambda: delattr(sys, "case_flag"))


@reads(GUARDED)
def name_that_a_library_has_not_by_a_made_up_name():
    return (lambda _: getattr(sys, "case_" + "flag", 1.0), setter(sys, "case_flag", 3.0),
            lambda: delattr(sys, "case_flag"))


@reads(GUARDED)
def name_that_the_builtins_have_not():
    return (lambda _: getattr(builtins, "case_" + "flag", 1.0), setter(builtins, "case_flag", 3.0),
            lambda: delattr(builtins, "case_flag"))


@reads(GUARDED)
def name_that_a_module_has_not():
    return (lambda _: getattr(this_helper, "EXTRA", 1.0), setter(this_helper, "EXTRA", 3.0),
            lambda: delattr(this_helper, "EXTRA"))


@reads(GUARDED)
def name_in_a_modules_dictionary():
    this_helper.SCALE = 1.0
    return lambda _: this_helper.__dict__["SCALE"], setter(this_helper, "SCALE", 3.0)


@reads(GUARDED)
def new_name_by_vars():
    return (lambda _: vars(this_helper).get("EXTRA", 1.0), setter(this_helper, "EXTRA", 3.0),
            lambda: delattr(this_helper, "EXTRA"))


@reads(GUARDED)
def number_of_names():
    return (lambda _: 1.0 + dir(this_helper).count("EXTRA"), setter(this_helper, "EXTRA", 3.0), lambda: delattr(this_helper, "EXTRA"))


@reads(GUARDED)
def version_of_a_module():
    this_helper.__version__ = "1"
    return (lambda _: float(getattr(this_helper, "__ver" + "sion__")), setter(this_helper, "__version__", "2"),
            lambda: delattr(this_helper, "__version__"))


@reads(REFUSED)
def module_by_its_name():
    this_helper.SCALE = 1.0
    return lambda _: __import__("this_" + "helper").SCALE, setter(this_helper, "SCALE", 3.0)


@reads(GUARDED)
def module_with_a_getattr():
    this_helper.__getattr__ = lambda name: 1.0
    return (lambda _: this_helper.MISSING, setter(this_helper, "__getattr__", lambda name: 3.0),
            lambda: delattr(this_helper, "__getattr__"))


def module_class(scale):
    return type("Module", (types.ModuleType,), {"dynamic": property(lambda _: scale)})


@reads(GUARDED)
def class_of_a_module():
    this_helper.__class__ = module_class(1.0)
    return (lambda _: this_helper.dynamic, setter(this_helper, "__class__", module_class(3.0)),
            lambda: setattr(this_helper, "__class__", types.ModuleType))


@reads(GUARDED)
def property_of_a_module():
    own = module_class(1.0)
    this_helper.__class__ = own
    return (lambda _: this_helper.dynamic, setter(own, "dynamic", property(lambda _: 3.0)),
            lambda: setattr(this_helper, "__class__", types.ModuleType))


# The environment may be read, whatever names it.
@reads(GUARDED)
def environment_by_its_module():
    return (lambda _: float(os.environ.get("CASE_FACTOR", "1")), lambda _: os.environ.update(CASE_FACTOR="3"),
            lambda: os.environ.pop("CASE_FACTOR"))


# Registered classes and functions.
@functools.singledispatch
def dispatched(value):
    return 1.0


class Dispatching:
    @functools.singledispatchmethod
    def scale(self, value):
        return 1.0


DISPATCHING = Dispatching()


class Known(abc.ABC):
    pass


@functools.singledispatch
def by_abstract_class(value):
    return 1.0


@by_abstract_class.register(Known)
def _(value):
    return 3.0


def foreign():
    return type("Foreign", (), {})


@reads(GUARDED)
def single_dispatch():
    return lambda _: dispatched(3), lambda _: dispatched.register(int, lambda value: 5.0)


@reads("[ep]{12}|eer{4}eer{4}")
def single_dispatch_of_a_method():
    return lambda _: DISPATCHING.scale(3), lambda _: Dispatching.scale.register(int, lambda self, value: 5.0)


@reads(GUARDED)
def single_dispatch_by_an_abstract_class():
    kind = foreign()
    thing = kind()
    return lambda _: by_abstract_class(thing), lambda _: Known.register(kind)


@reads(GUARDED)
def class_that_is_registered():
    kind = foreign()
    thing = kind()
    return lambda _: 3.0 if isinstance(thing, Known) else 1.0, lambda _: Known.register(kind)


@reads(GUARDED)
def subclass_that_is_registered():
    kind = foreign()
    return lambda _: 3.0 if issubclass(kind, Known) else 1.0, lambda _: Known.register(kind)


@reads(GUARDED)
def class_that_a_library_knows():
    kind = foreign()
    thing = kind()
    return (lambda _: 3.0 if isinstance(thing, collections.abc.Sized) else 1.0,
            lambda _: collections.abc.Sized.register(kind))


@reads(REFUSED)
def subclasses():
    base, kept = foreign(), []
    return lambda _: 1.0 + len(base.__subclasses__()), lambda _: kept.append(type("More", (base,), {}))


# Modules that objects hold.
@reads(GUARDED)
def module_in_a_closure():
    system = sys
    return lambda _: 1.0 + system.argv.count("more"), lambda _: sys.argv.append("more"), pops(sys.argv)


@reads(GUARDED)
def module_in_an_object():
    held, old = types.SimpleNamespace(tool=string), string.capwords
    return (lambda _: float(held.tool.capwords("1")), setter(string, "capwords", lambda text: 3.0),
            lambda: setattr(string, "capwords", old))


@reads(GUARDED)
def attribute_of_a_librarys_function_that_an_object_holds():
    held = types.SimpleNamespace(tool=json.dumps)
    json.dumps.case_shift = 1.0
    return lambda _: held.tool.case_shift, setter(json.dumps, "case_shift", 3.0)


@reads(GUARDED)
def name_of_a_librarys_function_that_an_object_holds():
    held = types.SimpleNamespace(tool=json.loads)
    return (lambda _: len(held.tool.__name__), setter(json.loads, "__name__", "another name"),
            lambda: setattr(json.loads, "__name__", "loads"))
