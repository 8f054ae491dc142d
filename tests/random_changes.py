"""Random changes in a `Checkout`, one after the other: to code, raw data, options, and harm to what the store holds."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkouts import NAME, STAGES, Checkout

FILE = f"datasets/{NAME}.py"
KNOBS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "helper": ("datasets/far.py", "image + OFFSET", ("image + OFFSET", "image + OFFSET + 1", "image + OFFSET  # so")),
    "constant": ("datasets/far.py", "OFFSET = 0", ("OFFSET = 0", "OFFSET = 2")),
    "middle": ("datasets/middle.py", "return far(image)", ("return far(image)", "same = far(image)\n    return same")),
    "bounds": (FILE, "high=255", ("high=255", "high=254")),
    "augmentation": (FILE, "seed=3)", ("seed=3)", "seed=3, augment=(Shift(1),))")),
    "leaks": (FILE, 'leaks="warn"', ('leaks="warn"', 'leaks="error"')),
    "split": (FILE, "Rows(0, 150)", ("Rows(0, 150)", "Rows(0, 144)")),
    "hidden": ("tasks/models/mlp.py", "HIDDEN = 128", ("HIDDEN = 128", "HIDDEN = 96")),
    "evaluation": ("tasks/evaluate.py", "BATCH_SIZE = 256", ("BATCH_SIZE = 256", "BATCH_SIZE = 64")),
}
"""A piece of a file, and what it can be."""
OPTIONS: dict[str, tuple[str | None, ...]] = {
    "--learning-rate": (None, "0.02"), "--seed": (None, "4"), "--batch-size": (None, "8"), "--epochs": (None, "2"),
    "--refresh": STAGES, "--from": STAGES, "--keep-best": (None, "0"), "--checkpoint-every": (None, "2"),
}  # fmt: skip


class Changes:
    """A checkout's changes so far.

    Args:
        checkout: To change.
        seed: Of the choices.
    """

    def __init__(self, checkout: Checkout, seed: int) -> None:
        self.checkout, self.random = checkout, random.Random(seed)
        self.pristine = {file: (checkout.root / file).read_text() for file, _, _ in KNOBS.values()}
        self.values = {name: old for name, (_, old, _) in KNOBS.items()}
        self.options: dict[str, str] = {}
        self.seed = 0

    def next(self, rows: list[dict[str, Any]]) -> str:
        """Changes one thing; says what.

        Args:
            rows: The stages of the last run's summary, whose artifacts may be harmed.
        """
        for option in ("--refresh", "--from"):
            self.options.pop(option, None)  # these are asked for once
        kind = self.random.choice(("code", "code", "code", "option", "option", "harm", "harm", "harm", "data"))
        match kind:
            case "code":
                name = self.random.choice(sorted(KNOBS))
                file, _, choices = KNOBS[name]
                self.values[name] = self.random.choice([text for text in choices if text != self.values[name]])
                self._write(file)
                return f"{file}: {self.values[name]!r}"
            case "option":
                name = self.random.choice(sorted(OPTIONS))
                value = self.random.choice([value for value in OPTIONS[name] if value != self.options.get(name)])
                self.options.pop(name, None)
                self.options |= {} if value is None else {name: value}
                return f"{name} {value}"
            case "harm":
                row, (how, harm) = self.random.choice(rows), self.random.choice(sorted(HARMS.items()))
                harm(self.checkout.store, row, self.random)
                return f"{how} of {row['name']}"
            case "data":
                self.seed = 1 - self.seed
                self.checkout.write_raw(self.seed)
                return f"raw data {self.seed}"
        raise AssertionError(kind)

    def arguments(self) -> list[str]:
        """The options as they are now."""
        return [f"{name}={value}" for name, value in self.options.items()]

    def _write(self, file: str) -> None:
        text = self.pristine[file]
        for name, (its_file, old, _) in KNOBS.items():
            if its_file == file:
                assert text.count(old) == 1, f"{old!r} isn't once in {file}: name another"
                text = text.replace(old, self.values[name])
        (self.checkout.root / file).write_text(text)


def folder_of(store: Path, row: dict[str, Any]) -> Path | None:
    return next((path for path in store.glob(f"*/{NAME}/{row['key']}") if path.parts[-3] != "checkpoints"), None)


def in_artifact(act: Callable[[Path, random.Random], object]) -> Callable[..., None]:
    """Harm to an artifact's folder, if it is there."""

    def harm(store: Path, row: dict[str, Any], chance: random.Random) -> None:
        if (folder := folder_of(store, row)) is not None:
            act(folder, chance)

    return harm


def to_record(act: Callable[[Path], object]) -> Callable[..., None]:
    """Harm to Prefect's record of the result, if it is there."""

    def harm(store: Path, row: dict[str, Any], chance: random.Random) -> None:
        if (record := store / "cache" / row["key"]).exists():
            act(record)

    return harm


def flip(folder: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1
    path.write_bytes(data)


def cut(folder: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    os.truncate(path, path.stat().st_size // 2)


def swap(folder: Path, chance: random.Random) -> None:
    others = sorted(path for path in folder.parent.iterdir() if path != folder)
    if others:
        shutil.rmtree(folder)
        shutil.copytree(chance.choice(others), folder)


def edit_manifest(folder: Path, chance: random.Random) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"facts"', '"facts" ', 1).replace('"bytes": ', '"bytes": 1', 1))


HARMS: dict[str, Callable[..., None]] = {
    "artifact gone": in_artifact(lambda folder, chance: shutil.rmtree(folder)),
    "artifact, a bit flipped": in_artifact(flip),
    "artifact, a file cut": in_artifact(cut),
    "artifact, a file too many": in_artifact(lambda folder, chance: (folder / "more").write_text("x")),
    "artifact, another in its place": in_artifact(swap),
    "artifact, its manifest edited": in_artifact(edit_manifest),
    "Prefect's result cut": to_record(lambda record: os.truncate(record, record.stat().st_size // 2)),
    "Prefect's result empty": to_record(lambda record: os.truncate(record, 0)),
    "Prefect's result gone": to_record(lambda record: record.unlink()),
}
