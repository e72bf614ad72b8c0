"""Programs of optimizers_test.py: each trains, and prints losses, weights, the optimizer's state and their versions."""

STEPS = 24


def net(seed=0):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.LayerNorm(4)).cuda()


def show(model, optimizer):
    import torch

    for weight in model.parameters():
        state = optimizer.state.get(weight, {})
        values = [value.double().sum().item() for value in state.values() if isinstance(value, torch.Tensor)]
        versions = [value._version for value in state.values() if isinstance(value, torch.Tensor)]
        print(weight.double().sum().item(), weight._version, values, versions, weight.grad is None)


def steps(model, optimizer, count=STEPS, before=None, after=None):
    import torch

    x = torch.randn(6, 8, device="cuda")
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


def falling(step):
    return 1 / (1 + step)


def with_options(name, rate=None, **options):
    """`rate`: of each step, a factor."""

    def program():
        import torch

        model = net()
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        schedule = rate and torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        steps(model, optimizer, after=schedule and (lambda step: schedule.step()))

    return program


def scheduled():
    """The rate falls every eight steps: its number is part of the call."""
    import torch

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 8)
    steps(model, optimizer, 32, after=lambda step: schedule.step())


def weights_rest(name):
    """The rate begins with 0, and a weight has no gradient but 0 for a while: what its kernels are handed shows in
    nothing."""

    def program():
        import torch

        model = net()
        optimizer = getattr(torch.optim, name)(model.parameters(), 0.1, weight_decay=0.0, foreach=False)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)

        def rest(step):
            if step < 14:
                model[0].weight.grad.zero_()
                model[0].bias.grad.zero_()

        steps(model, optimizer, 28, before=rest, after=lambda step: schedule.step())

    return program


def warmed_up():
    """The rate begins with 0, and comes to 1 and 0 again: numbers on which code may branch."""
    import torch

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1.0, foreach=False)
    rates = [0, 0, 1e-3, 2e-3, 3e-3, 4e-3, 1, 5e-3, 4e-3, 0, 3e-3, 0, 1e-3, 1e-45, 1e-2, 1e-2, 1e-2, 2e-3, -1e-3, 1e-3]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(rates[min(step, len(rates) - 1)]))
    steps(model, optimizer, 26, after=lambda step: schedule.step())


def rate_moves_late(name):
    """It is the same in all observed calls, another one later, and again and again the first."""

    def program():
        import torch

        model = net()
        optimizer = getattr(torch.optim, name)(model.parameters(), 0.01, weight_decay=0.1, foreach=False)

        def change(step):
            optimizer.param_groups[0]["lr"] = 0.01 if step % 7 < 4 or step < 8 else 0.02 + step / 1000

        steps(model, optimizer, 40, after=change)

    return program


def groups():
    """Two groups with rates of their own: two calls in each step."""
    import torch

    model = net()
    rest = [weight for layer in (model[0], model[3]) for weight in layer.parameters()]
    optimizer = torch.optim.AdamW(
        [{"params": model[2].parameters(), "lr": 0.02}, {"params": rest, "weight_decay": 0.0}], lr=0.01, foreach=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    steps(model, optimizer, 30, after=lambda step: schedule.step())


def steps_change():
    """Others write to the tensors that count steps; they count differently for a while; a gradient is missing."""
    import torch

    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, foreach=False)

    def change(step):
        counts = [state["step"] for state in optimizer.state.values()]
        if step == 8:
            for count in counts:
                count += 5
        if step == 14:
            counts[0].fill_(3)
        if step == 18:
            for count in counts:
                count.fill_(100)

    def drop(step):
        if step == 22:
            model[0].bias.grad = None

    steps(model, optimizer, 34, before=drop, after=change)


def state_of_adam_is_loaded():
    import copy

    import torch

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, amsgrad=True, foreach=False)
    kept = []

    def change(step):
        if step == 5:
            kept.append(copy.deepcopy(optimizer.state_dict()))
        if step in (12, 20):
            optimizer.load_state_dict(copy.deepcopy(kept[0]))

    steps(model, optimizer, 28, after=change)
    print(sorted((key, float(value)) for state in kept[0]["state"].values() for key, value in state.items() if key == "step"))


def replaced_functions():
    """Code that is not PyTorch's runs inside of the step, and branches on the rate and on the number of steps."""
    import torch
    from torch.optim import adam

    real = adam._get_value

    def get_value(step):
        value = real(step)
        return value if value < 15 else value + 1

    adam._get_value = get_value
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, foreach=False)
    steps(model, optimizer, 24)
    adam._get_value = real
    steps(model, optimizer, 10)


def rate_is_tensor():
    import torch

    model = net()
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(0.01), foreach=False)

    def change(step):
        optimizer.param_groups[0]["lr"].mul_(0.9)

    steps(model, optimizer, after=change)


def doubles():
    import torch

    torch.set_default_dtype(torch.float64)
    model = net().double()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, foreach=False)
    steps(model, optimizer)


def betas_move():
    import torch

    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, foreach=False)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
    steps(model, optimizer, after=lambda step: schedule.step())


def far_counts():
    """Corrections become 1, and counts come to where a float does not tell them apart."""
    import torch

    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
    for count in (0, 400, 17_000, 50_000, (1 << 23) - 3, (1 << 24) - 2):
        for state in optimizer.state.values():
            state["step"].fill_(count)
        steps(model, optimizer, 8)


def weights_at_zero():
    """Weights of 0 show nothing of what their kernels are handed, until gradients come; some lie in strides."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    weights = [nn.Parameter(torch.zeros(shape, device="cuda").t()) for shape in ((4, 6), (3, 5), (0, 2))]
    for name in ("AdamW", "SGD"):
        optimizer = getattr(torch.optim, name)(weights, 0.05, weight_decay=0.2, foreach=False)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7)
        for step in range(30):
            optimizer.zero_grad()
            sum(weight.sum() * float(step > 15 + i) for i, weight in enumerate(weights)).backward()
            optimizer.step()
            schedule.step()
        show(nn.ParameterList(weights), optimizer)


def counts_of_all_kinds():
    """Counts in one memory, or one for all, or new ones each time: by the functional form, whose lists are the caller's."""
    import torch
    from torch.optim.adam import adam

    torch.manual_seed(0)
    torch.ones(2, device="cuda", requires_grad=True).sum().backward()
    weights = [torch.randn(5, 3, device="cuda"), torch.randn(7, device="cuda")]
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    own, views, one = [torch.tensor(0.0), torch.tensor(0.0)], list(torch.full((2,), 10.0).unbind()), torch.tensor(20.0)
    for step in range(36):
        counts = own if step < 10 else views if step < 20 else [one, one] if step < 26 else None
        counts = counts or [torch.tensor(float(step)), torch.tensor(float(step))]
        gradients = [torch.randn_like(weight) for weight in weights]
        adam(weights, gradients, first, second, [], counts, foreach=False, amsgrad=False, beta1=0.9, beta2=0.99, lr=0.01,
             weight_decay=0.0, eps=1e-8, maximize=False)
        print([(count.item(), count._version) for count in counts], [weight.sum().item() for weight in weights])


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


def scaled(**options):
    def program():
        import torch

        model, scaler = net(), torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=5)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, **options)
        x = torch.randn(6, 8, device="cuda")
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(x).square().mean() * (float("inf") if step in (9, 17) else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            print(loss.item(), scaler.get_scale())
        show(model, optimizer)

    return program


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
    "adam_amsgrad": with_options("Adam", lr=0.01, amsgrad=True, weight_decay=0.1, foreach=False),
    "adam_capturable": with_options("Adam", lr=0.01, capturable=True, amsgrad=True, foreach=False),
    "adamw": with_options("AdamW", lr=0.01, foreach=False),
    "adamw_maximize": with_options("AdamW", lr=0.01, maximize=True, weight_decay=1, foreach=False),
    "adamw_fused": with_options("AdamW", lr=0.01, fused=True),
    "adamax": with_options("Adamax", lr=0.01, foreach=False),
    "rmsprop": with_options("RMSprop", lr=0.01, momentum=0.9, centered=True, capturable=True, foreach=False),
    "adadelta": with_options("Adadelta", foreach=False, capturable=True),
    "scheduled": scheduled,
    "sgd_each_step": with_options("SGD", falling, lr=0.1, foreach=False),
    "sgd_momentum_each_step": with_options("SGD", falling, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=False),
    "adam_each_step": with_options("Adam", falling, lr=0.1, foreach=False),
    "adamw_each_step": with_options("AdamW", falling, lr=0.1, foreach=False),
    "fused_each_step": with_options("AdamW", falling, lr=0.1, fused=True),
    "decay_is_int": with_options("AdamW", falling, lr=0.1, weight_decay=1, foreach=False),
    "capturable_each_step": with_options("AdamW", falling, lr=0.1, capturable=True, foreach=False),
    "sgd_weights_rest": weights_rest("SGD"),
    "adam_weights_rest": weights_rest("Adam"),
    "warmed_up": warmed_up,
    "adam_moves_late": rate_moves_late("AdamW"),
    "sgd_moves_late": rate_moves_late("SGD"),
    "groups": groups,
    "steps_change": steps_change,
    "state_of_adam_is_loaded": state_of_adam_is_loaded,
    "replaced_functions": replaced_functions,
    "rate_is_tensor": rate_is_tensor,
    "doubles": doubles,
    "betas_move": betas_move,
    "far_counts": far_counts,
    "weights_at_zero": weights_at_zero,
    "counts_of_all_kinds": counts_of_all_kinds,
    "scaled_adam": scaled(foreach=False),
    "two_models": two_models,
    "clipped": clipped,
    "state_is_loaded": state_is_loaded,
    "weights_are_added": weights_are_added,
    "scaled": scaled(fused=True),
    "ends_with_error": ends_with_error,
    "hooks_and_closures": hooks_and_closures,
}
