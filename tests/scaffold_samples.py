"""Small data of the kinds that people have, each of which a model can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ("cat", "dog")


def pictures(folder: Path, each: int = 30) -> Path:
    """Dark cats and bright dogs, of several sizes and modes, with what systems leave beside them."""
    random = np.random.default_rng(0)
    for c, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            height, width = random.integers(24, 60, 2).tolist()
            pixels = random.integers(0, 110, (height, width, 3)) + 120 * c
            picture = Image.fromarray(pixels.astype(np.uint8))
            mode = ("RGB", "L", "RGBA", "P")[i % 4]
            picture.convert(mode).save(folder / name / f"{i:03}.{'jpg' if mode in ('RGB', 'L') else 'png'}")
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "cat" / "notes.txt").write_text("mostly asleep")
    return folder


def columns(rows: int = 400, seed: int = 0) -> dict[str, list[object]]:
    """Animals: two numbers, one with gaps, a category, a text, an id; dogs are heavier."""
    random = np.random.default_rng(seed)
    kind = random.integers(0, 2, rows)
    weight = random.normal(4.0 + 12.0 * kind, 2.5)
    return {
        "pet_id": list(range(rows)),
        "weight": weight.round(2).tolist(),
        "age": [None if i % 9 == 4 else int(age) for i, age in enumerate(random.integers(1, 18, rows))],
        "colour": [("black", "white, spotted", "grey")[i] for i in random.integers(0, 3, rows)],
        "name": [f"pet é {i} {random.integers(1_000_000)}" for i in range(rows)],
        "kind": [CLASSES[i] for i in kind],
    }


def table(path: Path, rows: int = 400, delimiter: str = ",") -> Path:
    made = columns(rows)
    rows_of = zip(*made.values(), strict=True)
    lines = [delimiter.join("" if value is None else f'"{value}"' for value in row) for row in rows_of]
    path.write_text("\n".join([delimiter.join(made), *lines]) + "\n", encoding="utf-8")
    return path


def parquet(folder: Path, files: int = 3, rows: int = 200) -> Path:
    """A table a night, in hive partitions, with the writer's marker."""
    for night in range(files):
        (folder / f"night={night + 1}").mkdir(parents=True)
        made = columns(rows, seed=night)
        pq.write_table(pa.table(made), folder / f"night={night + 1}" / "part-0.parquet")
    (folder / "_SUCCESS").write_bytes(b"")
    return folder


def visits(path: Path, rows: int = 400) -> Path:
    """The table with whose visit it was, and when: an animal comes several times."""
    made = columns(rows)
    owners = [f"owner-{i * 7 % 80}" for i in range(rows)]
    days = [f"2026-{1 + i * 12 // rows:02}-{1 + i % 28:02}" for i in range(rows)]
    lines = [
        "owner_id,day,weight,kind",
        *map(",".join, zip(owners, days, map(str, made["weight"]), map(str, made["kind"]), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def arrays(path: Path, rows: int = 300) -> Path:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, rows)
    x = random.integers(0, 60, (rows, 8, 8)) + 80 * y[:, None, None]
    np.savez(path, x=x.astype(np.uint8), y=y)
    return path
