"""Models whose work lies in CUDA graphs, one for each size of their inputs: what captured_lengths.py measures.

A workload is made as Class(sizes, layers, device, dtype); sizes count from 0:
  step(index)    the work of one size, from fixed memory to fixed memory, without a graph
  warm_up()      loads, compiles and chooses all that the work needs, and captures nothing
  capture()      makes the graphs, one for each size
  launch(index)  the work again, by its graph
  output(index)  what was computed; the next launch may overwrite it
  forget()       makes all as it was before the first launch
  release()      destroys the graphs
Weights and inputs are random, and the same in each process. Nothing here knows of Grape."""

from typing import Any, Optional

import torch
from torch import nn


class Workload:
    SIZES = 0
    LAYERS = 0

    def step(self, index: int) -> None:
        raise NotImplementedError

    def warm_up(self) -> None:
        raise NotImplementedError

    def capture(self) -> None:
        raise NotImplementedError

    def launch(self, index: int) -> None:
        raise NotImplementedError

    def output(self, index: int) -> torch.Tensor:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError


class ByHand(Workload):
    """Captured by torch.cuda.graph, all in one pool of memory."""

    WARM_CALLS = 2

    def __init__(self, sizes: int) -> None:
        self.sizes = sizes
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def warm_up(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.WARM_CALLS):
                for index in range(self.sizes):
                    self.step(index)
        torch.cuda.current_stream().wait_stream(side)

    def capture(self) -> None:
        for index in range(self.sizes):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.graphs[0].pool() if self.graphs else None):
                self.step(index)
            self.graphs.append(graph)

    def launch(self, index: int) -> None:
        self.graphs[index].replay()

    def release(self) -> None:
        self.graphs.clear()


class Decoder(ByHand):
    """A language model, its cache in fixed memory, and one token at a time: size `index` is the token at that position."""

    def __init__(self, sizes: int, layers: int, device: str, dtype: torch.dtype) -> None:
        super().__init__(sizes)
        torch.manual_seed(0)
        self.model = self.build(sizes + 1, layers, device, dtype).eval()
        config = self.model.config
        shape = (1, config.n_head, sizes + 1, config.n_embd // config.n_head)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.tokens = torch.full((1, 1), 17, device=device)
        self.logits = torch.zeros((1, config.vocab_size), device=device, dtype=dtype)

    def build(self, positions: int, layers: int, device: str, dtype: torch.dtype) -> Any:
        raise NotImplementedError

    def arguments(self, _: int) -> dict[str, torch.Tensor]:
        """What the model is given besides the cache, by the position."""
        return {"input_ids": self.tokens}

    def forget(self) -> None:
        generator = torch.Generator(device=self.tokens.device).manual_seed(1)
        for tensor in (*self.keys, *self.values):
            tensor.normal_(generator=generator)

    def step(self, index: int) -> None:
        from transformers import DynamicCache  # noqa: PLC0415

        cache = DynamicCache()
        if index > 0:
            for layer, (keys, values) in enumerate(zip(self.keys, self.values)):
                cache.update(keys[:, :, :index], values[:, :, :index], layer)
        outputs = self.model(**self.arguments(index), past_key_values=cache, use_cache=True)
        self.logits.copy_(outputs.logits[:, -1])
        for layer, (keys, values) in enumerate(zip(self.keys, self.values)):
            keys[:, :, index].copy_(cache.layers[layer].keys[:, :, -1])
            values[:, :, index].copy_(cache.layers[layer].values[:, :, -1])

    def output(self, _: int) -> torch.Tensor:
        return self.logits


class Gpt2(Decoder):
    SIZES = 1000
    LAYERS = 12

    def build(self, positions: int, layers: int, device: str, dtype: torch.dtype) -> Any:
        from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

        return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_positions=positions)).to(device, dtype)


class GptJ(Decoder):
    """6 billion parameters, made on the device: 12 GB in half precision."""

    SIZES = 64
    LAYERS = 28

    def __init__(self, sizes: int, layers: int, device: str, dtype: torch.dtype) -> None:
        super().__init__(sizes, layers, device, dtype)
        # Positions only turn queries and keys: with the same token everywhere all logits would be the same.
        self.tokens = torch.randint(self.model.config.vocab_size, (1, sizes)).to(device)
        self.mask = torch.zeros((1, 1, 1, sizes), device=device, dtype=dtype)

    def build(self, positions: int, layers: int, device: str, dtype: torch.dtype) -> Any:
        from transformers import AutoModelForCausalLM, GPTJConfig  # noqa: PLC0415

        config = GPTJConfig(n_layer=layers, n_positions=max(2048, positions))
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, dtype=dtype)

    def arguments(self, index: int) -> dict[str, torch.Tensor]:
        # Without a mask Transformers 5.17 makes one, with a number that it copies from the host: no capture allows that.
        return {"input_ids": self.tokens[:, index : index + 1], "attention_mask": self.mask[..., : index + 1]}


class Wav2Vec2(ByHand):
    """Clips of 0.5 seconds and more; each is longer by one of the encoder's frames."""

    SIZES = 100
    LAYERS = 12
    SHORTEST, FRAME = 8000, 320  # samples, of 16,000 in a second

    def __init__(self, sizes: int, layers: int, device: str, dtype: torch.dtype) -> None:
        from transformers import Wav2Vec2Config, Wav2Vec2Model  # noqa: PLC0415

        super().__init__(sizes)
        torch.manual_seed(0)
        config = Wav2Vec2Config(num_hidden_layers=layers)
        self.model = Wav2Vec2Model(config).to(device, dtype).eval()
        longest = self.samples(sizes - 1)
        self.clip = torch.randn(1, longest).to(device, dtype)
        self.states = torch.zeros((1, longest // self.FRAME, config.hidden_size), device=device, dtype=dtype)
        self.frames = [0] * sizes

    def samples(self, index: int) -> int:
        return self.SHORTEST + self.FRAME * index

    def forget(self) -> None:
        self.states.zero_()

    def step(self, index: int) -> None:
        states = self.model(self.clip[:, : self.samples(index)]).last_hidden_state
        self.frames[index] = states.shape[1]
        self.states[:, : states.shape[1]].copy_(states)

    def output(self, index: int) -> torch.Tensor:
        return self.states[:, : self.frames[index]]


class Block(nn.Module):
    """A layer of a transformer's encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        projected = self.project(self.norm_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        attended = nn.functional.scaled_dot_product_attention(*projected.permute(2, 0, 3, 1, 4))
        x = x + self.merge(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.contract(nn.functional.gelu(self.expand(self.norm_feed(x))))


class Compiled(Workload):
    """An encoder under torch.compile(mode="reduce-overhead"), which makes code and a graph for each batch size: its first
    call of a size compiles and warms up, the second records the graph, and others replay it."""

    SIZES = 20
    LAYERS = 4
    TOKENS, WIDTH, HEADS = 64, 512, 8

    def __init__(self, sizes: int, layers: int, device: str, dtype: torch.dtype, **how: Any) -> None:
        torch.manual_seed(0)
        blocks = [Block(self.WIDTH, self.HEADS) for _ in range(layers)]
        self.model = nn.Sequential(*blocks).to(device, dtype).eval()
        batch = torch.randn(sizes, self.TOKENS, self.WIDTH).to(device, dtype)
        self.inputs = [batch[: index + 1] for index in range(sizes)]
        self.result: Optional[torch.Tensor] = None
        torch._dynamo.config.cache_size_limit = max(sizes, torch._dynamo.config.cache_size_limit)
        self.compiled = torch.compile(self.model, dynamic=False, **(how or {"mode": "reduce-overhead"}))

    def step(self, index: int) -> None:
        self.result = None  # its memory is overwritten
        torch.compiler.cudagraph_mark_step_begin()
        self.result = self.compiled(self.inputs[index])

    def warm_up(self) -> None:
        for index in range(len(self.inputs)):
            self.step(index)

    def capture(self) -> None:
        self.warm_up()
        recorded = self.recorded()
        if recorded != len(self.inputs):
            raise RuntimeError(f"torch.compile recorded {recorded} graphs for {len(self.inputs)} batch sizes")

    def recorded(self) -> int:
        from torch._inductor.cudagraph_trees import get_manager  # noqa: PLC0415

        manager = get_manager(self.inputs[0].device.index, create_if_none_exists=False)
        return sum(len(nodes) for nodes in manager.roots.values()) if manager else 0

    def launch(self, index: int) -> None:
        self.step(index)

    def output(self, _: int) -> torch.Tensor:
        assert self.result is not None
        return self.result

    def forget(self) -> None:
        self.result = None

    def release(self) -> None:
        self.result = None
        torch.compiler.reset()


WORKLOADS: dict[str, type[Workload]] = {"gpt2": Gpt2, "wav2vec2": Wav2Vec2, "gptj": GptJ, "compile": Compiled}
