"""The statements of random programs' modules, as templates.

{h} a variable of 4 x 4, {t} a tensor to write to ({h} or a view of it), {m} another 4 x 4, {v} one of 4, {s} a tensor
without dimensions, {n} a number. Behind each: what it means for writing to {h} in place afterwards. "": nothing, its
value is a new one; "s": autograd saved {h} as it is now, so that writing to it breaks the backward pass; "w": it
must not be written to either.
"""

VIEWS = (
    "{h}", "{h}", "{h}", "{h}[1:]", "{h}[:, :2]", "{h}.t()", "{h}.diagonal()", "{h}.view(-1)[::2]", "{h}.view(2, 8)",
    "{h}[0]", "{h}.select(1, 0)", "{h}.narrow(0, 1, 3)", "{h}.unsqueeze(0)[0]", "{h}.detach()", "{h}.data",
    "{h}.view_as({h})", "{h}.flatten()", "{h}.expand(1, 4, 4)[0]", "{h}.as_strided((4,), (5,))", "{h}.detach()[1:]",
    "{h}.T[:3]",
)  # fmt: skip

# {h} is another tensor afterwards.
OUT_OF_PLACE = (
    ("{h} = {h} + {v}", ""), ("{h} = {h} * {n}", ""), ("{h} = {h} - {m}", ""), ("{h} = {h}.clone()", ""),
    ("{h} = torch.tanh({h})", "s"), ("{h} = {h}.sigmoid()", "s"), ("{h} = {h}.sin()", ""), ("{h} = {h} @ {m}", ""),
    ("{h} = {h} * {m}", ""), ("{h} = self.lin({h})", ""), ("{h} = F.relu({h})", "s"), ("{h} = self.lin({h})", ""),
    ("{h} = F.softmax({h}, -1)", "s"), ("{h} = {h}.t().contiguous()", ""), ("{h} = torch.cat({h}.chunk(2))", ""),
    ("{h} = torch.stack({h}.unbind(0))", ""), ("{h} = torch.where({h} > 0, {h}, {m})", ""),
    ("{h} = F.layer_norm({h}, (4,))", ""), ("{h} = F.dropout({h}, 0.25, self.training)", ""),
    ("{h} = {h} + {s}", ""), ("{h} = Saves.apply({h})", ""), ("{h} = Doubles.apply({h})", ""),
    ("{h} = Once.apply({h})", ""), ("{h} = Two.apply({h})[0]", ""), ("{h} = {h} + torch.rand_like({h})", ""),
    ("{h} = torch.add({h}, {m}, alpha={n})", ""), ("{h} = F.elu({h})", ""), ("{h} = {h}.detach() + {v}", ""),
    ("{h} = {h} + self.lin({h}).sum(-1, keepdim=True)", ""), ("{h} = {h}.masked_fill({h} > 0.25, {n})", ""),
)  # fmt: skip

# {h} is a view of what it was, or the same.
SAME_MEMORY = (
    ("{h} = {h}.view(2, 8).view(4, 4)", ""), ("{h} = {h}.t()", ""), ("{h} = {h}.detach()", ""), ("{h} = {h}.data", ""),
    ("{h} = {h}[:]", ""), ("{h} = {h}.view_as({h})", ""), ("{h} = Same.apply({h})", "w"),
    ("{h} = Picks.apply({h})", "w"), ("{h} = {h}.contiguous()", ""), ("{h} = {h}.float()", ""),
    ("{h} = {h}.expand(4, 4)", ""), ("{h} = {h}.unbind(0)[1] + {h}", ""), ("{h} = torch.cat({h}.chunk(2))", ""),
    ("{h} = {h}.unsqueeze(0).squeeze(0)", ""),
)  # fmt: skip

IN_PLACE = (
    ("{t}.add_({s})", ""), ("{t}.mul_({n})", ""), ("{t}.zero_()", ""), ("{t}.fill_({n})", ""), ("{t}.copy_({s})", ""),
    ("{t}.clamp_(-0.5, 0.5)", ""), ("{t}.relu_()", "s"), ("{t}.tanh_()", "s"), ("{t}.sigmoid_()", "s"),
    ("{t}.sub_({n})", ""), ("{t}.neg_()", ""), ("{t}.masked_fill_({t} > 0.25, {n})", ""),
    ("torch._foreach_mul_([{t}], {n})", ""), ("torch._foreach_add_([{t}], {n})", ""),
    ("{t}.index_fill_(0, INDEX, {n})", ""), ("F.elu({t}, inplace=True)", "s"), ("F.leaky_relu_({t}, 0.1)", "s"),
    ("F.hardtanh_({t}, -0.5, 0.5)", ""), ("F.silu({t}, inplace=True)", ""), ("{t}.addcmul_({s}, {s})", ""),
    ("F.dropout({t}, 0.25, self.training, inplace=True)", ""), ("{t}[0] = {n}", ""), ("{t}[...] = {s}", ""),
    ("{t}.lerp_({s}, 0.25)", ""), ("{t}.uniform_()", ""), ("{t}.mul_({n}).add_({s})", ""),
)  # fmt: skip

# The same, of all of {h} only.
IN_PLACE_WHOLE = (
    ("{h} += {v}", ""), ("{h} *= {n}", ""), ("{h} += {m}", ""), ("{h}.copy_({m})", ""),
    ("{h}.add_({m}, alpha={n})", ""), ("{h}.addmm_({m}, {m})", ""), ("{h}.scatter_(0, PLACES, {m})", ""),
    ("{h}.scatter_add_(0, PLACES, {m})", ""), ("{h}.masked_scatter_({h} > 0.1, {m})", ""),
    ("{h}.index_add_(0, INDEX, {m}[:2])", ""), ("{h}.index_copy_(0, INDEX, {m}[:2])", ""),
    ("{h}[:, :2].copy_({m}[:, 2:])", ""), ("{h}[1:] += {m}[1:]", ""), ("{h}.data.mul_({n})", ""),
    ("Dirty.apply({h})", ""), ("DirtyUnwritten.apply({h})", ""), ("self.act({h})", "s"), ("self.act({h})", "s"),
    ("self.act({h})", "s"), ("{h}.add_(self.lin({m}))", ""), ("{h}[:, :2].copy_(self.lin({m})[:, 2:])", ""),
)  # fmt: skip

# What shows in autograd alone, and what seldom works.
RARE = (
    ("{h}.t_()", ""), ("{h}.detach_()", ""), ("{h}.requires_grad_()", ""),
    ("if {h}.requires_grad: {h}.retain_grad()", ""), ("if {h}.requires_grad: {h}.retain_grad()", ""),
    ("if {h}.requires_grad: {h}.register_hook(double)", ""), ("{h}.unsqueeze_(0).squeeze_(0)", ""),
    ("{h}.data = {m}.detach().clone()", ""), ("torch.add({m}, {n}, out={h})", ""), ("{h}.mul_({m})", "s"),
    ("{h}.requires_grad_(False)", ""), ("{h}.unbind(0)[1].mul_({n})", ""), ("{h}.chunk(2)[0].zero_()", ""), ("{h}.grad = None", ""), ("{h}.set_({m}.detach().clone())", ""),
)  # fmt: skip

# State beyond the call. Those of the second list keep gradients of earlier calls, unless the program detaches them.
STATE = (
    "self.buf.mul_(0.5).add_({m}.detach(), alpha=0.25)", "self.buf.copy_({m}.detach())", "self.buf = {m}.detach() * {n}",
    "G_T.mul_({n})", "G_T.copy_({m}.detach())", "G_S['t'].add_({s}.detach())", "self.kept = {h}.detach()",
    "self.w.data.mul_(0.75)", "G_O.t.lerp_({m}.detach(), 0.25)", "self.buf[1:].zero_()",
    "self.kept = {h}.mean().detach()", "self.holder.t.mul_(0.5)",
)  # fmt: skip
STATE_WITH_GRAD = (
    "self.state.mul_(0.5).add_({m})", "self.state.mul_(0.5).add_(self.lin({m}))", "G_R.mul_(0.5).add_({m})",
    "G_R[1:].copy_({m}[:3])", "self.state = self.state * 0.5 + {m}", "self.kept = {h}", "self.holder.t = {h}",
    "G_L[0].mul_(0.5).add_({s})", "self.state.fill_({n})",
)  # fmt: skip

BLOCKS = (
    "torch.no_grad()", "torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.enable_grad()",
    "torch.set_grad_enabled(self.training)", "torch.inference_mode()",
    "saved_tensors_hooks(give_back, give_back)", "torch.autograd.graph.save_on_cpu()",
    "torch.autograd._unsafe_preserve_version_counter({h})", "torch.autograd.set_multithreading_enabled(False)",
)  # fmt: skip

# What a module returns, and what its caller makes of it: a new {h}, by the result {r}. None: {h} stays.
RESULTS = (
    ("None", None), ("None", None), ("None", None), ("{x}", "{r}"), ("{x}", "{r}"), ("{x}", None), ("{h}", "{r}"),
    ("{h}", "{r}"), ("{h}", "{r}"), ("{h}.detach()", "{h} + {r}"), ("{h}.detach()", "{r} * {h}"),
    ("{h}.detach()", "{h} + {r}"), ("{h}.view(-1)", "{r}.view(4, 4)"), ("({h}, {h})", "{r}[0] + {r}[1]"),
    ("({x}, {h})", "{r}[0] + {r}[1]"), ("[{h}, {x}]", "{r}[0]"), ("{{'y': {h}}}", "{r}['y']"), ("Box({h})", "{r}.x"),
    ("{h}[1:]", "torch.cat([{r}, {r}[:1]])"), ("{h}.t()", "{r}"), ("{h}.diagonal()", "{h} + {r}"),
    ("{h}.data", "{h} + {r}"), ("{h}.topk(2).indices", "{h} + {r}.sum()"), ("{h}.argmax(-1)", "{h} + {r}"),
    ("{h} > 0", "torch.where({r}, {h}, {h} * 0.5)"), ("self.buf", "{h} + {r}"), ("self.w", "{h} @ {r}"),
    ("G_T", "{h} + {r}"), ("{h}.sum()", "{h} + {r}"), ("{h}.chunk(2)", "torch.cat({r})"),
    ("{h}.unbind(0)", "torch.stack({r})"), ("{h}.expand(2, 4, 4)", "{r}[1]"), ("({h}, None, 1)", "{r}[0]"),
    ("({h}.detach(), {x})", "{r}[0] + {r}[1]"), ("Box({x}, {h}.detach())", "{r}.x + {r}.more"),
    ("{x}[:, :2]", None), ("{x}.detach()", "{h} + {r}"), ("self.state", "{h} + {r}"),
)  # fmt: skip

# How a module gets its argument: parameter, the line that takes it out, what the caller passes.
ARGUMENTS = (
    ("x", None, "{h}"), ("x", None, "{h}"), ("x", None, "{h}"), ("x", None, "{h}"), ("xs", "x = xs[0]", "[{h}]"),
    ("d", "x = d['x']", "{{'x': {h}, 'k': 1}}"), ("box", "x = box.x", "Box({h})"), ("x, g=None", None, "{h}, g=G_T"),
    ("x, *more", None, "{h}, {h}"), ("box", "x = box.more[0]", "Box(None, ({h}, 2))"), ("x", None, "{h}[:]"),
    ("x", None, "{h}.view(4, 4)"), ("x", None, "{h}.t()"),
)  # fmt: skip

# How a module calls another one.
CALLS = (
    "{r} = {call}({a})", "{r} = {call}({a})", "{r} = {call}({a})", "{r} = {call}({a})", "{r} = {call}({a})",
    "with torch.no_grad():\n    {r} = {call}({a})", "with torch.enable_grad():\n    {r} = {call}({a})",
    "{r} = checkpoint({call}, {a}, use_reentrant=False)", "{r} = checkpoint({call}, {a}, use_reentrant=True)",
    "with saved_tensors_hooks(give_back, give_back):\n    {r} = {call}({a})",
)  # fmt: skip

ACTIVATIONS = (
    "nn.ReLU(inplace=True)", "nn.ELU(inplace=True)", "nn.CELU(inplace=True)", "nn.SELU(inplace=True)",
    "nn.LeakyReLU(0.1, inplace=True)", "nn.Hardtanh(inplace=True)", "nn.Hardswish(inplace=True)",
    "nn.SiLU(inplace=True)", "nn.Dropout(0.25, inplace=True)", "nn.Threshold(0.1, 0.0, inplace=True)",
    "nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.25))", "nn.Mish(inplace=True)", "nn.ReLU6(inplace=True)",
)  # fmt: skip
LAYERS = (
    "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)", "nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))",
    "nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))", "nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))",
    "nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))",
)  # fmt: skip
