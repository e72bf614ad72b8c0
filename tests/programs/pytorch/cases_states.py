"""States of modules: caches, lazy buffers, adapters, modules as arguments, states put aside."""

from typing import Any

import bed
from small import F, Net, Run, case, data, net, nn, torch


@case("key-value caches: static with a position on the host or the device, growing lists, a ring, beams reordered")
def caches_of_decoders(run: Run) -> None:
    class Decoder(nn.Module):
        def __init__(self, kind: str = "host") -> None:
            super().__init__()
            self.kv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor, cache: dict, kind: str) -> torch.Tensor:
            q, k, v = self.kv(x).chunk(3, -1)
            if kind == "host":
                cache["k"][:, cache["at"]] = k
                cache["v"][:, cache["at"]] = v
                cache["at"] += 1
                k, v = cache["k"][:, : cache["at"]], cache["v"][:, : cache["at"]]
            elif kind == "device":
                cache["k"].index_copy_(1, cache["at"], k[:, None])
                cache["v"].index_copy_(1, cache["at"], v[:, None])
                cache["at"].add_(1)
                k, v = cache["k"], cache["v"]
            elif kind == "list":
                cache["k"].append(k)
                cache["v"].append(v)
                k, v = torch.stack(cache["k"], 1), torch.stack(cache["v"], 1)
            elif kind == "cat":
                cache["k"] = k = torch.cat([cache["k"], k[:, None]], 1)
                cache["v"] = v = torch.cat([cache["v"], v[:, None]], 1)
            else:
                cache["k"] = torch.roll(cache["k"], -1, 1)
                cache["k"][:, -1] = k
                k = v = cache["k"]
            weights = torch.softmax((q[:, None] * k).sum(-1) / 8, -1)
            return torch.tanh(self.out((weights[..., None] * v).sum(1)))

    def fresh(kind: str) -> dict:
        zeros = torch.zeros(3, 12, 64, device=bed.device())
        if kind == "list":
            return {"k": [], "v": []}
        if kind == "cat":
            return {"k": zeros[:, :0], "v": zeros[:, :0]}
        return {
            "k": zeros,
            "v": zeros.clone(),
            "at": torch.zeros(1, dtype=torch.long, device=bed.device()) if kind == "device" else 0,
        }

    for kind in ("host", "device", "list", "cat", "ring"):
        model = net(Decoder)
        for request in range(5):
            cache, x = fresh(kind), data(request, 3, 64)
            for step in range(10):
                x = model(x, cache, kind)
                if step == 6 and kind != "list":
                    order = torch.tensor([2, 0, 0], device=bed.device())
                    cache["k"], cache["v"] = (
                        (cache[n].index_select(0, order) for n in "kv") if request % 2 else (cache["k"], cache["v"])
                    )
                run.see(x, cache, label=f"{kind} request {request} step {step}")


@case("buffers made lazily and made again when a longer input comes (rotary tables, masks in a dict by length)")
def lazy_buffers(run: Run) -> None:
    class Lazy(Net):
        def __init__(self) -> None:
            super().__init__()
            self.length, self.masks = 0, {}
            self.register_buffer("table", None, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            if n > self.length:
                self.length = n
                self.table = torch.sin(
                    torch.arange(n, device=x.device)[:, None] * torch.arange(64, device=x.device) / 9
                )
            if n not in self.masks:
                self.masks[n] = torch.ones(n, n, device=x.device).tril() / n
            return self.masks[n] @ super().forward(x) + self.table[:n]

    model = net(Lazy)
    for i, n in enumerate([4] * 8 + [3] * 6 + [6] * 6 + [4] * 4 + [3] * 4 + [8, 4, 3, 8, 4, 3, 8, 8, 8]):
        if i == 26:
            model.masks.clear()
        if i == 30:
            model.table.mul_(2)
        run.see(model(data(i, n, 64)), model.length, list(model.masks))


@case("adapters merged and unmerged, quantised by hand, experts chosen by the device, EMA weights swapped in and out")
def adapters_and_experts(run: Run) -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.a, self.b = (
                nn.Linear(64, 64),
                nn.Parameter(torch.randn(4, 64) / 8),
                nn.Parameter(torch.randn(64, 4)),
            )
            self.experts, self.gate = nn.ModuleList(nn.Linear(64, 64) for _ in range(4)), nn.Linear(64, 4)
            self.merged = False

        def merge(self) -> None:
            self.base.weight.data += (-1 if self.merged else 1) * self.b @ self.a
            self.merged = not self.merged

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.base(x)
            if not self.merged:
                y = y + x @ self.a.t() @ self.b.t()
            chosen = self.gate(y).topk(2, -1)
            out = torch.zeros_like(y)
            for number, expert in enumerate(self.experts):
                rows, place = torch.where(chosen.indices == number)
                if rows.numel():
                    out.index_add_(0, rows, torch.tanh(expert(y[rows])) * chosen.values[rows, place, None])
            return out

    torch.use_deterministic_algorithms(True, warn_only=True)
    model = net(Adapted)
    shadow = {k: v * 0.9 for k, v in model.state_dict().items()}
    for i in range(40):
        if i % 9 == 6:
            model.merge()
        if i in (15, 25):
            mine = {k: v.clone() for k, v in model.state_dict().items()}
            model.load_state_dict(shadow)
            shadow = mine
        run.see(model(data(i // 3)))


@case("modules as arguments: their weights are inputs; one is exchanged, hooked, counts, writes to a buffer on the CPU")
def modules_as_arguments(run: Run) -> None:
    class Counting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.notes = 0, torch.zeros(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = 1
            self.notes[0] = x.shape[0]
            return super().forward(x) * self.scale

    class Applying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(64, 64)

        def forward(self, inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.last(inner(x)))

    model, inners = net(Applying), [net(Counting), net(Counting, seed=3)]
    for i in range(48):
        inner = inners[i % 2 if i > 20 else 0]
        inner.calls = 0
        inner.notes.zero_()
        if i == 12:
            inner.scale = 2.0
        if i == 16:
            inner.first.weight = nn.Parameter(inner.first.weight * 1.1)
        if i == 30:
            handle = inner.register_forward_hook(lambda m, a, o: o + 1)
        if i == 38:
            handle.remove()
        run.see(model(inner, data(i)), inner.calls, inner.notes)


@case("the state of a module goes back and forth (train, eval, a setting), and its objects are exchanged in between")
def states_put_aside(run: Run) -> None:
    class Informed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.info, self.table = {"a": [1]}, nn.Buffer(torch.ones(64))

        def forward(self, x: torch.Tensor) -> Any:
            y = F.dropout(super().forward(x), 0.2, self.training) * self.scale
            return y + self.table, self.info

    model, kept = net(Informed), []
    for i in range(72):
        model.train(i // 6 % 2 == 1)
        model.scale = 1.0 + i // 12 % 3
        if i in (20, 33, 47, 60):
            kept.append((model.info, model.table))
            model.info = {"a": [1]}
            model.table = nn.Buffer(model.table.detach() * 1) if i == 33 else model.table.detach()
        y, info = model(data(i))
        run.see(y, info, info is model.info)
