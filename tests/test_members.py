from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import toy
from test_vmapped import same, with_nan

from datasets.augment import Shift
from datasets.errors import TrainingError
from datasets.schema import Recipe
from tasks.artifact import Artifact, Store
from tasks.autotune import Setting
from tasks.carry import Carry
from tasks.feed import open_pipeline
from tasks.members import Members, Stacked
from tasks.request import Request
from tasks.signals import StopSignal
from tasks.vmapped import VmappedStep

TOTAL = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, Artifact, VmappedStep]:
    made = toy.dataset(read=toy.reader_of(toy.pictures()))
    request = toy.request_for(tmp_path_factory.mktemp("store"), made, augment=(Shift(1),), dropout=0.2)
    recipes = [replace(request.dataset.recipe, learning_rate=rate, seed=seed) for rate, seed in ((1e-2, 3), (1e-2, 4))]
    return request, toy.records_of(request), VmappedStep(request.dataset, recipes, TOTAL)


def members(made: tuple[Request, Artifact, VmappedStep], folder: Path, every: int | None = None) -> Members:
    request, records, step = made
    job = toy.job(replace(request, checkpoint_every=every), "together")
    return Members(job, records, Setting(threads=1, prefetch=2), folder, step, TOTAL)


def test_each_member_sees_the_batches_of_a_training_of_its_own(made: Any) -> None:
    request, records, step = made
    recipes: tuple[Recipe, ...] = (*step.members, replace(step.members[0], learning_rate=1.0))
    stacked = Stacked.of(toy.job(request, "together"), records, recipes)
    assert len(stacked.pipelines) == 2  # members with one seed share what is read
    for at in (0, 7):
        batch = stacked.batch(at)
        for member, recipe in enumerate(recipes):
            own = replace(request, dataset=replace(request.dataset, recipe=recipe))
            alone = open_pipeline(Store(request.store), own, records)
            for name, column in alone.batch(at).items():
                np.testing.assert_array_equal(batch[name][member], column)
            assert stacked.ids(at, member) == alone.order.ids(at)[1].tolist()
    assert not np.array_equal(batch["image"][0], batch["image"][1])


def test_stopped_anywhere_it_goes_on_bit_for_bit(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = members(made, tmp_path / "whole").run()
    stopped = members(made, tmp_path / "stopped", every=4)
    original, done = VmappedStep.__call__, []

    def acting(self: VmappedStep, carry: Carry, batch: Any) -> Any:
        if len(done) == 6:
            raise KeyboardInterrupt
        done.append(1)
        return original(self, carry, batch)

    with monkeypatch.context() as patch:
        patch.setattr(VmappedStep, "__call__", acting)
        with pytest.raises(KeyboardInterrupt):
            stopped.run()
    again = members(made, tmp_path / "stopped")
    carry = again.run()
    assert again.resumed_from == 4
    same(jax.device_get(carry.state), jax.device_get(whole.state))
    finished = members(made, tmp_path / "stopped")
    same(finished.run().state, carry.state)
    assert finished.resumed_from == TOTAL


def test_a_signal_saves_and_ends_it(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopSignal, "__enter__", lambda self: setattr(self, "received", 15) or self)
    monkeypatch.setattr(StopSignal, "__exit__", lambda *rest: None)
    with pytest.raises(TrainingError, match="stopped"):
        members(made, tmp_path).run()
    monkeypatch.undo()
    again = members(made, tmp_path)
    again.run()
    assert again.resumed_from == 1


def test_what_failed_is_named_with_its_records_and_the_rest_answers(made: Any, tmp_path: Path) -> None:
    one = members(made, tmp_path)
    step = one.step
    carry = step.initial_carry()
    for at in range(3):
        carry, _ = step(step.place(with_nan(carry, 1)) if at == 2 else carry, one.stacked.batch(at))
    ids = one.stacked.ids(2, 1)
    assert one.failures(carry)[1] == (
        f"step 2: the loss or a gradient isn't finite (records {', '.join(map(str, ids[:8]))}, ...)"
    )
    assert [*one.failures(carry)] == [1]
    poisoned = step.place(with_nan(step.initial_carry(), 0))
    assert one.failures(poisoned) == {0: "the update made a state that isn't finite"}
    well, ill = one.predictions(carry, "test")
    assert np.isfinite(well.logits).all()
    assert not np.isfinite(ill.logits[:, 0]).any()
    model = step.model(step.member(carry, 0))
    rows = toy.pictures()
    np.testing.assert_allclose(model(rows["image"][toy.TRAIN :]), well.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(well.labels, rows["label"][toy.TRAIN :])


def test_when_no_member_is_left_it_ends(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = VmappedStep.initial_carry
    monkeypatch.setattr(
        VmappedStep, "initial_carry", lambda self: self.place(with_nan(with_nan(begin(self), 0), 1))
    )  # fmt: skip
    monkeypatch.setattr("tasks.members.LOOK_EVERY", 2)
    ended = members(made, tmp_path)
    assert [*ended.failures(ended.run())] == [0, 1]
    assert not [path for path in tmp_path.iterdir() if path.name.isdigit()]  # it ended at its first look
