"""Saving a run's results: every tensor to one file, and a digest of their bytes on stdout."""

import argparse
import hashlib
from pathlib import Path
from typing import Any

import torch


def arguments(**defaults: int) -> argparse.Namespace:
    """Parses `OUTPUT [--name N ...]`, one integer option for each default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path, help="file for the results")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def _flatten(name: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if isinstance(value, dict):
        return [item for key in value for item in _flatten(f"{name}.{key}", value[key])]
    if isinstance(value, (list, tuple)):
        return [item for index, part in enumerate(value) for item in _flatten(f"{name}.{index}", part)]
    return [(name, torch.tensor(value))]


def save(path: Path, **results: Any) -> None:
    """Writes all tensors in `results` to `path`, and prints their number, bytes and SHA-256."""
    tensors = [item for key, value in results.items() for item in _flatten(key, value)]
    digest = hashlib.sha256()
    size = 0
    with path.open("wb") as file:
        for name, tensor in tensors:
            host = tensor.detach().cpu().contiguous()
            data = host.reshape(-1).view(torch.uint8).numpy().tobytes() if host.numel() else b""
            header = f"{name} {host.dtype} {tuple(host.shape)}\n".encode()
            for part in (header, data):
                digest.update(part)
                file.write(part)
            size += len(data)
    print(f"{len(tensors)} tensors, {size} bytes, sha256 {digest.hexdigest()}")
