"""Functions that draw random numbers on the host, by what becomes of these; for torch_draws_test.py."""
import functools

import torch

KEPT = []


def layers(count, training=False):
    """As layer drop in transformers' encoders."""
    done = 0
    for _ in range(count):
        p = torch.rand([])
        skip = training and p < 0.1
        if not skip:
            done += 1
    return done


def dropped():
    torch.rand(3)
    torch.randn(2, 3, dtype=torch.float64)


def many_kinds():
    a = torch.rand(2, 3)
    b = torch.randint(0, 7, (4,))
    c = torch.randn((2,), dtype=torch.float64)
    d = torch.randperm(5)
    e = torch.rand(*(2, 3), **{"dtype": torch.float32})


def deleted():
    p = torch.rand([])
    del p


def used_after_deletion():
    p = torch.rand([])
    del p
    p = 3
    return p  # another value, but nobody here tells them apart


def in_a_lambda():
    return (lambda: layers(2))()


def nested(depth):
    p = torch.rand([])
    return nested(depth - 1) if depth else 1


def generator():
    for _ in range(3):
        p = torch.rand([])
        yield 1


def consumed():
    return sum(generator())


def in_two_places():
    p = q = torch.rand([])


UNSEEN = [
    ("nothing is drawn", lambda: 1, 0),
    ("layer drop", lambda: layers(12), 12),
    ("given up at once", dropped, 2),
    ("several kinds", many_kinds, 5),
    ("deleted", deleted, 1),
    ("in a function that is called by another one", in_a_lambda, 2),
    ("in itself", lambda: nested(3), 4),
    ("in a generator", consumed, 3),
    ("in two variables", in_two_places, 1),
]


class Holder:
    def __init__(self, drop=0.1, training=True):
        self.drop, self.training, self.settings = drop, training, self

    def limit(self, factor=1):
        return self.drop * factor


def dropping(self):
    """As in transformers' OPT and BART."""
    done = 0
    for _ in range(4):
        if self.training:
            p = torch.rand([])
            if p < self.drop:
                continue
        done += 1
    return done


def dropping_by_a_flag(self):
    done = 0
    for _ in range(3):
        drop = False
        p = torch.rand(1)
        if self.training and p <= self.settings.drop:
            drop = True
        if not drop:
            done += 1
    return done


def kept_truth(self):
    p = torch.rand([])
    skip = not p > self.drop
    return skip


def reversed_sides(self):
    p = torch.rand([])
    return 1 if self.drop >= p and self.training else 2


def at_once(self):
    if torch.rand([]) < self.drop or torch.rand(()) >= 1 - self.drop:
        return 1
    return 2


def by_a_method(self):
    p = torch.rand([])
    return 1 if p < self.limit(2) * 0.5 else 2


def asked_twice(self):
    q = p = torch.rand([])
    low = q < self.drop
    if low:
        return 1
    return 2 if not low and p < 1 else 3


def moved_between_variables(self):
    p = torch.rand([])
    q, r = p, 3
    return 1 if q < self.drop else r


def in_a_chain(self):
    p = torch.rand([])
    return 1 if self.drop < p < 0.7 else 2


exec(
    "def many_names(self):\n p = torch.rand([])\n if p < self.drop:\n" + "  x = self\n" * 400 + " return 2"
)  # past the reach of a single instruction

# name, function, the numbers drawn by a call that drops nothing, and decisions
COMPARED = [
    ("dropping", dropping, 4, 4),
    ("layers", lambda self: layers(12, self.training), 12, 12),
    ("by a flag", dropping_by_a_flag, 3, 3),
    ("kept truth", kept_truth, 1, 1),
    ("reversed", reversed_sides, 1, 1),
    ("at once", at_once, 2, 2),
    ("by a method", by_a_method, 1, 1),
    ("asked twice", asked_twice, 1, 3),
    ("moved", moved_between_variables, 1, 1),
    ("in a chain", in_a_chain, 1, 2),
    ("far jumps", many_names, 1, 1),
]


def identified():
    return torch.rand(3) is None


def compared():
    p = torch.rand([])
    return p < 0.1


def outcome_in_a_list():
    p = torch.rand([])
    return [p < 0.1]


def outcome_told():
    p = torch.rand([])
    low = p < 0.1
    return low.item()


def outcome_passed_on():
    p = torch.rand([])
    return bool(p < 0.1)


def compared_with_a_number_drawn():
    p = torch.rand([])
    q = torch.rand([])
    return 1 if p < q else 2


def compared_with_a_tensor():
    p = torch.rand([])
    limit = torch.zeros(())
    return 1 if p < limit else 2


def compared_for_equality():
    p = torch.rand([])
    return 1 if p == 0.5 else 2


def truth_of_the_number():
    p = torch.rand([])
    return 1 if p else 2


def compared_and_computed():
    p = torch.rand([])
    if p < 2:
        return (p * 2).item()


def many_compared():
    p = torch.rand(3)
    try:
        return 1 if p < 0.5 else 2
    except RuntimeError:
        return 3


def outcomes_combined():
    p = torch.rand([])
    return 1 if (p > 0.1) & (p < 0.2) else 2


def kept_outcome():
    p = torch.rand([])
    KEPT.append(p < 0.1)


def compared_in_itself(depth=3):
    p = torch.rand([])
    if depth:
        compared_in_itself(depth - 1)
    return 1 if p < 0.1 else 2


def told():
    p = torch.rand([])
    return p.item()


def passed_on():
    p = torch.rand([])
    return str(p)


def returned():
    return torch.rand([])


def returned_from_a_variable():
    p = torch.rand([])
    return p


def in_a_list():
    return [torch.rand([]) for _ in range(2)]


def kept():
    KEPT.append(torch.rand([]))


def kept_in_an_attribute():
    kept.p = torch.rand([])


def kept_in_a_global():
    global KEPT_ONE
    KEPT_ONE = torch.rand([])


def in_a_cell():
    p = torch.rand([])
    return (lambda: p is None)()


def by_locals():
    p = torch.rand([])
    return locals()["p"].item()


def by_vars():
    p = torch.rand([])
    return vars()["p"].item()


def by_eval():
    p = torch.rand([])
    return eval("p").item()


def by_a_frame():
    p = torch.rand([])
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame.f_locals["p"].item()


def suspended():
    p = torch.rand([])
    yield 1
    yield p.item()


def kept_alive():
    KEPT.append(suspended())
    return next(KEPT[-1])


def by_map():
    p = list(map(torch.rand, [(), ()]))


def by_max():
    p = max(map(torch.rand, [(), ()]))


def by_next():
    p = next(map(torch.rand, [()]))


def by_partial():
    p = functools.partial(torch.rand, ())()


def unpacked():
    p, q = torch.rand(2)


def in_place():
    p = torch.rand([])
    p += 1


def of_another_name():
    draw = getattr(torch, "ra" + "nd")
    p = draw([])


def by_a_method():
    p = torch.empty(3).uniform_()


def by_another_function():
    p = torch.bernoulli(torch.full((3,), 0.5))


def from_a_generator():
    p = torch.rand([], generator=torch.Generator())


def of_another_type():
    class Number(torch.Tensor):
        pass

    p = torch.rand([]).as_subclass(Number)


def read_later():
    for i in range(2):
        if i:
            return p.item()
        p = torch.rand([])


SEEN = [
    compared, outcome_in_a_list, outcome_told, outcome_passed_on, compared_with_a_number_drawn, compared_with_a_tensor,
    compared_for_equality, truth_of_the_number, compared_and_computed, many_compared, outcomes_combined, kept_outcome,
    compared_in_itself, identified, told, passed_on, returned, returned_from_a_variable, in_a_list, kept, kept_in_an_attribute, kept_in_a_global,
    in_a_cell, by_locals, by_vars, by_eval, by_a_frame, kept_alive, by_map, by_max, by_next, by_partial, unpacked, in_place,
    from_a_generator, of_another_type, read_later, used_after_deletion,
]  # fmt: skip
# What draws is not known: it shows in the generator's state.
MOVED = [by_a_method, by_another_function]
