"""Other input pipelines over the same records, in an interpreter of their own; imports nothing of this project.

Started by the benchmark with the interpreter of an environment that has `requirements-peers.txt`. Reads one JSON
request a line, {"peer": name, "seconds": s}, and answers each with one line: {"rate": examples a second}, or
{"missing": why} for a library that isn't there. Run with `python -P`, so that Hugging Face's `datasets` is found
instead of the folder of that name.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def torch_items(folder: Path, batch: int) -> Iterator[Any]:
    """The dataset that tutorials write: one example a call, as float32 / 255."""
    import torch

    columns = _columns(folder)
    inputs, labels = columns["inputs"], columns["label"]

    class Items(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> Any:  # noqa: ANN401
            item = torch.from_numpy(np.array(inputs[index]))
            return (item.float() / 255 if item.dtype == torch.uint8 else item), int(labels[index])

    yield from _forever(lambda: torch.utils.data.DataLoader(Items(), batch, shuffle=True, drop_last=True))


def torch_batched(folder: Path, batch: int) -> Iterator[Any]:
    """Batched indices, the fastest that torch offers: one gather a batch, dtypes as stored."""
    import torch

    columns = _columns(folder)

    class Batched(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(columns["label"])

        def __getitem__(self, index: int) -> Any:  # noqa: ANN401
            return self.__getitems__([index])

        def __getitems__(self, indices: list[int]) -> Any:  # noqa: ANN401
            at = np.asarray(indices)
            return {name: torch.from_numpy(values[at]) for name, values in columns.items()}

    yield from _forever(
        lambda: torch.utils.data.DataLoader(Batched(), batch, shuffle=True, drop_last=True, collate_fn=lambda b: b)
    )


def hugging_face(folder: Path, batch: int) -> Iterator[Any]:
    """`Dataset` with NumPy format, batches by a list of shuffled indices."""
    import datasets as hf  # found with -P only

    columns = _columns(folder)
    # Flat rows: its nested lists are hundreds of times slower.
    flat = {name: np.asarray(values).reshape(len(values), -1) for name, values in columns.items()}
    data = hf.Dataset.from_dict(flat).with_format("numpy")
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(len(data))
        for start in range(0, len(order) - batch + 1, batch):
            yield data[order[start : start + batch]]


def tf_data(folder: Path, batch: int) -> Iterator[Any]:
    """`from_tensor_slices`, shuffled over all examples, batched, prefetched."""
    import tensorflow as tf

    columns = {name: np.asarray(values) for name, values in _columns(folder).items()}
    size = len(columns["label"])
    data = tf.data.Dataset.from_tensor_slices(columns).shuffle(size, seed=0).repeat().batch(batch, drop_remainder=True)
    yield from data.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def torch_jpeg(folder: Path, batch: int) -> Iterator[Any]:
    """A folder of JPEG files decoded by Pillow in as many workers as there are cores, crop and flip per image."""
    import os

    import torch
    from PIL import Image

    paths = sorted(folder.glob("*.jpg"))

    class Pictures(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:  # noqa: ANN401
            pixels = np.asarray(Image.open(paths[index]))
            top, left, flip = np.random.randint(0, 17), np.random.randint(0, 17), np.random.random() < 0.5
            pixels = np.pad(pixels, ((8, 8), (8, 8), (0, 0)), mode="reflect")[top : top + 128, left : left + 128]
            return torch.from_numpy(np.ascontiguousarray(pixels[:, ::-1] if flip else pixels))

    workers = len(os.sched_getaffinity(0))
    loader = torch.utils.data.DataLoader(
        Pictures(), batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )
    yield from _forever(lambda: loader)


PEERS: dict[str, Callable[[Path, int], Iterator[Any]]] = {
    "torch_items": torch_items, "torch_batched": torch_batched, "hugging_face": hugging_face, "tf_data": tf_data,
    "torch_jpeg": torch_jpeg,
}  # fmt: skip


def _columns(folder: Path) -> dict[str, np.ndarray]:
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


def _forever(make: Callable[[], Any]) -> Iterator[Any]:
    while True:
        yield from make()


def rate(stream: Iterator[Any], batch: int, seconds: float) -> float:
    """Examples a second over at least `seconds`, after two batches that warm up and drain what lay ready."""
    for _ in range(2):
        next(stream)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        next(stream)
        count += 1
    return count * batch / (time.perf_counter() - began)


def serve(folder: Path, batch: int) -> None:
    """Answers requests until standard input ends."""
    streams: dict[str, Iterator[Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["peer"]
        try:
            stream = streams.setdefault(name, PEERS[name](folder, batch))
            answer: dict[str, Any] = {"rate": rate(stream, batch, request["seconds"])}
        except ImportError as error:
            del streams[name]  # a generator that raised is at its end, which would be another answer
            answer = {"missing": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
