"""MNIST as a plain PyTorch script: arrays in memory, a DataLoader, one loop; imports nothing of this project."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from sys import path
from typing import Any

path.append(str(Path(__file__).parent))  # `python -P` leaves it out
from mnist_files import arguments, load, missing, tell

EPOCHS = 6


def main() -> None:
    """Trains and tells."""
    folder, every, batch = arguments()
    try:
        import torch
        from torch import nn
    except ImportError as error:
        missing(error)
        return
    torch.manual_seed(0)
    train_x, train_y, test_x, test_y = (torch.from_numpy(array.copy()) for array in load(folder))

    def block(a: int, b: int) -> list[Any]:
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(b), nn.ReLU()]

    model = nn.Sequential(
        *block(1, 32),
        *block(32, 64),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    rows = torch.utils.data.TensorDataset(train_x, train_y)
    loader = torch.utils.data.DataLoader(rows, batch, shuffle=True, drop_last=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    step = 0
    for _ in range(EPOCHS):
        for x, y in loader:
            model.train()
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(x[:, None].float() / 255), y.long()).backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % every == 0:
                model.eval()
                with torch.no_grad():
                    found = [model(part[:, None].float() / 255).argmax(1) for part in test_x.split(1000)]
                tell(step, (torch.cat(found) == test_y).float().mean().item())


if __name__ == "__main__":
    main()
