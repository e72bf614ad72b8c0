"""Errors, Ctrl-C and exits at each place of a step: the next one is right, and gradients are what they were by then."""

from collections.abc import Callable

import torch
from common import F, Run, batch, nn, program


class Two(nn.Module):
    """Two layers, between which `stop` is called."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self.one, self.two, self.stop = nn.Linear(8, 8), nn.Linear(8, 4), stop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.one(x).tanh()
        self.stop()
        return self.two(h)


class Stop(Exception):
    pass


def add_error(name: str, about: str, place: str, error: Callable[[], BaseException] = Stop) -> None:
    @program(tags="errors", name=f"stops_in_{name}")
    def stopped(run: Run) -> None:
        now = {"step": 0}

        def stop(at: str) -> None:
            if now["step"] % 4 == 3 and at == place:
                raise error()

        first, model = run.put(nn.Linear(8, 8)), run.put(Two(lambda: stop("forward")))
        model.register_forward_pre_hook(lambda module, given: stop("pre-hook"))
        model.register_forward_hook(lambda module, given, out: stop("hook"))
        both = nn.ModuleList([first, model])
        optimizer = torch.optim.SGD(both.parameters(), lr=0.05, momentum=0.9)
        optimizer.register_step_pre_hook(lambda *rest: stop("optimizer"))
        first.weight.register_hook(lambda grad: stop("first weight"))
        model.two.weight.register_post_accumulate_grad_hook(lambda weight: stop("accumulated"))
        for step in run.steps():
            now["step"] = step
            x, y = batch(run)
            out = loss = None
            try:
                h = first(x)
                h.register_hook(lambda grad: stop("argument"))
                out = model(h)
                out.register_hook(lambda grad: stop("result"))
                stop("loss")
                loss = F.mse_loss(out, y)
                loss.backward()
                run.see(model=both)
                optimizer.step()
                optimizer.zero_grad()
            except BaseException as raised:  # noqa: BLE001: KeyboardInterrupt, too
                run.see(raised=raised, model=both, out=out)
            if loss is not None and step % 8 == 7:
                with run.expect_error("again"):
                    loss.backward()
            run.see(weights=both, optimizer=optimizer)

    stopped.__doc__ = about


for where in ("pre-hook", "forward", "hook", "loss", "result", "argument", "accumulated", "first weight", "optimizer"):
    at = where.replace(" ", "_").replace("-", "_")
    add_error(at, f"An error stops each fourth step at: {where}; gradients are kept", where)
add_error("forward_by_ctrl_c", "KeyboardInterrupt in the forward", "forward", KeyboardInterrupt)
add_error("argument_by_exit", "SystemExit in a hook of the argument", "argument", SystemExit)
