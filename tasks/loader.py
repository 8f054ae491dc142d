"""The feed for those who know Grain: its `DataLoader`'s building blocks, driven in batches instead of records.

Names and classes are Grain's own; what differs is that a transform gets columns of a whole batch, [B, ...] each, where
Grain's gets one record. That is what makes it hundreds of times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grain

from datasets.errors import ParameterError, PipelineError
from datasets.schema import Columns
from tasks.batches import Batches
from tasks.order import Order, Sharding
from tasks.pipeline import Pipeline, Source
from tasks.selected import Selected

Operation = (
    grain.transforms.Map | grain.transforms.RandomMap | grain.transforms.Filter | grain.transforms.Batch
)  # fmt: skip


class DataLoader:
    """As `grain.DataLoader`, batch-first and with an order that nothing but the sampler decides.

    Args:
        data_source: Rows by number; see `tasks.pipeline.Source`.
        sampler: `grain.samplers.IndexSampler` with the number of records, shuffle, seed, and epochs (None: endless), or
            `SequentialSampler`. It says which order is wanted; the permutation is our own (`tasks/order.py`). An epoch
            ends with its last batch; no batch holds examples of two epochs.
        operations: Any Filters first, then one Batch and any Maps and RandomMaps. `Filter.filter` gives bool [B],
            `Map.map` and `RandomMap.random_map` give columns; see `Pipeline`.
        worker_count: Processes that make batches; 0 for none. Changes no batch.
        read_options: Threads and batches that are made ahead in each process, none unless said. Changes no batch.
        shard_options: Which slots of each batch this process reads; the sampler's if None.
        mask: Name of a bool column for the padded last batch of an epoch; see `Pipeline`.
        digest: Of the data, for the state's identity; the source's own if it has one, else of its content, for which
            all rows are read when a state is first asked for.

    Raises:
        ParameterError: An operation is missing, too many, unknown or in the wrong place; there is no source, or no
            sampler that can be asked.
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
        self, data_source: Source, sampler: grain.samplers.IndexSampler | grain.samplers.SequentialSampler,
        operations: Sequence[Operation], *,
        worker_count: int = 0, read_options: grain.ReadOptions | None = None, shard_options: Sharding | None = None,
        mask: str | None = None, digest: str | None = None,
    ) -> None:  # fmt: skip
        records, shuffle, epochs, seed = _asked_of(sampler)
        if missing := [name for name in ("features", "__len__", "read") if not hasattr(data_source, name)]:
            raise ParameterError(
                f"{type(data_source).__name__} is no data source", missing=", ".join(missing),
                expected="features, a length, and read(ids), which gives columns",
            )  # fmt: skip
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


def _asked_of(sampler: object) -> tuple[int, bool, int | None, int | None]:
    """Records, shuffle, epochs and seed: private names of the pinned Grain, whose samplers tell in no other way."""
    asked: Any = sampler
    if isinstance(sampler, grain.samplers.SequentialSampler):
        return asked._num_records, False, 1, None
    if isinstance(sampler, grain.samplers.IndexSampler):
        return asked._num_records, asked._shuffle, asked._num_epochs, asked._seed
    raise ParameterError(
        "the order of examples is our own, so a sampler of yours can't be asked for it", got=type(sampler).__name__,
        expected="grain.samplers.IndexSampler or SequentialSampler",
    )  # fmt: skip


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
