"""Results of which autograd notes that they are views of a tensor that nobody gets to see but as their `_base`: cases
like those of cases_autograd.py."""

import torch
from cases_autograd import SIZE, add, case, inputs, made


def base_of(x):
    """What shows of the tensor that autograd knows `x` as a view of."""
    base = x._base
    if base is None:
        return x._is_view(), None
    return (x._is_view(), base._base is None, tuple(base.shape), base.stride(), base.storage_offset(), str(base.dtype),
            "none" if base.is_inference() else base._version, base.requires_grad, type(base).__name__,
            base.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())


def versions(*tensors):
    return ["none" if x.is_inference() else x._version for x in tensors]


def relations(results, others):
    """Which is a view of which, and who shares a version with whom: by writing to each in turn."""
    same = [[one._base is not None and one._base is other for other in results + others] +
            [one._base is not None and one._base is other._base for other in results] for one in results]
    moved = []
    for one in results + [x._base for x in results if x._base is not None]:
        before = versions(*results, *others)
        with torch.no_grad():
            one.add_(0)
        moved.append([now != then for now, then in zip(versions(*results, *others), before)])
    return same, moved, versions(*results, *others), [base_of(x) for x in results]


def pairs(x):
    return torch.view_as_complex(x.view(4, 3, 2))


# Results of which autograd notes that they are views of a tensor that nobody gets to see, of x or of a weight w.
HIDDEN_BASES = {
    "detached": lambda self, x: [x.detach()[1:]],
    "data": lambda self, x: [x.data[1:]],
    "weight": lambda self, x: [self.linear.weight.data.t(), self.linear.weight.detach()[1:]],
    "reshaped": lambda self, x: [x.detach().view(-1), x.data.view(2, -1), x.detach().t()],
    "of_a_part": lambda self, x: [x[1:].detach()[1:], x[:, 1:].data[1:], x.t().detach()[2:]],
    "of_one": lambda self, x: (lambda d: [d[1:], d[2:], d.t()])(x.detach()),
    "of_one_data": lambda self, x: (lambda d: [d[1:], d[2:], d.t()])(x.data),
    "with_their_base": lambda self, x: (lambda d: [d, d[1:], d.t()])(x.detach()),
    "with_their_base_last": lambda self, x: (lambda d: [d[1:], d.t(), d])(x.data),
    "faces": lambda self, x: (lambda d: [d.detach()[1:], d.detach(), d[1:], d, d.data, d.data[1:]])(x.data),
    "other_numbers": lambda self, x: [x.view(torch.int32), x.view(torch.int32)[1:], x.data.view(torch.int32).t()],
    "written": lambda self, x: (lambda d: [d.add_(0)[1:].add_(0), d[2:], x.detach()[1:]])(x.data),
    "written_detached": lambda self, x: (lambda d: [d.add_(0)[1:].add_(0), d[2:], x.data[1:]])(x.detach()),
    "several": lambda self, x: list(x.data.unbind(0)) + list(x.detach().chunk(2)),
    "twice": lambda self, x: (lambda v: [v, v, {"v": v}["v"]])(x.data[1:]),
    "expanded": lambda self, x: [x.data.expand(2, 4, SIZE), x.detach()[None, :, 1]],
    "made": lambda self, x: [(x * 2)[1:], (x * 2).detach()[1:], (x * 3)[1:].detach()[1:], (x * 2).view(-1)],
    "made_of_one": lambda self, x: (lambda y: [y[1:], y.t(), y.data[1:], y.detach(), y.detach()[1:]])(x * 2),
    "made_with_their_base": lambda self, x: (lambda y: [y[1:], y.data, y, y.data[1:], y.t()])(x * 2),
    "made_faces": lambda self, x: (lambda d: [d[1:], d.detach()[1:], d, d.data])((x * 2).data),
    "made_other_numbers": lambda self, x: [(x * 2).view(torch.int32)[1:], (x * 2)[1:].view(torch.int32)],
    "made_empty": lambda self, x: [(x * 2)[:0], (x[:0] * 2).view(0, 2, 3), x.detach()[:0]],
    "complex": lambda self, x: [torch.view_as_real(pairs(x) * 1j), torch.view_as_real(pairs(x) * 1j).flatten(1),
                                torch.view_as_real(pairs(x) * 1j)[1:], pairs(x * 2), pairs(x * 2)[1:]],
    "complex_argument": lambda self, x: [pairs(x), pairs(x.data)[1:]],
    "both": lambda self, x: [x, x[1:], x.detach()[1:], x.data[1:], x.detach(), x.data],
}


def hidden_bases(work, make, modes):
    """`work`'s results, eight times in each mode; the input is made in the first of them."""
    inner = made(lambda self, x: work(self, x))
    for parameter in inner.parameters():
        parameter.requires_grad_(False)
    count = []

    def step():
        count.append(1)
        mode = modes[(len(count) - 1) // 8]
        with modes[0]():
            x = make()
        w = inner.linear.weight
        with mode():
            results = inner(x)
        facts = [base_of(one) for one in results], versions(*results, x, w)
        try:
            return facts, relations(results, [x, w]), gradients_of(results)
        except RuntimeError as error:  # results of inference mode
            return facts, str(error)

    return step


def gradients_of(results):
    """Whether in-place work that autograd follows goes on from one to the others, or is an error."""
    found = []
    for one in results:
        try:
            if one.dtype is torch.float32:
                one.mul_(torch.ones(one.shape[-1:], device="cuda", requires_grad=True))
            found.append([x.grad_fn and x.grad_fn.name() for x in results])
        except RuntimeError as error:
            found.append(str(error))
    return found


for name, work in HIDDEN_BASES.items():
    add("hidden_base_" + name, lambda work=work: hidden_bases(
        work, inputs, (torch.enable_grad, torch.no_grad, torch.inference_mode)))
    add("hidden_base_of_a_view_" + name, lambda work=work: hidden_bases(
        work, lambda: torch.cat([inputs(), inputs()])[2:6], (torch.no_grad, torch.enable_grad, torch.inference_mode)))
    add("hidden_base_in_inference_mode_" + name, lambda work=work: hidden_bases(
        work, inputs, (torch.inference_mode, torch.no_grad, torch.enable_grad)))


@case
def hidden_base_of_two():
    """The same memory twice among the arguments; what one of them is a view of."""
    inner = made(lambda self, x, y: [y[1:], x[1:], y.detach()[1:]])
    arguments = (lambda x: (x, x.detach()), lambda x: (x.data, x), lambda x: (x, x.view(-1).view(4, SIZE)))
    count = []

    def step():
        count.append(1)
        x, y = arguments[(len(count) - 1) // 8](inputs())
        results = inner(x, y)
        return [base_of(one) for one in results], relations(results, [x, y])

    return step


KEPT = {}


@case
def hidden_base_that_is_kept():
    """What results are views of is kept by somebody after all."""
    inner = made(lambda self, x: [KEPT["x"][1:], x[1:]])

    def step():
        x = inputs()
        KEPT["x"] = x.detach()
        results = inner(x)
        return [base_of(one) for one in results], relations(results, [x, KEPT["x"]])

    return step
