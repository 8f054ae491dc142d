"""More epochs go on from a shorter training, bit for bit, if the schedule allows it; otherwise they start anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy

from datasets.augment import Shift
from tasks.artifact import Artifact, Store
from tasks.lineage import LINEAGE, lineage
from tasks.request import Request
from tasks.training import METRICS, train
from tasks.weights import WEIGHTS

EPOCH = toy.TRAIN // 16


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    request = toy.request_for(tmp_path_factory.mktemp("store"), made, dropout=0.5, augment=(Shift(1),))
    return of(request, schedule="constant", warmup=0.0)


@pytest.fixture(scope="module")
def inputs(request_: Request) -> dict[str, Artifact]:
    return toy.prepare(request_)


def of(request: Request, **recipe: Any) -> Request:
    return replace(request, dataset=replace(request.dataset, recipe=replace(request.dataset.recipe, **recipe)))


def fitted(request: Request, inputs: Any, key: str, about: str) -> tuple[dict[str, bytes], Any]:
    """Files of the weights and notes; trainings of one `about` differ in nothing but their recipe."""
    job = replace(toy.job(request, "fit", key), components={"code": about})
    artifact = train(job, **inputs)
    folder = Store(request.store).path(artifact)
    return {name: (folder / name).read_bytes() for name in (WEIGHTS, METRICS)}, job.notes


@pytest.fixture(scope="module")
def whole(request_: Request, inputs: Any) -> dict[str, bytes]:
    """Three epochs in one go, with nothing to go on from."""
    return fitted(of(request_, epochs=3), inputs, "whole", "whole")[0]


def test_more_epochs_go_on(
    request_: Request, inputs: Any, whole: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    fitted(of(request_, epochs=2), inputs, "two", "line")
    with caplog.at_level("INFO", "gristmill"):
        files, notes = fitted(of(request_, epochs=3), inputs, "three", "line")
    assert notes["resumed_from"] == 2 * EPOCH
    assert f"goes on from step {2 * EPOCH} of an equal training with another number of epochs, two" in caplog.text
    assert files == whole


def test_fewer_epochs_do_not_take_a_later_checkpoint(request_: Request, inputs: Any) -> None:
    fitted(replace(of(request_, epochs=2), keep_best=0), inputs, "longer", "fewer")
    _, notes = fitted(of(request_, epochs=1), inputs, "shorter", "fewer")
    assert (notes["resumed_from"], notes["steps"]) == (None, EPOCH)


def test_a_damaged_shorter_training_is_not_gone_on_from(
    request_: Request, inputs: Any, whole: dict[str, bytes]
) -> None:
    fitted(replace(of(request_, epochs=2), keep_best=0, checkpoint_every=EPOCH), inputs, "a", "damaged")
    folder = request_.store / "checkpoints" / "toy" / "a"
    newest = folder / str(2 * EPOCH)
    victim = max(newest.rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)
    victim.write_bytes(victim.read_bytes()[:-1] + b"\0")
    files, notes = fitted(of(request_, epochs=3), inputs, "b", "damaged")
    assert notes["resumed_from"] == EPOCH
    assert files == whole
    log = (folder / METRICS).read_bytes()
    (folder / METRICS).write_bytes(b"X" + log[1:])
    (request_.store / "checkpoints" / "toy" / "b" / LINEAGE).unlink()
    files, notes = fitted(of(request_, epochs=3), inputs, "c", "damaged")
    assert notes["resumed_from"] is None
    assert files == whole


def test_who_shares_a_line(request_: Request) -> None:
    recipe = request_.dataset.recipe

    def line(steps: Any = 27, components: Any = None, **changes: Any) -> str | None:
        return lineage(components or {"code": 1}, replace(recipe, **changes), steps)

    assert line() is not None
    assert line(epochs=3) == line(45, epochs=5) == line()
    assert line(100, warmup=0.05) == line(50, warmup=0.1) != line()
    assert line(100, warmup=0.05) != line(200, warmup=0.05)  # a warm-up of another length
    assert line(schedule="cosine") is line(schedule="one-cycle") is None
    for change in ({"seed": 9}, {"learning_rate": 0.5}, {"batch_size": 17}, {"dropout": 0.1}, {"optimizer": "sgd"}):
        assert line(**change) != line(), change
    assert line(components={"code": 2}) != line()
    with_start = {"code": 1, "parameters": {"warm_start": "digest", "recipe": {"epochs": 1}}}
    assert line(components=with_start) != line()


def test_a_schedule_that_looks_at_the_end_starts_anew(request_: Request, inputs: Any) -> None:
    cosine = of(request_, schedule="cosine")
    fitted(of(cosine, epochs=1), inputs, "short-cosine", "cosine")
    _, notes = fitted(of(cosine, epochs=2), inputs, "long-cosine", "cosine")
    assert notes["resumed_from"] is None
    assert not (request_.store / "checkpoints" / "toy" / "long-cosine" / LINEAGE).exists()


def test_a_training_that_runs_is_left_alone(request_: Request, inputs: Any, tmp_path: Path) -> None:
    from tasks.checkpoint import Checkpoints

    fitted(of(request_, epochs=1), inputs, "running", "locked")
    with Checkpoints(request_.store / "checkpoints" / "toy" / "running"):
        _, notes = fitted(of(request_, epochs=2), inputs, "beside", "locked")
    assert notes["resumed_from"] is None
