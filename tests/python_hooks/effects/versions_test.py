"""Versions of tensors, as autograd counts what was written: a repeated call moves them as the call did. (outcome.py says
how calls are checked. Writes that change no byte: a repeat writes none, that is the device's.)"""
import sys
import unittest

from outcome import REFUSED, Check, Observed, main, torch
from outcome_shapes import MODULE, Holder, x

CASES = {}


def case(make=lambda: (x(),)):
    def register(function):
        CASES[function.__name__] = (function, make)
        return function
    return register


def with_view():
    one = x()
    return one, one.view(-1), x()


def with_one_view():
    one = x()
    return one, one.view(2, 3)


@case()
def argument(x):
    x.mul_(1)
    x.t().add_(0)
    return x + 1


@case()
def argument_that_comes_back(x):
    return x.mul_(1)


@case(with_view)
def by_a_view(one, view, other):
    view[1:].mul_(1)
    return other + 1


@case(with_view)
def each(one, view, other):
    one.mul_(1), view.mul_(1), other.mul_(1)


@case(lambda: (x().detach(), [x(), {"a": x()}]))
def in_containers(x, items):
    for _ in range(3):
        items[1]["a"].mul_(1)
    return items[0].relu_()


@case(lambda: (x(), Holder()))
def made(x, holder):
    y = (x + 1).mul_(2).add_(1)
    holder.keys = (x * 2).add_(1)
    holder.values = holder.keys.view(-1)[2:]
    return y, y[1], torch.zeros(2), y.data, (x + 2).flatten().chunk(3)


@case()
def views(x):
    own = x.data[:1]
    own.mul_(1).mul_(1)
    return x[1:], x.view(-1), x.detach(), own, x.data


def with_data():
    one = x()
    return one.data, one


@case(with_data)
def views_of_one_memory(one, other):
    other.mul_(1)
    return other[1:], one.view(-1)


@case()
def written_views(x):
    part = x[1:]
    part.mul_(1)
    return part


@case()
def of_the_module(x):
    MODULE.table.mul_(1)
    return MODULE.weight.data, MODULE.weight.detach()


@case(lambda: (torch.inference_mode()(x)(), x()))
def of_inference_mode(one, other):
    other.mul_(1)
    return other + one


class Versions(Check):
    def test_of_the_module(self):
        def call(x):
            MODULE.table.mul_(1).mul_(1)
            MODULE.weight.view(-1).mul_(1)
            return x + 1

        arguments = (x(),)
        observed = Observed(call, arguments, MODULE)
        self.assertIsNone(observed.reason())
        before = MODULE.table._version, MODULE.weight._version
        observed.repeat(observed.copies(), arguments)
        self.assertEqual((MODULE.table._version, MODULE.weight._version), (before[0] + 2, before[1] + 1))

    def test_that_autograd_notices(self):
        def call(x):
            x.mul_(1)
            return x[1:]

        arguments = (x(),)
        observed = Observed(call, arguments, MODULE)
        for after in (lambda result: None, lambda result: result.mul_(1)):
            w = torch.ones(2, 3, requires_grad=True)
            with torch.enable_grad():
                loss = (w * arguments[0]).sum()  # saves the argument
            after(observed.repeat([], arguments))
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    def test_views_of_arguments_and_weights(self):
        def call(x):
            return x[1:], x.t(), x.detach(), x.data, MODULE.table[1:], x.view(torch.int32)

        arguments = (x(),)
        with torch.no_grad():
            results = Observed(call, arguments, MODULE).repeat([], arguments)
        for result, base in zip(results, (arguments[0], arguments[0], None, None, MODULE.table)):
            self.assertEqual(result._is_view(), base is not None)
            self.assertIs(result._base, base)
        with self.assertRaisesRegex(RuntimeError, "A view was created in no_grad mode"):
            results[0].mul_(torch.ones(3, requires_grad=True))

    def test_views_of_what_only_shares_memory(self):
        def call(x):
            data, part = x.data, x[1:].detach()
            weight = MODULE.weight.data.t()
            return data[1:], x.detach()[1:], data.t(), part[:1], part, weight, x.view(torch.int32)[1:], data.detach()

        def facts(results, x):
            bases = [result._base for result in results]
            form = [base is not None and (base.shape, base.stride(), base.storage_offset(), base.dtype, base._version)
                    for base in bases]
            same = [[base is not None and base is other for other in bases + results + [x]] for base in bases]
            moved = []
            for tensor in results:
                tensor.mul_(1)
                moved.append([result._version for result in results + [x]])
            return form, same, moved

        arguments, others = (x(),), (x(),)
        results = Observed(call, (x(),), MODULE).repeat([], arguments)
        with torch.no_grad():
            expected = call(*others)
        self.assertEqual(facts(list(results), arguments[0]), facts(list(expected), others[0]))

    def test_bases_that_somebody_has(self):
        kept = []

        def call(x, keep):
            data = x.data
            if keep == "object":
                kept.append(data)
            elif keep == "view":
                kept.append(data.t())
            elif keep == "attribute":
                data.note = 1
            return data[1:]

        self.assertIsNone(Observed(call, (x(), "nothing"), MODULE).reason())
        for keep in ("object", "view", "attribute"):
            self.assertIn("also held elsewhere", Observed(call, (x(), keep), MODULE).reason())

    def test_which_argument_it_is_a_view_of(self):
        def call(one, other):
            return other.detach()[1:], one[1:], other[1:]

        def apart():
            one = x()
            return one, one.data

        def faces():
            one = x()
            return one, one.detach()

        for make, others, fits in ((faces, faces, True), (apart, apart, True), (faces, apart, False),
                                   (with_one_view, faces, False), (with_one_view, with_one_view, True)):
            arguments = others()
            results = Observed(call, make(), MODULE).repeat([], arguments)
            self.assertEqual(results is not REFUSED, fits)
            if fits:
                self.assertIs(results[2]._base, call(*arguments)[2]._base)
                self.assertIs(results[1]._base, arguments[0])
                before = arguments[1]._version
                results[0].mul_(1)
                self.assertEqual(arguments[1]._version, before + 1)

    def test_gradients_by_views(self):
        for mode, view in ((torch.enable_grad, lambda x: x[1:]), (torch.enable_grad, lambda x: x.detach()[1:])):
            with mode():
                expected, arguments, w = x(), (x(),), torch.ones(3, requires_grad=True)
                observed = Observed(view, (x(),), MODULE, mode)
                for tensor, result in ((expected, view(expected)), (arguments[0], observed.repeat([], arguments))):
                    result.mul_(w)
                self.assertEqual(arguments[0].requires_grad, expected.requires_grad)

    def test_views_in_inference_mode(self):
        ordinary, inference = (x(),), (torch.inference_mode()(x)(),)
        for made_in, used_in, arguments in ((torch.inference_mode, torch.inference_mode, ordinary),
                                            (torch.inference_mode, torch.inference_mode, inference),
                                            (torch.no_grad, torch.no_grad, inference)):
            observed = Observed(lambda x: x[1:], arguments, MODULE, made_in)
            if observed.reason():
                self.assertIn("inference mode", observed.reason())
                continue
            with used_in():
                expected, result = arguments[0][1:], observed.repeat([], arguments)
            self.assertEqual((result.is_inference(), result._is_view()), (expected.is_inference(), expected._is_view()))

    def test_another_number_of_times(self):
        def to_argument(x):
            write(x)

        def to_result(x):
            return write(x + 1)

        def to_module(x):
            write(MODULE.table)

        def write(tensor):
            for _ in range(times):
                tensor.mul_(1)
            return tensor

        for function, what in ((to_argument, "argument Tensor"), (to_result, "result"),
                               (to_module, "a tensor of the module")):
            observed = []
            for times in (1, 2):
                observed.append(Observed(function, (x(),), MODULE))
            self.assertRegex(observed[0].difference(observed[1]),
                             f"^{what}: .*written to another number of times in the other run")

    def test_another_tensor(self):
        def call(*tensors):
            tensors[which].mul_(1)

        observed = []
        for which in (0, 1):
            observed.append(Observed(call, (x(), x()), MODULE))
        self.assertIn("written to another number of times", observed[0].difference(observed[1]))

    def test_a_tensor_that_was_filled_when_it_was_made(self):
        observed = Observed(lambda x: (x + 1).mul_(1), (x(),), MODULE)
        filled = [tensor.fill_(0).fill_(1) for tensor in observed.copies()]
        self.assertEqual(observed.repeat(filled, (x(),))._version, 1)

    def test_others_share_a_version(self):
        def call(one, other):
            one.mul_(1)

        def shared():
            one = x()
            return one, one.view(-1)

        def apart():
            one = x()
            return one, one.data.view(-1)

        for make, others, fits in ((shared, shared, True), (apart, apart, True), (shared, apart, False)):
            observed = Observed(call, make(), MODULE)
            arguments = others()
            before = arguments[0]._version
            result = observed.repeat([], arguments)
            self.assertEqual(result is not REFUSED, fits)
            self.assertEqual(arguments[0]._version - before, int(fits))


for case_name, (case_function, case_arguments) in CASES.items():
    def test(self, function=case_function, make=case_arguments):
        self.check(function, make, MODULE)
    setattr(Versions, "test_" + case_name, test)


if __name__ == "__main__":
    if torch is None:
        sys.exit("needs PyTorch")
    main()
