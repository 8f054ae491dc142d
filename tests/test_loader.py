from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grain
import jax
import numpy as np
import pytest

from datasets.errors import ParameterError, PipelineError, PipelineStateError
from datasets.schema import Columns, Feature
from tasks.example_random import ExampleRandom
from tasks.loader import DataLoader
from tasks.order import Order
from tasks.pipeline import Pipeline, evaluation_batches

SIZE = 103
Batch = grain.transforms.Batch


class Memory:
    digest = "rows"

    def __init__(self, size: int = SIZE) -> None:
        self.columns = {"id": np.arange(size), "x": np.arange(2 * size, dtype=np.float32).reshape(size, 2)}
        self.features = {name: Feature(v.dtype.name, v.shape[1:]) for name, v in self.columns.items()}

    def __len__(self) -> int:
        return len(self.columns["id"])

    def read(self, ids: np.ndarray) -> Columns:
        return {name: values[ids] for name, values in self.columns.items()}


def sampler(size: int = SIZE, **changes: Any) -> grain.samplers.IndexSampler:
    return grain.samplers.IndexSampler(size, **{"shuffle": True, "seed": 3, "num_epochs": 2, **changes})


@dataclass(frozen=True)
class Scale(grain.transforms.Map):
    factor: float

    def map(self, element: Columns) -> Any:
        return {**element, "x": element["x"] * np.float32(self.factor)}


class Jitter(grain.transforms.RandomMap):
    def random_map(self, element: Columns, rng: ExampleRandom) -> Any:  # type: ignore[override]
        return {**element, "noise": rng.normal(size=(2,)), "x": element["x"] + rng.random()[:, None]}


@dataclass(frozen=True)
class Odd(grain.transforms.Filter):
    least: int = 0

    def filter(self, element: Columns) -> Any:
        return (element["id"] % 2 == 1) & (element["id"] >= self.least)


class FirstHalf(grain.transforms.Map):
    def map(self, element: Columns) -> Any:
        return {name: values[: len(values) // 2] for name, values in element.items()}


def test_every_block_of_grains_data_loader() -> None:
    loader = DataLoader(
        Memory(), sampler(), [Odd(), Scale(2.0), Batch(8, drop_remainder=True), Jitter()],
        read_options=grain.ReadOptions(num_threads=2, prefetch_buffer_size=4),
    )  # fmt: skip
    batches = list(loader)
    assert len(batches) == len(loader) == 2 * (51 // 8)
    order = Order(51, 8, 3)
    for step, batch in enumerate(batches):
        epoch, ids = order.ids(step)
        rows = 2 * ids + 1
        np.testing.assert_array_equal(batch["id"], rows)
        random = ExampleRandom(3, epoch, ids, 1)
        np.testing.assert_array_equal(batch["noise"], random.normal(size=(2,)))
        expected = Memory().columns["x"][rows] * 2 + random.random()[:, None]
        np.testing.assert_array_equal(batch["x"], expected)


def test_no_setting_changes_a_batch() -> None:
    operations = [Odd(), Batch(8, drop_remainder=True), Jitter()]
    plain = list(DataLoader(Memory(), sampler(), operations))
    ahead = list(DataLoader(Memory(), sampler(), operations, read_options=grain.ReadOptions(16, 40)))
    for one, other in zip(plain, ahead, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_epochs_or_endless() -> None:
    loader = DataLoader(Memory(), sampler(num_epochs=None), [Batch(50, drop_remainder=True)])
    with pytest.raises(PipelineError, match="endless"):
        len(loader)
    with loader.batches() as batches:
        seen = [next(batches) for _ in range(9)]
    order = Order(SIZE, 50, 3)
    np.testing.assert_array_equal(seen[8]["id"], order.ids(8)[1])
    assert order.epoch(8) == 4


def test_without_shuffle_rows_come_as_they_are() -> None:
    loader = DataLoader(Memory(), sampler(shuffle=False, seed=None, num_epochs=1), [Batch(50, drop_remainder=True)])
    assert np.concatenate([batch["id"] for batch in loader]).tolist() == list(range(100))


def test_the_remainder_is_dropped_short_or_padded_and_masked() -> None:
    lengths = {
        name: [len(batch["id"]) for batch in DataLoader(Memory(), sampler(num_epochs=1), [batch])]
        for name, batch in {"drop": Batch(50, drop_remainder=True), "keep": Batch(50)}.items()
    }
    assert lengths == {"drop": [50, 50], "keep": [50, 50, 3]}
    padded = list(DataLoader(Memory(), sampler(num_epochs=1), [Batch(50)], mask="real"))
    assert [len(batch["id"]) for batch in padded] == [50, 50, 50]
    assert [int(batch["real"].sum()) for batch in padded] == [50, 50, 3]
    assert padded[2]["real"][:3].all()
    real = np.concatenate([batch["id"][batch["real"]] for batch in padded])
    assert sorted(real.tolist()) == list(range(SIZE))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("drop", [True, False])
def test_shards_of_each_batch_together_are_the_batch(count: int, drop: bool) -> None:
    whole = list(DataLoader(Memory(), sampler(), [Batch(10, drop_remainder=drop)]))
    for options in ("loader", "sampler"):
        parts = []
        for index in range(count):
            shard = grain.sharding.ShardOptions(index, count)
            where: Any = {"shard_options": shard} if options == "loader" else {}
            by_sampler = sampler(shard_options=shard) if options == "sampler" else sampler()
            parts.append(list(DataLoader(Memory(), by_sampler, [Batch(10, drop_remainder=drop)], **where)))
        for expected, *shares in zip(whole, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate([share["id"] for share in shares]), expected["id"])


def test_a_single_jax_process_reads_everything() -> None:
    loader = DataLoader(Memory(), sampler(), [Batch(10)], shard_options=grain.sharding.ShardByJaxProcess())
    assert (loader.pipeline.order.reader, loader.pipeline.order.readers) == (0, 1)


def test_each_jax_process_reads_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    loader = DataLoader(Memory(), sampler(), [Batch(10)], shard_options=grain.sharding.ShardByJaxProcess())
    assert (loader.pipeline.order.reader, loader.pipeline.order.readers) == (1, 3)
    assert [len(batch["id"]) for batch in loader][:2] == [3, 3]


def test_a_state_belongs_to_the_same_data_filters_and_transforms() -> None:
    def pipeline(*operations: Any) -> Any:
        return DataLoader(Memory(), sampler(), [*operations, Batch(8)]).pipeline

    state = pipeline(Odd(), Scale(2.0)).state(5)
    assert pipeline(Odd(), Scale(2.0)).restore(state) == 5
    for others, named in {
        (Odd(1), Scale(2.0)): "digest",
        (Odd(), Scale(3.0)): "transforms",
        (Odd(),): "transforms",
    }.items():
        with pytest.raises(PipelineStateError, match=named):
            pipeline(*others).restore(state)


class Bare(Memory):
    """Rows without a digest."""

    digest = None

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.columns["x"][0] = first


def test_a_state_of_rows_without_a_digest_belongs_to_their_content() -> None:
    for operations in ([Batch(8)], [Odd(), Batch(8)], [Low(), Batch(8)]):
        state = DataLoader(Bare(), sampler(), operations).pipeline.state(5)
        assert DataLoader(Bare(), sampler(), operations).pipeline.restore(state) == 5
        other = DataLoader(Bare(9), sampler(), operations).pipeline
        if isinstance(operations[0], Odd):  # the row that differs isn't among them
            assert other.restore(state) == 5
        else:
            with pytest.raises(PipelineStateError, match="digest"):
                other.restore(state)


def test_a_filter_whose_code_chooses_other_rows_makes_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    state = DataLoader(Memory(), sampler(), [Odd(), Batch(8)]).pipeline.state(5)
    monkeypatch.setattr(Odd, "filter", lambda self, element: (element["id"] % 2 == 0) & (element["id"] > 0))
    with pytest.raises(PipelineStateError, match="digest") as caught:
        DataLoader(Memory(), sampler(), [Odd(), Batch(8)]).pipeline.restore(state)
    assert set(caught.value.facts) == {"digest"}  # there are as many as before


@dataclass(frozen=True)
class Low(grain.transforms.Filter):
    def filter(self, element: Columns) -> Any:
        return element["id"] < 50


@dataclass(frozen=True)
class Gives(grain.transforms.Map):
    what: Any

    def map(self, element: Columns) -> Any:
        return self.what


@pytest.mark.parametrize("what", [None, 3, [1, 2], {"x": None}, {"x": 3.0}])
def test_a_map_that_gives_no_columns_is_named(what: Any) -> None:
    with pytest.raises(PipelineError, match="Gives gave something else than columns") as caught:
        list(DataLoader(Memory(), sampler(), [Batch(8), Gives(what)]))
    assert caught.value.facts["step"] == 0


def test_settings_reach_grain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []
    monkeypatch.setattr(Pipeline, "iterate", lambda self, start, stop, **settings: asked.append(settings))
    for workers, options in ((0, None), (2, None), (2, grain.ReadOptions(3, 5)), (0, grain.ReadOptions(0, 5))):
        DataLoader(Memory(), sampler(), [Batch(8)], worker_count=workers, read_options=options).batches()
    assert [(s["workers"], s["threads"], s["prefetch"]) for s in asked] == [
        (0, 0, 0), (2, 0, 0), (2, 3, 5), (0, 0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([], "one Batch"),
        ([Batch(2), Batch(3)], "one Batch"),
        ([Batch(2, batch_fn=list)], "batch_fn"),
        ([Scale(1.0), Odd(), Batch(2)], "before all other"),
        ([Batch(2), "shuffle"], "no transform"),
    ],
)
def test_operations_that_cannot_work(operations: list[Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        DataLoader(Memory(), sampler(), operations)


def test_other_parts_that_do_not_fit() -> None:
    with pytest.raises(PipelineError, match="another number"):
        DataLoader(Memory(), sampler(50), [Batch(2)])
    options: Any = grain.ReadOptions()
    options.num_threads = 2.5  # Grain's parameter that tunes itself isn't a whole number either
    with pytest.raises(ParameterError, match="whole numbers"):
        DataLoader(Memory(), sampler(), [Batch(2)], read_options=options)
    with pytest.raises(PipelineError, match="FirstHalf changed the number of rows"):
        list(DataLoader(Memory(), sampler(), [Batch(8), FirstHalf()]))
    with pytest.raises(PipelineError, match="no row passes Odd"):
        DataLoader(Memory(), sampler(), [Odd(SIZE), Batch(2)])
    with pytest.raises(ParameterError, match="keeps the remainder"):
        DataLoader(Memory(), sampler(), [Batch(8, drop_remainder=True)], mask="real")
    with pytest.raises(ParameterError, match="name of a column"):
        DataLoader(Memory(), sampler(), [Batch(8)], mask="id")


class TooFew(Memory):
    def read(self, ids: np.ndarray) -> Columns:
        return {**super().read(ids), "x": super().read(ids)["x"][:3]}


@pytest.mark.parametrize("transforms", [[], [Scale(2.0)]])
def test_a_source_that_gives_fewer_rows_loses_none_in_silence(transforms: list[Any]) -> None:
    with pytest.raises(PipelineError, match="another number of rows") as caught:
        list(DataLoader(TooFew(), sampler(), [Batch(8, drop_remainder=True), *transforms]))
    assert (caught.value.facts["got"], caught.value.facts["expected"]) == ({"id": 8, "x": 3}, 8)
    with pytest.raises(PipelineError, match="another number of rows"):
        list(evaluation_batches(TooFew(), 8))


def test_what_is_no_source_or_no_known_sampler() -> None:
    in_order = list(DataLoader(Memory(), grain.samplers.SequentialSampler(SIZE), [Batch(50)]))
    assert np.concatenate([batch["id"] for batch in in_order]).tolist() == list(range(SIZE))
    wrong: Any = list(range(SIZE))
    with pytest.raises(ParameterError, match="list is no data source") as caught:
        DataLoader(wrong, sampler(), [Batch(8)])
    assert caught.value.facts["missing"] == "features, read"
    with pytest.raises(ParameterError, match="sampler of yours"):
        DataLoader(Memory(), wrong, [Batch(8)])


class Kept(grain.transforms.Map):
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def map(self, element: Columns) -> Any:
        return element


def test_parameters_have_names() -> None:
    with pytest.raises(ParameterError, match="no state can name"):
        DataLoader(Memory(), sampler(), [Batch(8), Kept(3)])
