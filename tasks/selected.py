"""The rows of a data source that pass a filter, as a data source."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import grain
import numpy as np

from datasets.errors import GristmillError, PipelineError
from datasets.schema import Columns
from tasks.blame import blamed
from tasks.pipeline import Source
from tasks.transform_identity import identity_of_transform

_ROWS_AT_ONCE = 4096


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
