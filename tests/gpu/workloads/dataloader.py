"""Training fed by a DataLoader: forked workers, a pinning thread, asynchronous copies to the device."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import outputs


class Images(Dataset):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def main() -> None:
    options = outputs.arguments(epochs=2)
    torch.manual_seed(12)
    torch.backends.cudnn.deterministic = True
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 15 * 15, 10)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Images(), batch_size=16, shuffle=True, num_workers=3, pin_memory=True)
    losses = []
    for epoch in range(options.epochs):
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {losses[-1].item():.6f}")
    outputs.save(options.output, losses=losses, parameters=dict(model.named_parameters()))


if __name__ == "__main__":
    main()
