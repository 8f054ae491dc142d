"""The feed for those who know Grain: its `DataLoader`'s building blocks, driven in batches instead of records.

Names and classes are Grain's own; what differs is that a transform gets columns of a whole batch, [B, ...] each, where
Grain's gets one record. That is what makes it hundreds of times as fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import grain
import numpy as np

from datasets.errors import GristmillError, ParameterError, PipelineError
from datasets.schema import Columns
from tasks.batches import Batches
from tasks.blame import blamed
from tasks.order import Order, Sharding
from tasks.pipeline import Pipeline, Source
from tasks.transform_identity import identity_of_transform

Operation = (
    grain.transforms.Map | grain.transforms.RandomMap | grain.transforms.Filter | grain.transforms.Batch
)  # fmt: skip
_ROWS_AT_ONCE = 4096


class DataLoader:
    """As `grain.DataLoader`, batch-first and with an order that nothing but the sampler decides.

    Args:
        data_source: Rows by number; see `tasks.pipeline.Source`.
        sampler: `grain.samplers.IndexSampler` with the number of records, shuffle, seed, and epochs (None: endless). It
            says which order is wanted; the permutation is our own (`tasks/order.py`). An epoch ends with its last
            batch; no batch holds examples of two epochs.
        operations: Any Filters first, then one Batch and any Maps and RandomMaps. `Filter.filter` gives bool [B],
            `Map.map` and `RandomMap.random_map` give columns; see `Pipeline`.
        worker_count: Processes that make batches; 0 for none. Changes no batch.
        read_options: Threads and batches that are made ahead in each process, none unless said. Changes no batch.
        shard_options: Which slots of each batch this process reads; the sampler's if None.
        mask: Name of a bool column for the padded last batch of an epoch; see `Pipeline`.
        digest: Of the data, for the state's identity; the source's own if it has one, else of its content, for which
            all rows are read when a state is first asked for.

    Raises:
        ParameterError: An operation is missing, too many, unknown or in the wrong place.
        PipelineError: The sampler is of another number of records, or nothing passes the filters.

    Example:
        >>> loader = DataLoader(
        ...     source, sampler=grain.samplers.IndexSampler(len(source), shuffle=True, num_epochs=2, seed=0),
        ...     operations=[grain.transforms.Batch(128, drop_remainder=True)],
        ... )  # doctest: +SKIP
        >>> for batch in loader:  # doctest: +SKIP
        ...     ...
    """

    def __init__(
        self, data_source: Source, sampler: grain.samplers.IndexSampler, operations: Sequence[Operation], *,
        worker_count: int = 0, read_options: grain.ReadOptions | None = None, shard_options: Sharding | None = None,
        mask: str | None = None, digest: str | None = None,
    ) -> None:  # fmt: skip
        # Private names of the pinned Grain: a sampler tells what it was made with in no other way.
        records, shuffle, epochs, seed = (
            getattr(sampler, name) for name in ("_num_records", "_shuffle", "_num_epochs", "_seed")
        )
        if records != len(data_source):
            raise PipelineError("the sampler is of another number of records", got=records, expected=len(data_source))
        filters, batch, transforms = _sorted(operations)
        source: Any = data_source
        for condition in filters:
            source = Selected(source, condition)
        order = Order(
            len(source), batch.batch_size, seed or 0, shuffle=shuffle, drop_remainder=batch.drop_remainder
        ).shared(shard_options or sampler._shard_options)  # type: ignore[arg-type]
        self.pipeline = Pipeline(
            source, order, inputs=next(iter(source.features)), transforms=transforms, mask=mask,
            digest=digest or getattr(source, "digest", None), split="",
        )  # fmt: skip
        self._stop = None if epochs is None else order.total_steps(epochs)
        options = read_options or grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        threads, prefetch = options.num_threads, options.prefetch_buffer_size
        if not isinstance(threads, int) or not isinstance(prefetch, int):
            raise ParameterError("read options are whole numbers", got=options, cure="the `feed` stage tunes them")
        self._settings = {
            "threads": threads, "prefetch": prefetch if threads or worker_count else 0, "workers": worker_count
        }  # fmt: skip

    def __len__(self) -> int:
        """Batches in all epochs.

        Raises:
            PipelineError: The sampler is endless.
        """
        if self._stop is None:
            raise PipelineError("an endless loader has no length", cure="IndexSampler(num_epochs=...)")
        return self._stop

    def __iter__(self) -> Iterator[Columns]:
        with self.batches() as batches:
            yield from batches

    def batches(self, start: int = 0) -> Batches:
        """Gives the batches from a step on; to be used in a `with` block."""
        return self.pipeline.iterate(start, self._stop, **self._settings)


def _sorted(
    operations: Sequence[Operation],
) -> tuple[list[grain.transforms.Filter], grain.transforms.Batch, list[Any]]:
    batches = [op for op in operations if isinstance(op, grain.transforms.Batch)]
    if len(batches) != 1:
        raise ParameterError(
            "there must be one Batch among the operations", got=len(batches), cure="grain.transforms.Batch(128)"
        )
    if batches[0].batch_fn is not None:
        raise ParameterError("a batch is read as columns, so there is nothing for a batch_fn to join")
    filters = [op for op in operations if isinstance(op, grain.transforms.Filter)]
    if list(operations[: len(filters)]) != filters:
        raise ParameterError(
            "a Filter comes before all other operations: which examples there are decides their order",
            got=", ".join(type(op).__name__ for op in operations),
        )  # fmt: skip
    return filters, batches[0], [op for op in operations if op not in filters and op not in batches]


class Selected:
    """The rows of a source that pass a filter; which ones is found once, by reading all of them.

    Args:
        source: Of all rows.
        condition: Its `filter` gets columns, [rows, ...] each, and gives bool [rows].

    Raises:
        PipelineError: Nothing passes, or the filter fails or gives something else; a row it fails for is named.
        GristmillError: As the source or the filter raised it.

    Attributes:
        kept: int64, numbers of the rows in the source that passed.
        digest: Of the source's digest, the filter and the rows that passed; None if the source has none.
    """

    def __init__(self, source: Source, condition: grain.transforms.Filter) -> None:
        self.source, self.features = source, source.features
        parts = [np.zeros(0, np.int64)]
        for start in range(0, len(source), _ROWS_AT_ONCE):
            ids = np.arange(start, min(start + _ROWS_AT_ONCE, len(source)))
            passed = self._passed(condition, ids)
            if getattr(passed, "dtype", None) != np.bool_ or passed.shape != ids.shape:
                raise PipelineError(
                    f"{type(condition).__name__}.filter gave something else than a truth value a row",
                    got=f"{getattr(passed, 'dtype', type(passed).__name__)} {list(getattr(passed, 'shape', []))}",
                    expected=f"bool {list(ids.shape)}",
                )  # fmt: skip
            parts.append(ids[passed])
        self.kept = np.concatenate(parts)
        if not len(self.kept):
            raise PipelineError(f"no row passes {type(condition).__name__}", got=f"0 of {len(source)} rows")
        # Which rows passed is part of it, because a filter's code has no name. None if the source has none.
        passed = hashlib.sha256(self.kept.tobytes()).hexdigest()
        name = json.dumps([getattr(source, "digest", None), identity_of_transform(condition), passed])
        self.digest = hashlib.sha256(name.encode()).hexdigest() if getattr(source, "digest", None) else None

    def _passed(self, condition: grain.transforms.Filter, ids: np.ndarray) -> Any:  # noqa: ANN401
        def judge(some: np.ndarray) -> object:
            return condition.filter(self.source.read(some))

        try:
            return judge(ids)
        except GristmillError:
            raise
        except (Exception, SystemExit) as error:
            cause = f"{type(error).__name__}: {error}"
            name = f"{type(condition).__name__}.filter"
            raise PipelineError(f"{name} failed", cause=cause, **blamed(judge, ids)) from error

    def __len__(self) -> int:
        return len(self.kept)

    def __repr__(self) -> str:
        return f"Selected({len(self.kept)} of {self.source!r})"

    def read(self, ids: np.ndarray) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], counted among the rows that passed."""
        return self.source.read(self.kept[ids])
