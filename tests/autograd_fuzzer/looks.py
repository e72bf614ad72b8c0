"""What a program can see of its tensors after a step, as texts that two runs of it must have in common."""

import dataclasses
import hashlib
import os
import re
import types

import torch
from torch import nn

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
MOST_NODES = 80
# Behind the node of a replayed call's result are others than eager's (docs/TRAINING.md): FUZZER_GRAPH=name compares names.
WHOLE_GRAPHS = os.environ.get("FUZZER_GRAPH", "whole") == "whole"


def error_text(error):
    return ADDRESS.sub("0x", f"{type(error).__name__}: {error}")[:600]


def bytes_of(tensor):
    with torch.no_grad():
        plain = tensor.detach().contiguous().cpu()
    values = plain.flatten()[:3].tolist()
    content = hashlib.sha256(plain.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()[:12]
    return f"{content} {[round(value, 5) if isinstance(value, float) else value for value in values]}"


class Look:
    """One look at everything; `full`: at autograd's state as well, which makes a view's grad_fn anew."""

    def __init__(self, full):
        self.full, self.names, self.nodes, self.storages, self.seen = full, {}, {}, {}, {}
        self.tensors, self.bases = [], {}

    def find(self, name, value, depth=0):
        """Gives all tensors under `value` names."""
        if isinstance(value, torch.Tensor):
            if id(value) in self.names:
                self.seen[name] = f"is {self.names[id(value)]}"
            else:
                self.names[id(value)] = name
                self.tensors.append((name, value))
        elif depth > 8:
            return
        elif isinstance(value, nn.Module):
            if id(value) in self.names:
                self.seen[name] = f"is {self.names[id(value)]}"
                return
            self.names[id(value)] = name
            self.seen[name] = f"training {value.training}"
            for part in (value._parameters, value._buffers, value._modules):
                self.find(name, part, depth + 1)
            rest = {key: one for key, one in value.__dict__.items() if not key.startswith("_") and key != "training"}
            self.find(name, rest, depth + 1)
        elif isinstance(value, dict):
            for key, one in value.items():
                self.find(f"{name}.{key}", one, depth + 1)
        elif isinstance(value, (list, tuple)):
            self.seen[name] = f"{type(value).__name__} of {len(value)}"
            for number, one in enumerate(value):
                self.find(f"{name}.{number}", one, depth + 1)
        elif isinstance(value, torch.optim.Optimizer):
            self.find(name, list(value.state.values()), depth + 1)
        elif isinstance(value, types.SimpleNamespace) or dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
            if not isinstance(value, (type, types.FunctionType)) and type(value).__module__ != "torch.utils.hooks":
                self.find(name, dict(value.__dict__), depth + 1)
        else:
            self.seen[name] = repr(value)

    def describe(self, name, tensor, grad=True):
        facts = {"bytes": bytes_of(tensor), "shape": str(list(tensor.shape)), "dtype": str(tensor.dtype)}
        facts["stride"] = f"{tensor.stride()} at {tensor.storage_offset()}"
        facts["storage"] = self.storages.setdefault(tensor.untyped_storage().data_ptr(), name)
        facts["inference"] = str(tensor.is_inference())
        if not tensor.is_inference():
            facts["version"] = str(tensor._version)
        if self.full:
            facts["requires_grad"], facts["is_leaf"] = str(tensor.requires_grad), str(tensor.is_leaf)
            facts["output_nr"], facts["retains_grad"] = str(tensor.output_nr), str(tensor.retains_grad)
            facts["base"] = self.base(name, tensor._base)
            facts["hooks"] = str(len(tensor._backward_hooks or ()))
            facts["grad_fn"] = self.graph(tensor.grad_fn) if WHOLE_GRAPHS else name_of(tensor.grad_fn)
        for fact, text in facts.items():
            self.seen[f"{name} {fact}"] = text
        if grad and (tensor.is_leaf or tensor.retains_grad if self.full else isinstance(tensor, nn.Parameter)):
            self.seen[f"{name} grad"] = str(tensor.grad is not None)
            if tensor.grad is not None:
                self.describe(f"{name}.grad", tensor.grad, grad=False)

    def base(self, name, base):
        """Which tensor it is: one that has a name, or one that is only seen as what others are views of."""
        if base is None:
            return "none"
        if id(base) in self.names:
            return self.names[id(base)]
        first, _ = self.bases.setdefault(id(base), (name, base))
        version = "none" if base.is_inference() else base._version
        return (f"that of {first}: {base.dtype} {list(base.shape)} {base.stride()} at {base.storage_offset()} "
                f"version {version} requires_grad {base.requires_grad} is_leaf {base.is_leaf}")  # fmt: skip

    def graph(self, node):
        """All nodes behind, in the order in which they are come to, and which of them is older than which."""
        if node is None:
            return "none"
        numbers, nodes, texts = {id(node): 0}, [node], []
        for one in nodes:
            edges = []
            for following, which in one.next_functions:
                if following is not None and id(following) not in numbers and len(nodes) < MOST_NODES:
                    numbers[id(following)] = len(nodes)
                    nodes.append(following)
                edges.append(f"{numbers.get(id(following), '-')}.{which}")
            variable = getattr(one, "variable", None) if "AccumulateGrad" in one.name() else None
            of = "" if variable is None else f"[{self.names.get(id(variable), tuple(variable.shape))}]"
            texts.append(f"{one.name()}{of}({','.join(edges)})")
        order = sorted((one for one in range(len(nodes)) if "[" not in texts[one]), key=lambda at: age(nodes[at]))
        return " ".join(texts) + " ages " + ",".join(map(str, order))

    def random_state(self):
        for device, state in (("cpu", torch.get_rng_state()), ("cuda", torch.cuda.get_rng_state())):
            self.seen[f"random {device}"] = hashlib.sha256(state.numpy().tobytes()).hexdigest()[:12]


def name_of(node):
    return "none" if node is None else node.name()


def age(node):
    return node._sequence_nr()


def look(state, program, log, full):
    """{what: text} of all that the state and the program's globals hold."""
    seeing = Look(full)
    seeing.find("s", state)
    for name in sorted(vars(program)):
        if name.startswith("G_"):
            seeing.find(name, vars(program)[name])
    for name, tensor in seeing.tensors:
        try:
            seeing.describe(name, tensor)
        except Exception as error:
            seeing.seen[f"{name} error"] = error_text(error)
    seeing.seen["log"] = repr(log)
    seeing.random_state()
    return seeing.seen
