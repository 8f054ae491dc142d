"""Small splits kept on the device: a batch is gathered there, and only its row numbers travel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from datasets.errors import PipelineError
from tasks.batch_check import BatchCheck
from tasks.pipeline import Source

MOST_BYTES = 256 << 20  # of a split; device memory is for the model
_ROWS_AT_ONCE = 4096


class Resident:
    """The rows of a split as arrays on the device. The order of examples is the same as from any other source.

    What every batch is checked for elsewhere is checked here once for every row: a gather changes no value.

    Args:
        source: All of its rows are read.
        device: The first one if None.

    Raises:
        PipelineError: The rows take more than `MOST_BYTES`.
        SchemaError, ContractError: A value doesn't fit its feature or the device's 32 bits.
    """

    def __init__(self, source: Source, device: Any = None) -> None:  # noqa: ANN401 - a jax.Device
        self.features = dict(source.features)
        if (size := bytes_of(source)) > MOST_BYTES:
            raise PipelineError(
                "the split is too large to stay on the device", got=f"{size} bytes", expected=f"at most {MOST_BYTES}"
            )
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.features}
        for start in range(0, len(source), _ROWS_AT_ONCE):
            ids = np.arange(start, min(start + _ROWS_AT_ONCE, len(source)))
            block = source.read(ids)
            BatchCheck(self.features, len(ids))(block, ids=lambda ids=ids: ids)
            for name, column in block.items():
                parts[name].append(column)
        self._rows = len(source)
        self._columns = {
            name: jax.device_put(np.concatenate(blocks), device or jax.devices()[0]) for name, blocks in parts.items()
        }

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"Resident({self._rows} rows)"

    def read(self, ids: np.ndarray) -> dict[str, Any]:
        """Gives some rows, in the order of `ids` (int64 [N]), as arrays on the device.

        Raises:
            IndexError: An id is out of range; on the device it would give another row without a word.
        """
        if ids.size and not 0 <= ids.min() <= ids.max() < self._rows:
            raise IndexError(f"row {ids.min()} or {ids.max()} of {self._rows}")
        return _gather(self._columns, ids.astype(np.int32))


@jax.jit
def _gather(columns: dict[str, jax.Array], ids: jax.Array) -> dict[str, jax.Array]:
    return {name: jnp.take(column, ids, axis=0, mode="clip") for name, column in columns.items()}


def bytes_of(source: Source) -> int:
    """Bytes of all rows of a source."""
    row = sum(np.dtype(f.dtype).itemsize * int(np.prod(f.shape, dtype=np.int64)) for f in source.features.values())
    return row * len(source)
