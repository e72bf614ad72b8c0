"""PyTorch's own modules and transformations: recurrent ones, attention, parametrizations, script, func, training."""

from typing import Any

import bed
from small import CALLS, F, Net, Run, case, data, net, nn, torch


@case("LSTM, GRU, RNN: states passed along, projections, two directions, batch first or not, weights replaced")
def recurrent_layers(run: Run) -> None:
    kinds = [
        lambda: nn.LSTM(32, 48, 2),
        lambda: nn.LSTM(32, 48, proj_size=16, bidirectional=True),
        lambda: nn.GRU(32, 48, 2, batch_first=True, bidirectional=True),
        lambda: nn.RNN(32, 48, nonlinearity="relu"),
    ]
    for kind in kinds:
        model, state = net(kind), None
        for i in range(26):
            if i == 9:
                state = None
            if i == 12:
                model.weight_hh_l0.mul_(1.1)
            if i == 15:
                model.weight_ih_l0 = nn.Parameter(model.weight_ih_l0 * 0.9, requires_grad=False)
            if i == 18:
                model.flatten_parameters()
            if i == 21:
                model.weight_hh_l0.data = model.weight_hh_l0.data * 1.2
            y, state = model(data(i, 5, 4, 32)) if state is None else model(data(i, 5, 4, 32), state)
            if i % 4 == 3:
                state = tuple(s * 0.5 for s in state) if isinstance(state, tuple) else state * 0.5
            run.see(y, state)


@case("packed sequences of changing lengths, enforced and unsorted, through LSTM and GRU, padded again")
def packed_sequences(run: Run) -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = nn.LSTM(16, 32, batch_first=True), nn.GRU(32, 32, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            packed, state = self.lstm(packed)
            packed, last = self.gru(packed)
            return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True), state, last

    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 32)

        def forward(self, packed: Any) -> Any:
            return self.lstm(packed)

    model, given = net(Packed), net(Given)
    for i in range(30):
        lengths = [[6, 4, 2], [2, 6, 3], [6, 6, 1]][i // 2 % 3 if i > 9 else 0]
        x = data(i, 3, 6, 16)
        run.see(model(x, torch.tensor(lengths) if i % 2 else lengths))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        run.see(given(packed))


@case("cuDNN's dropout state: an LSTM with dropout in train mode under no_grad, beside another one, reseeded")
def recurrent_dropout(run: Run) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LSTM(16, 32, 2, dropout=0.4), nn.GRU(32, 32, 3, dropout=0.2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.b(self.a(x)[0])

    model, other = net(Both).train(), net(Both, seed=4).train()
    run.seed(5)
    for i in range(36):
        if i in (10, 20):
            run.seed(5)
        if i in (14, 24):
            model.eval()
        if i in (16, 26):
            model.train()
        run.see(model(data(i, 5, 3, 16)))
        if i % 4 == 3:
            run.see(other(data(i, 5, 3, 16)), torch.rand(2, device=bed.device()))


@case("MultiheadAttention and TransformerEncoder: fast path on and off, key padding masks, nested tensors, weights")
def attention_layers(run: Run) -> None:
    encoder = net(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1), 2, enable_nested_tensor=True
        )
    )
    attention = net(lambda: nn.MultiheadAttention(64, 4, batch_first=True, dropout=0.1))
    for i in range(48):
        x = data(i, 3, 6, 64)
        mask = torch.arange(6, device=x.device)[None] >= torch.tensor([6, 4, 2 + i % 2], device=x.device)[:, None]
        if i in (12, 30):
            torch.backends.mha.set_fastpath_enabled(False)
        if i in (20, 36):
            torch.backends.mha.set_fastpath_enabled(True)
        if i == 24:
            encoder.train(), attention.train()
        if i == 28:
            encoder.eval(), attention.eval()
        run.see(encoder(x), encoder(x, src_key_padding_mask=mask))
        run.see(
            attention(x, x, x, key_padding_mask=mask, need_weights=i % 4 > 1, average_attn_weights=i % 8 > 3),
            attention(x, x[:, :3], x[:, :3], attn_mask=torch.zeros(6, 3, device=x.device), need_weights=False),
        )


@case("scaled_dot_product_attention under sdpa_kernel contexts and orders, with dropout, masks, scale, causal, GQA")
def attention_kernels(run: Run) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.p = nn.Linear(64, 192), 0.0

        def forward(self, x: torch.Tensor, mask: Any = None, causal: bool = False) -> torch.Tensor:
            q, k, v = self.qkv(x).view(2, -1, 3, 4, 16).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.p, is_causal=causal)
            return y.transpose(1, 2).reshape(2, -1, 64)

    model = net(Attention, dtype=torch.bfloat16 if run.cuda else torch.float32)
    dtype = next(model.parameters()).dtype
    backends = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    mask = torch.ones(16, 16, device=bed.device(), dtype=torch.bool).tril()
    for p in (0.0, 0.25):
        model.p = p
        for i in range(45):
            x = data(i, 2, 16, 64, dtype=dtype)
            order = [[backends[i // 3 % 3], SDPBackend.MATH], [SDPBackend.MATH, backends[i // 3 % 3]]][i // 9 % 2]
            with sdpa_kernel(order, set_priority=True):
                run.see(model(x, causal=i % 2 == 0), model(x, mask) if i % 3 == 0 else None, label=f"dropout {p}")
        for i in range(CALLS):
            run.see(model(data(i, 2, 16, 64, dtype=dtype)))


@case("weight_norm, spectral_norm and orthogonal, in train and eval; removed after proofs; originals changed")
def parametrizations(run: Run) -> None:
    from torch.nn.utils import parametrizations as P

    def make() -> Any:
        model = Net()
        P.weight_norm(model.first), P.spectral_norm(model.second), P.orthogonal(model.third)
        return model

    model = net(make)
    for i in range(60):
        if i == 9:
            model.train()
        if i == 20:
            model.eval()
        if i == 26:
            model.second.parametrizations.weight.original.mul_(1.2)
        if i == 32:
            nn.utils.parametrize.remove_parametrizations(model.first, "weight")
        if i == 38:
            model.first.weight.mul_(0.5)
        if i == 44:
            model.third.weight = torch.linalg.qr(data(1, 128, 128))[0][:64]
        if i == 50:
            model.train()
        run.see(model(data(i)), [b for b in model.buffers()])
    old = net()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(old.first), nn.utils.spectral_norm(old.second)
    for i in range(24):
        if i == 10:
            old.train()
        if i == 16:
            old.eval()
        run.see(old(data(i)), old.second.weight)


@case(
    "BatchNorm in train mode under no_grad (also momentum None: a number read from the device), dropout, SyncBatchNorm"
)
def batch_norms(run: Run) -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.BatchNorm1d(64), nn.BatchNorm1d(64, momentum=None)
            self.c, self.d = nn.BatchNorm1d(64, affine=False, track_running_stats=False), nn.Dropout(0.3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.d(self.c(self.b(torch.tanh(self.a(x)))))

    model = net(Norms).train()
    for i in range(40):
        if i in (13, 25):
            model.eval()
        if i in (17, 29):
            model.train()
        if i == 21:
            model.a.reset_running_stats()
        if i == 33:
            model.a.momentum = 0.5
        run.see(model(data(i, 8, 64)), [b for b in model.buffers()])


@case("script and trace: modules inside of ordinary ones, functions, several shapes, weights and constants changed")
def scripted_parts(run: Run) -> None:
    import warnings

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.steps, self.gain = nn.Linear(64, 64), 2, 1.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.steps):
                x = torch.tanh(self.a(x)) * self.gain + x * 0.5
            return torch.relu(x)

    class Outer(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.b, self.scale = inner, nn.Linear(64, 64), 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return pointwise(self.b(self.inner(x)), self.scale) + self.scale

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = net(Part)
        made = [torch.jit.script(part), torch.jit.trace(part, data(0)), torch.jit.freeze(torch.jit.script(net(Part)))]
        for inner in made:
            torch.manual_seed(1)
            model = Outer(inner).to(bed.device()).eval()
            for i in range(30):
                if i == 10:
                    model.scale = 3.0
                if i == 14 and hasattr(inner, "a"):
                    inner.a.weight.mul_(1.1)
                if i == 18 and inner is made[0]:
                    inner.gain = 0.75
                if i == 22 and hasattr(inner, "a"):
                    inner.a.bias.data = inner.a.bias.data + 1
                run.see(model(data(i)) if i % 5 != 4 else model(data(i, 7, 64)), inner(data(i)))


@torch.jit.script
def pointwise(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.sigmoid(x * scale) * torch.tanh(x) + x.cos() - 0.25


@case("torch.func: functional_call with swapped weights, vmap over stacked states, jvp, grad inside of forward")
def functional_transforms(run: Run) -> None:
    from torch.func import functional_call, grad, jvp, stack_module_state, vmap

    model = net()
    others = [{k: v * (1 + 0.1 * j) for k, v in model.named_parameters()} for j in range(3)]

    class Scored(Net):
        def forward(self, x: torch.Tensor) -> Any:
            energy = lambda z: Net.forward(self, z).square().sum()  # noqa: E731
            return grad(energy)(x), jvp(energy, (x,), (torch.ones_like(x),))

    class Energy(Net):
        def forward(self, x: torch.Tensor) -> Any:
            with torch.enable_grad():
                z = x.detach().requires_grad_()
                return torch.autograd.grad(super().forward(z).square().sum(), z)[0]

    scored, energy = net(Scored), net(Energy)
    models = [net(seed=s) for s in range(3)]
    state = stack_module_state(models)
    for i in range(18):
        run.see(model(data(i)), functional_call(model, others[i % 3], (data(i),)))
        run.see(functional_call(model, {"first.weight": others[1]["first.weight"]}, (data(i),)), model(data(i)))
        if i % 3 == 0:
            run.see(scored(data(i)), energy(data(i)))
            run.see(vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), (0, 0, None))(*state, data(i)))
            run.see(vmap(model)(data(i, 2, 4, 64)))
        if i == 9:
            others[0]["first.weight"].add_(0.1)


@case("proven models are traced, symbolically traced, exported, counted, profiled, compiled: none may see a replay")
def proven_and_then_traced(run: Run) -> None:
    import warnings

    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Logging(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(function))
            return function(*args, **(kwargs or {}))

    model = net()
    for i in range(9):
        run.see(model(data(i)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, data(0), check_trace=False)
    graph = torch.fx.symbolic_trace(model)
    exported = torch.export.export(model, (data(0),)).module()
    functional = make_fx(model)(data(0))
    for i in range(9):
        run.see(model(data(i)), traced(data(i)), graph(data(i)), exported(data(i)), functional(data(i)))
    with FlopCounterMode(display=False) as flops:
        model(data(0))
    with Logging() as log:
        model(data(0))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(data(0))
    run.see(
        flops.get_total_flops(),
        log.names,
        sorted(e.key for e in profile.key_averages() if e.key.startswith("aten::"))[:5],
    )
    for i in range(4):
        with torch.autograd.set_detect_anomaly(True), torch.autograd.profiler.record_function("x"):
            run.see(model(data(i)))
    graph.graph.inserting_after(next(n for n in graph.graph.nodes if n.op == "call_function"))
    for node in graph.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sigmoid
    graph.recompile()
    for i in range(9):
        run.see(graph(data(i)), model(data(i)))


@case(
    "training between evaluations: fused, foreach and capturable optimizers, GradScaler, accumulation, EMA, SWA",
    mode="grad",
)
def trained_between_evaluations(run: Run) -> None:
    makers = [
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=run.cuda),
    ]
    for maker in makers:
        model = net()
        optimizer, average = maker(model.parameters()), torch.optim.swa_utils.AveragedModel(model)
        scaler = torch.amp.GradScaler(bed.device(), enabled=run.cuda)
        for step in range(8):
            model.train()
            for part in range(2):
                with run.autocast(torch.bfloat16, enabled=step % 2 == 1):
                    loss = model(data(step * 2 + part)).float().square().mean()
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=step % 3 != 0)
            average.update_parameters(model)
            model.eval()
            with torch.no_grad():
                run.see(loss, *(model(data(i)) for i in range(4)), average(data(1)))
            with torch.inference_mode():
                run.see(model(data(2)))


@case(
    "a frozen model under grad mode, inputs and heads with gradients, checkpointing, requires_grad toggled", mode="grad"
)
def frozen_and_trained_parts(run: Run) -> None:
    from torch.utils.checkpoint import checkpoint

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.head, self.how = Net().requires_grad_(False), nn.Linear(64, 8), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.how == 0:
                with torch.no_grad():
                    h = self.frozen(x)
            elif self.how == 1:
                h = self.frozen(x)
            else:
                h = checkpoint(self.frozen, x, use_reentrant=False)
            return self.head(h)

    model = net(Both)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for i in range(36):
        model.how = i // 12
        x = data(i).requires_grad_(i % 3 == 0)
        if i == 20:
            model.frozen.first.requires_grad_(True)
        if i == 30:
            model.frozen.requires_grad_(False)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.see(loss, x.grad, model.head.weight.grad, model.frozen.first.weight.grad, model.frozen(data(i)))
        with torch.no_grad():
            run.see(checkpoint(model.frozen, data(i), use_reentrant=i % 2 == 0), model(data(i)))
