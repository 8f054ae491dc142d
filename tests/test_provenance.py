from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from rich.console import Console

from datasets.errors import ParameterError
from datasets.schema import Block, Rows
from tasks import tiers
from tasks.artifact import Artifact, Store
from tasks.feed import open_pipeline
from tasks.provenance import show, trace
from tasks.request import Request


def read(raw: Path) -> Iterator[Block]:
    """The toy rows from two files, of 120 and 80 rows, in blocks of 50."""
    columns = toy.pictures()
    for file, first, stop in (("a", 0, 120), ("b", 120, 200)):
        for start in range(first, stop, 50):
            end = min(start + 50, stop)
            yield Block({name: c[start:end] for name, c in columns.items()}, file, start - first)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, Artifact]:
    splits = {"train": Rows(10, 160), "test": Rows(160, 200)}
    request = toy.request_for(tmp_path_factory.mktemp("store"), toy.dataset(read=read, splits=splits))
    return request, toy.records_of(request)


def test_a_step_is_traced_to_the_rows_whose_pixels_its_batch_holds(made: tuple[Request, Artifact]) -> None:
    request, records = made
    pipeline, raw = open_pipeline(Store(request.store), request, records), toy.pictures()
    for step in (0, 8, 9, 17):
        found = trace(request, records, step=step)
        assert (found["step"], found["epoch"], found["steps"]) == (step, step // 9, 18)
        assert [row["slot"] for row in found["examples"]] == list(range(16))
        at = [row["row"] + {"a": 0, "b": 120}[row["file"]] for row in found["examples"]]
        np.testing.assert_array_equal(pipeline.batch(step)["image"], raw["image"][at])
        assert trace(request, records, step=step, slot=7)["examples"] == found["examples"][7:8]


def test_a_row_is_traced_to_every_step_that_sees_it(made: tuple[Request, Artifact]) -> None:
    request, records = made
    seen: dict[tuple[str, int], list[dict[str, int]]] = {}
    for step in range(18):
        for row in trace(request, records, step=step)["examples"]:
            seen.setdefault((row["file"], row["row"]), []).append(
                {"step": step, "slot": row["slot"], "epoch": step // 9}
            )
    for file, row in [("a", 10), ("a", 119), ("b", 0), ("b", 39)]:
        found = trace(request, records, file=file, row=row)
        assert found["split"] == "train"
        assert found["seen"] == seen.get((file, row), [])
    assert trace(request, records, file="b", row=40) | {"split": "test", "example": 0, "seen": []} == trace(
        request, records, file="b", row=40
    )


def test_a_split_that_is_read_in_blocks_is_traced_by_their_order(
    made: tuple[Request, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    request, records = made
    as_columns = trace(request, records, step=3)["examples"]
    monkeypatch.setattr(tiers, "MAPPED_BYTES", 0)
    found, raw = trace(request, records, step=3)["examples"], toy.pictures()
    at = [row["row"] + {"a": 0, "b": 120}[row["file"]] for row in found]
    batch = open_pipeline(Store(request.store), request, records).batch(3)
    np.testing.assert_array_equal(batch["image"], raw["image"][at])
    assert found != as_columns
    back = trace(request, records, file=found[5]["file"], row=found[5]["row"])
    assert {"step": 3, "slot": 5, "epoch": 0} in back["seen"]


def test_another_seed_is_another_answer(made: tuple[Request, Artifact]) -> None:
    request, records = made
    other = replace(request, dataset=replace(request.dataset, recipe=replace(request.dataset.recipe, seed=4)))
    assert trace(request, records, step=3)["examples"] != trace(other, records, step=3)["examples"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({}, "ask for a step or for a row"),
        ({"step": 1, "row": 1}, "ask for a step or for a row"),
        ({"slot": 1, "row": 1}, "ask for a step or for a row"),
        ({"step": 18}, "no such step"),
        ({"step": -1}, "step can't be -1"),
        ({"step": 1.0}, "step can't be 1.0"),
        ({"step": 1, "slot": 16}, "no such slot"),
        ({"row": 3}, "say which raw file"),
        ({"row": 3, "file": "c"}, "no example comes from this raw file"),
        ({"row": 9, "file": "a"}, "no example comes from this row"),
        ({"row": 80, "file": "b"}, "no example comes from this row"),
    ],
)
def test_questions_without_an_answer(made: tuple[Request, Artifact], question: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        trace(*made, **question)


def test_the_answer_for_people(made: tuple[Request, Artifact], capsys: pytest.CaptureFixture[str]) -> None:
    request, records = made
    (example,) = trace(request, records, step=2, slot=3)["examples"]
    show(trace(request, records, step=2, slot=3), Console(width=120))
    back = trace(request, records, file=example["file"], row=example["row"])
    show(back, Console(width=120))
    show(trace(request, records, file="b", row=70), Console(width=120))
    shown = capsys.readouterr().out
    assert f"slot 3: example {example['example']}, {example['file']} row {example['row']}" in shown
    assert "epoch 0: step 2, slot 3" in shown
    assert "no training step sees it" in shown
    missed = {0, 1} - {row["epoch"] for row in back["seen"]}
    assert ("not in epochs" in shown) == bool(missed)
