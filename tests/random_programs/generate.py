"""Makes a Python program out of a number: a model that reads state of all kinds and sometimes changes some, and what
happens between its calls. `source(seed)` is the text of a module with Model, Cache and CALLS (see run.py)."""

import pathlib
import random
import re

# What all programs begin with.
HEAD = (pathlib.Path(__file__).parent / "common.py").read_text(encoding="utf-8")

# What forward reads: a number.
NUMBERS = (
    "self.a0", "self.a1", "G_FLOAT", "G_INT", "G_LIST[0]", "G_LIST[-1]", "len(G_LIST)", "sum(G_LIST)",
    "G_DICT['k']", "G_DICT[G_NAME]", "G_CONFIG.alpha", "G_CONFIG.inner['b']", "G_CONFIG.inner['list'][0]",
    "G_CONFIG.doubled", "G_CONFIG.scaled()", "G_CONFIG.kinds['a']", "type(self).c", "self.c", "self.table['x']",
    "self.of_class()", "self.prop", "self.lst[0]", "sum(self.lst)", "len(self.dct)", "self.dct['k']",
    "self.dct.get('missing', 0.5)", "self.config.alpha", "self.config.inner['b']", "getattr(self, 'a0')",
    "getattr(self, 'extra', 1.0)", "G_TUPLE[0]", "G_TUPLE[1][0]", "READ()", "HELD[0]", "G_SLOTTED.factor",
    "G_COLOR.value", "Color.BLUE.value", "G_DEQUE[0]", "sum(G_DEQUE)", "len(G_SET)", "max(self.lst)",
    "this_helper.VALUE", "math.sqrt(self.a0 * self.a0)", "float(self.training)", "x.shape[0]",
    "int(torch.is_grad_enabled())", "len(self.name)", "sum(v for v in self.lst)", "(lambda: self.a0)()", "k",
    "self.sub.a0", "self.sub.config.alpha", "self.blocks[0].a0", "len(self.blocks)",
    "sum(b.a1 for b in self.blocks)", "functools.reduce(lambda a, b: a + b, self.lst)", "dict(self.dct)['k']",
    "globals()['G_FLOAT']", "{'s': self.a0}['s']", "isinstance(self.lst, list) + 0.5", "self.__dict__['a0']",
    "vars(self)['a1']", "G_PARTIAL.keywords['factor']", "times.__defaults__[0]", "next(iter(self.lst))",
    "'%d' % self.a1 and 0.5", "sorted(G_DICT.items(), key=lambda p: str(p[0]))[0][1]",
    "hasattr(self, 'extra') + 1.0", "G_SCALE.value", "G_SCALE['ab']", "len(G_SCALE)", "float(G_SCALE)",
    "(G_SCALE == 1.25) + 0.5", "(1.5 if G_SCALE else 0.5)", "G_ANY.something", "G_ANY.default", "G_DESCRIBED.field",
    "Described.of_meta", "Described.level", "G_FROZEN.value", "G_FROZEN.items[1]",
    "dataclasses.replace(G_FROZEN, value=0.5).items[0]", "list(G_ORDERED.values())[0]", "G_ORDERED['b']",
    "next(iter(G_ORDERED.values()))", "G_DEFAULT['z']", "G_CHAIN['b']", "G_CHAIN.maps[0]['a']", "G_ARRAY[0]",
    "G_BYTES[0] / 8", "sum(G_SETS)", "float(G_FRACTION)", "float(G_DECIMAL)", "G_COMPLEX.imag", "G_NAMESPACE.a",
    "G_NAMESPACE.b[0]", "G_MAPPING['a']", "G_WEAK().value", "G_METHOD()", "G_GETTER(G_DICT)", "remembered(0.5)",
    "remembered(self.a0)", "wrapped.factor", "wrapped.__wrapped__(0.5)", "with_keyword.__kwdefaults__['bias']",
    "G_NESTED['list'][0]['t'][1]", "(0.5 if G_NAN != G_NAN else 1.5)", "math.copysign(1.5, G_ZERO)",
    "len(str(G_ZERO))", "self.__class__.__name__.count('o') + 0.5", "type(self).__mro__[1].c",
    "operator.attrgetter('sub.a0')(self)", "eval('self.a0')", "eval('G_FLOAT')", "sys.modules['this_helper'].VALUE",
    "__import__('this_helper').VALUE", "min(G_LIST, default=0.5)", "max(self.dct.values())",
    "len([*G_LIST, *self.lst])", "{**self.dct}['k']", "[v for v in G_LIST if v > 0.4][0]", "abs(self.a0)",
    "divmod(self.a1, 2)[1] + 0.5", "round(self.a0, 1)", "pow(self.a0, 2)", "bool(self.a1) + 0.5",
    "type(self.a1)(1.5) + 0.5", "isinstance(G_INT, bool) + 0.5", "(G_INT is True) + 0.5",
    "int(self.last is not None) + 0.5", "self.sub.training + 0.5", "len(self._modules) / 4",
    "len(list(self.sub._parameters))", "next(iter(self._buffers.values())).shape[0] / 8",
    "Block.table.get('y', 0.5)", "len(type(self).__dict__) / 32", "builtins.len(G_LIST)",
    "getattr(type(self), 'added', 0.5)", "getattr(G_SCALE, 'added', 0.5)", "getattr(this_helper, 'added', 0.5)",
    "globals().get('G_ADDED', 0.5)", "('a0' in self.__dict__) + 0.5",
)  # fmt: skip
CONDITIONS = (
    "self.flag", "G_FLAG", "self.a0 > 0.6", "self.training", "G_NAME == 'b'", "x.shape[0] > 2",
    "self.name in G_DICT", "self.last is None", "G_CONFIG.name == 'plain'", "k > 1", "G_COLOR is Color.RED",
    "bool(self.lst)", "G_SCALE", "G_SCALE == 1.25", "callable(self.fn)", "isinstance(self.sub, Block)",
    "type(self.sub) is Block", "self.fn is plus", "G_HELPER is times", "G_TENSOR is self.buf",
    "self.buf.requires_grad", "G_LIST == [0.5, 1.5]", "G_TUPLE == (1.0, (0.5, 'x'))", "cache.kept is None",
    "not cache.layers", "'a' in G_ORDERED", "hasattr(self, 'extra')", "issubclass(type(G_SCALE), Half)",
    "'forward' in self.sub.__dict__", "bool(self.sub._forward_hooks)", "any(v > 1 for v in G_LIST)",
    "G_FROZEN == Frozen()",
)  # fmt: skip
TENSORS = (
    "self.buf", "self.weight", "G_TENSOR", "G_TENSORS['t']", "self.tensors[0]", "self.tensors[-1]", "self.sub.buf",
    "self.lin.bias", "G_NESTED['list'][0]['t'][0]", "getattr(self, 'buf')", "self._buffers['buf']",
    "next(iter(G_TENSORS.values()))", "self.get_vector()", "(self.buf if self.flag else self.weight)",
    "torch.ones(8).cuda()", "torch.full((8,), 0.5, device='cuda')", "torch.tensor([0.5] * 8).cuda()",
    "self.blocks[0].weight",
)  # fmt: skip
STATEMENTS = (
    "x = x * {n}", "x = x + {n}", "x = x + {t}", "x = x * {t}", "x = self.lin(x)", "x = torch.relu(x)",
    "x = self.sub(x)", "x = self.blocks[0](x)", "x = G_HELPER(x)", "x = G_PARTIAL(x)", "x = times(x)",
    "x = plus(x, {n})", "x = self.fn(x)", "x = on_its_own(x)", "x = self.static(x)", "x = x.clone()",
    "y = x * {n}\n        x = y + x", "x = x.view(-1, 8)", "if {c}:\n            x = x * {n}",
    "if {c}:\n            x = x + {n}\n        else:\n            x = x + {t}",
    "for v in self.lst:\n            x = x + v", "for name, v in sorted(self.dct.items()):\n            x = x + v",
    "for b in self.blocks:\n            x = b(x)", "x = torch.cat([x, x])[: x.shape[0]]",
    "try:\n            x = x * self.dct['k']\n        except KeyError:\n            x = x + 1",
    "with doubled_for_a_while():\n            x = x * G_FLOAT", "x = wrapped(x)", "x = with_keyword(x)",
    "x = with_keyword(x, bias={n})", "x = deep(x, int(self.a1) % 5)", "x = G_SCALE(x)", "x = G_NAMESPACE.b[0] * x",
    "x = sum([x, x, x])", "x = super().forward(x)",
    "try:\n            x = raises_at(x, {n})\n        except ValueError as error:\n            x = x + error.args[0]",
    "def inner(v):\n            return v * self.a0 + {n}\n        x = inner(x)",
    "x = list(map(lambda v: v * {n}, [x]))[0]", "while x.shape[0] > 64:\n            x = x[:1]",
    "x = (x if {c} else x + 1)", "*_, x = (x0, x * {n})", "x = x[:, :] if {c} else x",
    "for i, b in enumerate([self.sub, *self.blocks]):\n            x = b(x) * (i + {n})", "x = x + {n}",
    "z = torch.cat([x, x0])\n        x = z[x.shape[0] :]", "with torch.no_grad():\n            x = x + {n}",
    "x = [x, x + {n}][-1]", "x = nn.functional.dropout(x, 0.5, self.training)",
)  # fmt: skip
# What a call changes, or takes from elsewhere.
CHANGES = (
    "self.count += 1", "self.dct['n'] = self.dct.get('n', 0) + 1", "G_DICT['n'] += 1", "G_LIST.append(0.5)",
    "self.buf.add_(0.5)", "self.buf = self.buf + 0.5", "self.last = x", "self.last = x.detach().clone()",
    "x0.add_(0.25)", "G_INT += 1", "G_CONFIG.alpha += 0.25", "if x.sum().item() > 1.0:\n            x = x + 1",
    "self.lst[0] += 0.5", "type(self).c += 0.25", "self.config.inner['b'] += 0.5", "G_DEQUE.append(0.75)",
    "self.a0 = 0.5", "self.tensors[0] = x.sum() * G_TENSOR", "G_TENSORS['u'] = x", "CHANGE(READ() * 0.5)",
    "x = x + torch.rand(8).cuda()",
    "cache.kept = x if cache.kept is None else cache.kept + x\n        x = cache.kept", "cache.calls += 1",
    "x = x * (1 + cache.calls % 2)", "cache.layers.append(x)", "self.sub.a0 += 0.25", "self.extra = x.shape[0]",
    "x = x * next(G_CYCLE)", "x = x * next(G_COUNTER)", "x = x + next(G_GENERATOR)", "x = x * G_DEFAULT[self.a1]",
    "G_SETS.add(self.a1)", "G_ORDERED.move_to_end('a')", "G_SCALE.value *= 0.5", "G_BYTES[0] ^= 1",
    "setattr(self, 'a1', self.a1 % 3 + 1)", "self.lst.append(self.lst.pop(0))", "self.lst.reverse()",
    "G_NAMESPACE.a = -G_NAMESPACE.a", "object.__setattr__(G_FROZEN, 'value', 0.5)",
    "with_keyword.__kwdefaults__['table']['v'] += 0.125", "x.relu()\n        x0.mul_(0.5)",
    "self.tensors[0].add_(0.25)", "G_VIEW.mul_(0.5)", "self.dct['last'] = float(self.a0)", "self.last = [x, x0]",
    "self.sub.last = self", "G_NESTED['list'].append(None)", "this_helper.VALUE += 0.5",
    "globals()['G_FLOAT'] *= 0.5", "self.fn = plus if self.fn is times else times",
)  # fmt: skip
RESULTS = (
    "x", "x", "x", "(x, {n})", "{{'out': x, 'n': {n}}}", "[x, x + 1]", "Out(x)", "Out(x, {t})", "Pair(x, x0)",
    "x[:1]", "x.t()", "(x, x)", "(x, None, [x + 1])", "x0", "collections.OrderedDict(out=x)", "self.lin(x)",
    "(x, self.buf)", "{{'cache': cache, 'x': x}}",
)  # fmt: skip
# What the program does between two calls.
BETWEEN = (
    "model.a0 = {r}", "model.a1 = {i}", "model.flag = not model.flag", "model.name = 'k'", "model.lst[0] = {r}",
    "model.lst.append({r})", "model.lst = list(model.lst)", "model.dct['k'] = {r}", "model.dct['z'] = {r}",
    "model.dct.pop('z', 0)", "model.dct = dict(model.dct)", "model.config.alpha = {r}",
    "model.config = Config({r})", "model.config.inner['b'] = {r}", "model.extra = {r}",
    "model.__dict__.pop('extra', 0)", "model.fn = times", "model.fn = plus", "model.fn = lambda x: x * {r}",
    "model.sub.a0 = {r}", "model.sub.flag = True", "model.sub.config.alpha = {r}",
    "model.sub = Block().cuda().eval()", "model.blocks[0].a0 = {r}", "model.blocks.append(Block().cuda().eval())",
    "model.buf.mul_(1.5)", "model.buf = vector()", "model.register_buffer('buf', vector())",
    "model.weight.data = vector()", "model.weight = nn.Parameter(vector())",
    "model.lin.weight.data = (torch.rand(8, 8) - 0.5).cuda()", "model.lin.bias.add_(0.5)",
    "model.lin = nn.Linear(8, 8).cuda()", "model.tensors[0] = vector()", "model.tensors[-1].add_(1)",
    "model.tensors.append(vector())", "model.train()", "model.eval()", "model.last = None",
    "model.sub.register_forward_hook(replaces_output)", "model.count = 0",
    "model.lin.forward = types.MethodType(lambda self, x: x * {r}, model.lin)",
    "model.lin.__dict__.pop('forward', 0)", "model.sub.forward = types.MethodType(doubles, model.sub)",
    "model.sub.__dict__.pop('forward', 0)", "Block.forward = doubles", "Block.c = {r}", "Block.table['x'] = {r}",
    "Block.table = {{'x': {r}}}", "Block.static = staticmethod(lambda x: x * {r})",
    "Config.scaled = lambda self, value={r}: self.alpha * value", "Config.kinds['a'] = {r}",
    "Config.doubled = property(lambda self: {r})", "Color.RED._value_ = {r}", "global G_FLOAT; G_FLOAT = {r}",
    "global G_INT; G_INT = {i}", "global G_FLAG; G_FLAG = not G_FLAG", "global G_NAME; G_NAME = 'k'",
    "global G_NAME; G_NAME = 'b'", "G_LIST[0] = {r}", "G_LIST.append({r})", "G_LIST.reverse()",
    "global G_LIST; G_LIST = list(G_LIST)", "global G_LIST; G_LIST = [{r}, {r}]", "G_DICT['k'] = {r}",
    "global G_DICT; G_DICT = dict(G_DICT)", "G_DICT['b'] = {r}", "global G_TUPLE; G_TUPLE = ({r}, (0.5, 'x'))",
    "global G_TENSOR; G_TENSOR = vector()", "G_TENSOR.add_(0.5)", "G_TENSORS['t'] = vector()",
    "G_TENSORS['t'].mul_(0.5)", "G_CONFIG.alpha = {r}", "global G_CONFIG; G_CONFIG = Config({r})",
    "G_CONFIG.inner['list'][0] = {r}", "G_CONFIG.name = 'other'", "G_SLOTTED.factor = {r}", "G_DEQUE.append({r})",
    "G_DEQUE.rotate(1)", "global G_HELPER; G_HELPER = plus", "global G_HELPER; G_HELPER = times",
    "global G_PARTIAL; G_PARTIAL = functools.partial(plus, amount={r})", "G_PARTIAL.keywords['factor'] = {r}",
    "global G_COLOR; G_COLOR = Color.BLUE", "CHANGE({r})", "HELD[0] = {r}", "times.__defaults__ = ({r},)",
    "plus.__code__ = times.__code__", "global times; times = plus", "this_helper.VALUE = {r}",
    "global HOOK_FACTOR; HOOK_FACTOR = {r}", "gc.collect()", "JUNK.append(torch.rand({i} * 64).cuda())",
    "JUNK.clear()", "math.sqrt = abs", "nn.functional.relu = torch.relu", "G_SCALE.value = {r}",
    "G_SCALE.__class__ = Half", "G_SCALE.__class__ = Scale", "Scale.__len__ = lambda self: {i}",
    "Scale.__call__ = lambda self, x: x + {r}", "Scale.__bool__ = lambda self: False", "Scale.added = {r}",
    "G_SCALE.added = {r}", "this_helper.added = {r}", "global G_ADDED; G_ADDED = {r}", "Block.added = {r}",
    "G_ANY.default = {r}", "G_ANY.something = {r}", "Anything.__getattr__ = lambda self, name: {r}",
    "G_DESCRIBED.field = {r}", "Meta.level = {r}", "Described.level = {r}", "Described.field = {r}",
    "global G_FROZEN; G_FROZEN = Frozen({r})", "global G_FROZEN; G_FROZEN = Frozen()",
    "Frozen.__eq__ = lambda self, other: False", "G_ORDERED.move_to_end('a')", "G_ORDERED['b'] = {r}",
    "G_DEFAULT['z'] = {r}", "G_CHAIN['b'] = {r}", "G_CHAIN.maps[0]['a'] = {r}", "G_ARRAY[0] = {r}",
    "G_BYTES[0] = {i}", "G_SETS.add({r})", "G_SETS.discard(0.5)",
    "global G_FRACTION; G_FRACTION = fractions.Fraction({i}, 4)",
    "global G_DECIMAL; G_DECIMAL = decimal.Decimal('{r}')", "global G_COMPLEX; G_COMPLEX = complex(0.5, {r})",
    "G_NAMESPACE.a = {r}", "G_NAMESPACE.b[0] = {r}", "G_NAMESPACE.b = [{r}]",
    "global G_MAPPING; G_MAPPING = types.MappingProxyType({{'a': {r}}})", "remembered.cache_clear()",
    "wrapped.factor = {r}", "wrapped.__wrapped__.__code__ = times.__code__",
    "with_keyword.__kwdefaults__ = {{'bias': {r}, 'table': {{'v': 0.5}}}}",
    "with_keyword.__kwdefaults__['table']['v'] = {r}", "global G_NAN; G_NAN = 0.5", "global G_ZERO; G_ZERO = -0.0",
    "global G_ZERO; G_ZERO = 0.0", "global G_INT; G_INT = True", "global G_INT; G_INT = 1",
    "global G_INT; G_INT = 1.0", "model.a1 = True", "model.a1 = 1.0", "model.a1 = 1", "model.sub.__class__ = Other",
    "model.sub.__class__ = Block", "model.__class__.__bases__ = (Other,)", "Other.c = {r}",
    "nn.Linear.forward = lambda self, x: x @ self.weight.t()", "nn.Linear.forward = LINEAR",
    "builtins.len = lambda v: 3", "builtins.len = LEN", "builtins.sum = lambda v, start=0: 0.5",
    "builtins.sum = SUM", "G_NESTED['list'][0]['t'] = (vector(), {r})", "G_NESTED['list'][0]['t'][0].add_(1)",
    "model.buf.requires_grad = True", "model.buf.requires_grad = False", "model.lin.weight = model.sub.lin.weight",
    "model.buf = model.sub.buf", "model.weight.data = model.sub.weight.data", "G_TENSOR.note = 1",
    "model.lin.weight.data = model.lin.weight.data.t()", "cache.kept = None", "cache.layers.clear()",
    "cache.__class__ = type('Cache', (Cache,), {{}})", "del model.extra", "del Block.added", "model.dct.clear()",
    "model.dct = {{'n': 0, 'k': {r}}}", "model.dct['k'] = model.dct.pop('k')",
    "model._modules['lin'] = nn.Linear(8, 8).cuda()", "model._buffers['buf'] = vector()",
    "model._parameters['weight'] = nn.Parameter(vector())", "model.blocks.reverse()", "model.blocks = [model.sub]",
    "torch.set_grad_enabled(True).__enter__()", "torch.set_grad_enabled(False).__enter__()",
    "deep.__code__ = deep.__code__.replace(co_name='deeper')", "this_helper.__dict__.pop('added', 0)",
    "sys.modules['this_helper'] = types.SimpleNamespace(VALUE={r})", "Block.prop = property(lambda self: {r})",
    "Block.of_class = classmethod(lambda cls: {r})", "Block.get_vector = lambda self: self.weight",
    "Model.forward = Model.forward", "model.sub.register_forward_pre_hook(lambda m, inputs: (inputs[0] * {r},))",
    "model.register_forward_hook(replaces_output)", "model.lin.register_forward_hook(lambda m, i, o: None)",
    "model.sub._forward_hooks.clear()", "model.sub.train()", "torch.manual_seed({i})",
    "model.sub, model.blocks[0] = model.blocks[0], model.sub",
)  # fmt: skip


INPUTS = ("new", "again", "again", "result", "part", "columns", "buffer", "changed")
AFTER = ("nothing",) * 4 + ("change", "keep", "drop")
COMMON = {
    "self",
    "model",
    "x",
    "torch",
    "vector",
    "cuda",
    "global",
    "lambda",
    "rand",
    "eval",
    "True",
    "False",
    "nn",
    "value",
}


def words(text):
    return set(re.findall(r"[A-Za-z_]\w*", text)) - COMMON


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def fill(self, template):
        pick, number = self.random.choice, lambda: f"{self.random.randrange(1, 16) / 8}"
        fillings = {"n": lambda: pick(NUMBERS), "t": lambda: pick(TENSORS), "c": lambda: pick(CONDITIONS), "r": number}
        fillings["i"] = lambda: str(self.random.randrange(1, 6))
        filled = re.sub(r"\{([ntcri])\}", lambda found: fillings[found.group(1)](), template)
        return filled.replace("{{", "{").replace("}}", "}")

    def forward(self, statements, most_changes, arguments):
        pick = self.random.choice
        lines = ["global G_INT", "x0 = x"] + [self.fill(pick(statements)) for _ in range(self.random.randrange(2, 8))]
        for _ in range(pick(most_changes)):
            lines.insert(self.random.randrange(2, len(lines) + 1), self.fill(pick(CHANGES)))
        return f"    def forward(self, x{arguments}):\n        " + "\n        ".join(lines) + "\n"

    def model(self):
        """Most change nothing in their calls: those are replayed, or their inner modules are."""
        inside = [one for one in STATEMENTS if not any(name in one for name in ("sub", "blocks", "super"))]
        part = self.forward(inside, (0, 0, 0, 0, 0, 1), ", k=1.0, cache=NO_CACHE")
        model = self.forward(STATEMENTS, (0, 0, 0, 0, 1, 1, 2), ", k=1.0, cache=None")
        return (
            f"NO_CACHE = Cache()\n\n\nclass Part(Block):\n    def __init__(self):\n        super().__init__()\n"
            f"        self.sub, self.blocks = Block(), [Block().cuda().eval()]\n\n{part}        return x\n\n\n"
            f"class Model(Block):\n    def __init__(self):\n        super().__init__()\n        self.sub = Part()\n"
            f"        self.blocks = [Part().cuda().eval()]\n\n{model}"
            f"        return {self.fill(self.random.choice(RESULTS))}\n"
        )

    def function(self):
        """What the program calls: the model by way of a function (GRAPE_REGIONS=program_*:region), or the model."""
        if self.random.random() < 0.6:
            return "def region(model, x, k=1.0, cache=None):\n    return model(x, k, cache=cache)\n\n\nCALLED = None\n"
        outside = [
            one for one in NUMBERS if not words(one) & {"a0", "a1", "a2"} and "self" not in one and "x." not in one
        ]
        factor, amount = self.random.choice(outside), self.random.choice(outside)
        return (
            f"def region(model, x, k=1.0, cache=None):\n    x = x * {factor}\n    result = model(x, k, cache=cache)\n"
            f"    return (result, x + {amount}) if G_FLAG else result\n\n\nCALLED = region\n"
        )

    def calls(self, model):
        """For each call: statement before, rows, k, one of INPUTS, one of AFTER. Most touch what the model reads."""
        read = words(model)
        touching = [one for one in BETWEEN if words(one) & read]
        often, calls = self.random.choice((0.1, 0.25, 0.4)), []
        for _ in range(self.random.randrange(12, 28)):
            among = touching if self.random.random() < 0.8 else BETWEEN
            before = self.fill(self.random.choice(among)) if calls and self.random.random() < often else "pass"
            rows = 3 if self.random.random() < 0.9 else self.random.choice((1, 2))
            k = self.random.choice((1.0,) * 9 + (2.0,))
            how = "new" if self.random.random() < 0.5 else self.random.choice(INPUTS)
            calls.append((before, rows, k, how, self.random.choice(AFTER)))
        return calls

    def source(self):
        model = self.model() + "\n\n" + self.function()
        calls = self.calls(model)
        text = [HEAD, "", model, "", "JUNK = []", ""]
        for number, (before, *_) in enumerate(calls):
            text.append(f"def before_{number}(model, cache):\n    " + before.replace("; ", "\n    ") + "\n\n")
        text.append("CALLS = [")
        text += [f"    (before_{number}, {call[1:]})," for number, call in enumerate(calls)]
        text.append("]")
        return "\n".join(text) + "\n"


def source(seed):
    return Generator(seed).source()
