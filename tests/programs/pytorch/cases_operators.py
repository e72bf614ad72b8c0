"""Operators of all kinds: sorting, linear algebra, FFTs, small types, sparse and nested tensors."""

from typing import Any

import bed
from small import CALLS, F, Net, Run, case, data, ints, net, nn, torch


@case("sorting with ties, topk, cumsum, searchsorted, histc, scatter, index_put with accumulation, one_hot, bucketize")
def indexing_and_sorting(run: Run) -> None:
    class Indexing(Net):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
            y = super().forward(x)
            rounded = y.round()
            values, order = rounded.sort(dim=-1, stable=True)
            table = torch.zeros(16, 64, device=x.device)
            table.index_put_((ids,), y, accumulate=True)
            spread = torch.zeros_like(y).scatter_(1, order, values)
            return (
                values,
                order,
                y.topk(5),
                y.cumsum(0),
                y.cumprod(1),
                table,
                spread,
                y.gather(1, order.flip(1)),
                torch.searchsorted(values, y.contiguous()),
                torch.histc(y, 10, -4, 4),
                F.one_hot(ids, 16),
                torch.bucketize(y, values[0]),
                y.kthvalue(3),
                y.median(),
                y.quantile(0.25),
                y.mode(1),
                torch.cdist(y, y),
                y.index_select(0, ids % 4),
                y.take(ids),
                y.argmin(),
                y.diff(),
                y.roll(3, 1),
            )

    model = net(Indexing)
    torch.use_deterministic_algorithms(True, warn_only=True)
    for i in range(2 * CALLS):
        run.see(model(data(i), ints(i, 16, 4)))


@case("results with names as operators give them, whole, in one another, given back as arguments, with other contents")
def results_with_names(run: Run) -> None:
    class Naming(Net):
        def forward(self, x: torch.Tensor, given: Any = None) -> Any:
            y = super().forward(x)
            best = y.max(1)
            if isinstance(given, torch.return_types.topk):
                return given, best, torch.return_types.max((y, given.indices))
            if given is not None:
                best = torch.return_types.max((given[0] + 1, best[1]))
                return best, given, best, {"deep": (best.values.clone(), [y.min(0)])}
            return best, {"deep": ([y.topk(5), y.sort(stable=True)], y.aminmax(dim=0), y.median(0)), "x": x}

    model = net(Naming)
    given = [None, model(data(0))[0], model(data(1))[1]["deep"][0][0], (data(2), None)]
    for i in range(4 * CALLS):
        made = model(data(i), given[i // 3 % 4])
        kinds = [type(part).__name__ + getattr(type(part), "__module__", "") for part in made]
        run.see(made, kinds, made[0] is given[i // 3 % 4], made[0].values, isinstance(made[0], tuple), label=str(i))
        made[0].values.zero_()
    model = net(Naming)
    for i in range(2 * CALLS):
        given = torch.return_types.max((data(i), i // CALLS))
        run.see(model(data(i), given), model(data(i), torch.return_types.topk((data(i), data(i + 1)))), label=str(i))


@case(
    "linear algebra: batched factorisations with arrays of pointers made on the device, and checks on the host",
    gpu_only="cuSOLVER, which is not simulated, ends the process",
)
def linear_algebra(run: Run) -> None:
    class Algebra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, kind: str) -> Any:
            x = self.mix(x)
            spd = x @ x.mT + 4 * torch.eye(16, device=x.device)
            if kind == "cholesky":
                return torch.linalg.cholesky(spd), torch.cholesky_solve(x, torch.linalg.cholesky_ex(spd).L)
            if kind == "solve":
                return torch.linalg.solve(spd, x), torch.linalg.inv(spd)
            if kind == "lu":
                lu, pivots = torch.linalg.lu_factor(spd)
                return lu, pivots, torch.linalg.lu_solve(lu, pivots, x)
            if kind == "qr":
                return torch.linalg.qr(spd).R.abs(), torch.linalg.lstsq(spd, x).solution.round(decimals=3)
            if kind == "det":
                return torch.linalg.slogdet(spd), torch.linalg.matrix_power(spd / 20, 3), torch.matrix_exp(spd / 50)
            if kind == "triangular":
                return torch.linalg.solve_triangular(spd.tril(), x, upper=False), torch.linalg.norm(spd, dim=(1, 2))
            return torch.linalg.eigvalsh(spd), torch.linalg.svdvals(x)

    for kind in ("cholesky", "solve", "lu", "qr", "det", "triangular", "eig"):
        model = net(Algebra)
        for i in range(12):
            run.see(model(data(i // 2, 6, 16, 16), kind), label=f"{kind} {i}")
        for i in range(6):
            run.see(model(data(i, 1 + i % 2, 16, 16), kind), label=f"{kind} other batch {i}")


@case("FFTs of many lengths while cuFFT's cache of plans holds two, and is cleared: plans' tables are freed")
def fft_plans_come_and_go(run: Run) -> None:
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.mix(x.mT).mT.contiguous()
            spectrum = torch.fft.rfft(x)
            spectrum = spectrum * torch.exp(-torch.arange(spectrum.shape[-1], device=x.device) / 50)
            both = torch.fft.fft2(x)
            return torch.fft.irfft(spectrum, n=x.shape[-1]), spectrum, both.abs(), torch.fft.fftshift(x)

    cache = torch.backends.cuda.cufft_plan_cache if run.cuda else None
    before = cache.max_size if cache else 0
    model = net(Spectral)
    try:
        for i in range(60):
            length = (256, 97, 1000, 360, 4096, 331)[i % 2 if i < 24 else i % 6]
            if cache and i == 12:
                cache.max_size = 2
            if cache and i in (18, 40, 50):
                cache.clear()
            run.see(model(data(i, 8, length)))
    finally:
        if cache:
            cache.max_size = before


@case("complex numbers, conjugate and negative views as arguments and results")
def complex_numbers(run: Run) -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(32, 32, dtype=torch.complex64) / 8)

        def forward(self, x: torch.Tensor) -> Any:
            y = x @ self.w
            y = y / (1 + y.abs())
            return y, torch.view_as_real(y), y.real, y.angle().sum(), torch.polar(y.abs(), y.angle())

    torch.manual_seed(2)
    model = Complex().to(bed.device()).eval()
    for i in range(36):
        x = torch.complex(data(i, 4, 32), data(i + 100, 4, 32))
        x = [x, x.conj(), x.resolve_conj(), torch.complex(data(i, 4, 32), x.conj().imag)][i % 4 if i > 9 else 0]
        run.see(model(x))

    class Conjugate(Complex):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x)[0].conj(), x.conj()

    model = Conjugate().to(bed.device()).eval()
    for i in range(9):
        run.see(model(torch.complex(data(i, 4, 32), data(i + 1, 4, 32))))


@case("half, bfloat16, float8, int8 and bool: casts, integer products, scaled products")
def small_types(run: Run) -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(64, 64)
            self.register_buffer("q", torch.randint(-100, 100, (64, 64), dtype=torch.int8))

        def forward(self, x: torch.Tensor, dtype: torch.dtype) -> Any:
            y = self.a(x).to(dtype)
            z = torch.relu(y.float()).to(torch.bfloat16).to(dtype)
            quantised = (x * 20).round().clamp(-127, 127).to(torch.int8)
            product = torch._int_mm(quantised, self.q.t()) if x.shape[0] > 16 else quantised.int().sum(0)
            return y, z, product, quantised, (x > 0).to(torch.uint8), y.float().to(torch.int64)

    model = net(Casting)
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float64):
        for i in range(10):
            run.see(model(data(i, 32, 64), dtype))
            if i in (5, 8):
                run.see(model.half().a(data(i, 32, 64).half()))
                model.float()


@case("float8 products with scales, bfloat16 grouped products, on Hopper: descriptors hold addresses", late=True)
def scaled_and_grouped_products(run: Run) -> None:
    run.need_cuda("torch._scaled_mm and torch._grouped_mm")

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", (torch.randn(128, 64) / 8).to(torch.float8_e4m3fn))
            self.register_buffer("groups", (torch.randn(4, 64, 128) / 8).bfloat16())
            self.one = nn.Buffer(torch.tensor(1.0))

        def forward(self, x: torch.Tensor, ends: torch.Tensor, kind: int) -> Any:
            y = torch.tanh(x)
            if kind == 0:
                return torch._scaled_mm(
                    y.to(torch.float8_e4m3fn), self.w.t(), self.one, self.one, out_dtype=torch.bfloat16
                )
            return torch._grouped_mm(y.bfloat16(), self.groups, offs=ends, out_dtype=torch.bfloat16)

    torch.manual_seed(3)
    model = Scaled().to(bed.device()).eval()
    for kind in (0, 1):
        for i in range(2 * CALLS):
            ends = torch.tensor([16, 16 + 16 * (i % 2), 48, 64], dtype=torch.int32, device=bed.device())
            run.attempt(model, data(i, 64, 64), ends, kind)


@case("sparse and nested tensors as weights, arguments and results")
def sparse_and_nested(run: Run) -> None:
    class Sparse(Net):
        def forward(self, x: torch.Tensor, m: torch.Tensor) -> Any:
            return torch.sparse.mm(m, super().forward(x)), m

    class Nested(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.nested.to_padded_tensor(self.first(x), 0.0), torch.tanh(self.first(x))

    model, other = net(Sparse), net(Nested)
    for i in range(CALLS):
        m = torch.sparse_coo_tensor(
            torch.tensor([[0, 1, 2, 3], [1, 2, 3, i % 4]], device=bed.device()), data(i, 4), (4, 4)
        )
        run.see(model(data(i), m if i % 2 else m.coalesce().to_sparse_csr()))
        run.see(other(torch.nested.nested_tensor([data(i, 2 + i % 2, 64), data(i + 1, 3, 64)])))
