#!/usr/bin/env python3
"""A DCGAN on random images: two networks with BatchNorm, two Adam optimizers, binary cross entropy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import common


def generator(noise: int, width: int, doublings: int) -> nn.Sequential:
    wide = width << (doublings - 1)
    layers: list[nn.Module] = [nn.ConvTranspose2d(noise, wide, 4, 1, 0, bias=False), nn.BatchNorm2d(wide), nn.ReLU(True)]
    for _ in range(doublings - 1):
        layers += [nn.ConvTranspose2d(wide, wide // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(wide // 2), nn.ReLU(True)]
        wide //= 2
    return nn.Sequential(*layers, nn.ConvTranspose2d(wide, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width: int, halvings: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for _ in range(halvings - 1):
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True)]
        width *= 2
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 0, bias=False), nn.Sigmoid())


def weights_init(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999))


def main() -> None:
    options = common.options(__doc__)
    noise, width, doublings, batch = (8, 4, 2, 4) if options.small else (100, 64, 4, 32)
    net_g = generator(noise, width, doublings).cuda().apply(weights_init)
    net_d = discriminator(width, doublings).cuda().apply(weights_init)
    optimizer_g, optimizer_d = adam(net_g), adam(net_d)
    criterion = nn.BCELoss()
    side = 4 << doublings
    images = torch.rand(16 * batch, 3, side, side, generator=torch.Generator().manual_seed(1)) * 2 - 1
    loader = DataLoader(TensorDataset(images), batch_size=batch, shuffle=True, pin_memory=True)
    watch = common.Watch(options.steps)
    watch.start()
    while watch.done < options.steps:
        for (real,) in loader:
            if watch.done == options.steps:
                break
            # The discriminator: real images, then generated ones.
            net_d.zero_grad()
            real = real.cuda(non_blocking=True)
            label = torch.full((len(real),), 1.0, device="cuda")
            loss_real = criterion(net_d(real).view(-1), label)
            loss_real.backward()
            fake = net_g(torch.randn(len(real), noise, 1, 1, device="cuda"))
            label.fill_(0.0)
            loss_fake = criterion(net_d(fake.detach()).view(-1), label)
            loss_fake.backward()
            loss_d = loss_real + loss_fake
            optimizer_d.step()
            # The generator.
            net_g.zero_grad()
            label.fill_(1.0)
            loss_g = criterion(net_d(fake).view(-1), label)
            loss_g.backward()
            optimizer_g.step()
            watch.step(loss_d.detach() + loss_g.detach())
    common.finish(watch, {"generator": net_g, "discriminator": net_d}, [optimizer_g, optimizer_d])


if __name__ == "__main__":
    main()
