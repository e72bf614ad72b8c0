"""What is refused of a call for what it did to tensors, each with its whole reason: autograd's notes, versions, views."""
import unittest

import torch
from outcome import Observed, main
from outcome_shapes import MODULE, x

NO_GRAD, GRAD, INFERENCE = torch.no_grad, torch.enable_grad, torch.inference_mode


def TRACKING():
    return torch.autograd._force_original_view_tracking(True)


def leaf():
    return x().requires_grad_()


def with_grad():
    made = leaf()
    made.grad = torch.ones_like(made)
    return made


def node():
    with torch.enable_grad():
        return leaf() * 2


def view():
    with torch.no_grad():
        return leaf()[1:]


def view_with_grad():
    return x()[1:].requires_grad_()


def swap(own, other):
    """Exchanges what the two objects are, for all that refer to them."""
    torch._C._swap_tensor_impl(own, other)


def become_a_view(own):
    data = own.data
    swap(own, data.view_as(data))


def work_in_forward_mode(own):
    with torch.autograd.forward_ad.dual_level():
        own.mul_(torch.autograd.forward_ad.make_dual(torch.ones_like(own), torch.ones_like(own)))


def set_data(tensor, memory):
    tensor.data = memory
    return tensor


def made_in_other_memory(own):
    return set_data(own.detach(), torch.ones(2))


def view_with_version_of_another(own, other):
    return set_data(other.detach(), own)


def view_with_version_of_what_was_made(own):
    made = torch.ones(2)
    return made, set_data(made.detach(), own)


def written_and_viewed(own):
    own._base.mul_(1)
    return own._base[:1]


def in_mode(mode, make):
    def function(own):
        with mode():
            return make(own)
    return function


def same_memory(own):
    return torch.empty(0).set_(own.untyped_storage())


# The call, in which mode it runs, what makes its arguments, and the whole reason.
REFUSALS = [
    (lambda own: own.mul_(2), GRAD, [node],
     "argument Tensor: the call moved its grad_fn (in-place work under autograd)"),
    (lambda own: own.retain_grad(), GRAD, [node], "argument Tensor: the call called its retain_grad()"),
    (become_a_view, NO_GRAD, [x], "argument Tensor: the call made it a view, or no view any more"),
    (lambda own: setattr(own, "grad", torch.ones_like(own)), NO_GRAD, [leaf],
     "argument Tensor: the call gave it another .grad"),
    (lambda own: setattr(own, "grad", None), NO_GRAD, [with_grad], "argument Tensor: the call gave it another .grad"),
    (lambda own: own.grad.add_(1), NO_GRAD, [with_grad], "argument Tensor: the call wrote to its .grad"),
    (lambda own: own.register_hook(print), NO_GRAD, [leaf],
     "argument Tensor: the call registered or removed a hook on it"),
    (work_in_forward_mode, NO_GRAD, [x],
     "argument Tensor: the call changed its hooks, or its forward-mode gradient"),
    (lambda own: setattr(own._base, "grad", x()), NO_GRAD, [view],
     "argument Tensor: the call changed what autograd notes of its base"),
    (lambda own: swap(own, own.data), NO_GRAD, [x], "argument Tensor: the call gave the tensor another version"),
    (made_in_other_memory, NO_GRAD, [x], "result: a tensor that shares its version with one in other memory"),
    (view_with_version_of_another, NO_GRAD, [x, x],
     "result: a tensor that shares its version with one in other memory"),
    (view_with_version_of_what_was_made, NO_GRAD, [x],
     "result: a tensor that shares its version with one in other memory"),
    (written_and_viewed, NO_GRAD, [view_with_grad],
     "result: a view of a tensor that requires grad and that the call wrote to: whether it was made before or after "
     "that shows"),
    *((function, mode, [x], "result: a view that was made in another grad mode, by an operator that makes several "
       "(unbind, chunk, split), or while autograd tracks views (torch.autograd._force_original_view_tracking)")
      for function, mode in ((in_mode(GRAD, lambda own: own[1:]), NO_GRAD), (lambda own: own.unbind()[1], GRAD),
                             (in_mode(TRACKING, lambda own: own[1:]), GRAD), (lambda own: own[1:], TRACKING))),
    *((function, mode, [x], "result: a view of another inference mode than the tensor that it is of")
      for function, mode in ((in_mode(INFERENCE, same_memory), NO_GRAD), (same_memory, INFERENCE))),
]


def each_time(*functions):
    """Does another of them in each call."""
    calls = iter(functions)
    return lambda *arguments: next(calls)(*arguments)


def with_face():
    own = x()
    return own, own.detach()


def with_data():
    own = x()
    return own, own.data


def view_of(which):
    def function(own):
        made = own + 1
        faces = made, made.detach()
        return (*faces, faces[which][1:])
    return function


def write(times):
    def function(own):
        made = own + 1
        for _ in range(times):
            made.mul_(1)
        return made
    return function


# Two calls, what makes the arguments of each, and the whole difference.
DIFFERENCES = [
    (each_time(write(1), write(2)), lambda: (x(),), lambda: (x(),),
     "result: a tensor that was written to another number of times in the other run"),
    (each_time(view_of(0), view_of(1)), lambda: (x(),), lambda: (x(),),
     "result[2]: a view of another tensor in the other run"),
    (lambda own, other: own[1:], with_face, with_data,
     "result: a view of memory that the arguments shared otherwise in the other run"),
]


class Torch(unittest.TestCase):
    def test_refusals(self):
        for function, mode, makers, words in REFUSALS:
            with self.subTest(words):
                observed = Observed(function, tuple(make() for make in makers), MODULE, mode)
                self.assertEqual(observed.reason(), words)

    def test_differences(self):
        for function, first, second, words in DIFFERENCES:
            with self.subTest(words):
                one, other = (Observed(function, make(), MODULE) for make in (first, second))
                self.assertEqual((one.reason(), other.reason()), (None, None))
                self.assertEqual(one.difference(other), words)


if __name__ == "__main__":
    main()
