"""The devices that share a batch, in one process or several: what lies where, and how processes agree.

The step stays the program of one device: parameters lie whole on every device, a batch lies in equal parts, and XLA's
partitioner puts a sum over the mesh where a mean over the batch stands (BatchNorm's too). All processes must run the
same programs in the same order, so whatever a clock or a signal decides is decided by all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from datasets.schema import Columns
from tasks.ahead import placed_ahead
from tasks.parallel import Parallel
from tasks.step import Batch

AXIS = "data"
AGREE_SECONDS = 1.0
"""About how long a signal or a due save waits until the processes look at it together."""
MESSAGE = 1024
MOST_STEPS = 25
"""Steps between two such looks, at most."""


class Mesh:
    """The mesh of one training, seen from this process; one of a single device costs nothing.

    Attributes:
        asked: What was asked for.
        batch_size: Rows of a global batch.
        process: This one, counted from 0.
        whole: Where parameters are, on every device; None for a single device.
        split: Where a batch is, in equal parts of its rows; None for a single device.

    Raises:
        ParameterError: A process has fewer devices, or a batch can't be cut into equal parts.
    """

    def __init__(self, asked: Parallel, batch_size: int) -> None:
        asked.check_batch_size(batch_size)
        self.asked, self.batch_size, self.process = asked, batch_size, 0
        self.whole: NamedSharding | None = None
        self.split: NamedSharding | None = None
        self._next, self._last = 0, (0, time.perf_counter())
        if asked.size == 1:
            return
        self.process = jax.process_index() if asked.processes > 1 else 0
        asked.check_devices()
        devices: list[Any] = []
        for process in range(asked.processes):
            devices += [device for device in jax.devices() if device.process_index == process][: asked.devices]
        mesh = jax.sharding.Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))
        self.whole, self.split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(AXIS))

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes: checkpoints, metrics, weights, capsules."""
        return self.process == 0

    @property
    def shard_index(self) -> int:
        """Which share of every batch this process reads; with `shard_count` it is what `Order.shared` takes."""
        return self.process

    @property
    def shard_count(self) -> int:
        """How many processes read a share each."""
        return self.asked.processes

    @property
    def shardings(self) -> dict[str, Any]:
        """Options of `TrainStep`."""
        return {} if self.whole is None else {"sharding": self.whole, "batch_sharding": self.split}

    def place(self, batch: Columns) -> Batch:
        """A batch on the mesh: of a host's whole batch or of this process's share, [rows, ...] each."""
        if self.split is None:
            return batch
        return {name: self._spread(values) for name, values in batch.items()}

    def _spread(self, values: np.ndarray) -> jax.Array:
        first = 0 if len(values) == self.batch_size else self.process * len(values)

        def part(index: tuple[slice, ...]) -> np.ndarray:
            start, stop, _ = index[0].indices(self.batch_size)
            return values[start - first : stop - first]

        return jax.make_array_from_callback((self.batch_size, *values.shape[1:]), self.split, part)  # type: ignore[arg-type]

    def placed(self, batches: Iterator[Columns], depth: int) -> Iterator[tuple[Columns, Any]]:
        """Batches paired with what the step takes, as `placed_ahead`; a mesh has them placed."""
        if self.split is None:
            return placed_ahead(batches, depth)
        return placed_ahead(batches, max(depth, 1), self.place)

    def agree(self, step: int, *flags: bool) -> tuple[bool, ...]:
        """Each flag, True in all processes if it is in any; asked about once a second, between two such looks False.

        Args:
            step: The same in all processes, more at every call.
            flags: Of this process.
        """
        if self.shard_count == 1:
            return flags
        if step < self._next:
            return (False,) * len(flags)
        (last, then), now = self._last, time.perf_counter()
        steps = int(np.clip(AGREE_SECONDS * (step - last) / max(now - then, 1e-6), 1, MOST_STEPS))
        said = np.asarray(multihost_utils.process_allgather(np.array([*flags, steps], np.int32)))
        self._next, self._last = step + int(said[0, -1]), (step, now)
        return tuple(bool(flag) for flag in said[:, :-1].max(axis=0).tolist())

    def told(self, text: str) -> str:
        """What process 0 says, at most MESSAGE bytes; the others wait for it, and what they say doesn't matter."""
        if self.shard_count == 1:
            return text
        padded = np.frombuffer(text.encode().ljust(MESSAGE), np.uint8)
        return bytes(np.asarray(multihost_utils.broadcast_one_to_all(padded))).decode().rstrip()
