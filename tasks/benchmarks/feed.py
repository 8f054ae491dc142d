"""The feed against the limit of the machine and against other input pipelines, over the same records in one run.

Every ratio is taken between runs that followed each other, round by round, because the machine is shared. Peers run in
an environment of their own: GRISTMILL_PEERS names its Python (`requirements-peers.txt`); without it they are reported
as not installed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags
from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]
from PIL import Image

from datasets.augment import Augmentation, Crop, Erase, Flip, Noise, Rotate, Shift
from datasets.schema import Columns, Feature
from tasks.benchmark import Measure, paired
from tasks.columns import MappedColumns, build_columns
from tasks.example_random import uniform
from tasks.order import Order
from tasks.pipeline import Pipeline, Source
from tasks.records import Shards
from tasks.shard_writer import write_shards
from tasks.tiers import window_of

ROUNDS, SECONDS = 15, 0.2  # many short ones: what disturbs the machine then hits neighbours alike
SLOW_ROUNDS, SLOW_SECONDS = 5, 0.5  # for loaders whose buffers must be drained before each measurement ...
SETTLE = 1.5  # ... and fill again after it, which would take the cores from what is measured next
LEAVE = 30.0  # seconds that a peer's interpreter gets to end by itself
TUTORIAL_BATCH = 64
CORES = len(os.sched_getaffinity(0))
PEERS = Path(__file__).parent.parent / "peers" / "loaders.py"

Rate = Callable[[float], float]
"""Examples a second, measured for so many seconds."""


def run() -> list[Measure]:
    """All measures; about four minutes on two cores."""
    with tempfile.TemporaryDirectory(prefix="gristmill-feed-") as folder, ExitStack() as stack:
        mnist = Records(Path(folder, "mnist"), mnist_sized(), batch=512)
        table = Records(Path(folder, "tabular"), tabular(), batch=4096)
        peers = {r: stack.enter_context(Peers(r.folder / "npy", r.batch)) for r in (mnist, table)}
        return [
            *mnist.measures("mnist", peers[mnist], tutorial=True),
            *table.measures("tabular", peers[table], tutorial=False),
            *first_batch(mnist),
            *jpeg(Path(folder, "jpeg")),
            *augmentations(),
        ]


class Records:
    """The same rows in every form: arrays in memory, columns, shards, `.npy` files for peers.

    Attributes:
        folder: Of all files.
        batch: Examples of a batch.
    """

    def __init__(self, folder: Path, rows: Columns, batch: int) -> None:
        self.folder, self.rows, self.batch = folder, rows, batch
        features = {name: Feature(v.dtype.name, v.shape[1:]) for name, v in rows.items()}
        shards = write_shards(folder / "shards", "train", [rows], features)
        room = 3 * window_of(features, 256) * sum(v[0].nbytes for v in rows.values())
        self.shards = Shards(folder / "shards", shards, features, 256, cache_bytes=room)
        self.windows = Order(len(self.shards), batch, 1, block=256, window=window_of(features, 256))
        build_columns(self.shards, folder / "columns")
        (folder / "npy").mkdir()
        for name, values in rows.items():
            np.save(folder / "npy" / f"{name}.npy", values)

    def columns(self) -> MappedColumns:
        """The mapped tier."""
        return MappedColumns(self.folder / "columns")

    def pipeline(self, source: Source, order: Order | None = None) -> Pipeline:
        """Of a tier; one permutation of all rows unless an order is given."""
        order = order or Order(len(source), self.batch, seed=1)
        return Pipeline(source, order, inputs="inputs", digest="benchmark", split="train")

    def measures(self, name: str, peers: Peers, *, tutorial: bool) -> Iterator[Measure]:
        """Every tier and every peer, the tutorial's DataLoader too if asked for."""
        from tasks.resident import Resident

        mapped, setting = self.pipeline(self.columns()), f"batch {self.batch}, 0 threads"
        disk = self.pipeline(self.shards, self.windows)
        for step in range(self.windows.steps_per_epoch):  # what is read first is checked first: a measure of its own
            disk.batch(step)
        rates: dict[str, Rate] = {
            "NumPy": self.numpy,
            "ram": lambda s: rate(mapped, s),
            "resident": lambda s: rate(pipe, s) if (pipe := resident) else 0.0,
            "bare": self.bare_blocks,
            "disk": lambda s: rate(disk, s),
            "disk, first": self.first_epoch,
            "disk, 1 thread": lambda s: rate(disk, s, threads=1, prefetch=4),
        }
        resident = self.pipeline(Resident(self.columns()))
        for peer in ("torch_items", "torch_batched", "hugging_face", "tf_data"):
            if not peers.missing(peer):
                rates[peer] = lambda s, peer=peer: peers.rate(peer, s)
        found = rounds(rates, ROUNDS, SECONDS)
        slowly: dict[str, dict[str, list[float]]] = {}
        for loader in (
            tutorials(self.rows) if tutorial else ()
        ):  # one after the other: the workers of others wait no more
            with contextlib.closing(loader):
                slowly[str(loader)] = rounds({"ram": rates["ram"], str(loader): loader.rate}, SLOW_ROUNDS, SLOW_SECONDS)
        ram = f"ram_{name}: memory-mapped columns, {setting}"
        goals = {"mnist": {"NumPy": ">= 0.9", "torch_items": ">= 20", "torch_batched": ">= 1.5"}}.get(name, {})
        yield against(ram, found, "ram", "NumPy", "NumPy fancy indexing in memory", goals.get("NumPy", ""))
        if slowly:
            best = max(slowly, key=lambda label: float(np.median(slowly[label][label])))
            yield against(ram, slowly[best], "ram", best, f"Grain DataLoader at its best, {best}", ">= 150")
            for label, found_slowly in slowly.items():
                goal = ">= 400" if label == "4 workers" else ""
                yield against(ram, found_slowly, "ram", label, f"Grain DataLoader, batch 64, {label}", goal)
        for peer, label in PEER_LABELS.items():
            if peer in found:
                yield against(ram, found, "ram", peer, label, goals.get(peer, ""))
            else:
                yield Measure(ram, float(np.median(found["ram"])), "examples/s", f"{label}: not installed")
        where = f"ram_{name}_resident: on the device, {setting}"
        yield against(where, found, "resident", "ram", "memory-mapped columns")
        tier = f"ArrayRecord, window {self.windows.window}, batch {self.batch}"
        for label, named in {
            "disk": f"disk_{name}: {tier}, 0 threads", "disk, 1 thread": f"disk_{name}: {tier}, 1 thread, 4 ahead",
            "disk, first": f"disk_{name}_first: {tier}, 0 threads, first epoch: shards opened, blocks checked",
        }.items():  # fmt: skip
            goal = "" if "thread" in label else ">= 0.9"
            yield against(named, found, label, "bare", "bare reads of the same blocks, 1 thread", goal)

    def first_epoch(self, seconds: float) -> float:
        """Rows a second of the first epoch, opening the shards included, again and again from closed ones."""
        count, began = 0, time.perf_counter()
        while True:
            opened = self.pipeline(pickle.loads(pickle.dumps(self.shards)), self.windows)  # noqa: S301 - our own
            for step in range(self.windows.steps_per_epoch):
                opened.batch(step)
                count += self.batch
                if (elapsed := time.perf_counter() - began) > seconds:
                    return count / elapsed

    def numpy(self, seconds: float) -> float:
        """The limit: a permutation an epoch, one fancy index a column and batch."""
        count, epoch, began = 0, 0, time.perf_counter()
        size = len(self.rows["label"])
        while True:
            order = np.random.default_rng(epoch).permutation(size)
            epoch += 1
            for start in range(0, size - self.batch + 1, self.batch):
                ids = order[start : start + self.batch]
                _ = {name: values[ids] for name, values in self.rows.items()}
                count += self.batch
                if (elapsed := time.perf_counter() - began) > seconds:
                    return count / elapsed

    def bare_blocks(self, seconds: float) -> float:
        """Reads of the same blocks in random order, one after the other, bytes thrown away; rows a second."""
        readers = [
            array_record_module.ArrayRecordReader(
                str(self.shards.folder / s.name), options="readahead_buffer_size:0", file_reader_buffer_size=1 << 15
            )
            for s in self.shards.shards
        ]
        blocks = [(reader, i) for reader in readers for i in range(reader.num_records() - 1)]
        count, epoch, began = 0, 0, time.perf_counter()
        try:
            while True:
                epoch += 1
                for at in np.random.default_rng(epoch).permutation(len(blocks)).tolist():
                    reader, index = blocks[at]
                    reader.read([index])
                    count += 256
                    if (elapsed := time.perf_counter() - began) > seconds:
                        return count / elapsed
        finally:
            for reader in readers:
                reader.close()


PEER_LABELS = {
    "torch_items": "torch DataLoader, per item, 0 workers", "torch_batched": "torch DataLoader, batched indices",
    "hugging_face": "Hugging Face datasets, batched indices", "tf_data": "tf.data, shuffled in memory",
}  # fmt: skip


def mnist_sized() -> Columns:
    """60,000 rows of 784 random bytes with a label: what is copied doesn't depend on what it shows."""
    random = np.random.default_rng(0)
    return {
        "inputs": random.integers(0, 256, (60_000, 28, 28, 1), dtype=np.uint8),
        "label": random.integers(0, 10, 60_000).astype(np.int32),
    }


def tabular() -> Columns:
    """500,000 rows of 12 floats with a label."""
    random = np.random.default_rng(1)
    return {
        "inputs": random.normal(size=(500_000, 12)).astype(np.float32),
        "label": random.integers(0, 2, 500_000).astype(np.int32),
    }


def rate(pipeline: Pipeline, seconds: float, **setting: int) -> float:
    """Examples a second of a pipeline, after its first batch."""
    count = 0
    with pipeline.iterate(0, 1 << 40, **setting) as batches:
        last = next(batches)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            last = next(batches)
            count += 1
        if not isinstance(last["label"], np.ndarray):
            last["label"].block_until_ready()
        return count * pipeline.order.batch_size / (time.perf_counter() - began)


def rounds(rates: Mapping[str, Rate], count: int, seconds: float) -> dict[str, list[float]]:
    """Measures all of them, one after the other, so many times."""
    for measure in rates.values():
        measure(seconds / 10)  # files into the page cache, code paths warm
    found: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(count):
        for name, measure in rates.items():
            found[name].append(measure(seconds))
    return found


def against(
    name: str, found: Mapping[str, Sequence[float]], ours: str, theirs: str, label: str, goal: str = ""
) -> Measure:
    """A ratio of two of the rates."""
    return paired(name, "examples/s", found[ours], found[theirs], against=label, goal=goal)


class Tutorial:
    """The per-record DataLoader as tutorials write it; workers stay alive between measurements."""

    def __init__(self, rows: Columns, workers: int, options: grain.ReadOptions | None) -> None:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        source = ArraySource(rows["inputs"], rows["label"])
        sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=42)
        operations = [ToFloat(), grain.transforms.Batch(TUTORIAL_BATCH, drop_remainder=True)]
        self.label = f"{workers} workers" + (", 0 read threads" if options else "")
        loader = grain.DataLoader(
            data_source=source, sampler=sampler, operations=operations, worker_count=workers, read_options=options
        )
        self._stream = iter(loader)
        self._ready = 12 + 4 * workers  # batches that may lie in buffers between measurements

    def __str__(self) -> str:
        return self.label

    def rate(self, seconds: float) -> float:
        """Examples a second, after what lay ready has been taken."""
        for _ in range(self._ready):
            next(self._stream)
        count, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < 2 * seconds:
            next(self._stream)
            count += 1
        time.sleep(SETTLE)
        return count * TUTORIAL_BATCH / elapsed

    def close(self) -> None:
        """Ends its workers."""
        if close := getattr(self._stream, "close", None):
            close()


def tutorials(rows: Columns) -> Iterator[Tutorial]:
    """Every setting that people try, each made when the one before is done with."""
    plain: Any = None
    for workers, options in [(0, grain.ReadOptions(0, 0)), (0, plain), (2, plain), (4, plain), (8, plain)]:
        yield Tutorial(rows, workers, options)


class ArraySource:
    """A data source over arrays, record by record."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        self._inputs, self._labels = inputs, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"inputs": self._inputs[index], "label": self._labels[index]}

    def __repr__(self) -> str:
        return f"ArraySource({len(self)})"


class ToFloat(grain.transforms.Map):
    """uint8 to float32 / 255, record by record."""

    def map(self, element: dict[str, Any]) -> Any:  # noqa: ANN401 - Grain's own signature says None
        """Gives the record with its inputs as float32."""
        return {**element, "inputs": element["inputs"].astype(np.float32) / 255}


class Peers:
    """The other interpreter; see `tasks/peers/loaders.py`."""

    def __init__(self, folder: Path, batch: int) -> None:
        self._missing: dict[str, bool] = {}
        self._process: subprocess.Popen[str] | None = None
        if python := os.environ.get("GRISTMILL_PEERS"):
            self._process = subprocess.Popen(  # noqa: S603 - what the user named
                [python, "-EP", str(PEERS), str(folder), str(batch)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder,
            )  # fmt: skip

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()  # type: ignore[union-attr]
            try:
                self._process.wait(LEAVE)
            except subprocess.TimeoutExpired:  # its library's threads hang; what was measured must not be lost to that
                self._process.kill()
                self._process.wait()

    def ask(self, peer: str, seconds: float) -> dict[str, Any]:
        """One answer of the other interpreter."""
        if self._process is None:
            return {"missing": "GRISTMILL_PEERS isn't set"}
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - pipes
        with suppress(BrokenPipeError):  # then there is nothing to read either
            self._process.stdin.write(json.dumps({"peer": peer, "seconds": seconds}) + "\n")
            self._process.stdin.flush()
        return json.loads(self._process.stdout.readline() or '{"missing": "the interpreter ended"}')

    def missing(self, peer: str) -> bool:
        """Whether a peer can't be measured here."""
        return "rate" not in self.ask(peer, 0.0)

    def rate(self, peer: str, seconds: float) -> float:
        """Examples a second of a peer."""
        return self.ask(peer, seconds)["rate"]


def first_batch(records: Records) -> Iterator[Measure]:
    """From closed files to the first batch; libraries are loaded, as they are in a training."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with records.pipeline(records.columns()).iterate(0, 10) as batches:
            next(batches)
        times.append(time.perf_counter() - began)
    yield paired("ram_mnist first batch: memory-mapped columns, 0 threads", "s", times, goal="< 0.5")


class Jpegs:
    """JPEG bytes in memory as a source of pixels: a batch is decoded when it is read. The same for 1 or 16 threads."""

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self.encoded = encoded
        self.features = {"inputs": Feature("uint8", (128, 128, 3)), "label": Feature("int32")}

    def __len__(self) -> int:
        return len(self.encoded)

    def read(self, ids: np.ndarray) -> Columns:
        """Decodes pictures with Pillow, which lets other threads run meanwhile."""
        pixels = np.empty((len(ids), 128, 128, 3), np.uint8)
        for slot, index in enumerate(ids.tolist()):
            pixels[slot] = decode(self.encoded[index])
        return {"inputs": pixels, "label": ids.astype(np.int32)}


def decode(encoded: bytes) -> np.ndarray:
    """uint8 [128, 128, 3]."""
    return np.asarray(Image.open(io.BytesIO(encoded)))


def jpeg(folder: Path) -> Iterator[Measure]:
    """JPEG 128 x 128 with crop and flip, against bare decoding by as many threads as there are cores."""
    folder.mkdir()
    encoded = pictures(1024)
    for index, content in enumerate(encoded):
        (folder / f"{index:05d}.jpg").write_bytes(content)
    order = Order(len(encoded), 64, seed=1)
    pipeline = Pipeline(
        Jpegs(encoded), order, inputs="inputs", augment=(Crop(8), Flip()), digest="benchmark", split="train"
    )
    threads = {"threads": CORES, "prefetch": 2 * CORES}
    with ThreadPoolExecutor(CORES) as pool, Peers(folder, 64) as peers:
        rates: dict[str, Rate] = {
            "bare": lambda s: bare_decode(pool, encoded, s), "ours": lambda s: rate(pipeline, s, **threads),
        }  # fmt: skip
        label = f"torch DataLoader, {CORES} workers, same crop and flip"
        if not peers.missing("torch_jpeg"):
            rates["torch"] = lambda s: peers.rate("torch_jpeg", s)
        found = rounds(rates, ROUNDS, 2 * SECONDS)
    name = f"ram_jpeg: decoded with crop and flip, batch 64, {CORES} threads"
    yield against(name, found, "ours", "bare", f"bare Pillow decode, {CORES} threads", ">= 0.9")
    if "torch" in found:
        yield against(name, found, "ours", "torch", label)
    else:
        yield Measure(name, float(np.median(found["ours"])), "examples/s", f"{label}: not installed")


def pictures(count: int) -> list[bytes]:
    """JPEG files of smooth random pictures, about 5 kB each."""
    random, files = np.random.default_rng(2), []
    for _ in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((128, 128), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def bare_decode(pool: ThreadPoolExecutor, encoded: Sequence[bytes], seconds: float) -> float:
    """The limit: nothing but decoding, 64 pictures a task, all cores."""
    tasks = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        list(pool.map(lambda task: [decode(one) for one in task], tasks))
        count += len(encoded)
    return count / elapsed


def augmentations() -> Iterator[Measure]:
    """CPU time of each augmentation, its random numbers included, on MNIST-sized uint8 in batches of 256."""
    images = mnist_sized()["inputs"][:256]
    ids = np.arange(256)
    some: list[Augmentation] = [Flip(), Shift(2), Crop(2), Erase(8), Noise(0.05), Rotate(10)]
    for augmentation in some:
        times = []
        for _ in range(ROUNDS):
            began = time.thread_time()
            for epoch in range(20):
                augmentation(images, uniform(0, epoch, ids, augmentation.draws))
            times.append((time.thread_time() - began) / (20 * 256) * 1e6)
        goal = "<= 1" if isinstance(augmentation, (Flip, Shift, Crop, Erase)) else ""
        yield paired(f"augment {augmentation}", "us of CPU/example", times, goal=goal)
