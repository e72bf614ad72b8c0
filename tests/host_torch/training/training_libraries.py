"""Models of torchvision, timm and transformers in training, whose further results are used, kept or dropped."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from common import F, Run, nn, program, see_step


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict) or hasattr(value, "to_tuple"):
        value = list(value.values())
    return [x for part in value for x in tensors_of(part)] if isinstance(value, (list, tuple)) else []


def add_model(name: str, about: str, library: str, make: Callable[[], nn.Module], give: Callable[[Run, int], Any],
              loss_of: Callable[[int, Any, Any], Any], **more: Any) -> None:  # fmt: skip
    """`loss_of(step, out, given)` gives a loss; what it leaves of `out` is seen, and else dropped before the pass."""

    @program(library, tags="libraries", name=name, **more)
    def trained(run: Run) -> None:
        torch.manual_seed(1)
        model = run.put(make())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
        for step in run.steps():
            given = give(run, step)
            out = model(**given) if isinstance(given, dict) else model(*given)
            loss = loss_of(step, out, given)
            kept = tensors_of(out) if step % 3 == 2 else []
            del out
            if step % 4 == 3:
                gc.collect()
            loss.backward()
            see_step(run, loss, model, optimizer, kept=kept)

    trained.__doc__ = about


def images(*shape: int) -> Callable[[Run, int], Any]:
    return lambda run, step: (run.randn(*shape),)


def auxiliary(step: int, out: Any, given: Any) -> Any:
    """Of GoogLeNet and Inception: the auxiliary results are used in some steps."""
    loss = out[0].square().mean()
    return loss + 0.3 * out[1].square().mean() if step % 3 == 1 else loss


def segments(step: int, out: Any, given: Any) -> Any:
    loss = out["out"].square().mean()
    aux = out.pop("aux") if step % 2 else None
    return loss + 0.5 * aux.square().mean() if step % 4 == 1 else loss


def vision(name: str, **more: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **more)

    return make


def segmenter(kind: str) -> Callable[[], nn.Module]:
    """FCN and DeepLab with an auxiliary head, on a small backbone."""

    def make() -> nn.Module:
        from torchvision.models._utils import IntermediateLayerGetter
        from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
        from torchvision.models.segmentation.fcn import FCN, FCNHead

        class Small(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.one = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(True))
                self.two = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(True))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.two(self.one(x))

        body = IntermediateLayerGetter(Small(), {"one": "aux", "two": "out"})
        head = FCNHead(16, 4) if kind == "fcn" else DeepLabHead(16, 4, (2, 3, 4))
        return (FCN if kind == "fcn" else DeepLabV3)(body, head, FCNHead(8, 4))

    return make


class Detector(nn.Module):
    """A small RetinaNet or SSD of torchvision, without transforms: heads over two maps, and their losses."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.detection.retinanet import RetinaNetHead

        self.one = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(True))
        self.two = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(True))
        self.head = RetinaNetHead(8, 2, 3, norm_layer=nn.Identity)

    def forward(self, x: torch.Tensor) -> Any:
        one = self.one(x)
        return self.head([one, self.two(one)])


def focal(step: int, out: Any, given: Any) -> Any:
    from torchvision.ops import sigmoid_focal_loss

    scores = out["cls_logits"]
    loss = sigmoid_focal_loss(scores, (scores.detach() > 0).float(), reduction="mean")
    return loss + out["bbox_regression"].abs().mean() if step % 3 else loss


add_model("googlenet_auxiliary", "GoogLeNet: auxiliary results are dropped in most steps", "torchvision",
          vision("googlenet", num_classes=4, init_weights=False), images(2, 3, 32, 32), auxiliary)  # fmt: skip
add_model("fcn_auxiliary", "FCN with an auxiliary head", "torchvision", segmenter("fcn"),
          images(2, 3, 24, 24), segments)  # fmt: skip
add_model("deeplab_auxiliary", "DeepLabV3 with an auxiliary head", "torchvision", segmenter("deeplab"),
          images(2, 3, 24, 24), segments)  # fmt: skip
add_model("retinanet_heads", "RetinaNet's heads, of which one is dropped", "torchvision", Detector,
          images(2, 3, 16, 16), focal)  # fmt: skip


def timm_model(name: str, **more: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=4, **more)

    return make


def first(step: int, out: Any, given: Any) -> Any:
    return out.square().mean()


def some_features(step: int, out: Any, given: Any) -> Any:
    """Of a pyramid some levels; the others are dropped."""
    return sum(part.square().mean() for part in (out[1:] if step % 2 else out[:2]))


VIT = {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 3, "drop_path_rate": 0.3, "proj_drop_rate": 0.1}


def pyramid() -> nn.Module:
    import timm

    return timm.create_model("test_resnet.r160_in1k", pretrained=False, features_only=True)


add_model("timm_vit_drop_path", "A ViT with stochastic depth and dropout", "timm",
          timm_model("vit_tiny_patch16_224", **VIT), images(2, 3, 32, 32), first)  # fmt: skip
add_model("timm_pyramid", "Some levels of a pyramid are used", "timm", pyramid, images(2, 3, 32, 32), some_features)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 32,
         "max_position_embeddings": 32}  # fmt: skip


def language(kind: str, model: str, **config: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        made = getattr(transformers, kind)(**config)
        made._attn_implementation = "eager"
        return getattr(transformers, model)(made)

    return make


def tokens(**more: Any) -> Callable[[Run, int], Any]:
    def give(run: Run, step: int) -> Any:
        ids = run.randint(32, 2, 6)
        flags = {name: value(step) if callable(value) else value for name, value in more.items()}
        return {"input_ids": ids, "labels": ids, **flags}

    return give


MORE = ("hidden_states", "attentions", "encoder_hidden_states", "cross_attentions")


def with_hidden(step: int, out: Any, given: Any) -> Any:
    """The model's loss; now and then hidden states and attentions are in it, too."""
    loss = out.loss
    more = [x for name in MORE for x in (out.get(name) or ())]
    return loss + sum(x.float().square().mean() for x in more[step % 2 :: 2]) if step % 4 == 1 else loss


GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 32, "decoder_start_token_id": 0}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 32, "max_position_embeddings": 32, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": None}  # fmt: skip

ALL = {"output_hidden_states": True, "output_attentions": True}
add_model("gpt2_cache_in_training", "GPT-2 with past_key_values among its results, hidden states dropped", "transformers",
          language("GPT2Config", "GPT2LMHeadModel", **GPT2), tokens(use_cache=True, **ALL), with_hidden)  # fmt: skip
add_model("gpt2_hidden_states_in_turns", "Hidden states are asked for in some steps", "transformers",
          language("GPT2Config", "GPT2LMHeadModel", **GPT2),
          tokens(output_hidden_states=lambda step: step % 2 == 0), with_hidden)  # fmt: skip
add_model("t5_attentions", "T5: encoder and decoder, attentions and hidden states", "transformers",
          language("T5Config", "T5ForConditionalGeneration", **T5), tokens(use_cache=True, **ALL), with_hidden)  # fmt: skip
add_model("bart_attentions", "BART, with a cache", "transformers",
          language("BartConfig", "BartForConditionalGeneration", **BART),
          tokens(use_cache=True, **ALL), with_hidden)  # fmt: skip
add_model("llama_cache", "Llama with its cache in training", "transformers",
          language("LlamaConfig", "LlamaForCausalLM", num_key_value_heads=1, bos_token_id=1, eos_token_id=2, **SMALL),
          tokens(use_cache=True, output_hidden_states=True), with_hidden)  # fmt: skip
add_model("bert_pooled", "BERT: the pooled result and hidden states are dropped or used", "transformers",
          language("BertConfig", "BertForSequenceClassification", **SMALL),
          lambda run, step: {"input_ids": run.randint(32, 2, 6), "labels": run.randint(2, 2), **ALL},
          with_hidden)  # fmt: skip


@program("transformers", tags="libraries")
def gpt2_with_prefixes(run: Run) -> None:
    """The cache of one call, with its graph, goes into the next call; the loss is of the second one, or of both."""
    model = run.put(language("GPT2Config", "GPT2LMHeadModel", **GPT2)())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for step in run.steps():
        ids = run.randint(32, 2, 8)
        before = model(input_ids=ids[:, :4], use_cache=True)
        after = model(input_ids=ids[:, 4:], past_key_values=before.past_key_values, use_cache=True)
        loss = F.cross_entropy(after.logits[:, :-1].reshape(-1, 32), ids[:, 5:].reshape(-1))
        if step % 2:
            loss = loss + F.cross_entropy(before.logits[:, :-1].reshape(-1, 32), ids[:, 1:4].reshape(-1))
        del before
        loss.backward()
        see_step(run, loss, model, optimizer, logits=after.logits)
