"""Batches for training and evaluation: step -> batch is a pure function, and Grain drives it.

A batch is read, augmented and checked as a whole inside one map function over the range of steps, because record by
record Grain needs hundreds of times as much time. Threads, workers and prefetching decide only *when* a batch is made.

Example:
    >>> pipeline = Pipeline(source, Order(len(source), 128, seed=0), inputs="image", augment=(Shift(2),),
    ...                     digest=source.digest, split="train")  # doctest: +SKIP
    >>> with pipeline.iterate(start=0, stop=468) as batches:  # doctest: +SKIP
    ...     for batch in batches:
    ...         ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import grain
import numpy as np

from datasets.augment import Augmentation, overwriting
from datasets.errors import GristmillError, ParameterError, PipelineError, PipelineStateError, SchemaError
from datasets.schema import Columns, Feature, check_int
from tasks.batches import Batches
from tasks.blame import blamed, shown
from tasks.example_random import ExampleRandom, uniform
from tasks.order import Order
from tasks.record_layout import Layout
from tasks.source_digest import digest_of
from tasks.transform_identity import identity_of_augmentation, identity_of_transform

Transform = grain.transforms.Map | grain.transforms.RandomMap
_ENDLESS = 1 << 48  # steps
_ROWS_AT_ONCE = 1 << 14  # of which the batches of several small steps are cut
_BYTES_AT_ONCE = 1 << 22  # of these rows: large ones gain nothing, and would be hundreds of megabytes


class Source(Protocol):
    """Rows by number: `MappedColumns`, `Shards`, or anything else that has these."""

    @property
    def features(self) -> Mapping[str, Feature]:
        """Columns that `read` gives."""
        ...

    def __len__(self) -> int: ...

    def read(self, ids: np.ndarray) -> Columns:
        """Gives rows in the order of `ids`, int64 [N], as fresh arrays."""
        ...


class Pipeline:
    """One split as batches, in an order and with random changes that depend on nothing but what is given here.

    Args:
        source: Of the rows.
        order: Which rows each step sees; of as many examples as `source` has.
        inputs: Name of the column that `augment` changes.
        augment: Applied in this order; frozen dataclasses, so that their parameters are part of the state's identity.
        transforms: Then applied in this order, to whole batches: `grain.transforms.Map`, whose `map` takes and gives
            columns, and `grain.transforms.RandomMap`, whose `random_map` also gets the batch's `ExampleRandom`. Rows
            stay rows; columns may come, go, and change shape and dtype. Dataclasses, if they have parameters.
        mask: Name of a column bool [share] to add, True for examples; a last, short batch of an epoch is then
            filled up with example 0. Needs an order with `drop_remainder=False`.
        digest: Of the data, for the state's identity; the same for every cut of the same rows into shards. None: of
            what `source` gives, all of which is then read when a state is first asked for.
        split: Name of the split, for the state's identity.

    Raises:
        ParameterError: An augmentation isn't a dataclass with `draws`.
        PipelineError: Source, order and inputs don't fit each other.
    """

    def __init__(
        self, source: Source, order: Order, *, inputs: str, augment: Sequence[Augmentation] = (),
        transforms: Sequence[Transform] = (), mask: str | None = None, digest: str | None, split: str,
    ) -> None:  # fmt: skip
        if len(source) != order.size:
            raise PipelineError("the order is of another number of records", got=order.size, expected=len(source))
        if inputs not in source.features:
            raise PipelineError("the inputs aren't a column", got=inputs, expected=", ".join(source.features))
        if mask is not None and order.drop_remainder:
            raise ParameterError("a mask needs an order that keeps the remainder", cure="Order(drop_remainder=False)")
        if mask in source.features:
            raise ParameterError("the mask has the name of a column", parameter="mask", got=mask)
        self._transforms = [identity_of_augmentation(augmentation) for augmentation in augment]
        self._transforms += [identity_of_transform(transform) for transform in transforms]
        self.transforms, self.mask = tuple(transforms), mask
        self.source, self.order, self.inputs, self.augment = source, order, inputs, tuple(augment)
        self._digest, self.split = digest, split
        self._row_bytes = Layout.of(source.features).row_bytes or 1

    def batch(self, step: int) -> Columns:
        """Gives this reader's share of a step's batch, as fresh arrays: [share, *feature.shape] each.

        Raises:
            SchemaError: A value doesn't fit into the 32 bits that it will have on the device.
            PipelineError: An augmentation failed; names the step and the record.
            GristmillError: As the source raised it, with the step and the record.
        """
        epoch, ids = self.order.ids(step)
        real = len(ids)
        if self.mask is not None:
            share = self.order.share
            ids = np.concatenate([ids, np.zeros(share.stop - share.start - real, np.int64)])
        try:
            columns = self._make(epoch, ids)
        except GristmillError as error:
            for name, value in self._where(step, epoch, ids).items():
                error.facts.setdefault(name, value)
            raise
        except (Exception, SystemExit) as error:  # a worker that exits, or StopIteration, would end Grain's stream
            cause = f"{type(error).__name__}: {error}"
            raise PipelineError("a batch can't be made", cause=cause, **self._where(step, epoch, ids)) from error
        return columns if self.mask is None else {**columns, self.mask: np.arange(len(ids)) < real}

    def dataset(self, start: int, stop: int) -> grain.MapDataset:
        """Gives the batches of the steps start <= step < stop as a Grain dataset, for transforms of your own.

        Example:
            >>> mine = pipeline.dataset(0, 100).map(to_grey)  # doctest: +SKIP
            >>> with Batches(mine, threads=2, prefetch=4) as batches:  # doctest: +SKIP
            ...     ...
        """
        check_int("start", start, 0)
        check_int("stop", stop, start)
        return grain.MapDataset.range(start, stop).map(self._batch_of)

    def iterate(
        self, start: int, stop: int | None, *, threads: int = 0, prefetch: int = 0, workers: int = 0
    ) -> Batches:  # fmt: skip
        """Gives the batches of the steps start <= step < stop; no setting (see `Batches`) changes a batch.

        Args:
            start: First step.
            stop: Step after the last; None never ends.
            threads: As in `Batches`.
            prefetch: As in `Batches`.
            workers: As in `Batches`.
        """

        def where(index: int) -> dict[str, Any]:
            epoch, ids = self.order.ids(start + index)
            return {"step": start + index, "epoch": epoch, "examples": shown(ids)}

        stop = _ENDLESS if stop is None else stop
        return Batches(
            self.dataset(start, stop), threads=threads, prefetch=prefetch, workers=workers, where=where,
            several=lambda index: self._several(start + index, stop),
        )  # fmt: skip

    def _several(self, step: int, stop: int) -> list[Columns]:
        """The batches of a few steps from `step` on: views of what was read at once, where that can change nothing."""
        share = self.order.share.stop - self.order.share.start
        if not self.augment and not self.transforms and self.order.drop_remainder and share:
            count = max(1, min(stop - step, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // self._row_bytes) // share))
            try:
                _, ids = self.order.ids_of_several(step, count)
                columns = _read(self.source, ids)
            except Exception:
                return [self.batch(step)]
            return [
                {name: values[first : first + share] for name, values in columns.items()}
                for first in range(0, len(ids), share)
            ]
        return [self.batch(step)]

    @cached_property
    def digest(self) -> str:
        """Of the data."""
        return self._digest or digest_of(self.source)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides every batch, as JSON. Readers, threads, workers and shards don't."""
        identity: dict[str, Any] = {"digest": self.digest, "split": self.split, "inputs": self.inputs}
        identity |= {"transforms": self._transforms} | self.order.identity
        return identity | ({} if self.mask is None else {"mask": self.mask})

    def state(self, step: int) -> dict[str, Any]:
        """Gives, as JSON, that `step` is the next one and what it is a step of."""
        check_int("step", step, 0)
        return {"step": step, "identity": self.identity}

    def restore(self, state: Mapping[str, Any]) -> int:
        """Gives the next step of a state that `state` gave, also with another number of readers.

        Raises:
            PipelineStateError: It belongs to other batches; names each field that differs, old and new.
        """
        step, old = state.get("step"), state.get("identity")
        if type(step) is not int or step < 0 or not isinstance(old, Mapping):
            raise PipelineStateError("this is no state of a pipeline", got=dict(state), expected="step and identity")
        new = self.identity
        differing = {
            name: f"was {old.get(name, 'absent')}, now {new.get(name, 'absent')}"
            for name in [*new, *(set(old) - set(new))]
            if name not in old or name not in new or old[name] != new[name]
        }
        if differing:
            raise PipelineStateError(
                f"the state belongs to other batches: {', '.join(differing)} changed", **differing,
                cure="go back to the old values, or start a new training",
            )  # fmt: skip
        return step

    def _batch_of(self, step: Any) -> Columns:  # noqa: ANN401 - Grain gives NumPy's or Python's ints
        return self.batch(int(step))

    def _make(self, epoch: int, ids: np.ndarray) -> Columns:
        columns = _read(self.source, ids)
        if self.augment:
            u = uniform(self.order.seed, epoch, ids, sum(a.draws for a in self.augment))
            first = 0
            for augmentation in self.augment:
                images = columns[self.inputs]
                ours = images.flags.owndata and images.flags.writeable and images.flags.c_contiguous
                change = overwriting(augmentation) if ours else augmentation
                changed = change(images, u[:, first : first + augmentation.draws])
                same = isinstance(changed, np.ndarray) and changed.shape == images.shape
                if not same or changed.dtype != images.dtype:
                    raise PipelineError(
                        f"{augmentation} changed shape or dtype", got=_kind(changed), expected=_kind(images)
                    )
                columns[self.inputs] = changed
                first += augmentation.draws
        return self._transformed(columns, epoch, ids) if self.transforms else columns

    def _transformed(self, columns: Columns, epoch: int, ids: np.ndarray) -> Columns:
        for place, transform in enumerate(self.transforms):
            if isinstance(transform, grain.transforms.RandomMap):
                columns = transform.random_map(columns, ExampleRandom(self.order.seed, epoch, ids, place))  # type: ignore[arg-type]
            else:
                columns = transform.map(columns)  # type: ignore[assignment]
            _check_columns(columns, transform)
            lengths = {name: len(values) for name, values in columns.items() if len(values) != len(ids)}
            if lengths:
                raise PipelineError(
                    f"{type(transform).__name__} changed the number of rows", got=lengths, expected=len(ids),
                    cure="drop rows with a grain.transforms.Filter, before the order of examples is made",
                )  # fmt: skip
        return columns

    def _where(self, step: int, epoch: int, ids: np.ndarray) -> dict[str, Any]:
        """Facts about a failed batch; names the example if one alone is to blame."""
        return {"step": step, "epoch": epoch, **blamed(lambda some: self._make(epoch, some), ids)}


def _kind(values: Any) -> str:  # noqa: ANN401 - whatever an augmentation gave
    return f"{values.dtype} {list(values.shape)}" if isinstance(values, np.ndarray) else type(values).__name__


def _check_columns(columns: Any, transform: Transform) -> None:  # noqa: ANN401 - whatever a transform gave
    given = isinstance(columns, Mapping)
    if not given or not all(np.ndim(values) for values in columns.values()):
        raise PipelineError(
            f"{type(transform).__name__} gave something else than columns",
            got={name: _kind(values) for name, values in columns.items()} if given else _kind(columns),
            expected="a dict of arrays [rows, ...]", cure="return {**columns, ...} with what changes",
        )  # fmt: skip


def evaluation_batches(source: Source, batch_size: int) -> Iterator[tuple[Columns, np.ndarray]]:
    """Gives every row exactly once and in order, in batches of one size, so that evaluation is compiled once.

    Yields:
        Columns [batch_size, *feature.shape], and bool [batch_size], False where the last batch repeats row 0 of the
        split to be full.

    Raises:
        PipelineError: There are no rows.
        SchemaError: A value doesn't fit into the 32 bits that it will have on the device.
    """
    check_int("batch_size", batch_size, 1)
    if len(source) == 0:
        raise PipelineError("there are no records to evaluate")
    for start in range(0, len(source), batch_size):
        ids = np.arange(start, start + batch_size)
        mask = ids < len(source)
        ids = np.where(mask, ids, 0)
        yield _read(source, ids), mask


def _read(source: Source, ids: np.ndarray) -> Columns:
    columns = source.read(ids)
    if any(len(values) != len(ids) for values in columns.values()):
        raise PipelineError(
            "the source gave another number of rows than it was asked for", source=repr(source),
            got={name: len(values) for name, values in columns.items()}, expected=len(ids),
        )  # fmt: skip
    check_device_range(columns, ids)
    return columns


def check_device_range(columns: Columns, ids: np.ndarray) -> None:
    """Raises SchemaError if a 64-bit whole number won't fit into the 32 bits that JAX cuts it to without notice."""
    for name, values in columns.items():
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
            limits = np.iinfo(np.int32 if values.dtype.kind == "i" else np.uint32)
            bad = (values < limits.min) | (values > limits.max)
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                raise SchemaError(
                    "a whole number doesn't fit into 32 bits, which is what it has on the device", field=name,
                    example=int(ids[at[0]]), got=int(values[at]), expected=f"{limits.min} ... {limits.max}",
                    cure="scale, hash or drop this column in the dataset's reader, or store it as float32",
                )  # fmt: skip
