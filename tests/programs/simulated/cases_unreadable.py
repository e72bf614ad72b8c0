"""Objects that Grape cannot read: filled behind their classes' backs, of a kind that is made no more, like a cache's links."""
import collections
import ctypes
import functools
import sys

from bed import case
from tiny import Net, data, net


class Ignoring(Net):
    def forward(self, x, other):
        return super().forward(x)


class _lru_list_elem:
    """As the links of bounded caches are called."""


@case("[ep]{8}", refusals=("cache_unreadable",))
def cache_with_results_like_links(run):
    made = functools.lru_cache(None)(lambda i: _lru_list_elem())
    made(0)
    model = net(Ignoring)
    for i in range(8):
        run(model, data(i), made)


# Nobody makes such strings any more, but C extensions in old Pythons.
if sys.version_info < (3, 12):

    @case("[ep]{8}", refusals=("old_text",))
    def text_of_an_old_kind(run):
        make = ctypes.pythonapi.PyUnicode_FromStringAndSize
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)
        model = net(Ignoring)
        for i in range(8):
            run(model, data(i), make(None, 3))


@case("[ep]{8}", refusals=("items_unreadable",))
def ordered_dictionary_changed_behind_its_back(run):
    class Changing(Net):
        def forward(self, x, items):
            dict.__setitem__(items, "y", 1)
            return super().forward(x)

    model = net(Changing)
    for i in range(8):
        run(model, data(i), collections.OrderedDict(x=1))


@case("[ep]{8}", refusals=("items_of_object_unreadable",))
def returns_an_ordered_dictionary_filled_behind_its_back(run):
    class Filling(Net):
        def forward(self, x):
            items = collections.OrderedDict()
            dict.__setitem__(items, "y", super().forward(x))
            return items

    model = net(Filling)
    for i in range(8):
        run(lambda x: dict.__getitem__(model(x), "y"), data(i))


class Bag:
    pass


@case("[ep]{8}", refusals=("attribute_without_name",))
def returns_an_attribute_without_a_name(run):
    class Numbering(Net):
        def forward(self, x):
            bag = Bag()
            bag.__dict__[5] = super().forward(x)
            return bag

    model = net(Numbering)
    for i in range(8):
        run(lambda x: model(x).__dict__[5], data(i))
