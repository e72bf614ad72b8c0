"""Objects of the arguments that a call lets go of, and whose end is seen."""
import dataclasses
import weakref

from bed import case
from tiny import Net, data, net


class Ending:
    def __init__(self, x):
        self.x = x

    def __del__(self):
        self.x.add_(1)


class Thing:
    pass


@dataclasses.dataclass
class Holder:
    thing: object


def letting_go(run, make, calls=8):
    """A model that lets go of what `make(x, i)` gave, and goes on with x."""

    class LettingGo(Net):
        def forward(self, x, holder):
            holder.thing = None
            return super().forward(x) * 2 + x

    model = net(LettingGo)
    for i in range(calls):
        x = data(i)
        run(model, x, Holder(make(x, i)))
        run.see(x)


@case("[ep]{8}", reason="lets go of an object with a finalizer")
def finalizer_writes_in_the_call(run):
    letting_go(run, lambda x, i: Ending(x))


@case("[ep]{8}", reason="lets go of an object with a finalizer")
def finalizer_below_a_list(run):
    letting_go(run, lambda x, i: [(1, {"a": Ending(x)})])


@case("[ep]{8}", reason="lets go of an object with a finalizer")
def weak_reference_with_a_callback(run):
    kept = []

    def make(x, i):
        thing = Thing()
        kept.append(weakref.ref(thing, lambda _: x.add_(1)))
        return thing

    letting_go(run, make)


@case("eer{4}e{3}r{3}", reason="that the call lets go of is weakly referred to")
def callback_after_replays(run):
    """Of a thing, and of a tensor in what the call lets go of."""
    kept = []

    def make(x, i):
        thing = Thing()
        thing.parts = [data(i + 20), (data(i + 40),)]
        if 6 <= i < 9:
            kept.append(weakref.ref([thing, thing.parts[0], thing.parts[1][0]][i - 6], lambda _: x.add_(1)))
        return thing

    letting_go(run, make, calls=12)


@case("[ep]{8}", reason="lets go of an argument's objects, and makes weak references")
def asks_whether_a_tensor_ended(run):
    class Asking(Net):
        def forward(self, x, holder):
            inside = weakref.ref(holder.thing)
            holder.thing = None
            return super().forward(x) * (2 if inside() is None else 3)

    model, kept = net(Asking), []
    for i in range(8):
        thing = data(i + 20)
        if i > 5:
            kept.append(thing)
        holder = Holder(thing)
        del thing
        run(model, data(i), holder)
