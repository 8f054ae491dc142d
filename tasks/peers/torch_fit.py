"""The models `cnn` and `mlp` as a PyTorch user writes them, and a plain loop; imports nothing of this project.

Started by the benchmark `fit` with the interpreter of an environment that has `requirements-peers.txt`, as
`python -P torch_fit.py MODEL ARRAYS.npz IDS.npy`. Answers each line that it reads with a JSON line: {"seconds": of one
pass over the ids}, or {"missing": why}.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def build(name: str) -> Any:  # noqa: ANN401 - torch isn't there when this is checked
    """The network: 3x3 convolutions with pooling and BatchNorm, or one hidden layer of 128."""
    from torch import nn

    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    block = lambda a, b: [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(b), nn.ReLU()]  # noqa: E731
    return nn.Sequential(
        *block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def loop(name: str, images: np.ndarray, labels: np.ndarray, order: np.ndarray) -> float:
    """Seconds of one training: AdamW, one gather a batch, nothing kept."""
    import torch

    torch.manual_seed(0)
    model = build(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    x, y = torch.from_numpy(images[..., 0])[:, None], torch.from_numpy(labels).long()
    ids = torch.from_numpy(order)
    began, loss = time.perf_counter(), torch.zeros(())
    for batch in ids:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x[batch].float() / 255), y[batch])
        loss.backward()
        optimizer.step()
    loss.item()
    return time.perf_counter() - began


def main() -> None:
    """Answers until the input ends."""
    name, arrays, ids = sys.argv[1:]
    with np.load(arrays) as file:
        images, labels = file["image"], file["label"]
    order = np.load(ids)
    for _ in sys.stdin:
        try:
            reply = {"seconds": loop(name, images, labels, order)}
        except ImportError as error:
            reply = {"missing": str(error)}
        print(json.dumps(reply), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
