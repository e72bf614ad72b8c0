"""Training fed by a DataLoader: forked workers, a pinning thread, asynchronous copies to the device."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import outputs


class Images(Dataset):
    def __init__(self, count: int = 96) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def loader(count: int = 96) -> DataLoader:
    return DataLoader(Images(count), batch_size=16, shuffle=True, num_workers=3, pin_memory=True)


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(12)
        torch.backends.cudnn.deterministic = True
        self.model = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 15 * 15, 10)
        ).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    options = outputs.arguments(epochs=2)
    trainer, losses = Trainer(), []
    batches = loader()
    for epoch in range(options.epochs):
        losses += [trainer.step(images, labels) for images, labels in batches]
        print(f"epoch {epoch}: loss {losses[-1].item():.6f}")
    outputs.save(options.output, losses=losses, parameters=dict(trainer.model.named_parameters()))


if __name__ == "__main__":
    main()
