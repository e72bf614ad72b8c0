"""Layers that are left out by a random number of the host's, as transformers' encoders and decoders do it in training."""

import threading
from typing import Any, Callable, Optional

import torch
from common import F, Run, batch, nn, program, see_step, sgd
from training_again import pass_twice
from training_libraries import add_model, language


class Layer(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer, self.dropout = nn.Linear(8, 16), nn.Linear(16, 8), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.outer(self.inner(x).tanh()), self.dropout, self.training)


class Decoder(nn.Module):
    """As OPT's and BART's: drawn in training only, and compared at once."""

    def __init__(self, drop: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop = drop
        self.layers, self.head = nn.ModuleList(Layer(dropout) for _ in range(3)), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training:
                probability = torch.rand([])
                if probability < self.drop:
                    continue
            x = layer(x)
        return self.head(x)


class Encoder(Decoder):
    """As Wav2Vec2's: drawn each time, and the outcome kept in a variable."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            probability = torch.rand([])
            skip = self.training and probability < self.drop
            if not skip:
                x = layer(x)
        return self.head(x)


class Told(Decoder):
    """As torchaudio's: by the number's value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if not (self.training and torch.rand(1).item() <= self.drop):
                x = layer(x)
        return self.head(x)


Before = Callable[[int, nn.Module], Any]  # each step, of that number


def train(run: Run, model: nn.Module, before: Optional[Before] = None) -> None:
    optimizer = sgd(model)
    for step in run.steps():
        if before is not None:
            before(step, model)
        x, y = batch(run)
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="layer_drop")
def layer_drop_of_nothing(run: Run) -> None:
    """The default of most models: numbers are drawn, and no layer is ever left out."""
    train(run, run.put(Decoder()))


@program(tags="layer_drop")
def layer_drop_now_and_then(run: Run) -> None:
    """Each layer is left out in one step of eight."""
    train(run, run.put(Decoder(0.125)))


@program(tags="layer_drop")
def layer_drop_often(run: Run) -> None:
    """Each layer is left out in half of the steps; the outcome is kept in a variable."""
    train(run, run.put(Encoder(0.5)))


@program(tags="layer_drop")
def layer_drop_of_all(run: Run) -> None:
    """All layers are left out, so that they have no gradients."""
    train(run, run.put(Encoder(2.0)))


@program(tags="layer_drop")
def layer_drop_with_dropout(run: Run) -> None:
    """The GPU's generator draws as well."""
    train(run, run.put(Encoder(0.1, 0.2)))


@program(tags="layer_drop")
def layer_drop_by_value(run: Run) -> None:
    """The number is read, which cannot be followed."""
    train(run, run.put(Told(0.1)))


@program(tags="layer_drop")
def layer_drop_that_begins(run: Run) -> None:
    """The limit changes when calls are replayed, and goes back."""

    def before(step: int, model: Any) -> None:
        model.drop = 0.5 if step in (12, 13, 15) else 0.0

    train(run, run.put(Decoder()), before)


@program(tags="layer_drop")
def layer_drop_by_the_seed(run: Run) -> None:
    """The program sets the generator before each step: most steps leave nothing out, some do."""

    def before(step: int, model: Any) -> None:
        torch.random.default_generator.manual_seed(step if step > 11 else 2)

    train(run, run.put(Decoder(0.3)), before)


@program(tags="layer_drop")
def layer_drop_and_evaluation(run: Run) -> None:
    """Evaluated without gradients now and then, where numbers are drawn and not compared."""

    def before(step: int, model: Any) -> None:
        if step % 9 != 8:
            return
        model.eval()
        with torch.no_grad():
            run.see(evaluated=model(torch.ones(6, 8, device=run.device)))
        model.train()

    train(run, run.put(Encoder(0.05)), before)


@program(tags="layer_drop again")
def layer_drop_made_again(run: Run) -> None:
    """A pass that was not seen: the call is made again with the numbers that it drew, and the generator stays where it is."""

    def draw(model: nn.Module, x: torch.Tensor, out: torch.Tensor) -> None:
        torch.rand(3), torch.randperm(5)

    pass_twice(run, run.put(Encoder(0.05, 0.2)), draw)


@program(tags="layer_drop again")
def layer_drop_made_again_otherwise(run: Run) -> None:
    """The same, where the numbers that come next would leave all layers out."""

    def draw(model: nn.Module, x: torch.Tensor, out: torch.Tensor) -> None:
        while not bool((torch.rand(3) < 0.3).all()):
            pass
        state = torch.get_rng_state()
        torch.set_rng_state(state)

    pass_twice(run, run.put(Decoder(0.05)), draw)


def mean_square(step: int, out: Any, given: Any) -> Any:
    return out.last_hidden_state.square().mean()


def sound(run: Run, step: int) -> Any:
    return {"input_values": run.randn(2, 200)}


def speech_and_text(run: Run, step: int) -> Any:
    return {"input_features": run.randn(2, 8, 64), "decoder_input_ids": run.randint(32, 2, 6)}


def text(run: Run, step: int) -> Any:
    return {"input_ids": run.randint(32, 2, 6)}


TWO_SIDES = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
             "encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 32, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
OPT = {"hidden_size": 8, "num_hidden_layers": 3, "ffn_dim": 16, "num_attention_heads": 2, "word_embed_proj_dim": 8,
       "vocab_size": 32, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
SPEECH = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16, "conv_dim": (8, 8),
          "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
          "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False}  # fmt: skip
for drop in (0.0, 0.1):
    both = {"encoder_layerdrop": drop, "decoder_layerdrop": drop, **TWO_SIDES}
    ending, often = ("", "none left out") if drop == 0 else ("_dropped", "layers left out at times")
    add_model(f"layer_drop_opt{ending}", f"OPT, {often}", "transformers",
              language("OPTConfig", "OPTModel", layerdrop=drop, **OPT), text, mean_square)  # fmt: skip
    add_model(f"layer_drop_bart{ending}", f"BART, {often}", "transformers",
              language("BartConfig", "BartModel", max_position_embeddings=16, **both), text, mean_square)  # fmt: skip
    add_model(f"layer_drop_whisper{ending}", f"Whisper, {often}", "transformers",
              language("WhisperConfig", "WhisperModel", num_mel_bins=8, max_source_positions=32,
                       max_target_positions=16, **both), speech_and_text, mean_square)  # fmt: skip
    add_model(f"layer_drop_wav2vec2{ending}", f"Wav2Vec2, {often}", "transformers",
              language("Wav2Vec2Config", "Wav2Vec2Model", layerdrop=drop, **SPEECH), sound, mean_square)  # fmt: skip


@program(tags="layer_drop")
def layer_drop_under_autocast(run: Run) -> None:
    """Casts are made in the layers that run alone, and kept where none did before."""
    model = run.put(Encoder(0.1))
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        with torch.autocast(x.device.type, torch.bfloat16):
            out = model(x)
        loss = F.mse_loss(out.float(), y)
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="layer_drop")
def layer_drop_in_layers(run: Run) -> None:
    """A layer inside of the model decides as well, and the model is called twice before one pass."""
    inner = Decoder(0.05)
    model = run.put(nn.Sequential(Encoder(0.05), nn.Linear(4, 8), inner))
    optimizer = sgd(model)
    for _ in run.steps():
        x, y = batch(run)
        first, second = model(x), model(x * 2)
        loss = F.mse_loss(first, y) + F.mse_loss(second, y)
        loss.backward()
        see_step(run, loss, model, optimizer, first=first, second=second)


@program(tags="layer_drop")
def layer_drop_with_a_penalty(run: Run) -> None:
    """Second derivatives, from some step on, after more numbers were drawn."""
    model = run.put(Decoder(0.02, 0.1))
    optimizer = sgd(model)
    for step in run.steps():
        x, y = batch(run)
        x.requires_grad_()
        out = model(x)
        torch.rand(step)
        loss = F.mse_loss(out, y)
        if step > 9:
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = loss + slope.square().mean()
        loss.backward()
        see_step(run, loss, model, optimizer, out=out)


@program(tags="layer_drop")
def layer_drop_without_gradients(run: Run) -> None:
    """In training mode without gradients, as Monte Carlo dropout does, beside a thread that runs Python code all the time."""
    model = run.put(Encoder(0.1))
    over = threading.Event()

    def spin() -> None:
        while not over.wait(0.001):
            sum(range(100))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        for step in run.steps():
            x, _ = batch(run)
            with torch.no_grad():
                outs = [model(x) for _ in range(3)]
            run.see(step=torch.tensor(step), first=outs[0], second=outs[1], third=outs[2], drawn=torch.rand(2))
    finally:
        over.set()
        thread.join()
