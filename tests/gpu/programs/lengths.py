"""Models of transformers whose requests have mixed lengths, batches or sizes. This second list was written on 2026-11-29, before any
of these models had run under Grape."""

from typing import Any, Iterator

import torch

from bed import Run, listed

Results = Iterator[Any]

VOCABULARY = 500
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
USUAL = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": VOCABULARY}
USUAL_WIDE = {**USUAL, "intermediate_size": 512}
OLD = {"vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 3, "n_head": 4, "rotary_dim": 32, "n_positions": 512}

DECODERS = {
    "bloom": ("Bloom", {"vocab_size": VOCABULARY, "hidden_size": 256, "n_layer": 3, "n_head": 4}),
    "falcon": ("Falcon", USUAL),
    "gptj": ("GPTJ", OLD),
    "phi": ("Phi", USUAL_WIDE),
    "gemma": ("Gemma", {**USUAL_WIDE, "head_dim": 64, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2", {**USUAL_WIDE, "head_dim": 64, "num_key_value_heads": 2}),
    "olmo": ("Olmo", USUAL_WIDE),
    "starcoder2": ("Starcoder2", {**USUAL_WIDE, "num_key_value_heads": 2}),
    "cohere": ("Cohere", USUAL_WIDE),
    "xglm": ("XGLM", {"vocab_size": VOCABULARY, "d_model": 256, "ffn_dim": 512, "num_layers": 3, "attention_heads": 4}),
    "codegen": ("CodeGen", OLD),
}
ENCODERS = {
    "albert": ("Albert", {**USUAL_WIDE, "embedding_size": 64}),
    "xlnet": ("XLNet", {"vocab_size": VOCABULARY, "d_model": 256, "n_layer": 3, "n_head": 4, "d_inner": 512}),
    "roformer": ("RoFormer", USUAL_WIDE),
    "mpnet": ("MPNet", USUAL_WIDE),
    "convbert": ("ConvBert", USUAL_WIDE),
    "fnet": ("FNet", {"hidden_size": 256, "num_hidden_layers": 3, "intermediate_size": 512, "vocab_size": VOCABULARY}),
    "longformer": ("Longformer", {**USUAL_WIDE, "attention_window": [32] * 3, "max_position_embeddings": 600}),
    "bigbird": ("BigBird", {**USUAL_WIDE, "attention_type": "original_full"}),
}
PICTURES = {
    "swin": (
        "Swin",
        {"image_size": 64, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    ),
    "segformer": ("Segformer", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 96]}),
    "convnext": ("ConvNext", {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 64, 96]}),
    "mobilenet": ("MobileNetV2", {}),
    "poolformer": ("PoolFormer", {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 64, 96]}),
}
SPEECH = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
SOUNDS = {
    "unispeech": ("UniSpeech", {**SPEECH, "num_codevector_groups": 2, "codevector_dim": 64, "proj_codevector_dim": 64}),
    "data2vec": ("Data2VecAudio", SPEECH),
}


def model_of(run: Run, auto: str, config: tuple[str, dict[str, Any]], **more: Any) -> Any:
    import transformers as hf  # noqa: PLC0415

    name, sizes = config
    return run.put(getattr(hf, auto).from_config(getattr(hf, f"{name}Config")(**sizes, **more)))


def answers(run: Run, config: tuple[str, dict[str, Any]]) -> Results:
    model = model_of(run, "AutoModelForCausalLM", config, **SPECIAL)
    model = model if run.small else model.half()
    while True:
        tokens = run.tokens(run.choice.choice((1, 1, 2)), run.length(5, 60), below=VOCABULARY)
        wanted = run.length(5, 40)
        sample = run.choice.random() < 0.25
        yield model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=wanted,
            min_new_tokens=wanted,
            do_sample=sample,
        ).cpu()


def encodes(run: Run, config: tuple[str, dict[str, Any]]) -> Results:
    model = model_of(run, "AutoModel", config)
    while True:
        tokens = run.tokens(run.choice.choice((1, 2, 4)), run.length(5, 40), below=VOCABULARY)
        with torch.no_grad():
            yield model(tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state.cpu()


def sees(run: Run, config: tuple[str, dict[str, Any]]) -> Results:
    model = model_of(run, "AutoModel", config)
    while True:
        height, width = 32 * run.choice.randint(2, 5), 32 * run.choice.randint(2, 5)
        with torch.no_grad():
            yield model(run.randn(run.choice.choice((1, 2)), 3, height, width))[0].cpu()


def hears(run: Run, config: tuple[str, dict[str, Any]]) -> Results:
    model = model_of(run, "AutoModel", config)
    while True:
        with torch.no_grad():
            yield model(run.randn(1, 320 * run.choice.randint(20, 45)))[0].cpu()


def add(name: str, config: tuple[str, dict[str, Any]], does: Any, units: int, what: str) -> None:
    def program(run: Run) -> Results:
        return does(run, config)

    program.__name__, program.__doc__ = f"{name}_{does.__name__}", f"{config[0]}'s model {what}"
    listed("transformers", units=units)(program)


for models, does, units, what in (
    (DECODERS, answers, 24, "answers requests of mixed lengths, in batches of one and two"),
    (ENCODERS, encodes, 160, "encodes texts of mixed lengths, in batches of one to four"),
    (PICTURES, sees, 160, "sees pictures of mixed sizes"),
    (SOUNDS, hears, 100, "hears clips of mixed lengths"),
):
    for each, config in models.items():
        add(each, config, does, units, what)
