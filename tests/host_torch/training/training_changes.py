"""Modules, weights and gradients that change in the middle of training."""

from collections.abc import Callable
from typing import Any

import torch
from common import F, Run, batch, net, nn, program, see_step, see_tensors, sgd, squares


def add_changed(name: str, about: str, change: Callable[[int, Any, dict[str, Any]], None]) -> None:
    """`change(step, model, kept)` comes before each step; the optimizer is new where weights are others."""

    @program(tags="changes", name=f"changed_{name}")
    def changed(run: Run) -> None:
        model, kept = net(run, nn.Linear(8, 8), nn.Tanh()), {}
        optimizer, known = sgd(model), list(model.parameters())
        for step in run.steps():
            change(step, model, kept)
            now = list(model.parameters())
            if [id(p) for p in now] != [id(p) for p in known]:
                optimizer, known = sgd(model), now
            x, y = batch(run)
            x = x.to(next(model.parameters()).dtype)
            with run.expect_error("the step"):
                out = model(x)
                loss = F.mse_loss(out.float(), y)
                loss.backward()
                see_tensors(run, out=out, loss=loss)
            run.see(model=model)
            optimizer.step()
            optimizer.zero_grad()
            run.see(weights=model)

    changed.__doc__ = about


def visit_half(step: int, model: Any, kept: Any) -> None:
    if step % 9 == 7:
        model.half()
    if step % 9 == 8:
        model.float()


def visit_double(step: int, model: Any, kept: Any) -> None:
    if step % 7 == 5:
        model.to(torch.float64)
    if step % 7 == 6:
        model.to(torch.float32)


def delete_module(step: int, model: Any, kept: Any) -> None:
    if step == 8:
        del model[2]
    if step == 13:
        model.append(nn.Linear(4, 4).to("cuda"))


def register_again(step: int, model: Any, kept: Any) -> None:
    if step % 5 == 4:
        layer = model[2]
        weight = layer.weight
        del layer.weight
        layer.weight = weight if step % 2 else nn.Parameter(weight.detach().clone())


def buffer_for_parameter(step: int, model: Any, kept: Any) -> None:
    layer = model[2]
    if step == 8:
        bias = layer.bias.detach()
        del layer.bias
        layer.register_buffer("bias", bias)
    if step == 13:
        bias = layer.bias
        del layer.bias
        layer.bias = nn.Parameter(bias)


def no_bias(step: int, model: Any, kept: Any) -> None:
    if step == 8:
        kept["bias"] = model[2].bias
        model[2].bias = None
    if step == 13:
        model[2].bias = kept["bias"]


def initialize_again(step: int, model: Any, kept: Any) -> None:
    if step % 6 == 5:
        for layer in model:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()


def initialize_some(step: int, model: Any, kept: Any) -> None:
    if step % 3 == 2:
        nn.init.xavier_uniform_(model[2].weight)
        nn.init.zeros_(model[2].bias)


def unfreeze_in_turn(step: int, model: Any, kept: Any) -> None:
    layers = [layer for layer in model if hasattr(layer, "weight")]
    if step % 4 == 0:
        for number, layer in enumerate(layers):
            layer.requires_grad_(number >= len(layers) - 1 - step // 4)


def only_biases(step: int, model: Any, kept: Any) -> None:
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.endswith("bias") or step % 6 < 3)


def nothing_requires_grad(step: int, model: Any, kept: Any) -> None:
    model.requires_grad_(step % 5 != 4)


def grow(step: int, model: Any, kept: Any) -> None:
    if step == 9:
        model[2].register_parameter("scale", nn.Parameter(torch.ones(8, device="cuda")))
        model[2].register_forward_hook(lambda module, given, out: out * module.scale)


def grads_shared(step: int, model: Any, kept: Any) -> None:
    shared = torch.zeros(8, 8, device="cuda") + 0.125
    if step % 3:
        model[0].weight.grad = shared
        model[2].weight.grad = shared


def grads_of_other_strides(step: int, model: Any, kept: Any) -> None:
    if step % 2:
        model[0].weight.grad = torch.full((8, 8), 0.5, device="cuda").t()
        model[2].weight.grad = torch.full((1, 1), 0.25, device="cuda").expand(8, 8).contiguous()


def grads_are_the_weights(step: int, model: Any, kept: Any) -> None:
    if step % 4 == 3:
        model[2].weight.grad = model[2].weight.detach()


def transposed_weight(step: int, model: Any, kept: Any) -> None:
    if step % 6 == 5:
        model[2].weight.data = model[2].weight.data.t().contiguous().t()
    if step % 6 == 2:
        model[2].weight.data = model[2].weight.data.contiguous()


def one_flat_buffer(step: int, model: Any, kept: Any) -> None:
    """As FSDP's and apex's flat parameters: all weights are views of one buffer."""
    if step == 6:
        flat = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
        kept["flat"], at = flat, 0
        for weight in model.parameters():
            weight.data = flat[at : at + weight.numel()].view_as(weight)
            at += weight.numel()
    if step > 10:
        kept["flat"].mul_(0.99)


def swapped_modules(step: int, model: Any, kept: Any) -> None:
    if step % 5 == 4:
        model[0], model[2] = model[2], model[0]


def wrapped_layer(step: int, model: Any, kept: Any) -> None:
    if step == 8:
        model[2] = nn.Sequential(model[2], nn.Dropout(0.2))
    if step == 13:
        model[2] = model[2][0]


def forward_replaced(step: int, model: Any, kept: Any) -> None:
    if step == 8:
        forward = model[2].forward
        model[2].forward = lambda x: forward(x) + x
    if step == 13:
        del model[2].forward


def parameter_subclass(step: int, model: Any, kept: Any) -> None:
    if step == 8:
        model[2].weight.note = "marked"
    if step == 11:
        model[2].weight.register_hook(lambda grad: grad * 0.5)
        model[2].weight.retain_graph = True


def evaluated(step: int, model: Any, kept: Any) -> None:
    model.train(step % 2 == 0)
    model[1].train(step % 3 == 0)


add_changed("to_half", "half() for one step, and float() again", visit_half)
add_changed("to_double", "to(float64) for one step, and back", visit_double)
add_changed("module_deleted", "A layer is deleted, another one appended", delete_module)
add_changed("registered_again", "A weight is deleted and registered again, itself or a copy", register_again)
add_changed("parameter_to_buffer", "A bias becomes a buffer, and a parameter again", buffer_for_parameter)
add_changed("bias_to_none", "A bias is None for some steps", no_bias)
add_changed("initialized_again", "reset_parameters() of all layers", initialize_again)
add_changed("initialized_layer", "nn.init of one layer in each third step", initialize_some)
add_changed("unfrozen_in_turn", "Layers are unfrozen from the last one on", unfreeze_in_turn)
add_changed("only_biases", "Only biases require grad, in turns with all", only_biases)
add_changed("nothing_requires_grad", "No weight requires grad in some steps: the pass is an error", nothing_requires_grad)
add_changed("parameter_added", "A parameter and a forward hook that uses it are added", grow)
add_changed("shared_gradients", "Two weights have the same tensor as gradient before the pass", grads_shared)
add_changed("gradients_of_other_strides", "Gradients have other strides before the pass", grads_of_other_strides)
add_changed("gradient_is_the_weight", "The gradient before the pass is the weight's memory", grads_are_the_weights)
add_changed("strides_of_a_weight", "A weight's data is transposed in memory", transposed_weight)
add_changed("flat_weights", "Weights become views of one buffer, which changes at once", one_flat_buffer)
add_changed("layers_swapped", "Two layers change places", swapped_modules)
add_changed("layer_wrapped", "A layer is wrapped, and unwrapped", wrapped_layer)
add_changed("forward_replaced", "A layer's forward is replaced on the instance, and put back", forward_replaced)
add_changed("attributes_of_a_weight", "A weight gets an attribute, and a hook", parameter_subclass)
add_changed("modes", "train() and eval(), of the net and of a part", evaluated)


@program(tags="changes")
def changed_between_the_passes(run: Run) -> None:
    """Between forward and backward: flags, loading of the same weights, hooks, eval(), zero_grad, deletion of a layer."""
    model = net(run, nn.Linear(8, 8))
    optimizer = sgd(model)
    for step in run.steps():
        loss, out = squares(model, *batch(run))
        how = step % 6 if step > 8 else -1
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with run.expect_error("the pass"):
            if how == 0:
                model[2].requires_grad_(False)
            elif how == 1:
                model.eval()
            elif how == 2:
                model.load_state_dict(state)
            elif how == 3:
                model.load_state_dict(state, assign=True)
            elif how == 4:
                model[2] = nn.Identity()
            elif how == 5:
                model[0].weight.requires_grad_(False)
                model[0].weight.requires_grad_(True)
            loss.backward()
        model.train().requires_grad_(True)
        if how in (3, 4):
            if how == 4:
                model[2] = run.put(nn.Linear(8, 8))
            optimizer = sgd(model)
        see_step(run, loss, model, optimizer, out=out)
