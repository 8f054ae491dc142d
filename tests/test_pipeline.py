from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from datasets.augment import Augmentation, Flip, Shift
from datasets.errors import ArtifactDamaged, ParameterError, PipelineError, PipelineStateError, SchemaError
from datasets.schema import Columns, Feature
from tasks.batches import Batches
from tasks.columns import MappedColumns, build_columns
from tasks.example_random import uniform
from tasks.order import Order
from tasks.pipeline import Pipeline, Source, evaluation_batches
from tasks.records import Shards
from tasks.shard_writer import write_shards

FEATURES = {"image": Feature("uint8", (6, 5, 1)), "id": Feature("int64")}
SIZE = 203
AUGMENT = (Shift(1), Flip())
BAD = 51  # an example that the first epoch sees, in its fourth step or later
HANG = 120  # seconds within which a fault must end the run, on a machine that does ten other things besides


def rows(count: int = SIZE) -> Columns:
    images = np.random.default_rng(0).integers(1, 256, (count, 6, 5, 1), dtype=np.uint8)
    return {"image": images, "id": np.arange(count)}


class Memory:
    """Rows in memory, of which one may be bad."""

    def __init__(self, columns: Columns, bad: int | None = None) -> None:
        self.columns, self.bad = columns, bad
        self.features = {name: Feature(v.dtype.name, v.shape[1:]) for name, v in columns.items()}

    def __len__(self) -> int:
        return len(self.columns["id"])

    def read(self, ids: np.ndarray) -> Columns:
        if self.bad in ids.tolist():
            raise ValueError("this row is bad")
        return {name: values[ids] for name, values in self.columns.items()}


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("feed")
    cuts = {"1 shard": 256, "7 shards": 32}
    sources: dict[str, Source] = {"memory": Memory(rows())}
    for name, rows_per_shard in cuts.items():
        made = write_shards(
            folder / name, "train", [rows()], FEATURES, rows_per_record=16, rows_per_shard=rows_per_shard
        )
        shards = Shards(folder / name, made, FEATURES, 16, cache_bytes=4 * 16 * 38)
        assert len(made) == int(name[0])
        build_columns(shards, folder / f"columns of {name}")
        sources[f"records, {name}"] = shards
        sources[f"columns, {name}"] = MappedColumns(folder / f"columns of {name}")
    return sources


def make(source: Source, order: Order | None = None, augment: tuple[Augmentation, ...] = AUGMENT) -> Pipeline:
    order = order or Order(len(source), 16, seed=3)
    return Pipeline(source, order, inputs="image", augment=augment, digest="d1", split="train")


def collect(pipeline: Pipeline, start: int, stop: int, **settings: int) -> list[Columns]:
    with pipeline.iterate(start, stop, **settings) as batches:
        return list(batches)


def assert_same(got: list[Columns], expected: list[Columns]) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert set(one) == set(other)
        for name in other:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def expected(tiers: dict[str, Source]) -> list[Columns]:
    """Steps 0 ... 29 (epochs 0 to 2), worked out by hand."""
    order, columns = Order(SIZE, 16, seed=3), rows()
    batches = []
    for step in range(30):
        epoch, ids = order.ids(step)
        assert epoch == step // 12
        u = uniform(3, epoch, ids, 3)
        batches.append({"image": Flip()(Shift(1)(columns["image"][ids], u[:, :2]), u[:, 2:]), "id": ids})
    return batches


TIERS = ["memory", "records, 1 shard", "records, 7 shards", "columns, 1 shard", "columns, 7 shards"]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"threads": 1}, {"threads": 1, "prefetch": 5}, {"threads": 16}, {"threads": 16, "prefetch": 40}],
    ids=str,
)
def test_batches_are_the_same_everywhere(
    tiers: dict[str, Source], expected: list[Columns], tier: str, settings: dict[str, int]
) -> None:
    assert_same(collect(make(tiers[tier]), 0, 30, **settings), expected)


@pytest.mark.parametrize("start", [0, 1, 11, 12, 13, 29, 30])
def test_restored_anywhere_the_rest_follows(tiers: dict[str, Source], expected: list[Columns], start: int) -> None:
    before = make(tiers["columns, 1 shard"])
    state = json.loads(json.dumps(before.state(start)))
    after = make(tiers["records, 7 shards"])
    assert_same(collect(after, after.restore(state), 30, threads=2), expected[start:])


@pytest.mark.parametrize("readers", [2, 3, 4])
def test_readers_together_give_the_same_batches(
    tiers: dict[str, Source], expected: list[Columns], readers: int
) -> None:
    parts = [
        collect(make(tiers["columns, 1 shard"], Order(SIZE, 16, seed=3, reader=r, readers=readers)), 0, 30)
        for r in range(readers)
    ]
    joined = [{name: np.concatenate([b[name] for b in step]) for name in FEATURES} for step in zip(*parts, strict=True)]
    assert_same(joined, expected)


def test_workers_give_the_same_batches_as_no_workers(tiers: dict[str, Source], expected: list[Columns]) -> None:
    before = multiprocessing.active_children()
    with make(tiers["columns, 7 shards"]).iterate(5, 30, workers=2, prefetch=3) as batches:
        got = list(batches)
    assert_same(got, expected[5:])
    assert all(type(values) is np.ndarray for values in got[0].values())
    assert multiprocessing.active_children() == before
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("gristmill-feed")]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("tier", TIERS)
def test_so_do_more_workers_with_threads_in_every_tier(
    tiers: dict[str, Source], expected: list[Columns], workers: int, threads: int, tier: str
) -> None:
    assert_same(collect(make(tiers[tier]), 0, 30, workers=workers, threads=threads, prefetch=3), expected)


def test_worker_count_may_change_at_a_restart(tiers: dict[str, Source], expected: list[Columns]) -> None:
    pipeline = make(tiers["records, 7 shards"])
    with pipeline.iterate(0, 30, workers=1) as batches:
        first = [next(batches) for _ in range(4)]
    state = pipeline.state(4)
    assert_same(first + collect(pipeline, pipeline.restore(state), 30), expected)


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("start", [0, 11, 14])
def test_steps_that_are_read_at_once_are_those_that_are_read_alone(
    tiers: dict[str, Source], monkeypatch: pytest.MonkeyPatch, readers: int, start: int
) -> None:
    monkeypatch.setattr("tasks.pipeline._ROWS_AT_ONCE", 80 // readers)
    order, asked = Order(SIZE, 16, seed=3, reader=readers - 1, readers=readers), list[int]()  # 12 steps an epoch

    class Watched(Memory):
        def read(self, ids: np.ndarray) -> Columns:
            asked.append(len(ids))
            return super().read(ids)

    got = collect(make(Watched(rows()), order, augment=()), start, 27)
    assert_same(got, [make(tiers["memory"], order, augment=()).batch(step) for step in range(start, 27)])
    assert len(asked) < len(got) / 2
    assert max(asked) <= 80  # and no read crosses the end of an epoch, which the batches above would show


def test_steps_of_large_rows_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    source, asked = Memory(rows()), list[int]()
    read = source.read
    source.read = lambda ids: asked.append(len(ids)) or read(ids)
    monkeypatch.setattr("tasks.pipeline._BYTES_AT_ONCE", 40 * (6 * 5 + 8))  # two batches of 16
    collect(make(source, augment=()), 0, 4)
    monkeypatch.setattr("tasks.pipeline._BYTES_AT_ONCE", 1)
    collect(make(source, augment=()), 0, 2)
    assert asked == [32, 32, 16, 16]


def test_of_steps_that_are_read_at_once_only_the_bad_one_fails() -> None:
    pipeline = make(Memory(rows(), BAD), augment=())
    step = next(step for step in range(12) if BAD in pipeline.order.ids(step)[1])
    with pipeline.iterate(0, 12) as batches:
        assert_same([next(batches) for _ in range(step)], [pipeline.batch(before) for before in range(step)])
        with pytest.raises(PipelineError) as caught:
            next(batches)
    assert (caught.value.facts["step"], caught.value.facts["example"]) == (step, BAD)
    assert step > 2


def test_works_in_a_thread_and_leaves_none(tiers: dict[str, Source], expected: list[Columns]) -> None:
    got: list[Columns] = []
    before = threading.active_count()
    thread = threading.Thread(target=lambda: got.extend(collect(make(tiers["columns, 1 shard"]), 0, 30, threads=4)))
    thread.start()
    thread.join()
    assert_same(got, expected)
    until(lambda: threading.active_count() <= before)


def until(happened: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it didn't happen"
        time.sleep(0.02)


def test_a_batch_may_be_kept_and_written(tiers: dict[str, Source], expected: list[Columns]) -> None:
    for augment in ((), AUGMENT):
        pipeline = make(tiers["columns, 1 shard"], augment=augment)
        kept = []
        with pipeline.iterate(0, 12, threads=1) as batches:
            for batch in batches:
                kept.append({name: values.copy() for name, values in batch.items()})
                for values in batch.values():
                    values[:] = 0
        assert_same([pipeline.batch(step) for step in range(12)], kept)
    assert_same(kept, expected[:12])


def test_records_stay_within_their_window(tiers: dict[str, Source]) -> None:
    order = Order(SIZE, 16, seed=3, block=16, window=48)
    by_tier = [collect(make(tiers[tier], order), 0, 24) for tier in TIERS]
    for batches in by_tier[1:]:
        assert_same(batches, by_tier[0])
    seen = np.concatenate([batch["id"] for batch in by_tier[0][:12]])
    assert len(set(seen.tolist())) == 192


def test_batches_know_their_number_and_end_once(tiers: dict[str, Source]) -> None:
    with make(tiers["memory"]).iterate(3, 8) as batches:
        assert len(batches) == 5
        assert len(list(batches)) == 5
        assert list(batches) == []
    with make(tiers["memory"]).iterate(4, 4) as batches:
        assert list(batches) == []


def test_at_their_end_batches_close_by_themselves(tiers: dict[str, Source]) -> None:
    batches = make(tiers["memory"]).iterate(3, 8, threads=2)
    assert len(list(batches)) == 5
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("grain-prefetch")])
    assert list(batches) == []


def test_a_closed_iterator_is_not_a_finished_one(tiers: dict[str, Source]) -> None:
    with make(tiers["memory"]).iterate(0, 8, threads=2) as batches:
        next(batches)
    with pytest.raises(PipelineError, match="closed"):
        next(batches)


@pytest.mark.parametrize(
    ("start", "stop", "settings"),
    [(-1, 5, {}), (5, 4, {}), (0, 5, {"threads": -1}), (0, 5, {"prefetch": 3}), (0, 5, {"workers": 1.0}), (0.0, 5, {})],
)
def test_settings_that_cannot_work(tiers: dict[str, Source], start: Any, stop: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        make(tiers["memory"]).iterate(start, stop, **settings)


# --- state


def test_state_is_a_position_and_an_identity(tiers: dict[str, Source]) -> None:
    pipeline = make(tiers["memory"])
    state = pipeline.state(17)
    assert json.loads(json.dumps(state)) == state
    assert state["step"] == 17
    assert pipeline.restore(state) == 17
    assert make(tiers["memory"], Order(SIZE, 16, seed=3, reader=1, readers=4)).restore(state) == 17


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (lambda m: make(m, Order(SIZE, 16, seed=4)), {"seed": "was 4, now 3"}),
        (lambda m: make(m, Order(SIZE, 8, seed=3)), {"batch_size": "was 8, now 16"}),
        (lambda m: make(m, Order(SIZE, 16, seed=3, shuffle=False)), {"shuffle": "was False, now True"}),
        (
            lambda m: make(m, Order(SIZE, 16, seed=3, block=16)),
            {"block": "was 16, now None", "window": "was 65536, now absent"},
        ),
        (lambda m: make(Memory(rows(200))), {"size": "was 200, now 203"}),
        (
            lambda m: make(m, Order(SIZE, 16, seed=3, drop_remainder=False)),
            {"drop_remainder": "was False, now absent"},
        ),
        (
            lambda m: Pipeline(
                m, Order(SIZE, 16, 3, drop_remainder=False), inputs="image", augment=AUGMENT, mask="real", digest="d1",
                split="train",
            ),
            {"drop_remainder": "was False", "mask": "was real, now absent"},
        ),
        (
            lambda m: Pipeline(m, Order(SIZE, 16, 3), inputs="id", augment=AUGMENT, digest="d1", split="train"),
            {"inputs": "was id, now image"},
        ),
        (lambda m: make(m, augment=(Shift(2), Flip())), {"transforms": "'pixels': 2"}),
        (lambda m: make(m, augment=(Flip(), Shift(1))), {"transforms": "Flip"}),
        (
            lambda m: Pipeline(m, Order(SIZE, 16, 3), inputs="image", augment=AUGMENT, digest="d2", split="test"),
            {"digest": "was d2, now d1", "split": "was test, now train"},
        ),
    ],
)  # fmt: skip
def test_a_state_of_other_batches_names_each_field(
    tiers: dict[str, Source], other: Callable[[Source], Pipeline], named: dict[str, str]
) -> None:
    with pytest.raises(PipelineStateError) as caught:
        make(tiers["memory"]).restore(json.loads(json.dumps(other(tiers["memory"]).state(5))))
    assert set(caught.value.facts) == set(named)
    for name, text in named.items():
        assert text in caught.value.facts[name]
        assert name in caught.value.what


@pytest.mark.parametrize(
    "state", [{}, {"step": 1}, {"step": -1, "identity": {}}, {"step": "1", "identity": {}}, {"next_index": 5}]
)
def test_what_is_no_state(tiers: dict[str, Source], state: dict[str, Any]) -> None:
    with pytest.raises(PipelineStateError, match="no state"):
        make(tiers["memory"]).restore(state)


def test_a_state_without_a_field_is_refused(tiers: dict[str, Source]) -> None:
    state = make(tiers["memory"]).state(1)
    del state["identity"]["algorithm"]
    with pytest.raises(PipelineStateError, match="algorithm: was absent, now 1"):
        make(tiers["memory"]).restore(state)


# --- parts that don't fit


def test_parts_that_do_not_fit(tiers: dict[str, Source]) -> None:
    memory = tiers["memory"]
    with pytest.raises(PipelineError, match="another number of records"):
        make(memory, Order(SIZE - 1, 16, 3))
    with pytest.raises(PipelineError, match="aren't a column"):
        Pipeline(memory, Order(SIZE, 16, 3), inputs="picture", digest="", split="train")
    for wrong in (Shift, lambda images, u: images, Undrawn(1)):
        with pytest.raises(ParameterError):
            make(memory, augment=(wrong,))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="JSON"):
        make(memory, augment=(Parameter(b"x"),))


@dataclass(frozen=True)
class Undrawn:
    level: int

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        return images


@dataclass(frozen=True)
class Parameter:
    value: Any
    draws: ClassVar[int] = 0

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        return images


@dataclass(frozen=True)
class Widen:
    draws: ClassVar[int] = 0

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        return images.astype(np.float32)


def test_an_augmentation_keeps_shape_and_dtype(tiers: dict[str, Source]) -> None:
    with pytest.raises(PipelineError, match=r"Widen\(\) changed") as caught:
        make(tiers["memory"], augment=(Widen(),)).batch(7)
    assert caught.value.facts["got"] == "float32 [16, 6, 5, 1]"
    assert caught.value.facts["step"] == 7


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**32 + 3])
def test_a_number_too_large_for_the_device(value: int) -> None:
    columns = rows()
    columns["id"][BAD] = value
    pipeline = make(Memory(columns))
    (step, _), *_ = pipeline.order.steps_of(BAD, 1)
    with pytest.raises(SchemaError, match="32 bits") as caught:
        pipeline.batch(step)
    assert caught.value.facts | {"field": "id", "example": BAD, "got": value, "step": step} == caught.value.facts
    with pytest.raises(SchemaError, match="32 bits"):
        list(evaluation_batches(Memory(columns), 64))
    columns["id"][BAD] = 2**31 - 1
    pipeline.batch(step)


# --- faults


@dataclass(frozen=True)
class Trip:
    """Does something bad when it sees the image whose first pixel is 0."""

    deed: str
    draws: ClassVar[int] = 0

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        if (images[:, 0, 0, 0] == 0).any():
            if self.deed == "raise":
                raise KeyError("no such pixel")
            if self.deed == "stop":
                raise StopIteration
            if self.deed == "exit":
                sys.exit(0)
            if self.deed == "leave":
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return images


def tripping(deed: str, example: int = BAD) -> tuple[Pipeline, int]:
    columns = rows()
    columns["image"][example, 0, 0, 0] = 0
    pipeline = make(Memory(columns), augment=(Trip(deed),))
    (step, _), *_ = pipeline.order.steps_of(example, 1)
    return pipeline, step


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("deed", ["raise", "stop", "exit"])
def test_a_transform_that_fails_names_step_and_example(deed: str, threads: int) -> None:
    pipeline, step = tripping(deed)
    cause = {"raise": "KeyError: 'no such pixel'", "stop": "StopIteration", "exit": "SystemExit: 0"}[deed]
    got: list[Columns] = []
    with pipeline.iterate(0, 12, threads=threads) as batches, pytest.raises(PipelineError) as caught:
        got.extend(batches)
    assert len(got) == step
    assert caught.value.facts["cause"].startswith(cause)
    assert (caught.value.facts["step"], caught.value.facts["example"]) == (step, BAD)


def test_a_source_that_fails_names_the_example() -> None:
    with pytest.raises(PipelineError, match="this row is bad") as caught:
        collect(make(Memory(rows(), bad=BAD)), 0, 12)
    assert caught.value.facts["example"] == BAD


@dataclass(frozen=True)
class Whole:
    """Fails for a whole batch, whichever its examples."""

    draws: ClassVar[int] = 0

    def __call__(self, images: np.ndarray, u: np.ndarray) -> np.ndarray:
        if len(images) == 16:
            raise ValueError("sixteen")
        return images


def test_where_no_example_alone_is_to_blame_all_are_named(tiers: dict[str, Source]) -> None:
    pipeline = make(tiers["memory"], augment=(Whole(),))
    with pytest.raises(PipelineError, match="sixteen") as caught:
        pipeline.batch(2)
    assert caught.value.facts["examples"] == ", ".join(map(str, pipeline.order.ids(2)[1].tolist()))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_shard_damaged_meanwhile_is_a_typed_error(tmp_path: Path, threads: int) -> None:
    made = write_shards(tmp_path, "train", [rows()], FEATURES, rows_per_record=16, rows_per_shard=64)
    source = Shards(tmp_path, made, FEATURES, 16)
    (tmp_path / made[1].name).unlink()
    with pytest.raises(ArtifactDamaged, match="missing") as caught:
        collect(make(source), 0, 12, threads=threads)
    assert made[1].name in str(caught.value)
    assert 64 <= caught.value.facts["example"] < 128


def nothing(batch: Columns) -> None:
    return None


def stop_at_third(batch: Columns) -> Columns:
    if batch["id"][0] == make(Memory(rows())).order.ids(2)[1][0]:
        raise StopIteration
    return batch


@pytest.mark.parametrize("transform", [nothing, stop_at_third])
def test_a_stream_that_ends_early_is_not_finished(tiers: dict[str, Source], transform: Callable[..., Any]) -> None:
    dataset = make(tiers["memory"]).dataset(0, 6).map(transform)
    with pytest.raises(PipelineError, match="ended early") as caught, Batches(dataset) as batches:
        list(batches)
    assert caught.value.facts["given"] == (0 if transform is nothing else 2)
    assert caught.value.facts["expected"] == 6


def test_a_users_grain_transform_is_driven_too(tiers: dict[str, Source], expected: list[Columns]) -> None:
    dataset = make(tiers["memory"]).dataset(0, 6).map(lambda batch: {"sum": batch["image"].sum()})
    with Batches(dataset, threads=2, prefetch=3) as batches:
        assert [batch["sum"] for batch in batches] == [batch["image"].sum() for batch in expected[:6]]


@pytest.mark.parametrize("deed", ["raise", "leave", "kill"])
def test_a_fault_in_a_worker_ends_in_time_and_leaves_no_process(deed: str) -> None:
    before = multiprocessing.active_children()
    pipeline, step = tripping(deed)
    workers = 2 if deed == "raise" else 1  # of two, Grain by itself would leave one behind
    started = time.monotonic()
    # From the bad step on: a dying worker may take along what it made before but hadn't handed over.
    with pytest.raises(PipelineError) as caught:
        collect(pipeline, step, 12, workers=workers)
    assert time.monotonic() - started < HANG
    assert caught.value.facts["step"] == step
    if deed == "raise":
        assert caught.value.facts["example"] == BAD
        assert "examples" not in caught.value.facts
        assert "no such pixel" in caught.value.facts["cause"]
    else:
        assert str(BAD) in caught.value.facts["examples"].split(", ")
        assert str(0 if deed == "leave" else -signal.SIGKILL) in str(caught.value)
    assert multiprocessing.active_children() == before


ORPHANS = """
import os, sys
sys.path[:0] = [{root!r}, {tests!r}]
from test_pipeline import Memory, make, rows
if __name__ == "__main__":
    import multiprocessing, signal
    with make(Memory(rows())).iterate(0, 12, workers=1) as batches:
        next(batches)
        workers = [p.pid for p in multiprocessing.active_children()]
        print(*workers, [os.getpriority(os.PRIO_PROCESS, p) for p in workers], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_program_leaves_no_worker(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    script = tmp_path / "program.py"
    script.write_text(ORPHANS.format(root=str(root), tests=str(root / "tests")))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker, priority = process.stdout.readline().split()
    assert process.returncode == -signal.SIGKILL
    assert priority == "[19]"
    until(lambda: not is_running(int(worker)))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- evaluation


@pytest.mark.parametrize("batch_size", [1, 64, 202, 203, 204, 512])
@pytest.mark.parametrize("tier", TIERS)
def test_evaluation_sees_every_example_once_and_in_order(tiers: dict[str, Source], tier: str, batch_size: int) -> None:
    ids, counted, batches = [], 0, 0
    for columns, mask in evaluation_batches(tiers[tier], batch_size):
        assert mask.dtype == np.bool_
        assert mask.shape == (batch_size,)
        assert {name: v.shape for name, v in columns.items()} == {
            name: (batch_size, *FEATURES[name].shape) for name in FEATURES
        }
        ids += columns["id"][mask].tolist()
        assert (columns["id"][~mask] == 0).all()
        counted += int(mask.sum())
        batches += 1
    assert ids == list(range(SIZE))
    assert counted == SIZE
    assert batches == -(-SIZE // batch_size)


@pytest.mark.parametrize("batch_size", [64, 512, 10_000, 10_001])
def test_evaluation_of_ten_thousand(batch_size: int) -> None:
    source = Memory({"id": np.arange(10_000), "image": np.zeros((10_000, 1, 1, 1), np.uint8)})
    parts = [columns["id"][mask] for columns, mask in evaluation_batches(source, batch_size)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(10_000))


def test_nothing_to_evaluate() -> None:
    with pytest.raises(PipelineError, match="no records"):
        next(evaluation_batches(Memory(rows(0)), 4))
    with pytest.raises(ParameterError, match="batch_size"):
        next(evaluation_batches(Memory(rows(5)), 0))
