"""Tensors: how inputs lie and alias, what callers do with them and with results, data-dependent work, weights."""

from typing import Any

import bed
from small import CALLS, F, Net, Run, case, changed_at, copy, data, ints, net, nn, torch


@case("two arguments are one tensor, parts of one, overlapping parts, or apart, in turn; the call writes to one")
def aliasing_arguments_in_turn(run: Run) -> None:
    class Two(Net):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            y = super().forward(a)
            a.mul_(0.5)
            return y + torch.tanh(b) * 2

    model = net(Two)
    for i in range(40):
        base = data(i, 8, 64)
        a, b = [
            (base[:4], base[:4]),
            (base[:4], base[2:6]),
            (base[:4], base[4:]),
            (base[:4], data(i + 50)),
            (data(i), data(i + 50)),
        ][i % 5]
        if i % 10 == 0:
            b = a
        run.see(model(a, b), a, b, base)


@case("an expanded input, one of stride 0, of 0 rows, of 0 dimensions, of overlapping windows; the same shapes")
def strides_of_all_kinds(run: Run) -> None:
    class Scaled(Net):
        def forward(self, x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * s

    model = net(Scaled)
    for i in range(48):
        x = data(i)
        s = data(i, 64)
        x = [
            x,
            data(i, 1, 64).expand(4, 64),
            data(i, 64, 4).t(),
            data(i, 8, 64)[::2],
            data(i, 4, 128)[:, ::2],
            data(i, 256).as_strided((4, 64), (16, 1)),
            x,
            data(i, 0, 64),
        ][i % 8]
        s = [s, s[:1], s[0], s[:1].expand(64), s][i % 5]
        run.see(model(x, s))


@case("channels_last and contiguous images in turn, through convolutions, a model converted between them")
def memory_formats(run: Run) -> None:
    def make() -> Any:
        return nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 8, 3, groups=8),
            nn.GroupNorm(4, 8),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
        )

    model = net(make)
    for i in range(45):
        x = data(i, 2, 8, 12, 12)
        if i % 3 == 1:
            x = x.contiguous(memory_format=torch.channels_last)
        if i % 3 == 2:
            x = data(i, 2, 8, 12, 24)[..., ::2]
        if i in (15, 30):
            model.to(memory_format=torch.channels_last if i == 15 else torch.contiguous_format)
        run.see(model(x))


@case("results are written to, kept, freed at odd times, put in again, resized, their storage exchanged")
def callers_and_results(run: Run) -> None:
    model, kept = net(), []
    y = data(0)
    for i in range(40):
        y = model(y)
        if i % 4 == 1:
            kept.append(y)
        if i % 5 == 2:
            y.mul_(0.5)
            y[0] = 1
        if i % 7 == 3:
            kept.append(y[1:3])
        if i % 9 == 5:
            y.resize_(8, 64)[4:].fill_(0.25)
            y = y[2:6]
        if i % 11 == 6:
            y.set_(data(i).untyped_storage(), 0, (4, 64), (64, 1))
        if i % 13 == 7:
            del kept[:2]
        if i % 8 == 7:
            kept.clear()
            y.untyped_storage().resize_(0)
            y = data(i)
        run.see(y, kept)


@case("the result may be the input, a part of it, a weight, a buffer, twice the same, None in a tuple, by a flag")
def results_that_alias(run: Run) -> None:
    class Aliasing(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(256.0).reshape(4, 64))

        def forward(self, x: torch.Tensor, kind: int) -> Any:
            y = super().forward(x)
            return [
                (x, y),
                (x[1:], x.t(), y),
                (self.first.weight, y),
                (self.table, self.table[2]),
                (y, y, None),
                [y, [y[0], y.view(-1)], {"y": y}],
                (x.relu_(), x),
                (y.unsqueeze(0).expand(3, 4, 64), y),
                (y.split(1), y.unbind(1)[3]),
                y.chunk(3),
            ][kind]

    model = net(Aliasing)
    for kind in range(10):
        for i in range(10):
            x = data(i)
            result = model(x, kind)
            run.see(result, x)
            first = result[0] if not isinstance(result[0], (list, tuple)) else result[0][0]
            if kind not in (2, 7):
                first.add_(1)
            run.see(result, x, model.table)


@case("an input that is the module's own buffer or weight, or a part of it, at some calls")
def own_memory_as_input(run: Run) -> None:
    class Own(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(8, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            self.table.mul_(0.9)
            return y + self.table[:4] + x

    model = net(Own)
    for i in range(32):
        x = [data(i), model.table[:4], model.table[2:6], model.second.weight[:4, :64], model.table[4:]][
            i % 5 if i > 9 else 0
        ]
        run.see(model(x), model.table)


@case("the previous result, and the one before, as inputs; ping-pong of two buffers")
def results_as_inputs(run: Run) -> None:
    class Mixing(Net):
        def forward(self, x: torch.Tensor, old: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            out.copy_(torch.tanh(super().forward(x)) + old * 0.5)
            return out

    model, a, b = net(Mixing), data(1), data(2)
    old = data(3)
    for i in range(24):
        y = model(a, old, b)
        run.see(y, y is b, a, b, old)
        a, b = b, a
        if i % 6 == 5:
            old = y
        if i % 7 == 6:
            old = a


@case("numbers read from the device that change only at the 20th call; item(), tolist(), bool(), int(), nonzero()")
def values_that_change_late(run: Run) -> None:
    class Deciding(Net):
        def forward(self, x: torch.Tensor, kind: int) -> Any:
            y = super().forward(x)
            top = x[0, 0] > 50
            if kind == 0:
                return y * 2 if top.item() else y
            if kind == 1:
                return y[: 1 + int(top) + 1]
            if kind == 2:
                return y if bool(top) else torch.tanh(y) - 1
            if kind == 3:
                return y * top.long().tolist(), (x > 50).nonzero(), torch.where(x[0] > 50)
            if kind == 4:
                return y[x[:, 0] > 50], y.masked_select(x > 50), (x > 50).any().cpu() if top else None
            y = y.clone()
            y[x > 50] = -1.0
            while y.abs().max() > 4:
                y = y * 0.5
            return y, torch.unique((x > 50).long()), f"{top.item()}"

    for kind in range(6):
        model = net(Deciding)
        for i in range(30):
            x = data(i)
            if i in (2, 19, 20, 27):
                x[0, 0] = 100.0
            run.see(model(x, kind), label=f"kind {kind} call {i}")


@case("data-dependent shapes in the middle: nonzero, unique, repeat_interleave, bincount, masked work, split by a list")
def data_dependent_shapes(run: Run) -> None:
    class Shaped(Net):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
            y = super().forward(x)
            counts = torch.bincount(ids, minlength=6)
            parts = torch.cat([y, y], 0)[: int(counts.sum())].split(counts.tolist())
            unique, inverse = torch.unique(ids, return_inverse=True)
            repeated = y[:4].repeat_interleave(ids[:4], 0)
            return [p.sum(0) for p in parts], unique, inverse, repeated, (y > 1.5).nonzero()

    model = net(Shaped)
    for i in range(30):
        run.see(model(data(i // 5), ints(i // 5, 6, 8)))


@case("0-dim CPU tensors and CPU index tensors as arguments of work on the GPU, with other values at each call")
def host_scalars(run: Run) -> None:
    class Scalars(Net):
        def forward(self, x: torch.Tensor, s: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[at] * s + s.item()

    model = net(Scalars)
    s = torch.tensor(1.0)
    for i in range(40):
        if i % 10 >= 7:
            s.add_(0.25)
        run.see(model(data(i), s if i % 2 else torch.tensor(2.0), torch.tensor([0, 2, (i // 8) % 4])))


@case("tensors made in forward from settings and arguments: torch.tensor(list), full, arange, from a NumPy scalar")
def made_from_settings(run: Run) -> None:
    class Making(Net):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.std = [0.1, 0.2], (1.0, 2.0)

        def forward(self, x: torch.Tensor, bias: list) -> torch.Tensor:
            mean = torch.tensor(self.mean, device=x.device)
            std = torch.as_tensor(self.std).to(x.device)
            y = super().forward(x).view(4, 32, 2)
            y = (y - mean) / std + torch.tensor(bias, device=x.device)
            return y * torch.full((), bias[0] + 2.0, device=x.device) + torch.arange(len(bias), device=x.device)

    changes = [lambda m: m.mean.__setitem__(0, m.mean[0] + 1), lambda m: setattr(m, "std", (3.0, 4.0))]
    for change in changes:
        changed_at(run, lambda: net(Making), change, lambda m, i: m(data(i), [0.5, 1.0 + i // 5]))


@case("a 0-dim weight, an empty weight, weights that are views of one flat tensor, moved inside of it")
def odd_weights(run: Run) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Parameter(torch.randn(2 * 64 * 64 + 64) / 8, requires_grad=False)
            self.gain, self.none = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0, 64))
            self.place = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = self.flat[self.place : self.place + 4096].view(64, 64)
            y = torch.tanh(F.linear(x, w)) * self.gain
            return torch.cat([F.linear(y, w.t()), F.linear(x, self.none)], 1)

    class Flat(Net):
        def flatten(self) -> Any:
            parts = list(self.parameters())
            self.memory = torch.cat([p.data.reshape(-1) for p in parts] * 2)
            return self.move(0)

        def move(self, which: int) -> Any:
            at = which * (self.memory.numel() // 2)
            for p in self.parameters():
                p.data = self.memory[at : at + p.numel()].view_as(p)
                at += p.numel()
            return self

    def move(m: Any) -> None:
        m.place = 64 if m.place == 0 else 0

    changed_at(run, lambda: net(Odd), move)
    changed_at(run, lambda: net(Odd), lambda m: m.flat.data[m.place : m.place + 64].fill_(0.5))
    model = net(Flat).flatten()
    for i in range(32):
        if i % 8 == 6:
            model.memory[model.memory.numel() // 2 :].mul_(1.5)
            model.move(i // 8 % 2)
        if i % 8 == 3:
            model.memory.mul_(0.9)
        run.see(model(data(i)))


@case(
    "weights swapped: .data, swap_tensors, copy_, load_state_dict(assign), slices through views, storage resized away"
)
def weights_swapped(run: Run) -> None:
    other = net(seed=7)

    def assign(m: Any) -> None:
        m.load_state_dict({k: v.clone() for k, v in other.state_dict().items()}, assign=True)

    def swap(m: Any) -> None:
        torch.utils.swap_tensors(m.first.weight, nn.Parameter(m.first.weight * 1.5))

    def offload(m: Any) -> None:
        for p in m.parameters():
            kept = p.detach().cpu().clone()
            size = p.untyped_storage().nbytes()
            p.untyped_storage().resize_(0)
            p.untyped_storage().resize_(size)
            p.data.copy_(kept * 1.1)

    def tie(m: Any) -> None:
        m.second.bias = m.first.bias

    changes = [
        assign,
        swap,
        offload,
        tie,
        lambda m: setattr(m.first.weight, "data", m.first.weight.data * 2),
        lambda m: m.first.weight.detach()[3:7].fill_(0.25),
        lambda m: m.second.weight.t()[:, 5].add_(1),
        lambda m: setattr(m.second.weight, "data", m.second.weight.data.t()),
        lambda m: m.third.weight.set_(m.third.weight.clone() * 3),
        lambda m: m.requires_grad_(not m.first.weight.requires_grad),
        lambda m: m.first.weight.data.untyped_storage().copy_((m.first.weight.data * 2).untyped_storage()),
        lambda m: [p.data.lerp_(q, 0.5) for p, q in zip(m.parameters(), other.parameters())],
    ]
    for change in changes:
        changed_at(run, net, change, calls=12, phases=(1, 7))


@case("moved to the CPU, to half and back, to another memory format, to_empty and loaded, between calls")
def moved_and_cast(run: Run) -> None:
    model = net()
    kept = copy.deepcopy(model.state_dict())
    for i in range(50):
        x = data(i)
        if i % 10 == 6:
            model.cpu()
            run.see(model(x.cpu()))
            model.to(bed.device())
        if i % 10 == 8:
            model.half()
            run.see(model(x.half()))
            model.float()
        if i == 25:
            model.to_empty(device=bed.device())
            model.load_state_dict(kept)
        if i == 35:
            model.double().float()
        run.see(model(x))


@case("inputs of one signature that lie at other alignments, and in memory that was freed in between")
def alignments(run: Run) -> None:
    model, big = net(), data(1, 40, 64)
    for i in range(48):
        flat = big.view(-1)
        big.add_(0.01)
        x = flat[(i % 4) * 4 : (i % 4) * 4 + 256].view(4, 64) if i % 3 else big[i % 30 : i % 30 + 4]
        run.see(model(x))
        if i % 10 == 9:
            big = big.clone()
            run.empty_cache()


@case("einsum, bmm of broadcast batches, addmm variants, baddbmm, outer, kron, foreach operators, addcmul")
def products_of_all_kinds(run: Run) -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(torch.randn(64, 64) / 8), nn.Parameter(torch.randn(64))
            self.alpha = 0.5

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            parts = torch._foreach_add([x, y, self.w], 1.0)
            torch._foreach_mul_(parts, [0.5, 2.0, self.alpha])
            norms = torch._foreach_norm(parts)
            return (
                torch.einsum("bij,bkj->bik", x, y),
                torch.einsum("ij,bjk,kl->bil", self.w, x.mT, self.w),
                torch.addmm(self.b, x[0], self.w, beta=2.0, alpha=self.alpha),
                torch.baddbmm(x, x, self.w.expand(3, 64, 64)),
                torch.bmm(x, y.mT),
                torch.outer(self.b, self.b[:3]),
                torch.kron(x[0, :2, :2], y[0, :2, :2]),
                parts,
                norms,
                torch.addcmul(x, x, y, value=0.1),
                torch.addcdiv(x, x, y.abs() + 1),
                x.lerp(y, 0.3),
                x[0] @ self.w,
                torch.tensordot(x, y, dims=([1, 2], [1, 2])),
                F.bilinear(x[0, :3], y[0, :3], self.w[None]),
            )

    changed_at(
        run,
        lambda: net(Products),
        lambda m: setattr(m, "alpha", m.alpha * 2),
        lambda m, i: m(data(i, 3, 64, 64), data(i + 50, 3, 64, 64)),
        calls=12,
        phases=(1, 7),
    )


@case(
    "normalisations, pooling, padding, upsampling, losses, embeddings (also with max_norm, which writes to the weight)"
)
def layers_of_all_kinds(run: Run) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 32, max_norm=1.0, padding_idx=0)
            self.bag, self.conv = nn.EmbeddingBag(50, 32, mode="sum"), nn.Conv1d(
                32, 32, 3, padding=1, padding_mode="circular"
            )
            self.norm, self.act = nn.InstanceNorm1d(32, affine=True), nn.PReLU(32)

        def forward(self, ids: torch.Tensor) -> Any:
            x = self.embed(ids)
            y = self.act(self.norm(self.conv(x.mT)))
            up = F.interpolate(y[:, :, None], size=(3, 17), mode="bilinear", align_corners=False)
            return (
                x,
                y,
                self.bag(ids),
                F.adaptive_avg_pool1d(y, 3),
                F.max_pool1d(y, 2, return_indices=True),
                up,
                F.pad(y, (1, 2), mode="reflect"),
                F.local_response_norm(y, 3),
                F.rms_norm(y, (y.shape[-1],)),
                F.cross_entropy(y.mean(-1), ids[:, 0] % 32),
                F.huber_loss(y, y * 2),
                F.cosine_similarity(x, x.flip(1), -1),
                F.log_softmax(y, 1),
                F.grid_sample(up, torch.zeros(ids.shape[0], 2, 2, 2, device=ids.device), align_corners=True),
                F.unfold(up, 2),
                F.glu(y, 1),
                F.pdist(x[:, 0]),
            )

    model = net(Layers)
    for i in range(2 * CALLS):
        run.see(model(ints(i, 50, 3, 8)), model.embed.weight)
        if i == 15:
            model.embed.weight.mul_(3)


@case("number-like words in kernels' structs: shapes, fills and seeds that are equal to each other by chance")
def seeds_that_look_like_sizes(run: Run) -> None:
    class Random(Net):
        def forward(self, x: torch.Tensor) -> Any:
            y = F.dropout(super().forward(x), 0.3, training=True)
            return y + torch.rand_like(y), torch.bernoulli(y.sigmoid()), torch.randperm(64, device=x.device)

    for seeds in ((256, 64, 4), (0, 0, 4), (4, 8, 12), (1, 2**40, 2**63 - 1)):
        model = net(Random)
        for seed in seeds:
            run.seed(seed)
            for i in range(9):
                run.see(model(data(i)), label=f"seed {seed}")
    model = net(Random)
    for i in range(2 * CALLS):
        run.seed(64 + i // 9)
        if run.cuda:
            torch.cuda.default_generators[0].set_offset(64 if i % 2 else 256)
        run.see(model(data(i)))
