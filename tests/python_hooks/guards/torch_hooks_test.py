"""Guards of modules that have forward hooks."""

import collections

from torch import nn

from state import Guard, form, load_torch


def none_of(*_, **__):
    return None


def test_hooks_by_value():
    """What a hook is and what it holds is as much the module's as its attributes."""

    def scaled(scale):
        return lambda module, arguments, output: output * scale[0]

    scale, model = [2.0], nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    handle = model[0].register_forward_hook(scaled(scale))
    guard = Guard(model)
    assert guard.holds() and guard.walks == 1
    for change, undo in (
        (lambda: scale.append(1), scale.pop),
        (lambda: scale.__setitem__(0, 3.0), lambda: scale.__setitem__(0, 2.0)),
        (
            lambda: model[0]._forward_hooks.update({handle.id: none_of}),
            lambda hooked=model[0]._forward_hooks[handle.id]: model[0]._forward_hooks.update(
                {handle.id: hooked}
            ),
        ),
    ):
        change()
        assert not guard.holds()
        assert guard.change.startswith("module.0._forward_hooks["), guard.change
        undo()
        assert guard.holds(), guard.change
    second = model[0].register_forward_hook(none_of)
    order = form(model, addresses=True)
    model[0]._forward_hooks.move_to_end(handle.id)
    assert form(model, addresses=True) != order and not guard.holds()
    second.remove()
    assert guard.holds(), guard.change
    handle.remove()
    assert not guard.holds()
    # A dictionary of the user's may say that it is empty, or not.
    full = type("Full", (collections.OrderedDict,), {"__len__": lambda self: 1})()
    empty = form(model)
    model[1]._forward_hooks = full
    assert form(model) != empty


assert load_torch()
test_hooks_by_value()
print("ok test_hooks_by_value")
