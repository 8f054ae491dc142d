"""The error tree: everything that Gristmill raises on purpose.

    GristmillError
    |-- UsageError                 the request is wrong: nothing was started        (exit status 2)
    |   |-- UnknownNameError       no dataset, model, optimizer ... of that name
    |   `-- ParameterError         a parameter has a value that can't work
    |-- DataError                  the data is wrong: trying again can't help        (exit status 1, as all below)
    |   |-- FetchError             no mirror gave the pinned bytes
    |   |-- DataFormatError        a raw file isn't what its format says
    |   |   `-- NoRecordsError     sound raw files, but not one record in them
    |   |-- SchemaError            records don't fit the dataset's features
    |   `-- SplitError             a split is empty or lacks a class
    |-- PipelineError              batches can't be made from these records
    |   `-- PipelineStateError     an iterator state belongs to another pipeline
    |-- TrainingError
    |   |-- ContractError          a batch, a model or a loss breaks its stated shapes or dtypes
    |   |-- TraceBudgetExceeded    a step was traced or compiled more often than allowed
    |   `-- NonFiniteError         a loss or gradient was NaN or infinite
    |-- CheckpointError
    |   |-- CheckpointMismatch     a sound checkpoint of another model or recipe
    |   |-- CheckpointCorrupt      bytes on disk aren't the bytes that were saved
    |   `-- CheckpointLocked       another live process writes this training
    |-- StoreError                 an artifact can't be written
    |   `-- ArtifactDamaged        an artifact is missing, cut or edited
    |-- RunTimeout                 the run took longer than it was given; the next one goes on from its checkpoint
    |-- ServeError                 the Prefect server or the deployments can't start
    `-- TransientError             network or disk trouble: worth another try

The tree lives in `datasets/`, the lowest of the three layers, because imports go flows -> tasks -> datasets and the
readers raise it too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class GristmillError(Exception):
    """What happened, where, and how to cure it.

    Attributes:
        what: One sentence without the facts below.
        facts: Where it happened, by name: file, row, record, field, got, expected, ...; shown one a line.
        cure: What the reader can do about it.
    """

    exit_status = 1

    def __init__(self, what: str, *, cure: str | None = None, **facts: Any) -> None:  # noqa: ANN401
        super().__init__(what)
        self.what = what
        self.cure = cure
        self.facts = {name: value for name, value in facts.items() if value is not None}

    def __str__(self) -> str:
        lines = [self.what, *(f"  {name}: {value}" for name, value in self.facts.items())]
        if self.cure:
            lines.append(f"  cure: {self.cure}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Grain workers); the default would drop the keyword arguments.
        return _rebuild, (type(self), self.what, self.cure, self.facts)


def _rebuild(kind: type[GristmillError], what: str, cure: str | None, facts: dict[str, Any]) -> GristmillError:
    return kind(what, cure=cure, **facts)


class UsageError(GristmillError):
    """The request is wrong; nothing was started."""

    exit_status = 2


class UnknownNameError(UsageError):
    """There is no dataset, model, optimizer, parameter ... of that name."""

    @classmethod
    def among(cls, kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
        """Says which names exist and which of them are nearest to the one that was asked for."""
        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
        cure = f"did you mean {' or '.join(near)}?" if near else None
        return cls(f"there is no {kind} {name!r}", known=", ".join(names), cure=cure)


class ParameterError(UsageError):
    """A parameter has a value that can't work."""


class DataError(GristmillError):
    """The data is wrong; the same bytes fail the same way, so it is never retried."""


class FetchError(DataError):
    """No source gave the bytes that the dataset pins."""


class DataFormatError(DataError):
    """A raw file isn't what its format says."""


class NoRecordsError(DataFormatError):
    """Raw files are sound but hold no record."""


class SchemaError(DataError):
    """Records don't fit the features that the dataset states."""


class SplitError(DataError):
    """A split is empty or lacks a class."""


class PipelineError(GristmillError):
    """Batches can't be made from these records."""


class PipelineStateError(PipelineError):
    """An iterator state belongs to another pipeline."""


class TrainingError(GristmillError):
    """Training can't go on."""


class ContractError(TrainingError):
    """A batch, a model or a loss breaks its stated shapes, dtypes or ranges."""


class TraceBudgetExceeded(TrainingError):  # noqa: N818 - the name that the field knows
    """A step was traced or compiled more often than its budget allows."""


class NonFiniteError(TrainingError):
    """A loss or a gradient was NaN or infinite; the weights are those of before the bad batch."""


class CheckpointError(GristmillError):
    """A checkpoint can't be written or read."""


class CheckpointMismatch(CheckpointError):  # noqa: N818
    """The checkpoint is sound but belongs to another model or recipe."""


class CheckpointCorrupt(CheckpointError):  # noqa: N818
    """Bytes on disk aren't the bytes that were saved."""


class CheckpointLocked(CheckpointError):  # noqa: N818
    """Another live process writes this training."""


class StoreError(GristmillError):
    """An artifact can't be written to the store."""


class ArtifactDamaged(StoreError):  # noqa: N818
    """An artifact is missing, cut or edited."""


class RunTimeout(GristmillError, TimeoutError):  # noqa: N818 - a TimeoutError, so that Prefect calls the run TimedOut
    """The run took longer than it was given."""


class ServeError(GristmillError):
    """The Prefect server or the deployments can't start."""


class TransientError(GristmillError):
    """Network or disk trouble; the task tries again with back-off."""
