"""How a random program uses its net: ways to call it, and what happens between the calls."""

# What is called; s.net, one of its modules, or a function. {a}: the argument.
INPUTS = (
    "data(k, grad=True) * 1", "data(k, grad=True) + 0", "(data(k, 8, True) * 1)[:4]", "(data(k, grad=True) * 1).t()",
    "(data(k, grad=True) * 1).view(4, 4)", "(data(k, grad=True) * 1).clone()", "data(k)", "data(k, 8)[2:6]",
    "(data(k, grad=True) * 1).detach()",
)  # fmt: skip
RARE_INPUTS = (
    "data(k, grad=True)", "data(k, 8, True)[:4]", "torch.tanh(data(k, grad=True))", "s.net.buf.clone()", "s.net.w",
    "s.r if isinstance(s.r, torch.Tensor) and s.r.shape == (4, 4) else data(k)", "s.x if k % 8 else data(k)",
)  # fmt: skip
CONTEXTS = (None, None, None, None, None, None, "torch.no_grad()", "torch.no_grad()", "torch.enable_grad()")
RARE_CONTEXTS = (
    "torch.inference_mode()", "saved_tensors_hooks(count_packed, give_back)", "torch.autograd.graph.save_on_cpu()",
    "saved_tensors_hooks(count_packed, give_back)", "torch.autograd.set_multithreading_enabled(False)",
    "torch.autocast('cuda', torch.bfloat16)", "torch.autograd.graph.disable_saved_tensors_hooks('none here')",
    "torch.autograd._force_original_view_tracking(True)", "torch.autograd.detect_anomaly(check_nan=False)",
)  # fmt: skip
CALLS = ("{f}({a})",)
RARE_CALLS = ("checkpoint({f}, {a}, use_reentrant=False)", "checkpoint({f}, {a}, use_reentrant=True)")
AFTER = (
    "loss_of(r, x).backward()", "loss_of(r, x).backward()", "loss_of(r, x).backward()", "loss_of(r).backward()",
    "loss_of(x).backward()", "pass", "s.kept = [r, x]", "(loss_of(r) + loss_of(x) * 2).backward()",
    "loss = loss_of(r, x)\nloss.backward(retain_graph=True)\nloss.backward()",
)  # fmt: skip
RARE_AFTER = (
    "loss_of(r, x).backward(inputs=list(s.net.parameters())[:3])", "s.kept = [r]",
    "s.grads = torch.autograd.grad(loss_of(r, x), list(s.net.parameters()), allow_unused=True)",
    "loss = loss_of(r, x)\nloss.backward()\nloss.backward()",
    "s.grads = torch.autograd.grad(loss_of(r, x), [x], create_graph=True, allow_unused=True)\n"
    "loss_of(s.grads, r).backward()", "loss_of(s.kept).backward()\ns.kept = [r]",
)  # fmt: skip
OPTIMIZERS = (
    None, "torch.optim.SGD(s.net.parameters(), lr=0.05)", "torch.optim.SGD(s.net.parameters(), lr=0.05, momentum=0.9)",
    "torch.optim.Adam(s.net.parameters(), lr=0.01)", "torch.optim.AdamW(s.net.parameters(), lr=0.01, foreach=True)",
)  # fmt: skip

# {p} a parameter, {o} a module.
CHANGES = (
    "{p}.requires_grad_(False)", "{p}.requires_grad_(True)", "{o}.requires_grad_(False)", "{o}.requires_grad_(True)",
    "{o}.train()", "{o}.eval()", "s.net.eval()", "s.net.train()", "s.net.zero_grad(set_to_none=False)",
    "with torch.no_grad():\n    {p}.mul_(0.9)", "{p}.data = {p}.data.clone()",
    "{o}.w = nn.Parameter({o}.w.detach().clone())", "{o}.buf.add_(0.125)", "{o}.buf.requires_grad_()",
    "{o}.buf = {o}.buf.detach().clone()", "{o}.state = {o}.state.detach()", "{o}.state = data(9, grad=True) * 1",
    "G_T.requires_grad_()", "G_T.requires_grad_(False)", "G_T.add_(0.125)", "G_P.requires_grad_(False)",
    "G_R.detach_()", "s.handles.append({p}.register_hook(double))",
    "s.handles.append({p}.register_post_accumulate_grad_hook(note_grad))",
    "s.handles.append({o}.register_forward_hook(halves_output))",
    "s.handles.append({o}.register_forward_hook(no_replacement))",
    "s.handles.append({o}.register_forward_hook(retains_output))",
    "s.handles.append({o}.register_forward_pre_hook(retains_input))",
    "s.handles.append({o}.register_full_backward_hook(note_backward))", "s.handles and s.handles.pop().remove()",
    "s.handles and s.handles.pop().remove()", "{p}.grad = None", "{p}.grad = torch.ones_like({p})",
    "s.net.load_state_dict(s.net.state_dict())", "for one in tensors_of(s.r): one.detach().mul_(0.5)",
    "for one in tensors_of(s.r): one.mul_(0.5)", "loss_of(s.r, s.x).backward()", "loss_of(s.kept).backward()",
    "s.r = None", "s.kept = [s.r, s.x]", "s.x.add_(1)", "data(5, grad=True).add_(1)", "{p}.add_(0.1)",
    "{o}.holder.t = data(6)", "{o}.holder.t = data(6, grad=True)", "{o}.kept = None",
    "torch.nn.utils.clip_grad_norm_(s.net.parameters(), 0.5)",
)  # fmt: skip

# On the argument, ahead of a call.
ON_ARGUMENT = (
    "x.requires_grad and x.retain_grad()", "x.requires_grad and x.register_hook(double)",
    "y = x.tanh()", "y = x * x", "v = x[1:]", "x.requires_grad and x.grad_fn and x.grad_fn.register_hook(lambda *g: None)",
)  # fmt: skip


class Pattern:
    """One way to call the net."""

    def __init__(self, usage, **fixed):
        pick, chance = usage.random.choice, usage.random.random
        either = lambda often, seldom: pick(often if chance() < usage.tame else seldom)  # noqa: E731
        self.input, self.context = either(INPUTS, RARE_INPUTS), either(CONTEXTS, RARE_CONTEXTS)
        self.call, self.after = either(CALLS, RARE_CALLS), either(AFTER, RARE_AFTER)
        self.target = pick(usage.targets)
        self.before = pick(ON_ARGUMENT) if chance() < 0.2 else None
        self.times = pick((1, 2, 2, 3))
        self.optimized = chance() < 0.6
        self.__dict__.update(fixed)

    def near(self, usage):
        """The same but for one or two things."""
        other = Pattern(usage)
        kept = dict(self.__dict__)
        for name in usage.random.sample(("input", "context", "call", "after", "before", "input", "context"), 2):
            kept[name] = getattr(other, name)
        return Pattern(usage, **kept)

    def lines(self):
        path, argument = self.target
        argument = argument.replace("{h}", "x").replace("{{", "{").replace("}}", "}")
        template = self.call if "=" not in argument else "{f}({a})"
        call = "r = " + template.replace("{f}", path).replace("{a}", argument)
        lines = [f"s.x = x = {self.input}", *([self.before] if self.before else [])]
        lines += [f"with {self.context}:", f"    {call}"] if self.context else [call]
        lines += ["s.r = r", *self.after.split("\n")]
        if self.times > 1:
            lines = [f"for k in range(k, k + {self.times}):", *("    " + line for line in lines)]
        if self.optimized:
            lines = ["s.net.zero_grad()", *lines, "s.optimizer and s.optimizer.step()"]
        return lines


class Usage:
    def __init__(self, maker, net):
        self.random, self.net = maker.random, net
        self.paths = list(self.find("s.net", net))
        self.targets = [("s.net", net.passed), ("s.net", net.passed), ("region_net", "s.net, {h}")]
        self.targets += [(path, module.passed) for path, module in self.paths[1:]]
        self.detaches = maker.state_with_grad and self.random.random() < 0.8

    def find(self, path, module):
        yield path, module
        for number, child in enumerate(module.children):
            yield from self.find(f"{path}.p{number}", child)

    def fill(self, template):
        path = self.random.choice(self.paths)[0]
        parameter = f"{self.random.choice(self.paths)[0]}.{self.random.choice(('w', 'b', 'w', 'b'))}"
        return template.replace("{o}", path).replace("{p}", parameter)

    def forget(self):
        lines = ["G_R.detach_()"]
        for path, _ in self.paths:
            lines += [f"{path}.state.detach_()", f"{path}.holder.t.detach_()"]
        return lines

    def step(self, number, name):
        lines = []
        for _ in range(self.random.choice((0,) * 7 + (1, 1, 2)) if number else 0):
            lines += self.fill(self.random.choice(CHANGES)).split("\n")
        if self.detaches:
            lines.append("forget(s)")
        lines.append(f"{name}(s, {number * 4})")
        return lines

    def source(self):
        self.tame = 0.85
        main = Pattern(self)
        self.tame = 0.5
        patterns = [main, main.near(self), main.near(self), Pattern(self)]
        functions = [("start()", [
            f"s = new_state({self.net.name}().cuda(), optimizer=None, grads=None)",
            f"s.optimizer = {self.random.choice(OPTIMIZERS)}",
            *([self.fill(self.random.choice(CHANGES)).replace("s.r", "s.x")] if self.random.random() < 0.4 else []),
            "return s",
        ])]  # fmt: skip
        functions.append(("region_net(net, x)", ["return net(x)"]))
        functions.append(("forget(s)", self.forget()))
        functions += [(f"pattern_{number}(s, k)", pattern.lines()) for number, pattern in enumerate(patterns)]
        often, phase = self.random.choice((0.05, 0.2, 0.35)), 0
        for number in range(self.random.randrange(12, 31)):
            if number > 5 and self.random.random() < 0.08:
                phase = self.random.randrange(4)
            other = number > 4 and self.random.random() < often
            name = f"pattern_{self.random.randrange(1, 4) if other else phase}"
            functions.append((f"step_{number}(s)", self.step(number, name)))
        functions = [(name, "\n".join(lines).replace("\n", "\n    ")) for name, lines in functions]
        return "\n\n".join(f"def {name}:\n    {body}\n" for name, body in functions) + f"\n\nLOOK = {self.look()!r}\n"

    def look(self):
        """How much is looked at after each step: what looks at a view's grad_fn makes that anew."""
        return self.random.choice(("all", "all", "bytes"))
