"""Backward passes that do not come to their end: hooks that raise, Ctrl-C, memory that runs out. The next steps are right."""

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable

import torch
from common import F, Run, batch, net, nn, program, see_step, see_tensors, squares

FAULTS = (3, 9, 10, 15)  # an early one, two in a row, a late one
Raise = Callable[[], None]


class Stop(Exception):
    pass


def an_error() -> None:
    raise Stop("enough")


def an_interrupt() -> None:
    raise KeyboardInterrupt


def no_memory() -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")


def ctrl_c() -> None:
    """On the main thread it raises; another thread goes on, and the main thread raises once the pass is done."""
    signal.raise_signal(signal.SIGINT)


def ctrl_c_of_a_timer() -> None:
    timer = threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    timer.join()
    time.sleep(0.001)


class Two(nn.Module):
    """Two nets with a tensor between them, all of which hooks can be set on."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.second = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 4))

    def hooked(self, where: str, hook: Any) -> None:
        """Hooks that stay: of a parameter in the middle, before and after its gradient is added."""
        if where == "parameter":
            self.first[0].weight.register_hook(hook)
        elif where == "sum":
            self.second[2].bias.register_post_accumulate_grad_hook(hook)

    def passed(self, x: torch.Tensor, where: str, hook: Any) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.first(x)
        out = self.second(h)
        if where == "node":
            out.grad_fn.register_hook(lambda *grads: hook(grads))
        elif where in ("input", "middle", "result"):
            {"input": x, "middle": h, "result": out}[where].register_hook(hook)
        return h, out


def attempt(run: Run, work: Callable[[], Any]) -> bool:
    """Did it come to its end? What it raises is recorded; of memory that ran out not how much there was."""
    try:
        work()
    except torch.OutOfMemoryError as error:
        run.see(raised=type(error).__name__)
    except BaseException as error:  # noqa: BLE001: KeyboardInterrupt, too
        run.see(raised=error)
    else:
        return True
    return False


def add_raising(name: str, where: str, error: Raise, again: str = "", kept: bool = False) -> None:
    """`again`: "kept", the graph is kept for a second pass, or "freed", it is not, and the second pass may be an error."""


    @program(tags="errors row34", name=name)
    def raising(run: Run) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model, now = run.put(Two()), {"raises": False}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def hook(grad: Any) -> None:
            if now["raises"]:
                now["raises"] = False
                error()

        model.hooked(where, hook)
        for step in run.steps():
            x, y = batch(run)
            x.requires_grad_()
            h, out = model.passed(x, where, hook)
            loss = F.mse_loss(out, y)
            now["raises"] = step in FAULTS
            done = attempt(run, lambda: loss.backward(retain_graph=again == "kept"))
            now["raises"] = False
            see_tensors(run, done=done, model_at_once=model, x=x, h=h)
            if again and not done:
                attempt(run, loss.backward)
            if done or again or kept:
                see_step(run, loss, model, optimizer, out=out)
            optimizer.zero_grad()

    raising.__doc__ = f"A hook of a {where} raises {error.__name__} in some steps" + (
        ", and the pass is tried again" if again else ", and the step is made with what there is" if kept else "")


for _where in ("result", "node", "sum", "middle", "parameter", "input"):
    add_raising(f"raises_at_{_where}", _where, an_error)
    add_raising(f"raises_at_{_where}_and_goes_on", _where, an_error, kept=True)
    add_raising(f"raises_at_{_where}_and_again", _where, an_error, again="kept")
    add_raising(f"raises_at_{_where}_and_in_vain", _where, an_error, again="freed")
for _error in (an_interrupt, no_memory, ctrl_c, ctrl_c_of_a_timer):
    add_raising(f"{_error.__name__}_in_the_middle", "middle", _error)
    add_raising(f"{_error.__name__}_at_a_parameter", "parameter", _error, kept=True)
    add_raising(f"{_error.__name__}_and_again", "middle", _error, again="kept")


def add_on_the_cpu(behind: bool) -> None:
    @program(tags="errors row34", name=f"ctrl_c_on_the_cpu_{'behind' if behind else 'before'}")
    def on_the_cpu(run: Run) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = net(run, nn.Linear(8, 8))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in run.steps():
            x, y = (part.cpu() for part in batch(run))
            x.requires_grad_()
            out = model((x * 1.0).to(run.device)).cpu()
            if step in FAULTS:
                (x if behind else out).register_hook(lambda grad: ctrl_c())
            loss = F.mse_loss(out, y)
            done = attempt(run, loss.backward)
            see_tensors(run, done=done, model_at_once=model, x=x)
            if done:
                see_step(run, loss, model, optimizer, out=out)
            optimizer.zero_grad()

    on_the_cpu.__doc__ = f"Ctrl-C on the main thread, {'behind' if behind else 'before'} the replayed pass"


add_on_the_cpu(True)
add_on_the_cpu(False)


@program(tags="errors row34")
def ctrl_c_at_any_time(run: Run) -> None:
    """A timer's Ctrl-C comes at some moment of late steps; such a step is made once more from where it began."""
    model, now = run.put(Two()), {"armed": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def interrupt(number: int, frame: Any) -> None:
        if now["armed"]:
            raise KeyboardInterrupt

    def step_once(x: torch.Tensor, y: torch.Tensor, seconds: float) -> Any:
        now["armed"] = True
        signal.setitimer(signal.ITIMER_REAL, seconds)
        loss, out = squares(lambda x: model.passed(x, "", None)[1], x, y)
        loss.backward()
        now["armed"] = False
        return loss, out

    signal.signal(signal.SIGALRM, interrupt)
    for step in run.steps():
        x, y = batch(run)
        for attempt_ in range(8 if step > 5 else 1):
            with contextlib.suppress(KeyboardInterrupt):
                step_once(x, y, (0.0001 + 0.0003 * ((step * 5 + attempt_) % 11)) if 0 < attempt_ else 0.0)
            now["armed"] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            model.zero_grad()
        loss, out = step_once(x, y, 0.0)
        see_step(run, loss, model, optimizer, out=out)


def all_memory(device: torch.device) -> list[torch.Tensor]:
    """What the process may have, in tensors; what it has in blocks that are free is left to nobody."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    held: list[torch.Tensor] = []
    for size in (1 << 20, 1 << 16, 1 << 12, 512):
        while len(held) < 1 << 16:
            try:
                held.append(torch.empty(size, dtype=torch.uint8, device=device))
            except torch.OutOfMemoryError:
                break
    return held


def add_no_memory(where: str) -> None:
    @program(tags="errors row34", name=f"memory_runs_out_{where}")
    def runs_out(run: Run) -> None:
        model = net(run, nn.Linear(8, 8), nn.Sigmoid())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in run.steps():
            x, grad = run.randn(6, 8), torch.ones(6, 4, device=run.device)
            held = all_memory(run.device) if step in FAULTS and where == "before" else []
            out: list[torch.Tensor] = []
            done = attempt(run, lambda: out.append(model(x)))
            if step in FAULTS and where == "between":
                held = all_memory(run.device)
            done = done and attempt(run, lambda: out[0].backward(grad))
            held.clear()
            torch.cuda.set_per_process_memory_fraction(1.0)
            run.see(done=done, model=model, weights=model)
            optimizer.step()
            optimizer.zero_grad()

    runs_out.__doc__ = f"There is no memory at all in some steps, from {where} the passes on; the next step has all"


add_no_memory("before")
add_no_memory("between")


@program(tags="errors row34 memory")
def memory_runs_out_in_the_pass(run: Run) -> None:
    """There is no memory for the gradient that comes last, as work of the pass is under way; then the pass comes again."""
    wide = nn.Linear(2048, 2048, bias=False)  # its gradient has 16 MiB
    model = run.put(nn.Sequential(wide, nn.Tanh(), nn.Linear(2048, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in run.steps():
        x, grad = run.randn(256, 2048), torch.ones(256, 512, device=run.device)
        out, held = model(x), []
        if step in FAULTS:
            sizes = (7 << 20, *[1 << 16] * 32)
            room = [torch.empty(size, device=run.device, dtype=torch.uint8) for size in sizes]
            held = all_memory(run.device)
            del room
        done = attempt(run, lambda: out.backward(grad))
        held.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
        run.see(done=done, again=None if done else attempt(run, lambda: out.backward(grad)))
        if done:
            see_step(run, out.sum(), model, optimizer, out=out)
        optimizer.zero_grad()


@program(tags="errors row34 scaler")
def scaled_with_inf_in_the_backward(run: Run) -> None:
    """A hook makes a gradient infinite: the scaler skips the step, and two in a row."""
    model = run.put(Two())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=4)
    for step in run.steps():
        x, y = batch(run)
        factor = float("inf") if step in FAULTS else 1.0
        h, out = model.passed(x, "middle", lambda grad: grad * factor)
        loss = F.mse_loss(out, y)
        scaler.scale(loss).backward()
        see_tensors(run, loss=loss, out=out, h=h, model=model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        run.see(scale=scaler.get_scale(), weights=model, optimizer=optimizer)


class Layers(nn.Module):
    """Its nodes read what it returned, after a weight whose gradient comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        t = self.one(x).tanh()
        u = self.two(t).sigmoid()
        return self.three(u) + self.shift, t, u


def changed_behind_the_call(run: Run, dtype: torch.dtype, casts: bool) -> None:
    """The pass raises PyTorch's error halfway: weights before it have their gradients, and those behind it none."""
    model = run.put(Layers())
    for step in range(24):
        model.zero_grad(set_to_none=step % 3 > 0)
        x = torch.full((4, 8), 0.1 * (step + 1), device=run.device)
        with torch.autocast(x.device.type, dtype, enabled=casts):
            out = model(x)
        if step >= 12:
            with torch.no_grad():
                out[step % 3].mul_(1.5)
        with run.expect_error("changed"):
            out[0].float().square().mean().backward()
        run.see(gradients=[weight.grad for weight in model.parameters()])


@program(tags="errors row32")
def result_is_changed_behind_a_call(run: Run) -> None:
    changed_behind_the_call(run, torch.bfloat16, False)


@program(tags="errors row32")
def result_is_changed_behind_a_call_under_autocast(run: Run) -> None:
    changed_behind_the_call(run, torch.bfloat16, True)


@program(tags="errors row32")
def result_is_changed_behind_a_call_in_half_precision(run: Run) -> None:
    changed_behind_the_call(run, torch.float16, True)
