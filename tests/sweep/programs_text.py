"""Models of transformers, small, with random weights: text, speech, images."""

from typing import Any

import torch
from bed import Run, program, train
from torch import nn

# Sizes under the names that the configurations use.
WIDTH: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
                         "vocab_size": 40, "max_position_embeddings": 32}  # fmt: skip
DECODER: dict[str, Any] = {"num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQUENCES: dict[str, Any] = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
                             "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
                             "vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                             "decoder_start_token_id": 1}  # fmt: skip

TEXT: dict[str, dict[str, Any]] = {
    "Bert:ForMaskedLM": WIDTH,
    "Roberta:ForMaskedLM": {**WIDTH, "type_vocab_size": 1, "pad_token_id": 0},
    "Electra:ForMaskedLM": {**WIDTH, "embedding_size": 8},
    "DistilBert:ForMaskedLM": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 40},
    "Albert:ForMaskedLM": {**WIDTH, "embedding_size": 8},
    "DebertaV2:ForMaskedLM": {**WIDTH, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "ModernBert:ForMaskedLM": {**WIDTH, **DECODER, "cls_token_id": 1, "sep_token_id": 2},
    "FNet:ForMaskedLM": WIDTH,
    "GPT2:LMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 32,
                                     "bos_token_id": 1, "eos_token_id": 2},
    "GPTNeoX:ForCausalLM": {**WIDTH, "bos_token_id": 1, "eos_token_id": 2},
    "Bloom:ForCausalLM": {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 40},
    "OPT:ForCausalLM": {**WIDTH, **DECODER, "ffn_dim": 32, "word_embed_proj_dim": 16},
    "Llama:ForCausalLM": {**WIDTH, **DECODER},
    "Gemma2:ForCausalLM": {**WIDTH, **DECODER, "head_dim": 8, "sliding_window": 4},
    "Mixtral:ForCausalLM": {**WIDTH, **DECODER, "num_local_experts": 3, "output_router_logits": True},
    "Mamba:ForCausalLM": {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 40, "state_size": 4},
    "T5:ForConditionalGeneration": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2,
                                             "vocab_size": 40, "decoder_start_token_id": 0},
    "Bart:ForConditionalGeneration": {**SEQUENCES, "max_position_embeddings": 32},
}  # fmt: skip


def build(name: str, options: dict[str, Any]) -> nn.Module:
    import transformers  # noqa: PLC0415

    prefix, suffix = name.split(":")
    config = getattr(transformers, f"{prefix}Config")(**options)
    return getattr(transformers, prefix + suffix)(config)


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    out = model(**batch)
    return out.loss, out.logits if "logits" in out else out.loss


def train_batches(run: Run, model: nn.Module, batch: Any, steps: Any = None) -> None:
    model = run.put(model)
    train(run, model, lambda: (batch(),), loss_of, torch.optim.AdamW(model.parameters(), lr=1e-3), steps)


def add_text(name: str, options: dict[str, Any]) -> None:
    prefix, suffix = name.split(":")

    @program("transformers", tags="text attention", name=f"transformers_{prefix.lower()}")
    def text(run: Run) -> None:
        def batch() -> dict[str, torch.Tensor]:
            tokens = run.randint(36, 2, 8) + 4
            mask = torch.ones_like(tokens)
            mask[0, 6:] = 0
            return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": mask}

        train_batches(run, build(name, options), batch)

    text.__doc__ = f"{prefix}{suffix}, AdamW, with dropout where it has some"


for _name, _options in TEXT.items():
    add_text(_name, _options)


SPEECH: dict[str, Any] = {**WIDTH, "conv_dim": (8, 8), "conv_kernel": (4, 4), "conv_stride": (4, 2),
                          "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
                          "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.1, "mask_time_length": 2,
                          "layerdrop": 0.2, "ctc_loss_reduction": "mean"}  # fmt: skip


@program("transformers", tags="speech conv")
def transformers_wav2vec2_classes(run: Run) -> None:
    """Wav2Vec2ForSequenceClassification with layer drop and a frozen feature extractor."""
    model: Any = build("Wav2Vec2:ForSequenceClassification", {**SPEECH, "num_labels": 3})
    model.freeze_feature_encoder()
    train_batches(run, model, lambda: {"input_values": run.randn(2, 400), "labels": run.randint(3, 2)})


@program("transformers", tags="speech conv", gpu_only="CTC loss of cuDNN is not simulated")
def transformers_wav2vec2(run: Run) -> None:
    """Wav2Vec2ForCTC with time masks and layer drop."""
    def batch() -> dict[str, torch.Tensor]:
        return {"input_values": run.randn(2, 400), "labels": run.randint(38, 2, 5) + 1}

    train_batches(run, build("Wav2Vec2:ForCTC", SPEECH), batch)


@program("transformers", tags="speech conv")
def transformers_whisper(run: Run) -> None:
    """WhisperForConditionalGeneration."""
    options = {**SEQUENCES, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16}

    def batch() -> dict[str, torch.Tensor]:
        return {"input_features": run.randn(2, 8, 32), "labels": run.randint(36, 2, 6) + 4}

    train_batches(run, build("Whisper:ForConditionalGeneration", options), batch)


@program("transformers", tags="vision attention")
def transformers_vit(run: Run) -> None:
    """ViTForImageClassification."""
    options = {**WIDTH, "image_size": 16, "patch_size": 8, "num_labels": 5}
    del options["vocab_size"], options["max_position_embeddings"]
    batch = lambda: {"pixel_values": run.randn(2, 3, 16, 16), "labels": run.randint(5, 2)}  # noqa: E731
    train_batches(run, build("ViT:ForImageClassification", options), batch)


@program("transformers", tags="vision conv")
def transformers_segformer(run: Run) -> None:
    """SegformerForSemanticSegmentation."""
    options = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16],
               "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
               "decoder_hidden_size": 16, "num_labels": 4}  # fmt: skip
    batch = lambda: {"pixel_values": run.randn(2, 3, 32, 32), "labels": run.randint(4, 2, 32, 32)}  # noqa: E731
    train_batches(run, build("Segformer:ForSemanticSegmentation", options), batch)


@program("transformers", tags="vision text attention")
def transformers_clip(run: Run) -> None:
    """CLIPModel with its contrastive loss."""
    import transformers  # noqa: PLC0415

    text = {**WIDTH, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**WIDTH, "image_size": 16, "patch_size": 8}
    del vision["vocab_size"], vision["max_position_embeddings"]
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)

    def batch() -> dict[str, Any]:
        tokens = run.randint(36, 3, 6) + 3
        return {"input_ids": tokens, "pixel_values": run.randn(3, 3, 16, 16), "return_loss": True}

    train_batches(run, transformers.CLIPModel(config), batch)


@program("transformers", tags="text inference")
def transformers_generate_between(run: Run) -> None:
    """GPT-2 generates after each training step, in eval mode."""
    name = "GPT2:LMHeadModel"
    model = run.put(build(name, TEXT[name]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prompt = run.randint(36, 1, 3) + 4
    for _ in run.steps(max(run.count // 2, 12)):
        tokens = run.randint(36, 2, 8) + 4
        out = model(input_ids=tokens, labels=tokens)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        model.eval()
        made = model.generate(prompt, max_new_tokens=4, do_sample=True, top_k=5, pad_token_id=0)
        model.train()
        run.see(loss=out.loss, made=made, model=model)
