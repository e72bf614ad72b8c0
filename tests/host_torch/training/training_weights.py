"""Weights, flags and optimizers that change in mid-training, when replays have begun."""

import contextlib
import copy
from typing import Any, Callable, Iterator

import torch
from common import F, Run, fit, net, nn, program, see_tensors

LATE = 8  # replays have begun


def is_late(step: int, every: int = 3) -> bool:
    return step >= LATE and step % every == 0


def of_its_type(model: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    out = model(x.to(model[0].weight.dtype))
    return F.mse_loss(out.float(), y), out


def add_mid(name: str, about: str, change: Callable[..., Any], make: Callable[[], tuple[nn.Module, ...]] = tuple) -> None:
    """`change(step, model, optimizer, kept)` before each step; `kept` is a copy of the first weights."""

    @program(tags="weights row35", name=name)
    def mid(run: Run) -> None:
        model = net(run, nn.Linear(8, 8), *make())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        kept = copy.deepcopy(model.state_dict())
        fit(run, model, optimizer, of_its_type, before=lambda step: change(step, model, optimizer, kept))

    mid.__doc__ = about


def freeze_in_turn(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    model[2].requires_grad_(not is_late(step, 2))
    model[0].bias.requires_grad_(not is_late(step, 3))


def freeze_all_but_the_last(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step in (LATE, LATE + 4, LATE + 8):
        model[0].requires_grad_(step != LATE)
        model[2].requires_grad_(step == LATE + 8)


def load(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        model.load_state_dict(kept)


def load_by_copy(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    with torch.no_grad():
        if is_late(step):
            model[0].weight.copy_(kept["0.weight"])
            model[2].bias.data.copy_(kept["2.bias"])


def load_by_data(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        model[0].weight.data = kept["0.weight"].clone()
        model[2].weight.data = kept["2.weight"].t().contiguous().t()


def swap_two(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step):
        one, other = model[0].weight, model[2].weight
        one.data, other.data = other.data, one.data


def load_by_assign(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step, 4):
        model.load_state_dict({name: x.clone() for name, x in kept.items()}, assign=True)
        optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.state.clear()


def replace_layer(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step, 4):
        model[2] = copy.deepcopy(model[2])
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.02})


def tie_and_untie(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step in (LATE, LATE + 6):
        model[2].weight = model[0].weight
    elif step in (LATE + 3, LATE + 8):
        model[2].weight = nn.Parameter(kept["2.weight"].clone())
        optimizer.add_param_group({"params": [model[2].weight]})


def tie_by_data(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step == LATE:
        model[2].weight.data = model[0].weight.data
    elif step == LATE + 5:
        model[2].weight.data = kept["2.weight"].clone()


def change_rates(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    group = optimizer.param_groups[0]
    group["lr"], group["weight_decay"] = 0.01 * 0.9**step, 0.01 * step
    group["betas"] = (0.9 - 0.01 * step, 0.999)


def grow_groups(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step == 0:
        optimizer.param_groups[0]["params"] = list(model[0].parameters())
    if step in (LATE, LATE + 4):
        optimizer.add_param_group({"params": model[2 if step == LATE else 3].parameters(), "lr": 0.02})


def change_type(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step in (LATE, LATE + 1):
        model.to(torch.bfloat16 if step == LATE else torch.float32)
        optimizer.state.clear()


def visit_the_cpu(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if is_late(step, 4):
        model.cpu().cuda()


def parametrize(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    if step == LATE:
        nn.utils.parametrizations.weight_norm(model[2])
        optimizer.add_param_group({"params": list(model[2].parameters())[1:]})
    elif step == LATE + 5:
        nn.utils.parametrize.remove_parametrizations(model[2], "weight")


def hook_and_unhook(step: int, model: Any, optimizer: Any, kept: Any) -> None:
    handles = kept.setdefault("handles", [])
    if step in (LATE, LATE + 4):
        handles.append(model[0].weight.register_hook(lambda grad: grad * 2.0))
        handles.append(model[2].register_forward_hook(lambda module, given, out: out * 0.5))
        handles.append(model.register_full_backward_hook(lambda module, into, of: None))
    elif handles and step in (LATE + 2, LATE + 7):
        while handles:
            handles.pop().remove()


add_mid("frozen_in_turn", "Layers are frozen in every second and in every third late step", freeze_in_turn)
add_mid("frozen_to_the_last", "All but the last layer are frozen, and unfrozen one by one", freeze_all_but_the_last)
add_mid("loaded_into_weights", "load_state_dict in every third late step", load, lambda: (nn.BatchNorm1d(8),))
add_mid("loaded_by_copy", "Weights are copied into, with autograd's knowledge and without", load_by_copy)
add_mid("loaded_by_data", "Weights get new memory; one of them has other strides then", load_by_data)
add_mid("memory_of_two_swapped", "Two weights exchange their memory", swap_two)
add_mid("loaded_by_assign", "New parameters are assigned, and the optimizer gets them", load_by_assign)
add_mid("layer_replaced", "A layer is replaced by its copy, which the optimizer gets, too", replace_layer)
add_mid("tied_and_untied", "Two layers share a weight, do not, and do so again", tie_and_untie)
add_mid("tied_by_data", "Two weights share their memory for five steps", tie_by_data)
add_mid("rates_of_each_step", "Learning rate, weight decay and betas change in each step", change_rates)
add_mid("type_changed", "One step in bfloat16", change_type)
add_mid("weights_on_the_cpu_and_back", "The weights visit the CPU, and get other memory", visit_the_cpu)
add_mid("parametrized_late", "A weight becomes that of a weight norm, and one of its own again", parametrize)
add_mid("hooks_that_come_and_go", "Hooks of weights and modules come, go, and come again", hook_and_unhook)
add_mid("groups_that_grow", "Parameters come to the optimizer in late steps", grow_groups)


@contextlib.contextmanager
def averaged(model: nn.Module, average: dict[str, torch.Tensor], how: str) -> Iterator[None]:
    """The model has the averaged weights for a while."""
    kept = {name: p.data if how == "data" else p.detach().clone() for name, p in model.named_parameters()}
    for weights in (average, kept):
        with torch.no_grad():
            for name, p in model.named_parameters():
                if how == "data":
                    p.data = weights[name]
                else:
                    p.copy_(weights[name])
        if weights is average:
            yield


def add_average(how: str) -> None:
    @program(tags="weights row35", name=f"averaged_by_hand_{how}")
    def average(run: Run) -> None:
        model = net(run, nn.Linear(8, 8))
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}

        def update(step: int) -> None:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    weights[name].lerp_(p, 0.1)
            if step % 2:
                with averaged(model, weights, how), torch.no_grad():
                    see_tensors(run, evaluated=model.eval()(run.randn(6, 8)))
                model.train()

        fit(run, model, after=update)

    average.__doc__ = f"A moving average takes the weights' place for an evaluation ({how})"


add_average("copy")
add_average("data")


def add_step_inside(how: str) -> None:
    @program(tags="weights row35", name=f"step_in_the_backward_{how}")
    def inside(run: Run) -> None:
        model = net(run, nn.Linear(8, 8), nn.Tanh())
        optimizers = {p: torch.optim.Adam([p], lr=0.01) for p in model.parameters()}

        def step_of(p: torch.Tensor) -> None:
            if how == "adam":
                optimizers[p].step()
            else:
                p.data.sub_(p.grad, alpha=0.05)
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step_of)
        for _ in run.steps():
            x = run.randn(6, 8).requires_grad_()
            out = model(x)
            loss = F.mse_loss(out, run.randn(6, 4))
            loss.backward()
            see_tensors(run, loss=loss, out=out, x=x, model=model)

    inside.__doc__ = f"Each weight is moved as soon as it has its gradient ({how})"


add_step_inside("adam")
add_step_inside("data")
