from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import grain
import numpy as np
import pytest
from test_loader import Memory, Odd

from datasets.errors import PipelineError
from datasets.schema import Columns
from tasks.selected import Selected


class OneAnswer(grain.transforms.Filter):
    def filter(self, element: Columns) -> bool:
        return True


def test_a_filter_answers_for_each_row() -> None:
    with pytest.raises(PipelineError, match="truth value a row"):
        Selected(Memory(), OneAnswer())


@dataclass(frozen=True)
class Fails(grain.transforms.Filter):
    deed: str

    def filter(self, element: Columns) -> Any:
        if (element["id"] == 71).any():
            if self.deed == "exit":
                sys.exit(0)
            raise StopIteration if self.deed == "stop" else KeyError("no such word")
        return element["id"] >= 0


@pytest.mark.parametrize(
    ("deed", "cause"), [("raise", "KeyError: 'no such word'"), ("stop", "StopIteration: "), ("exit", "SystemExit: 0")]
)
def test_a_filter_that_fails_names_the_row(deed: str, cause: str) -> None:
    with pytest.raises(PipelineError, match=r"Fails\.filter failed") as caught:
        Selected(Memory(), Fails(deed))
    assert caught.value.facts == {"cause": cause, "example": 71}


def test_selected_rows_of_a_large_source() -> None:
    source = Memory(10_000)
    chosen = Selected(Selected(source, Odd()), Odd(5001))
    assert len(chosen) == 2500
    np.testing.assert_array_equal(chosen.read(np.array([0, 2499, 1]))["id"], [5001, 9999, 5003])
    assert chosen.digest != Selected(source, Odd(5001)).digest
