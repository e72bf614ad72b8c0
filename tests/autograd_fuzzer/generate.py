"""Makes a program out of a number: nested modules that work in place, return views, keep state, and steps in which they
are trained, evaluated and changed. `source(seed)` is its text: `start()` makes the state, `step_0(s)`, ... use it."""

import random
import re

import statements as words
import usage

VERSION = 1  # of what a seed means

HEAD = """from common import *

INDEX = torch.tensor([0, 2]).cuda()
PLACES = torch.tensor([[0, 2, 1, 3], [3, 1, 0, 2], [1, 0, 3, 1], [2, 3, 2, 0]]).cuda()
G_T, G_S, G_L, G_O = data(71), {'t': data(72)}, [data(73)], Buffers()
G_P = data(74, grad=True)
G_R = data(75) if %s else (data(75, grad=True) * 1)
"""


class Variables:
    """A forward's variables of 4 x 4, and which of them may be written to without breaking the backward pass."""

    def __init__(self, names):
        self.names, self.saved = list(names), set()


class Module:
    """One class of the program."""

    def __init__(self, maker, name, children, root=False):
        self.maker, self.random, self.name, self.children, self.root = maker, maker.random, name, children, root
        self.parameter, self.take_out, self.passed = self.pick(words.ARGUMENTS) if not root else words.ARGUMENTS[0]
        self.result, self.use = self.pick(words.RESULTS)
        self.kind = self.pick(("writes", "writes", "writes", "cuts", "cuts", "keeps", "mixed", "frozen")) if not children else "mixed"
        self.shy = self.random.random() < 0.5  # writes to what autograd does not need only
        if self.kind == "writes":
            self.result, self.use = self.pick([one for one in words.RESULTS if one[0] in ("None", "{x}")] * 3 + [
                ("{x}[:, :2]", None), ("{x}.detach()", "{h} + {r}"), ("({x}, {x})", "{r}[0] + {r}[1]")])  # fmt: skip
        elif self.kind in ("cuts", "frozen"):
            self.result, self.use = self.pick([one for one in words.RESULTS if re.search(
                r"detach|data|argmax|topk|>|None|G_T|buf", one[0])])  # fmt: skip
        self.text = self.make()

    def pick(self, among):
        return self.random.choice(among)

    def fill(self, template, variables, h):
        number = lambda: f"{self.random.randrange(1, 12) / 8}"  # noqa: E731
        others = ["self.w", "self.buf", "G_T", "G_P", "G_S['t']", "self.holder.t", "G_O.t", *variables.names * 2]
        fillings = {
            "h": lambda: h,
            "x": lambda: "x",
            "n": number,
            "m": lambda: self.pick(others),
            "v": lambda: self.pick(("self.b", "self.b", f"{self.pick(others)}[0]", f"{self.pick(others)}.diagonal()")),
            "s": lambda: self.pick(("self.b[0]", f"{self.pick(others)}.mean()", "self.buf.sum()", "G_L[0].mean()")),
        }
        view = self.pick(words.VIEWS).replace("{h}", h)
        template = template.replace("{t}", view)
        filled = re.sub(r"\{([hxnmvs])\}", lambda found: fillings[found.group(1)](), template)
        return filled.replace("{{", "{").replace("}}", "}")

    def writable(self, variables):
        """A variable to write to, and the lines that make it one."""
        h = self.pick(variables.names)
        if h not in variables.saved or self.random.random() < 0.05:
            return h, []
        variables.saved.discard(h)
        return h, [self.fill(self.pick(("{h} = {h}.clone()", "{h} = {h} + {v}", "{h} = {h} * {n}")), variables, h)]

    def statement(self, variables, kind):
        """The lines of one statement."""
        if kind == "state":
            with_grad = self.random.random() < self.maker.state_with_grad
            table = words.STATE_WITH_GRAD if with_grad else words.STATE
            return [self.fill(self.pick(table), variables, self.pick(variables.names))]
        if kind == "block":
            inner, lines = Variables(variables.names), []
            inner.saved = variables.saved
            for _ in range(self.pick((1, 1, 2))):
                lines += self.statement(inner, self.pick(("out", "in", "whole", "in", "view", "state")))
            block = self.fill(self.pick(words.BLOCKS), variables, self.pick(variables.names))
            return [f"with {block}:"] + ["    " + line for line in lines]
        before = []
        table = {"out": words.OUT_OF_PLACE, "view": words.SAME_MEMORY, "in": words.IN_PLACE,
                 "whole": words.IN_PLACE_WHOLE, "rare": words.RARE}[kind]  # fmt: skip
        if kind in ("in", "whole", "rare"):
            h, before = self.writable(variables)
        else:
            h = self.pick(variables.names)
        template, means = self.pick(table)
        line = self.fill(template, variables, h)
        if means:
            variables.saved.add(h)
        elif kind == "out":
            variables.saved.discard(h)
        return before + [line]

    def call(self, variables, number, child):
        h = self.pick(variables.names)
        lines = []
        if child.kind != "cuts":
            h, lines = self.writable(variables)
        result, argument = f"r{number}", child.passed.replace("{h}", h).replace("{{", "{").replace("}}", "}")
        calls = [one for one in words.CALLS if "=" not in argument or "checkpoint" not in one]
        template = self.pick(calls)
        call = template.replace("{r}", result).replace("{call}", f"self.p{number}").replace("{a}", argument)
        lines += call.split("\n")
        if child.use is not None:
            target = self.pick((h, h, "g"))
            lines.append(f"{target} = " + child.use.replace("{r}", result).replace("{h}", h))
            variables.names = sorted({*variables.names, target})
            variables.saved.discard(target)
        return lines

    def forward(self):
        variables = Variables(("x",))
        lines = ["global G_T", *([self.take_out] if self.take_out else [])]
        if self.kind != "writes" and self.random.random() < 0.7:
            start = self.pick(("x + {v}", "self.lin(x)", "self.lin(x)", "x * {n}", "x", "x.view(4, 4)", "x.clone()"))
            lines.append("h = " + self.fill(start, variables, "x"))
            variables.names = ["h", "h", "x"] if self.children else ["h", "x"]
        count = self.random.randrange(1, 4) if not self.children else self.random.randrange(1, 3)
        kinds = {
            "writes": ("in", "in", "whole", "whole", "block"),
            "cuts": ("out", "out", "view", "in", "block"),
            "keeps": ("state", "state", "out", "in"),
            "mixed": ("out", "out", "out", "view", "in", "whole", "block", "state"),
            "frozen": ("out", "out", "whole"),
        }[self.kind]
        for _ in range(count):
            lines += self.statement(variables, "rare" if self.random.random() < 0.06 else self.pick(kinds))
        if self.kind == "frozen":
            first = 1 + bool(self.take_out)
            lines[first:] = ["with torch.no_grad():", *("    " + line for line in lines[first:])]
        for number, child in enumerate(self.children):
            for _ in range(self.pick((1, 1, 1, 2))):
                lines += self.call(variables, number, child)
                if self.random.random() < 0.6:
                    lines += self.statement(variables, self.pick(("out", "out", "in", "view", "whole")))
        result = self.result.replace("{x}", "x").replace("{h}", self.pick(variables.names))
        lines.append("return " + result.replace("{{", "{").replace("}}", "}"))
        return lines

    def make(self):
        children = [f"self.p{number} = {child.name}()" for number, child in enumerate(self.children)]
        state = "data(3)" if self.random.random() < 0.5 else "data(3, grad=True) * 1"
        lines = [
            "super().__init__()",
            f"self.lin, self.act = {self.pick(words.LAYERS)}, {self.pick(words.ACTIVATIONS)}",
            "self.w, self.b = nn.Parameter(data(1)), nn.Parameter(data(2)[0].clone())",
            "self.register_buffer('buf', data(4).abs())",
            f"self.state, self.kept, self.holder = {state}, None, Buffers()",
            *children,
        ]
        body = "\n        ".join(line for line in lines)
        forward = "\n        ".join(self.forward())
        return (
            f"class {self.name}(nn.Module):\n    def __init__(self):\n        {body}\n\n"
            f"    def forward(self, {self.parameter}):\n        {forward}\n"
        )


class Maker:
    def __init__(self, seed):
        self.random = random.Random(f"{VERSION}:{seed}")
        self.state_with_grad = self.random.choice((0, 0, 0.2, 0.5))
        self.modules = []

    def module(self, depth):
        children = [self.module(depth - 1) for _ in range(self.random.choice((1, 2, 2)))] if depth else []
        if depth and self.random.random() < 0.15:
            children.append(children[0])  # one class twice
        made = Module(self, f"Part{len(self.modules)}", children, depth == self.depth)
        self.modules.append(made)
        return made

    def source(self):
        self.depth = self.random.choice((1, 1, 1, 2, 2, 3))
        net = self.module(self.depth)
        detached = "False" if self.state_with_grad and self.random.random() < 0.5 else "True"
        classes = "\n\n".join(module.text for module in self.modules)
        return HEAD % detached + "\n\n" + classes + "\n\n" + usage.Usage(self, net).source()


def source(seed):
    return Maker(seed).source()
