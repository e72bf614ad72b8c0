"""ResNet-50, single precision and half precision with channels last: classifies random images."""

import torch
import torchvision

import outputs


def main() -> None:
    options = outputs.arguments(repeats=3)
    torch.manual_seed(4)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.resnet50(weights=None).cuda().eval()
    results = []
    with torch.no_grad():
        for _ in range(options.repeats):
            for batch in (1, 8):
                results.append(model(torch.randn(batch, 3, 224, 224).cuda()))
        model = model.half().to(memory_format=torch.channels_last)
        images = torch.randn(4, 3, 224, 224).cuda().half().to(memory_format=torch.channels_last)
        results.append(model(images))
    outputs.save(options.output, results=results)


if __name__ == "__main__":
    main()
