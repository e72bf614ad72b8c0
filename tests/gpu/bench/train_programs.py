"""Training programs, a step at a time, as a user's script has them: models from their configurations with random weights.

make(name, seed, deterministic) gives a Program. Its step() trains on a batch in new tensors and returns the loss; a few
batches stay alive, so that addresses move as they do with a DataLoader. `how` says in which way the model is called: as it
is, as CUDA graphs made by hand (torch.cuda.make_graphed_callables), or compiled.
"""

import collections
import contextlib
import random
from typing import Any, Callable, Iterator, Optional

import torch
from torch import nn
from torch.nn import functional as F

import by_hand
from train_models import GPT, Potential, pairs_of

PREFETCHED = 3  # batches that stay alive behind the newest one
POOL = 40  # batches, of which each step takes one at random
Tensors = tuple[torch.Tensor, ...]


class Program:
    """What the programs share. `called` is what is called in a step: the model, or a module that gives its loss."""

    amp: Optional[torch.dtype] = None
    scaled = False
    norm: Optional[float] = None

    def __init__(self, seed: int, how: str, small: bool) -> None:
        seed_everything(seed)
        self.small, self.how = small, how
        self.model: nn.Module = self.build().cuda().train()
        self.optimizer = self.make_optimizer([p for p in self.model.parameters() if p.requires_grad])
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.scaled)
        self.data = torch.Generator().manual_seed(seed + 1)
        self.choice = random.Random(seed)
        self.pool = [tuple(x.pin_memory() for x in self.make_batch(i)) for i in range(4 if small else POOL)]
        self.alive: collections.deque[Tensors] = collections.deque(maxlen=PREFETCHED)
        self.look: Optional[Callable[[torch.Tensor], None]] = None  # called between the backward pass and the optimizer
        self.called: Any = self.callable()
        if how == "graph":
            self.called = self.graphed()
        elif how == "compile":
            self.called = torch.compile(self.called, mode="reduce-overhead")

    # What a program says of itself.

    def build(self) -> nn.Module:
        raise NotImplementedError

    def make_optimizer(self, parameters: list[nn.Parameter]) -> Any:
        return torch.optim.AdamW(parameters, lr=1e-4)

    def make_batch(self, number: int) -> Tensors:
        raise NotImplementedError

    def callable(self) -> nn.Module:
        return self.model

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.called(*batch)

    def graph_arguments(self) -> Tensors:
        return self.fresh()

    # A step.

    def fresh(self) -> Tensors:
        batch = tuple(x.to("cuda", non_blocking=True) for x in self.choice.choice(self.pool))
        self.alive.append(batch)
        return batch

    def autocast(self) -> Any:
        if self.amp is None:
            return contextlib.nullcontext()
        # make_graphed_callables() asks for no cache.
        return torch.autocast("cuda", dtype=self.amp, cache_enabled=self.how != "graph")

    def graphed(self) -> Any:
        with self.autocast():
            return torch.cuda.make_graphed_callables(self.called, self.graph_arguments(), allow_unused_input=True)

    def step(self) -> torch.Tensor:
        with self.autocast():
            loss = self.loss(*self.fresh())
        self.scaler.scale(loss).backward()
        if self.norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.norm)
        if self.look is not None:
            self.look(loss)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.detach()

    # What is compared.

    def gradients(self) -> dict[str, torch.Tensor]:
        return {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """All that a step leaves behind, by kind and name; gradients only while there are some."""
        moments = {
            f"{number} {name}": value
            for number, one in enumerate(self.optimizer.state.values())
            for name, value in one.items()
            if isinstance(value, torch.Tensor)
        }
        return {
            "gradients": self.gradients(),
            "weights": dict(self.model.named_parameters()),
            "buffers": dict(self.model.named_buffers()),
            "optimizer": moments,
            "scale": {"scale": torch.tensor(self.scaler.get_scale())},
            "random": {"CPU": torch.get_rng_state(), "GPU": torch.cuda.get_rng_state()},
        }


class LossOf(nn.Module):
    """A model of transformers as a module of tensors that returns the loss."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, values))).loss


class Lora(Program):
    """Low-rank adapters (rank 8, on queries and values) of a Llama of 1.1 billion weights; 1 x 256 tokens."""

    def build(self) -> nn.Module:
        import peft  # noqa: PLC0415
        from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415

        size = (2, 64, 4, 128) if self.small else (22, 2048, 32, 5632)
        self.words = 100 if self.small else 32000
        config = LlamaConfig(num_hidden_layers=size[0], hidden_size=size[1], num_attention_heads=size[2], intermediate_size=size[3],
                             num_key_value_heads=4, vocab_size=self.words)  # fmt: skip
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))

    def make_batch(self, number: int) -> Tensors:
        ids = torch.randint(3, self.words, (1, 16 if self.small else 256), generator=self.data)
        return ids, ids.clone()

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.called(*batch) if self.how == "graph" else self.called(input_ids=batch[0], labels=batch[1]).loss

    def callable(self) -> nn.Module:
        return LossOf(self.model, "input_ids", "labels") if self.how == "graph" else self.model


class NanoGPT(Program):
    """A GPT of 6 layers, 384 wide, 16 x 256 characters; autocast in bfloat16, dropout, fused AdamW, clipped gradients."""

    amp, norm = torch.bfloat16, 1.0

    def build(self) -> nn.Module:
        self.length = 16 if self.small else 256
        layers, width = (2, 48) if self.small else (6, 384)
        return GPT(words=65, length=self.length, layers=layers, heads=6, width=width, dropout=0.2)

    def make_optimizer(self, parameters: list[nn.Parameter]) -> Any:
        groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
                  {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]  # fmt: skip
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)

    def make_batch(self, number: int) -> Tensors:
        text = torch.randint(65, (2 if self.small else 16, self.length + 1), generator=self.data)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Bert(Program):
    """BERT-base that classifies 4 x 128 tokens; autocast in float16, GradScaler, AdamW with its defaults."""

    amp, scaled = torch.float16, True

    def build(self) -> nn.Module:
        from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415

        small = {"num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 96, "vocab_size": 100} if self.small else {}
        config = BertConfig(**small)
        self.words = config.vocab_size
        return BertForSequenceClassification(config)

    def make_batch(self, number: int) -> Tensors:
        shape = (4, 16 if self.small else 128)
        mask = torch.ones(shape, dtype=torch.long)
        return torch.randint(3, self.words, shape, generator=self.data), mask, torch.randint(2, (4,), generator=self.data)

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        ids, mask, labels = batch
        return self.called(*batch) if self.how == "graph" else self.called(input_ids=ids, attention_mask=mask, labels=labels).loss

    def callable(self) -> nn.Module:
        return LossOf(self.model, "input_ids", "attention_mask", "labels") if self.how == "graph" else self.model


class ResNet(Program):
    """ResNet-18 on 8 images of 64 x 64, SGD with momentum; the loss is computed outside of the model."""

    def build(self) -> nn.Module:
        import torchvision  # noqa: PLC0415

        return torchvision.models.resnet18(weights=None, num_classes=10)

    def make_optimizer(self, parameters: list[nn.Parameter]) -> Any:
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def make_batch(self, number: int) -> Tensors:
        side = 32 if self.small else 64
        return torch.randn(8, 3, side, side, generator=self.data), torch.randint(10, (8,), generator=self.data)

    def graph_arguments(self) -> Tensors:
        return self.fresh()[:1]

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.called(batch[0]), batch[1])


class Wav2Vec2(Program):
    """Wav2Vec2-base with CTC loss, 8 clips of 20 lengths; autocast in float16, fused AdamW; no layer drop and no masks."""

    amp, scaled, layer_drop = torch.float16, True, 0.0

    def build(self) -> nn.Module:
        from transformers import Wav2Vec2Config, Wav2Vec2ForCTC  # noqa: PLC0415

        small = {"num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 96, "conv_dim": (16,) * 7} if self.small else {}
        # Only with this attention are equal runs equal bit by bit.
        attention = {"attn_implementation": "eager"} if torch.are_deterministic_algorithms_enabled() else {}
        config = Wav2Vec2Config(layerdrop=self.layer_drop, apply_spec_augment=self.layer_drop > 0, ctc_loss_reduction="mean",
                                pad_token_id=0, **small, **attention)  # fmt: skip
        return Wav2Vec2ForCTC(config)

    def make_optimizer(self, parameters: list[nn.Parameter]) -> Any:
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def make_batch(self, number: int) -> Tensors:
        samples = 16000 + 1600 * (number % 20)
        clips = 2 if self.small else 8
        return torch.randn(clips, samples, generator=self.data), torch.randint(1, 32, (clips, 9), generator=self.data)

    def loss(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.called(batch[0], labels=batch[1]).loss


class Wav2Vec2Masked(Wav2Vec2):
    """The same with a layer drop of 0.1 and masks of time (SpecAugment), both drawn on the host."""

    layer_drop = 0.1


class Dynamics(Program):
    """A potential like SchNet's with energies and forces (autograd.grad in its forward): a step of dynamics, no training."""

    atoms = 24

    def build(self) -> nn.Module:
        return Potential(width=16 if self.small else 128, interactions=3)

    def make_optimizer(self, parameters: list[nn.Parameter]) -> Any:
        return torch.optim.SGD(parameters, lr=0.0)

    def make_batch(self, number: int) -> Tensors:
        grid = torch.cartesian_prod(*[torch.arange(3.0)] * 3)[: self.atoms] * 1.5
        return (grid + 0.1 * torch.randn(self.atoms, 3, generator=self.data),)

    def callable(self) -> nn.Module:
        self.kinds = torch.randint(1, 9, (self.atoms,), generator=self.data).cuda()
        self.edges = pairs_of(self.atoms).cuda()
        (self.positions,) = self.fresh()
        self.velocities = torch.zeros_like(self.positions)
        _, self.forces = self.model(self.kinds, self.positions, self.edges)
        return self.model

    def graphed(self) -> Any:
        static = self.positions.clone()
        graph, outputs = by_hand.captured(lambda: self.model(self.kinds, static, self.edges))

        def call(kinds: torch.Tensor, positions: torch.Tensor, edges: torch.Tensor) -> Any:
            static.copy_(positions)
            graph.replay()
            return outputs

        return call

    def step(self) -> torch.Tensor:
        halfway = self.velocities + 0.0025 * self.forces
        self.positions = self.positions + 0.005 * halfway
        energy, self.forces = self.called(self.kinds, self.positions, self.edges)
        self.velocities = halfway + 0.0025 * self.forces
        if self.look is not None:
            self.look(energy)
        return energy

    def gradients(self) -> dict[str, torch.Tensor]:
        return {"positions": self.positions, "velocities": self.velocities, "forces": self.forces}


PROGRAMS: dict[str, type[Program]] = {
    "lora": Lora, "gpt": NanoGPT, "bert": Bert, "resnet18": ResNet, "wav2vec2": Wav2Vec2, "wav2vec2_masked": Wav2Vec2Masked,
    "dynamics": Dynamics,
}  # fmt: skip


def seed_everything(seed: int) -> None:
    import numpy  # noqa: PLC0415

    random.seed(seed)
    numpy.random.seed(seed)  # noqa: NPY002 (transformers draws its masks from it)
    torch.manual_seed(seed)


def be_deterministic() -> None:
    """CTC's backward has no deterministic form for long clips, and warns."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # ordinary programs do not fill it
    torch.backends.cudnn.benchmark = False


def make(name: str, seed: int = 0, deterministic: bool = False, how: str = "plain", small: bool = False) -> Program:
    """`small`: a tiny model of the same kind, to try a program where there is no GPU."""
    if deterministic:
        be_deterministic()
    return PROGRAMS[name](seed, how, small)


def checksums(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """A number for each tensor's bits and their places, computed where it lies."""
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    for name, tensor in tensors.items():
        bits = tensor.detach().contiguous().reshape(-1)
        bits = bits.view(words[bits.element_size()]).to(torch.int64)
        places = torch.arange(1, 2 * bits.numel(), 2, device=bits.device)
        yield name, (bits * places).sum() + bits.numel()
