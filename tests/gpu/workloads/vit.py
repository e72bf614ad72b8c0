"""ViT-B/16, half precision: classifies random images."""

import torch
import torchvision

import outputs


def main() -> None:
    options = outputs.arguments(repeats=3)
    torch.manual_seed(5)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.vit_b_16(weights=None).half().cuda().eval()
    results = []
    with torch.inference_mode():
        for _ in range(options.repeats):
            for batch in (1, 6):
                results.append(model(torch.randn(batch, 3, 224, 224).cuda().half()))
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
