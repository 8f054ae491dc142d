"""What stays: the latest and the best, counted apart; and which names in the folder are what."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from datasets.errors import CheckpointCorrupt, ParameterError
from tasks import retention
from tasks.retention import Retention
from tasks.snapshot import Manifest


def kept_with(scores: dict[int, float | None], name: str = "acc") -> dict[int, Manifest]:
    return {step: Manifest(step, {} if v is None else {name: v}, {}) for step, v in scores.items()}


def stays(rule: Retention, scores: dict[int, float | None], root: Path) -> list[int]:
    """Steps that stay when each is committed in turn, as in a training."""
    kept: dict[int, Manifest] = {}
    for step, found in kept_with(scores).items():
        (root / str(step)).mkdir()
        kept = rule.retire(root, {**kept, step: found})
    assert sorted(kept) == sorted(int(path.name) for path in root.iterdir())
    return sorted(kept)


FALLING = {100: 0.9, 200: 0.8, 300: 0.7, 400: 0.6, 500: 0.5}


@pytest.mark.parametrize(
    ("rule", "scores", "expected"),
    [
        (Retention(2, 1, "acc", "max"), FALLING, [100, 400, 500]),
        (Retention(2, 1, "acc", "min"), FALLING, [400, 500]),
        (Retention(3, 2, "acc", "max"), FALLING, [100, 200, 300, 400, 500]),
        (Retention(2, 0, "acc", "max"), FALLING, [400, 500]),
        (Retention(2, 1, None, "max"), FALLING, [400, 500]),
        (Retention(2, 1, "other", "max"), FALLING, [400, 500]),
        (Retention(2, 1, "acc", "max"), {1: None, 2: 0.1, 3: None, 4: None, 5: None}, [2, 4, 5]),
        (Retention(2, 1, "acc", "max"), {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.4}, [1, 3, 4]),
    ],
)
def test_latest_and_best_are_counted_apart(
    rule: Retention, scores: dict[int, float | None], expected: list[int], tmp_path: Path
) -> None:
    assert stays(rule, scores, tmp_path) == expected


@pytest.mark.parametrize(
    ("rule", "score", "expected"),
    [
        (Retention(2, 1, "acc", "max"), 0.91, True),
        (Retention(2, 1, "acc", "max"), 0.9, False),
        (Retention(2, 1, "acc", "max"), float("nan"), False),
        (Retention(2, 1, "acc", "min"), 0.49, True),
        (Retention(2, 1, "acc", "min"), 0.5, False),
        (Retention(2, 3, "acc", "max"), 0.75, True),
        (Retention(2, 3, "acc", "max"), 0.6, False),
        (Retention(2, 9, "acc", "max"), 0.0, True),
        (Retention(2, 0, "acc", "max"), 1.0, False),
        (Retention(2, 1, "other", "max"), 1.0, False),
        (Retention(2, 1, None, "max"), 1.0, False),
    ],
)
def test_a_step_that_would_stay_for_its_metric_is_known_before_it_is_saved(
    rule: Retention, score: float, expected: bool
) -> None:
    kept = {step: Manifest(step, {"acc": value}, {}) for step, value in FALLING.items() if value is not None}
    assert rule.would_be_best(kept, {"acc": score}) is expected
    assert Retention(2, 1, "acc", "max").would_be_best({}, {"acc": 0.0})


@pytest.mark.parametrize(
    ("last", "best", "mode", "named"), [(1, 1, "min", "keep_last"), (2, -1, "min", "keep_best"), (2, 1, "low", "mode")]
)
def test_rules_that_cannot_work_are_refused(last: int, best: int, mode: str, named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        Retention(last, best, "loss", mode)


def test_scrub_clears_leftovers_and_leaves_foreign_names_alone(tmp_path: Path) -> None:
    for name in (".saving-3-abc", ".saving-3-abc.orbax-checkpoint-tmp", ".trash-1-abc", "7.orbax-checkpoint-tmp-0"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_text("x")
    for name in ("notes.txt", "007", "12a", "damaged-by-hand"):
        (tmp_path / name).write_text("x")
    warnings: list[str] = []
    assert retention.scrub(tmp_path, warnings.append) == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["007", "12a", "damaged-by-hand", "notes.txt"]
    assert warnings == []


@pytest.mark.parametrize("kind", ["empty", "file", "link", "foreign", "manifest only"])
def test_a_step_that_is_no_checkpoint_is_set_aside_and_reported(kind: str, tmp_path: Path) -> None:
    step = tmp_path / "9"
    if kind == "file":
        step.write_text("")
    elif kind == "link":
        step.symlink_to(tmp_path)
    else:
        step.mkdir()
    if kind == "foreign":
        (step / "model.msgpack").write_bytes(b"x")
    if kind == "manifest only":
        (step / "manifest.json").write_text("{}")
    warnings: list[str] = []
    assert retention.scrub(tmp_path, warnings.append) == {}
    assert [p.name[:10] for p in tmp_path.iterdir()] == ["damaged-9-"]
    assert len(warnings) == 1
    assert "manifest.json" in warnings[0]


def test_damaged_steps_are_bounded(tmp_path: Path) -> None:
    for step in range(8):
        (tmp_path / str(step)).mkdir()
    retention.scrub(tmp_path, lambda _: None)
    assert [retention.damaged_step(p) for p in retention.damaged(tmp_path)] == [4, 5, 6, 7]


def test_damaged_steps_go_once_all_of_the_latest_are_newer(tmp_path: Path) -> None:
    (tmp_path / "30").mkdir()
    retention.set_aside(tmp_path / "30", CheckpointCorrupt("damaged"), lambda _: None)
    rule = Retention(2, 1, "acc", "max")
    kept: dict[int, Manifest] = {}
    left = {}
    for step in (20, 30, 40, 50):
        (tmp_path / str(step)).mkdir()
        kept = rule.retire(tmp_path, {**kept, step: Manifest(step, {}, {})})
        left[step] = len(retention.damaged(tmp_path))
    assert left == {20: 1, 30: 1, 40: 1, 50: 0}


def test_infinite_scores_never_reach_the_ranking() -> None:
    # `snapshot.write` leaves them out of the manifest; this is why it must.
    assert Retention(2, 1, "acc", "max").ranked(kept_with({1: 0.5, 2: math.inf})) == [2, 1]


def test_a_failed_attempt_goes_although_others_still_write_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial, tries = tmp_path / ".saving-8-a7be26", []
    for name in (f"{partial.name}.orbax-checkpoint-tmp", ".saving-9-000000"):
        (tmp_path / name).mkdir()
    remove = retention.remove

    def not_yet(path: Path) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise OSError(errno.ENOTEMPTY, "a file came while the others were removed")
        remove(path)

    monkeypatch.setattr(retention, "remove", not_yet)
    retention.remove_attempt(partial, seconds=60)
    assert [path.name for path in tmp_path.iterdir()] == [".saving-9-000000"]
    assert len(tries) == 3


def test_what_cannot_be_removed_is_left_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(path: Path) -> None:
        raise PermissionError(path)

    (tmp_path / ".saving-8-a7be26").mkdir()
    monkeypatch.setattr(retention, "remove", never)
    retention.remove_attempt(tmp_path / ".saving-8-a7be26", seconds=0)
    assert (tmp_path / ".saving-8-a7be26").is_dir()
