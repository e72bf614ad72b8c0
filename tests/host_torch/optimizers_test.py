"""optimizers_test.py --python INTERPRETER --grape LIBRARY: the functions that compute an optimizer's step are regions
where a program trains, and nobody named them.

Each program trains and prints its losses, its weights, its optimizer's state and their versions: the same with Grape.
REPLAYED has the functions whose calls must be replayed at least as often, per program, and REFUSED reasons that must be
told of others.
"""

import sys

import replayed

STEPS = 24
ADAM, SGD, NORM = "torch.optim.adam:", "torch.optim.sgd:", "torch.nn.utils.clip_grad:_get_total_norm"


def net(seed=0, inputs=8):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.GELU(), nn.Linear(16, 4), nn.LayerNorm(4)).cuda()


def show(model, optimizer):
    import torch

    for weight in model.parameters():
        state = optimizer.state.get(weight, {})
        values = [value.double().sum().item() for value in state.values() if isinstance(value, torch.Tensor)]
        versions = [value._version for value in state.values() if isinstance(value, torch.Tensor)]
        print(weight.double().sum().item(), weight._version, values, versions, weight.grad is None)


def steps(model, optimizer, count=STEPS, before=None, after=None, inputs=8):
    import torch

    x = torch.randn(6, inputs, device="cuda")
    for step in range(count):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if before is not None:
            before(step)
        optimizer.step()
        if after is not None:
            after(step)
        print(loss.item())
    show(model, optimizer)


def with_options(name, **options):
    def program():
        import torch

        model = net()
        steps(model, getattr(torch.optim, name)(model.parameters(), **options))

    return program


def scheduled():
    """The rate falls every eight steps: its number is part of the call."""
    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 8)
    steps(model, optimizer, 32, after=lambda step: schedule.step())


def each_step_scheduled():
    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    steps(model, optimizer, after=lambda step: schedule.step())


def two_models():
    """Two optimizers have one function."""
    import torch

    models = [net(seed) for seed in (1, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.5, foreach=False) for model in models]
    for _ in range(8):
        for model, optimizer in zip(models, optimizers):
            steps(model, optimizer, 2)


def clipped():
    import torch

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)

    def clip(step):
        print(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01, foreach=False).item())

    steps(model, optimizer, before=clip)


def state_is_loaded():
    """The optimizer's state, some weights' data and a gradient are others from the middle on."""
    import copy

    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    kept = []

    def change(step):
        if step == 5:
            kept.append(copy.deepcopy(optimizer.state_dict()))
        if step == 12:
            optimizer.load_state_dict(kept[0])
        if step == 16:
            weight = next(model.parameters())
            weight.data = weight.data.clone() * 2

    def replace(step):
        if step >= 18:
            model[0].bias.grad = None if step % 2 else torch.ones_like(model[0].bias)

    steps(model, optimizer, before=replace, after=change)


def weights_are_added():
    import torch

    model, head = net(), torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), 0.01, foreach=False)
    both = torch.nn.Sequential(model, head)
    steps(both, optimizer, 10)
    optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
    steps(both, optimizer, 14)


def scaled():
    import torch

    model, scaler = net(), torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=5)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
    x = torch.randn(6, 8, device="cuda")
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(x).square().mean() * (float("inf") if step in (9, 17) else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item(), scaler.get_scale())
    show(model, optimizer)


def ends_with_error():
    """A step that raises in the middle: its hooks come first, and the gradient of another type behind."""
    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)

    def spoil(step):
        if step in (10, 11):
            model[2].weight.grad.data = torch.zeros(1, device="cuda", dtype=torch.float64).expand(3)

    x = torch.randn(6, 8, device="cuda")
    for step in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        spoil(step)
        try:
            optimizer.step()
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0])
    show(model, optimizer)


def hooks_and_closures():
    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, foreach=False)
    optimizer.register_step_pre_hook(lambda *_: print("before"))
    optimizer.register_step_post_hook(lambda *_: print("after"))
    x = torch.randn(6, 8, device="cuda")

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        print(optimizer.step(closure).item())
    show(model, optimizer)


PROGRAMS = {
    "sgd": with_options("SGD", lr=0.1, foreach=False),
    "sgd_momentum": with_options("SGD", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False),
    "sgd_maximize": with_options("SGD", lr=1e-3, momentum=0.9, maximize=True, foreach=False),
    "adam": with_options("Adam", lr=0.01, foreach=False),
    "adam_capturable": with_options("Adam", lr=0.01, capturable=True, amsgrad=True, foreach=False),
    "adamw_fused": with_options("AdamW", lr=0.01, fused=True),
    "adamax": with_options("Adamax", lr=0.01, foreach=False),
    "rmsprop": with_options("RMSprop", lr=0.01, momentum=0.9, centered=True, capturable=True, foreach=False),
    "adadelta": with_options("Adadelta", foreach=False, capturable=True),
    "scheduled": scheduled,
    "each_step_scheduled": each_step_scheduled,
    "two_models": two_models,
    "clipped": clipped,
    "state_is_loaded": state_is_loaded,
    "weights_are_added": weights_are_added,
    "scaled": scaled,
    "ends_with_error": ends_with_error,
    "hooks_and_closures": hooks_and_closures,
}
REPLAYED = {
    "sgd": {SGD + "_single_tensor_sgd": 20},
    "sgd_momentum": {SGD + "_single_tensor_sgd": 18},
    "sgd_maximize": {SGD + "_single_tensor_sgd": 18},
    "adam_capturable": {ADAM + "_single_tensor_adam": 20},
    "adamw_fused": {ADAM + "_fused_adam": 20},
    "rmsprop": {"torch.optim.rmsprop:_single_tensor_rmsprop": 20},
    "adadelta": {"torch.optim.adadelta:_single_tensor_adadelta": 20},
    "scheduled": {SGD + "_single_tensor_sgd": 16},
    "two_models": {SGD + "_single_tensor_sgd": 10},
    "clipped": {ADAM + "_fused_adam": 20, NORM: 20},
    "state_is_loaded": {SGD + "_single_tensor_sgd": 8},
    "scaled": {ADAM + "_fused_adam": 14},
    "ends_with_error": {SGD + "_single_tensor_sgd": 8},
    "hooks_and_closures": {SGD + "_single_tensor_sgd": 20},
}
REFUSED = {"adam": "steps_on_cpu", "adamax": "steps_on_cpu", "weights_are_added": "steps_on_cpu"}
# Settings with which none of these functions is a region.
WITHOUT = ({"GRAPE_REGIONS": "modules"}, {"GRAPE_EXCLUDE": "torch.optim.*:*"})


def main():
    if sys.argv[1:2] == ["--program"]:
        return PROGRAMS[sys.argv[2]]()
    given = replayed.options(__doc__)

    def regions(program, **settings):
        found = replayed.compare(given, __file__, ["--program", program], **settings)[1]
        return {region["region"]: region for region in found if region["region"].startswith("torch.optim.")
                or region["region"] == NORM}

    for program in PROGRAMS:
        of = regions(program)
        print(program, {name: region["replayed"] for name, region in of.items()})
        for name, least in REPLAYED.get(program, {}).items():
            assert of[name]["replayed"] >= least, (program, name)
        reasons = {reason["id"] for region in of.values() for reason in region["reasons"]}
        assert program not in REFUSED or REFUSED[program] in reasons, (program, reasons)
    for settings in WITHOUT:
        left = {name for name, region in regions("sgd_momentum", **settings).items() if region["replayed"]}
        assert not left, (settings, left)


if __name__ == "__main__":
    main()
