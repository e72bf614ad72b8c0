"""Models of torchvision and timm, small. All kinds that work in place are here."""

from typing import Any, Callable

import torch
from bed import Run, program, train
from programs_plain import classify
from torch import nn
from torch.nn import functional as F

Make = Callable[[], nn.Module]
CLASSES = 5


def add_classifier(library: str, name: str, make: Make, size: int = 32, count: int = 2, about: str = "") -> None:
    """SGD with momentum, images of `size`."""

    @program(library, tags="conv classifier", name=name)
    def classifier(run: Run) -> None:
        model = run.put(make())
        few = len(list(model.parameters())) < 100  # the simulated driver has a limit for lists of tensors
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=None if few else False)
        batch = lambda: (run.randn(count, 3, size, size), run.randint(CLASSES, count))  # noqa: E731
        train(run, model, batch, loss_of_classifier, optimizer)

    classifier.__doc__ = about or f"{library}'s {name.split('_', 1)[1]}"


def loss_of_classifier(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
    """Auxiliary heads (GoogLeNet, Inception) add their losses."""
    out = model(x)
    heads = [out] if isinstance(out, torch.Tensor) else [head for head in out if head is not None]
    return torch.stack([F.cross_entropy(head, y) for head in heads]).sum(), heads


def models() -> Any:
    from torchvision import models  # noqa: PLC0415

    return models


def densenet(**options: Any) -> nn.Module:
    return models().DenseNet(8, (2, 2, 2), 16, num_classes=CLASSES, **options)


def regnet() -> nn.Module:
    from torchvision.models.regnet import BlockParams, RegNet  # noqa: PLC0415

    parameters = BlockParams.from_init_params(depth=6, w_0=16, w_a=16.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return RegNet(parameters, num_classes=CLASSES)


def mobilenet_v3() -> nn.Module:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3  # noqa: PLC0415

    rows = [(16, 3, 16, 16, True, "RE", 2), (16, 3, 32, 24, False, "RE", 2), (24, 5, 48, 24, True, "HS", 1)]
    settings = [InvertedResidualConfig(*row, 1, 1.0) for row in rows]
    return MobileNetV3(settings, 64, num_classes=CLASSES)


def mobilenet_v2() -> nn.Module:
    rows = [[1, 8, 1, 1], [4, 16, 2, 2], [4, 24, 2, 2]]
    return models().MobileNetV2(num_classes=CLASSES, width_mult=0.5, inverted_residual_setting=rows)


def efficientnet() -> nn.Module:
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig  # noqa: PLC0415

    settings = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(4, 3, 2, 8, 16, 2), MBConvConfig(4, 5, 2, 16, 24, 1)]
    return EfficientNet(settings, dropout=0.2, num_classes=CLASSES, last_channel=64)


def convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt  # noqa: PLC0415

    settings = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)]
    return ConvNeXt(settings, stochastic_depth_prob=0.2, num_classes=CLASSES)


def googlenet() -> nn.Module:
    return models().GoogLeNet(num_classes=CLASSES, aux_logits=True, init_weights=False)


def inception() -> nn.Module:
    return models().Inception3(num_classes=CLASSES, aux_logits=False, init_weights=False)


def vgg() -> nn.Module:
    from torchvision.models.vgg import VGG, make_layers  # noqa: PLC0415

    features = make_layers([8, "M", 16, 16, "M"], batch_norm=True)
    model = VGG(features, num_classes=CLASSES, init_weights=False)
    model.avgpool = nn.AdaptiveAvgPool2d(2)
    for place, sizes in {0: (64, 32), 3: (32, 32), 6: (32, CLASSES)}.items():
        model.classifier[place] = nn.Linear(*sizes)
    return model


def alexnet() -> nn.Module:
    model = models().AlexNet(num_classes=CLASSES)
    model.avgpool = nn.AdaptiveAvgPool2d(1)
    model.classifier[1], model.classifier[4] = nn.Linear(256, 64), nn.Linear(64, 64)
    model.classifier[6] = nn.Linear(64, CLASSES)
    return model


def resnet(kind: str, **options: Any) -> nn.Module:
    from torchvision.models import resnet  # noqa: PLC0415

    return resnet.ResNet(getattr(resnet, kind), [1, 1, 1, 1], num_classes=CLASSES, **options)


def swin(kind: str) -> nn.Module:
    from torchvision.models import swin_transformer  # noqa: PLC0415

    blocks = {"": {}, "V2": {"block": swin_transformer.SwinTransformerBlockV2,
                             "downsample_layer": swin_transformer.PatchMergingV2}}[kind]  # fmt: skip
    return models().SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=CLASSES, dropout=0.1, **blocks)


TORCHVISION: dict[str, tuple[Make, int]] = {
    "resnet18": (lambda: models().resnet18(num_classes=CLASSES), 32),
    "resnet_bottleneck": (lambda: resnet("Bottleneck", width_per_group=16), 32),
    "resnext": (lambda: resnet("Bottleneck", groups=4, width_per_group=8), 32),
    "densenet": (densenet, 32),
    "densenet_memory_efficient": (lambda: densenet(memory_efficient=True), 32),
    "regnet": (regnet, 32),
    "mobilenet_v2": (mobilenet_v2, 32),
    "mobilenet_v3": (mobilenet_v3, 32),
    "shufflenet": (lambda: models().ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], num_classes=CLASSES), 64),
    "squeezenet": (lambda: models().SqueezeNet("1_1", num_classes=CLASSES), 48),
    "googlenet": (googlenet, 64),
    "inception": (inception, 96),
    "mnasnet": (lambda: models().MNASNet(0.25, num_classes=CLASSES), 64),
    "efficientnet": (efficientnet, 32),
    "convnext": (convnext, 32),
    "swin": (lambda: swin(""), 32),
    "swin_v2": (lambda: swin("V2"), 32),
    "vit": (lambda: models().VisionTransformer(16, 8, 2, 2, 16, 32, dropout=0.1, num_classes=CLASSES), 16),
    "maxvit": (lambda: models().MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 8, 0.1, num_classes=CLASSES), 32),
    "vgg": (vgg, 16),
    "alexnet": (alexnet, 64),
}
for _name, (_make, _size) in TORCHVISION.items():
    add_classifier("torchvision", f"torchvision_{_name}", _make, _size)


def boxes(run: Run, size: int) -> dict[str, torch.Tensor]:
    corners = run.rand(3, 2) * size / 2
    sides = run.rand(3, 2) * size / 2 + 4
    return {"boxes": torch.cat([corners, corners + sides], 1), "labels": run.randint(3, 3) + 1}


def train_detector(run: Run, model: nn.Module, size: int) -> None:
    def loss(model: nn.Module, inputs: list[torch.Tensor], targets: list[Any]) -> tuple[torch.Tensor, ...]:
        losses = model(inputs, [dict(target) for target in targets])
        return sum(losses.values()), *losses.values()

    def batch() -> tuple[Any, ...]:
        return [run.rand(3, size, size) for _ in range(2)], [boxes(run, size) for _ in range(2)]

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(run, model, batch, loss, torch.optim.SGD(trained, lr=0.002, momentum=0.9), steps=run.count * 2 // 3)


def small_backbone(out_channels: int = 16) -> nn.Module:
    parts = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, out_channels, 3, 2, 1)]
    backbone = nn.Sequential(*parts, nn.ReLU6(inplace=True))
    backbone.out_channels = out_channels
    return backbone


def anchors() -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator  # noqa: PLC0415

    return AnchorGenerator(sizes=((8, 16),), aspect_ratios=((0.5, 1.0),))


NO_MASKS = "assignment through a boolean mask is not simulated"
NO_NMS = "torchvision's own CUDA kernels (nms, roi_align) are not simulated"


@program("torchvision", tags="detector conv", gpu_only=NO_NMS)
def torchvision_faster_rcnn(run: Run) -> None:
    """Faster R-CNN on a small backbone"""
    from torchvision.models.detection import FasterRCNN  # noqa: PLC0415
    from torchvision.ops import MultiScaleRoIAlign  # noqa: PLC0415

    pool = MultiScaleRoIAlign(["0"], 4, 2)
    options = {"box_roi_pool": pool, "min_size": 64, "max_size": 64, "rpn_post_nms_top_n_train": 32}
    model = FasterRCNN(small_backbone(), 4, rpn_anchor_generator=anchors(), **options)
    train_detector(run, run.put(model), 64)


@program("torchvision", tags="detector conv", gpu_only=NO_MASKS)
def torchvision_retinanet(run: Run) -> None:
    """RetinaNet on a small backbone"""
    from torchvision.models.detection import RetinaNet  # noqa: PLC0415

    model = RetinaNet(small_backbone(), 4, anchor_generator=anchors(), min_size=48, max_size=48)
    train_detector(run, run.put(model), 48)


@program("torchvision", tags="detector conv", gpu_only=NO_MASKS)
def torchvision_fcos(run: Run) -> None:
    """FCOS on a small backbone"""
    from torchvision.models.detection import FCOS  # noqa: PLC0415
    from torchvision.models.detection.anchor_utils import AnchorGenerator  # noqa: PLC0415

    generator = AnchorGenerator(sizes=((8,),), aspect_ratios=((1.0,),))
    model = FCOS(small_backbone(32), 4, anchor_generator=generator, min_size=48, max_size=48)
    train_detector(run, run.put(model), 48)


@program("torchvision", tags="detector conv", gpu_only=NO_MASKS)
def torchvision_ssd(run: Run) -> None:
    """SSD on a small backbone"""
    from torchvision.models.detection.ssd import SSD  # noqa: PLC0415
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator  # noqa: PLC0415

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = small_backbone(), nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(inplace=True))
            self.out_channels = [16, 16]

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            x = self.first(x)
            return {"0": x, "1": self.second(x)}

    model = SSD(Backbone(), DefaultBoxGenerator([[2], [2]]), (48, 48), 4, positive_fraction=0.25)
    train_detector(run, run.put(model), 48)


def segment(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = model(x)
    return F.cross_entropy(out["out"], y) + 0.5 * F.cross_entropy(out["aux"], y), out["out"]


def add_segmentation(kind: str) -> None:
    @program("torchvision", tags="segmentation conv", name=f"torchvision_{kind}")
    def segmentation(run: Run) -> None:
        from torchvision.models import segmentation as s  # noqa: PLC0415

        class Backbone(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = small_backbone(16), nn.Sequential(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(True))

            def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
                aux = self.first(x)
                return {"aux": aux, "out": self.second(aux)}

        head = s.fcn.FCNHead(32, 5) if kind == "fcn" else s.deeplabv3.DeepLabHead(32, 5, (2, 4))
        model = {"fcn": s.FCN, "deeplab": s.DeepLabV3}[kind](Backbone(), head, s.fcn.FCNHead(16, 5))
        train(run, run.put(model), lambda: (run.randn(2, 3, 32, 32), run.randint(5, 2, 32, 32)), segment)

    segmentation.__doc__ = f"torchvision's {kind} with an auxiliary head"


add_segmentation("fcn")
add_segmentation("deeplab")


@program("torchvision", tags="segmentation conv")
def torchvision_lraspp(run: Run) -> None:
    """LRASPP"""
    from torchvision.models.segmentation import LRASPP  # noqa: PLC0415

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = small_backbone(16), nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.Hardswish(True))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            low = self.low(x)
            return {"low": low, "high": self.high(low)}

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(x)["out"]
        return F.cross_entropy(out, y), out

    model = run.put(LRASPP(Backbone(), 16, 32, 5, 16))
    train(run, model, lambda: (run.randn(2, 3, 32, 32), run.randint(5, 2, 32, 32)), loss)


@program("torchvision", tags="video conv")
def torchvision_video_resnet(run: Run) -> None:
    """A video ResNet (2+1)D"""
    from torchvision.models.video import resnet as v  # noqa: PLC0415

    makers = [v.Conv2Plus1D] * 4
    model = run.put(v.VideoResNet(v.BasicBlock, makers, [1, 1, 1, 1], v.R2Plus1dStem, num_classes=CLASSES))
    batch = lambda: (run.randn(2, 3, 4, 16, 16), run.randint(CLASSES, 2))  # noqa: E731
    train(run, model, batch, classify, steps=max(run.count // 2, 12))


def mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer  # noqa: PLC0415

    return MlpMixer(CLASSES, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)


def convmixer() -> nn.Module:
    from timm.models.convmixer import ConvMixer  # noqa: PLC0415

    return ConvMixer(32, 3, kernel_size=5, patch_size=4, num_classes=CLASSES)


def poolformer() -> nn.Module:
    from timm.models.metaformer import MetaFormer, Pooling  # noqa: PLC0415

    return MetaFormer(num_classes=CLASSES, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), token_mixers=Pooling)


TIMM: dict[str, tuple[str, int, dict[str, Any]]] = {
    "resnet26": ("resnet26", 32, {"channels": (8, 16, 32, 64), "stem_width": 8}),
    "ghostnet": ("ghostnet_050", 32, {}),
    "nfnet": ("test_nfnet", 32, {}),
    "hrnet": ("hrnet_w18_small", 32, {}),
    "dla": ("dla46_c", 32, {}),
    "deit": ("deit_tiny_patch16_224", 32, {"img_size": 32, "embed_dim": 32, "num_heads": 2, "depth": 2}),
    "byobnet": ("test_byobnet", 32, {}),
    "efficientnet": ("test_efficientnet", 32, {}),
    "convnext": ("test_convnext", 32, {}),
    "res2net": ("res2net50_14w_8s", 32, {"layers": (1, 1, 1, 1)}),
    "efficientvit": ("efficientvit_b0", 64, {}),
}


def timm_model(kind: str, **options: Any) -> nn.Module:
    import timm  # noqa: PLC0415

    return timm.create_model(kind, num_classes=CLASSES, **options)


for _name, _make in (("mixer", mixer), ("convmixer", convmixer), ("poolformer", poolformer)):
    add_classifier("timm", f"timm_{_name}", _make, 32)
for _name, (_kind, _size, _options) in TIMM.items():
    add_classifier("timm", f"timm_{_name}", lambda k=_kind, o=_options: timm_model(k, **o), _size)


class CenterNet(nn.Module):
    """Heat maps of centers, and sizes at them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.up = small_backbone(16), nn.ConvTranspose2d(16, 16, 4, 2, 1)
        self.heat = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 3, 1))
        self.size = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 2, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = F.relu_(self.up(self.backbone(x)))
        return self.heat(h).sigmoid_().clamp(1e-4, 1 - 1e-4), self.size(h)


@program(tags="detector conv inplace")
def centernet(run: Run) -> None:
    """A detector of center points: focal loss on heat maps, and sizes gathered at the centers."""

    def loss(model: nn.Module, x: torch.Tensor, heat: torch.Tensor, index: torch.Tensor, size: torch.Tensor) -> Any:
        found, sizes = model(x)
        positive = (1 - found).pow(2) * found.log() * heat.eq(1)
        negative = found.pow(2) * (1 - found).log() * (1 - heat).pow(4)
        at = sizes.flatten(2).gather(2, index[:, None].expand(-1, 2, -1))
        return -(positive + negative).mean() + F.l1_loss(at, size), found, sizes

    def batch() -> tuple[torch.Tensor, ...]:
        heat = run.rand(2, 3, 16, 16).round(decimals=1)
        return run.randn(2, 3, 32, 32), heat, run.randint(256, 2, 3), run.rand(2, 2, 3)

    model = run.put(CenterNet())
    train(run, model, batch, loss, torch.optim.Adam(model.parameters(), lr=1e-3))
