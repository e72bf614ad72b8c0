"""Models of transformers, torchvision and timm in small configurations with random weights: what a user's script has
before its loop. Small enough that launching, not computing, is what takes a GPU's time.

`scripts()` names them all. A name that ends in `.generate` is a loop over greedy `generate`, any other one over calls
of the model. Nothing is downloaded.
"""

import importlib
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch

Inputs = dict[str, torch.Tensor]
VOCABULARY = 4096
NEW_TOKENS = 12


def _call(model: Any, inputs: Inputs) -> Any:
    return model(**inputs)


def _call_positional(model: Any, inputs: Inputs) -> Any:
    return model(*inputs.values())


def _call_list(model: Any, inputs: Inputs) -> Any:
    """Detectors of torchvision take a list of images."""
    return model(list(inputs["images"]))


def _generate(model: Any, inputs: Inputs) -> Any:
    return model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )


@dataclass
class Script:
    """One user's script: how to build its model, one call's inputs (on the host, by a generator), and the call."""

    build: Callable[[], Any]
    inputs: Callable[[torch.Generator], Inputs]
    call: Callable[[Any, Inputs], Any] = _call
    dtype: torch.dtype = torch.float32
    module_calls: int = 1  # of the model within one call


def _ids(generator: torch.Generator, batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def _text(batch: int = 2, length: int = 64) -> Callable[[torch.Generator], Inputs]:
    """A padded batch, as tokenizers give it."""

    def inputs(generator: torch.Generator) -> Inputs:
        ids = _ids(generator, batch, length)
        mask = torch.ones_like(ids)
        if batch > 1:
            mask[-1, length - 5 :] = 0
        return {"input_ids": ids, "attention_mask": mask}

    return inputs


def _source_and_target(generator: torch.Generator) -> Inputs:
    return {**_text(2, 24)(generator), "decoder_input_ids": _ids(generator, 2, 8)}


def _normal(name: str, *shape: int) -> Callable[[torch.Generator], Inputs]:
    return lambda generator: {name: torch.randn(shape, generator=generator)}


def _from_transformers(config: str, model: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    def build() -> Any:
        library = importlib.import_module("transformers")
        return getattr(library, model)(getattr(library, config)(**arguments))

    return build


def _from_torchvision(path: str, **arguments: Any) -> Callable[[], Any]:
    def build() -> Any:
        importlib.import_module("torchvision")
        module, _, name = ("torchvision.models." + path).rpartition(".")
        return getattr(importlib.import_module(module), name)(weights=None, **arguments)

    return build


def _from_timm(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module("timm").create_model(name, pretrained=False)


HIDDEN = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8}
GATED = {**HIDDEN, "intermediate_size": 512, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
GROUPED = {**GATED, "num_key_value_heads": 4}
ENCODER = {**GATED, "intermediate_size": 1024}
BART = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
EXPERTS = {**GROUPED, "num_hidden_layers": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# name: (configuration, model, the configuration's arguments)
Recipe = tuple[str, str, dict[str, Any]]

ENCODERS: dict[str, Recipe] = {
    "bert": ("BertConfig", "BertModel", ENCODER),
    "roberta": ("RobertaConfig", "RobertaForSequenceClassification", {**ENCODER, "pad_token_id": 1}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"dim": 256, "n_layers": 6, "n_heads": 8, "hidden_dim": 1024, "vocab_size": VOCABULARY},
    ),
    "electra": ("ElectraConfig", "ElectraForTokenClassification", {**ENCODER, "embedding_size": 128}),
    "albert": ("AlbertConfig", "AlbertModel", ENCODER),
    "deberta_v2": (
        "DebertaV2Config",
        "DebertaV2Model",
        {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 64},
    ),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {**GATED, **TOKENS, "cls_token_id": 1, "sep_token_id": 2}),
}

DECODERS: dict[str, Recipe] = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 256, "n_layer": 6, "n_head": 8, "vocab_size": VOCABULARY, **TOKENS},
    ),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**ENCODER, **TOKENS}),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {**HIDDEN, "ffn_dim": 1024, "vocab_size": VOCABULARY, "word_embed_proj_dim": 256},
    ),
    "bloom": (
        "BloomConfig",
        "BloomForCausalLM",
        {"hidden_size": 256, "n_layer": 6, "n_head": 8, "vocab_size": VOCABULARY},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 32}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**GROUPED, "head_dim": 32}),
    "phi": ("PhiConfig", "PhiForCausalLM", {**ENCODER, **TOKENS}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**EXPERTS, "num_local_experts": 4, "sliding_window": None}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {
            **EXPERTS,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 256,
        },
    ),
    "mamba": (
        "MambaConfig",
        "MambaForCausalLM",
        {"hidden_size": 256, "num_hidden_layers": 4, "vocab_size": VOCABULARY, **TOKENS},
    ),
    "mamba2": (
        "Mamba2Config",
        "Mamba2ForCausalLM",
        {
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_heads": 8,
            "head_dim": 64,
            "state_size": 32,
            "n_groups": 1,
            "chunk_size": 32,
            "vocab_size": VOCABULARY,
            **TOKENS,
        },
    ),
}
# In single precision: their scans are written for it.
SINGLE_PRECISION = ("mamba", "mamba2")

ENCODER_DECODERS: dict[str, Recipe] = {
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            "d_model": 256,
            "d_kv": 32,
            "d_ff": 1024,
            "num_layers": 4,
            "num_heads": 8,
            "vocab_size": VOCABULARY,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": ("BartConfig", "BartForConditionalGeneration", BART),
    "marian": ("MarianConfig", "MarianMTModel", {**BART, "eos_token_id": 0, "decoder_start_token_id": 0}),
}

IMAGE = ("pixel_values", 1, 3, 224, 224)
BACKBONE = {"depths": [1, 1, 1, 1], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"}
SPEECH = {**HIDDEN, "intermediate_size": 1024, "conv_dim": (128,) * 7, "vocab_size": 32}


def _detr() -> Any:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig  # noqa: PLC0415

    backbone = ResNetConfig(**BACKBONE, out_features=["stage4"])
    sizes = {key: value for key, value in BART.items() if key.startswith(("d_model", "encoder", "decoder_"))}
    sizes.pop("decoder_start_token_id")
    return DetrForObjectDetection(
        DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=backbone,
            num_queries=50,
            num_labels=20,
            **sizes,
        )
    )


def _clip(config: str, model: str) -> Callable[[], Any]:
    tower = {**HIDDEN, "intermediate_size": 1024}
    text = {**tower, "vocab_size": VOCABULARY, "max_position_embeddings": 64, **TOKENS, "eos_token_id": VOCABULARY - 1}
    vision = {**tower, "image_size": 224, "patch_size": 32}
    return _from_transformers(config, model, {"text_config": text, "vision_config": vision})


def _image_and_text(generator: torch.Generator) -> Inputs:
    ids = _ids(generator, 2, 32)
    ids[:, -1] = VOCABULARY - 1
    return {"input_ids": ids, "pixel_values": torch.randn(1, 3, 224, 224, generator=generator)}


WHISPER: Recipe = (
    "WhisperConfig",
    "WhisperForConditionalGeneration",
    {**BART, "max_source_positions": 200, "max_target_positions": 64, "num_mel_bins": 80},
)


def _others() -> dict[str, Script]:
    """Vision, sound, and both with text, by transformers."""
    transformers = {
        "vit": ("ViTConfig", "ViTForImageClassification", {**HIDDEN, "intermediate_size": 1024}),
        "deit": ("DeiTConfig", "DeiTForImageClassification", {**HIDDEN, "intermediate_size": 1024}),
        "swin": (
            "SwinConfig",
            "SwinForImageClassification",
            {"embed_dim": 48, "depths": [2, 2, 2, 2], "num_heads": [2, 4, 8, 16]},
        ),
        "dinov2": ("Dinov2Config", "Dinov2Model", {**HIDDEN, "image_size": 224}),
        "resnet": ("ResNetConfig", "ResNetForImageClassification", BACKBONE),
        "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", {}),
    }
    scripts = {name: Script(_from_transformers(*recipe), _normal(*IMAGE)) for name, recipe in transformers.items()}
    scripts["detr"] = Script(_detr, _normal(*IMAGE))
    speech = _normal("input_values", 1, 16000)
    scripts["wav2vec2"] = Script(_from_transformers("Wav2Vec2Config", "Wav2Vec2ForCTC", SPEECH), speech)
    scripts["hubert"] = Script(_from_transformers("HubertConfig", "HubertModel", SPEECH), speech)
    scripts["whisper"] = Script(
        _from_transformers(*WHISPER),
        lambda generator: {
            **_normal("input_features", 1, 80, 400)(generator),
            "decoder_input_ids": _ids(generator, 1, 8),
        },
    )
    scripts["clip"] = Script(_clip("CLIPConfig", "CLIPModel"), _image_and_text)
    scripts["siglip"] = Script(_clip("SiglipConfig", "SiglipModel"), _image_and_text)
    return scripts


TORCHVISION = (
    "resnet50",
    "convnext_tiny",
    "efficientnet_b0",
    "mobilenet_v3_large",
    "swin_t",
    "vit_b_16",
    "densenet121",
    "regnet_y_400mf",
    "shufflenet_v2_x1_0",
)
TIMM = (
    "resnet34d",
    "convnext_nano",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "swin_tiny_patch4_window7_224",
    "vit_small_patch16_224",
    "deit_small_distilled_patch16_224",
    "regnety_004",
)


def _images() -> dict[str, Script]:
    """By torchvision (tv_) and timm (timm_)."""
    image = _normal("images", 1, 3, 224, 224)
    scripts = {f"tv_{name}": Script(_from_torchvision(name), image, _call_positional) for name in TORCHVISION}
    scripts["tv_fcn_resnet50"] = Script(
        _from_torchvision("segmentation.fcn_resnet50", weights_backbone=None), image, _call_positional
    )
    scripts["tv_fasterrcnn"] = Script(
        _from_torchvision(
            "detection.fasterrcnn_mobilenet_v3_large_320_fpn", weights_backbone=None, box_score_thresh=0.0
        ),
        image,
        _call_list,
    )
    scripts.update({f"timm_{name}": Script(_from_timm(name), image, _call_positional) for name in TIMM})
    return scripts


def _generating(build: Callable[[], Any], inputs: Callable[[torch.Generator], Inputs], dtype: torch.dtype) -> Script:
    return Script(build, inputs, _generate, dtype, module_calls=NEW_TOKENS)


def scripts() -> dict[str, Script]:
    """All of them, by name; those that generate come last."""
    found: dict[str, Script] = {}
    generating: dict[str, Script] = {}
    for name, recipe in ENCODERS.items():
        found[name] = Script(_from_transformers(*recipe), _text())
    for name, recipe in DECODERS.items():
        build, dtype = _from_transformers(*recipe), torch.float32 if name in SINGLE_PRECISION else torch.bfloat16
        found[name] = Script(build, _text(1, 32), dtype=dtype)
        generating[f"{name}.generate"] = _generating(build, _text(1, 12), dtype)
    for name, recipe in ENCODER_DECODERS.items():
        build = _from_transformers(*recipe)
        found[name] = Script(build, _source_and_target)
        generating[f"{name}.generate"] = _generating(build, _text(2, 24), torch.float32)
    generating["whisper.generate"] = _generating(
        _from_transformers(*WHISPER), _normal("input_features", 1, 80, 400), torch.float32
    )
    return {**found, **_others(), **_images(), **generating}


def prepare(script: Script, device: str) -> Any:
    """The model as it is before the loop."""
    torch.manual_seed(0)
    model = script.build()
    with torch.no_grad():
        for parameter in model.parameters():
            # A head that starts at zero would hide all that is before it.
            if parameter.dim() > 1 and not parameter.any():
                torch.nn.init.normal_(parameter, std=0.02)
    return model.to(script.dtype).to(device).eval()


def inputs_of(script: Script, number: int, device: str) -> Inputs:
    """The inputs of call `number`: other values each time, in the same shapes."""
    inputs = script.inputs(torch.Generator().manual_seed(1000 + number))
    return {
        name: value.to(device=device, dtype=script.dtype if value.is_floating_point() else None)
        for name, value in inputs.items()
    }


def why_missing(error: Exception) -> Optional[str]:
    """In words, where a build failed because the installed library does not have the model; else None."""
    if isinstance(error, (ImportError, AttributeError)) or "Unknown model" in str(error):
        return f"not here: {type(error).__name__}: {error}"
    return None
