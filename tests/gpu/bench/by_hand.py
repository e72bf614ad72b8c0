"""Models as CUDA graphs that their author captures: what one writes without Grape to be as fast.

The shapes, the inputs' memory and the caches stand still, the outputs are overwritten by the next call, and nothing
looks at the tokens between the steps of a generation: a program written for this."""

from typing import Any, Callable, Optional

import torch

WARM_CALLS = 3


def captured(function: Callable[[], Any], pool: Optional[Any] = None) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The graph of one call, after a few on a side stream, and what the call returned: it is overwritten by replays."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_CALLS):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        outputs = function()
    return graph, outputs


def loop(model: Any, inputs: tuple[Any, ...]) -> Callable[[int], Any]:
    """A call by its number, as speed.py has it."""
    graph, outputs = captured(lambda: model(*inputs))

    def step(_: int) -> Any:
        graph.replay()
        return outputs

    return step


def by_length(model: Any, clips: list[torch.Tensor], choose: Callable[[], int]) -> Callable[[int], Any]:
    """A graph for each clip's length, all in one pool of memory: one runs at a time."""
    graphs, pool = [], None
    for clip in clips:
        graph, outputs = captured(lambda clip=clip: model(clip), pool)
        pool = pool or graph.pool()
        graphs.append((graph, outputs))

    def step(_: int) -> Any:
        graph, outputs = graphs[choose()]
        graph.replay()
        return outputs

    return step


class Greedy:
    """Greedy decoding with a static cache: the prompt as always, then a token a step, from fixed memory to fixed memory."""

    def __init__(self, model: Any, prompt: torch.Tensor, tokens: int) -> None:
        from transformers import EncoderDecoderCache, StaticCache  # noqa: PLC0415

        self.model, self.prompt, self.tokens = model, prompt, tokens
        self.two_parts = model.config.is_encoder_decoder
        start = model.generation_config.decoder_start_token_id if self.two_parts else 0
        self.first = torch.full_like(prompt[:, :1], start) if self.two_parts else prompt
        self.token = torch.empty_like(prompt[:, :1])
        self.encoded: Optional[Any] = None
        room = self.first.shape[1] + max(tokens, WARM_CALLS + 1)
        config = model.config.get_text_config(decoder=True)
        self.cache: Any = StaticCache(config=config, max_cache_len=room)
        if self.two_parts:
            across = StaticCache(config=config, max_cache_len=prompt.shape[1])
            self.cache = EncoderDecoderCache(self.cache, across)
        self.graph: Optional[torch.cuda.CUDAGraph] = None

    def forward(self, token: torch.Tensor) -> None:
        name = "decoder_input_ids" if self.two_parts else "input_ids"
        more = {"encoder_outputs": self.encoded} if self.two_parts else {}
        logits = self.model(**{name: token}, past_key_values=self.cache, use_cache=True, **more).logits
        self.token.copy_(logits[:, -1:].argmax(-1))

    def step(self) -> None:
        self.forward(self.token)

    def begin(self) -> None:
        """Empties the cache and takes the prompt."""
        self.cache.reset()
        if self.two_parts:
            encoded = self.model.get_encoder()(self.prompt)
            if self.encoded is None:
                self.encoded = encoded
            else:  # the graph reads where the first one lies
                self.encoded.last_hidden_state.copy_(encoded.last_hidden_state)
        self.forward(self.first)

    def generate(self) -> torch.Tensor:
        """All tokens behind the prompt."""
        with torch.no_grad():
            if self.graph is None:
                self.begin()
                self.graph, _ = captured(self.step)
            self.begin()
            tokens = [self.token.clone()]
            for _ in range(self.tokens - 1):
                self.graph.replay()
                tokens.append(self.token.clone())
        return torch.cat(tokens, dim=1)
