"""Programs on pictures: classifiers with a DataLoader, detection, segmentation, diffusion."""

from typing import Any, Iterator

import torch
from torch.nn import functional as F

from bed import Run, listed

Results = Iterator[Any]


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        drawn = torch.Generator().manual_seed(index)
        return torch.randn(3, self.size, self.size, generator=drawn), index % 10


@listed("timm", units=90)
def timm_evaluates(run: Run) -> Results:
    """timm's EfficientNet over a DataLoader, whose last batch is smaller, twice"""
    import timm  # noqa: PLC0415

    model = run.put(timm.create_model("efficientnet_b0", num_classes=10))
    loader = torch.utils.data.DataLoader(Pictures(run.size(350, 10), run.size(96, 32)), batch_size=8, pin_memory=run.device.type == "cuda")
    while True:
        for pictures, labels in loader:
            with torch.no_grad():
                found = model(pictures.to(run.device, non_blocking=True)).argmax(-1)
            yield int((found.cpu() == labels).sum())


@listed("timm", units=60)
def timm_learns_with_mixup(run: Run) -> Results:
    """timm's ViT learns with mixup, mixed precision, averaged weights and a cosine schedule"""
    import timm  # noqa: PLC0415
    from timm.data import Mixup  # noqa: PLC0415
    from timm.loss import SoftTargetCrossEntropy  # noqa: PLC0415
    from timm.optim import create_optimizer_v2  # noqa: PLC0415
    from timm.utils import ModelEmaV2  # noqa: PLC0415

    size = run.size(64, 32)
    model = run.put(
        timm.create_model("vit_tiny_patch16_224", img_size=size, depth=run.size(12, 2), num_classes=10, drop_path_rate=0.1), train=True
    )
    mixup, loss_of, average = Mixup(0.8, 1.0, num_classes=10), SoftTargetCrossEntropy(), ModelEmaV2(model)
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    scaler = torch.amp.GradScaler(run.device.type, enabled=run.device.type == "cuda")
    while True:
        pictures, targets = mixup(run.randn(16, 3, size, size), run.tokens(16, below=14) - 4)
        with torch.autocast(run.device.type, torch.float16, enabled=run.device.type == "cuda"):
            loss = loss_of(model(pictures), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        average.update(model)
        yield loss.item()


@listed("torchvision", units=40)
def resnet_on_sizes(run: Run) -> Results:
    """torchvision's ResNet-50 on pictures of mixed sizes, in channels_last"""
    import torchvision  # noqa: PLC0415

    model = run.put(torchvision.models.resnet50(num_classes=10) if not run.small else torchvision.models.resnet18(num_classes=10))
    model = model.to(memory_format=torch.channels_last)
    while True:
        height, width = (32 * run.choice.randint(2, 4) for _ in "hw")
        with torch.inference_mode():
            yield model(run.randn(2, 3, height, width).to(memory_format=torch.channels_last)).cpu()


@listed("torchvision", units=25)
def faster_rcnn_detects(run: Run) -> Results:
    """torchvision's Faster R-CNN on pictures of mixed sizes, with boxes on the host"""
    import torchvision  # noqa: PLC0415

    model = run.put(
        torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, min_size=128, max_size=192)
    )
    while True:
        with torch.no_grad():
            found = model([run.randn(3, 32 * run.choice.randint(3, 6), 128) for _ in range(2)])
        yield [{name: value.cpu() for name, value in one.items()} for one in found]


@listed("torchvision", units=40)
def deeplab_segments(run: Run) -> Results:
    """torchvision's DeepLabV3 segments single pictures"""
    import torchvision  # noqa: PLC0415

    model = run.put(torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=8))
    while True:
        with torch.inference_mode():
            found = model(run.randn(1, 3, run.choice.choice((96, 128)), 128))["out"]
        yield found.argmax(1).to(torch.uint8).cpu()


@listed("torchvision", units=50)
def ssd_learns(run: Run) -> Results:
    """torchvision's SSDlite learns to detect, with as many boxes as each picture has"""
    import torchvision  # noqa: PLC0415

    model = run.put(
        torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5), train=True
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, weight_decay=5e-4)
    while True:
        targets = []
        for _ in range(2):
            corners = torch.rand(run.choice.randint(1, 5), 2, generator=run.data) * 150
            boxes = torch.cat([corners, corners + 20 + torch.rand(corners.shape, generator=run.data) * 100], 1).to(run.device)
            targets.append({"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.long, device=run.device)})
        loss = sum(model([run.randn(3, 160, 160) for _ in range(2)], targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@listed("transformers", units=30)
def detr_detects(run: Run) -> Results:
    """DETR, with a backbone of transformers, on pictures of mixed heights"""
    import transformers as hf  # noqa: PLC0415

    width = run.size(128, 32)
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_labels=6, num_queries=20, d_model=width,
        backbone_config=hf.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], out_features=["stage2"]),
        encoder_layers=run.size(4, 1), decoder_layers=run.size(4, 1), encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=2 * width, decoder_ffn_dim=2 * width,
    )  # fmt: skip
    model = run.put(hf.DetrForObjectDetection(config))
    while True:
        with torch.no_grad():
            out = model(run.randn(1, 3, 32 * run.choice.randint(2, 5), 96))
        yield out.logits.softmax(-1).amax(-1).cpu(), out.pred_boxes.cpu()


def diffusion(run: Run, scheduler: str) -> Results:
    """A picture of 20 steps a request, by a conditional U-Net; the time step is a number of the host's."""
    import diffusers  # noqa: PLC0415

    width = run.size(96, 32)
    model = run.put(
        diffusers.UNet2DConditionModel(
            sample_size=16, in_channels=4, out_channels=4, block_out_channels=(width, 2 * width), layers_per_block=1,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=64, attention_head_dim=8, norm_num_groups=16,
        )
    )  # fmt: skip
    steps = getattr(diffusers, scheduler)()
    while True:
        steps.set_timesteps(run.size(20, 3))
        text, picture = run.randn(2, 8, 64), run.randn(1, 4, 16, 16) * steps.init_noise_sigma
        with torch.no_grad():
            for time in steps.timesteps:
                noise = model(steps.scale_model_input(torch.cat([picture, picture]), time), time.item(), text).sample
                free, led = noise.chunk(2)
                picture = steps.step(free + 5.0 * (led - free), time, picture).prev_sample
        yield picture.cpu()


@listed("diffusers", units=20)
def diffusion_ddim(run: Run) -> Results:
    """diffusers' conditional U-Net with DDIM"""
    yield from diffusion(run, "DDIMScheduler")


@listed("diffusers", units=20)
def diffusion_euler(run: Run) -> Results:
    """diffusers' conditional U-Net with Euler's method"""
    yield from diffusion(run, "EulerDiscreteScheduler")


@listed("diffusers", units=20)
def diffusion_dpm(run: Run) -> Results:
    """diffusers' conditional U-Net with DPM-Solver"""
    yield from diffusion(run, "DPMSolverMultistepScheduler")


@listed("lightning", "torchvision", units=60)
def fabric_learns(run: Run) -> Results:
    """Lightning Fabric trains a MobileNet, and looks at new pictures every ten steps"""
    import torchvision  # noqa: PLC0415
    from lightning.fabric import Fabric  # noqa: PLC0415

    fabric = Fabric(accelerator="gpu" if run.device.type == "cuda" else "cpu", devices=1)
    made = torchvision.models.mobilenet_v3_small(num_classes=10)
    model, optimizer = fabric.setup(made, torch.optim.SGD(made.parameters(), 0.01, momentum=0.9))
    step = 0
    while True:
        model.train()
        loss = F.cross_entropy(model(run.randn(8, 3, 64, 64)), run.tokens(8, below=14) - 4)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 10 == 0:
            model.eval()
            with torch.no_grad():
                yield loss.item(), model(run.randn(4, 3, 64, 64)).argmax(-1).cpu()
        else:
            yield loss.item()


