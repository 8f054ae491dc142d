from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from datasets.errors import ArtifactDamaged
from datasets.schema import Feature
from tasks import promote as module
from tasks import weights as weights_module
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_json
from tasks.evaluate import METRICS, PREDICTIONS, _npz
from tasks.promote import DECISION, lost_champion, promote_candidate, rival_of
from tasks.registry import Registry
from tasks.request import Request
from tasks.scoring import score
from tasks.stage import Outcome, Run

ROWS = 60
TRUTH = np.arange(ROWS) % 3
BASE = np.where(np.arange(ROWS) < 10, (TRUTH + 1) % 3, TRUTH)  # the first ten are wrong


def answers(better: int = 0, worse: int = 0) -> np.ndarray:
    """Those of the first champion, so many of its mistakes made good and so many right answers made wrong."""
    made = BASE.copy()
    made[:better] = TRUTH[:better]
    made[ROWS - worse :] = (TRUTH[ROWS - worse :] + 1) % 3
    return made


@dataclass
class Nights:
    """A store with records, and a training for each night."""

    request: Request
    records: Artifact

    @property
    def store(self) -> Store:
        return Store(self.request.store)

    @property
    def registry(self) -> Registry:
        return Registry(self.store, "toy")

    def candidate(self, key: str, said: np.ndarray) -> tuple[Artifact, Artifact]:
        # so that two nights with equal answers have other weights
        strength = 5.0 + sum(map(ord, key)) / 1000
        weights = toy.weights_that_say(self.request, said, key, strength=strength)
        metrics = score(TRUTH, said, np.zeros(ROWS, np.float32), toy.CLASSES)

        def fill(draft: Draft) -> None:
            write_json(draft.folder / METRICS, metrics)
            (draft.folder / PREDICTIONS).write_bytes(_npz(predicted=said, logits=np.zeros((ROWS, 3), np.float32)))
            draft.facts = {"weights": weights.digest, "correct": metrics["correct"]}

        return weights, toy.job(self.request, "evaluate", key).commit("evaluation", fill)

    def promote(self, key: str, said: np.ndarray, request: Request | None = None) -> dict[str, Any]:
        weights, evaluation = self.candidate(key, said)
        job = toy.job(request or self.request, "promote", f"promote-{key}")
        decision = promote_candidate(job, self.records, weights, evaluation)
        assert read_json(self.store.path(decision) / DECISION) == self.store.facts(decision)
        return {**self.store.facts(decision), "digest": decision.digest}

    @property
    def pointer(self) -> bytes:
        return self.registry.pointer.read_bytes()

    def rival(self, key: str, said: np.ndarray) -> str | None:
        weights, _ = self.candidate(key, said)
        run = Run(self.request, [Outcome("fit", key, "ran", 0.0, weights, {})])
        return rival_of(run)

    def digest(self, key: str, said: np.ndarray) -> str:
        return self.candidate(key, said)[0].digest


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose champion is v1."""
    store = tmp_path_factory.mktemp("base")
    request = toy.table_request(store, ROWS)
    Nights(request, toy.records_of(request)).promote("first", BASE)
    return store


@pytest.fixture
def nights(base: Path, tmp_path: Path) -> Nights:
    shutil.copytree(base, tmp_path / "store")
    request = toy.table_request(tmp_path / "store", ROWS)
    records = Store(request.store).find("records", "toy", "convert-1")
    assert records is not None
    return Nights(request, records)


# --------------------------------------------------------------------------------------------------------- the decision


def test_the_first_candidate_is_promoted(tmp_path: Path) -> None:
    request = toy.table_request(tmp_path, ROWS)
    nights = Nights(request, toy.records_of(request))
    decision = nights.promote("first", BASE)
    weights, evaluation = nights.candidate("first", BASE)
    assert {name: value for name, value in decision.items() if name != "digest"} == {
        "promoted": True, "reason": "no champion", "version": "v1", "champion_before": None,
        "candidate": weights.digest, "records": nights.records.digest, "evaluation": evaluation.digest,
    }  # fmt: skip
    champion = nights.registry.champion()
    assert champion is not None
    assert (champion.version, champion.weights, champion.previous) == ("v1", weights.digest, None)
    folder = nights.store.path(champion.model)
    assert read_json(folder / METRICS)["correct"] == 50
    assert read_json(folder / DECISION)["reason"] == "no champion"


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (0, 5, 1.0), (4, 0, 0.0625), (6, 2, 0.14453125), (1, 1, 0.75)],
    ids=["tie", "worse", "better by chance", "better in some, worse in others", "as good, elsewhere"],
)
def test_what_is_not_better_beyond_chance_is_refused(nights: Nights, better: int, worse: int, p: float) -> None:
    before = nights.pointer
    decision = nights.promote("second", answers(better, worse))
    assert decision["promoted"] is False
    assert decision["test"] == {"wins": better, "losses": worse, "p": pytest.approx(p)}
    assert "not better than the champion beyond chance" in decision["reason"]
    assert f"{better} times" in decision["reason"]
    assert decision["champion_before"] == "v1"
    assert decision["champion_correct"] == 50
    assert decision["records"] == nights.records.digest
    assert "version" not in decision
    assert nights.pointer == before
    assert nights.registry.versions() == ["v1"]


@pytest.mark.parametrize(("better", "worse"), [(5, 0), (10, 2)])
def test_a_better_one_is_promoted(nights: Nights, better: int, worse: int) -> None:
    decision = nights.promote("second", answers(better, worse))
    assert (decision["promoted"], decision["version"], decision["champion_before"]) == (True, "v2", "v1")
    assert decision["test"] == {"wins": better, "losses": worse, "p": pytest.approx(decision["test"]["p"])}
    champion = nights.registry.champion()
    assert champion is not None
    assert champion.weights == nights.digest("second", answers(better, worse))
    assert champion.previous == nights.digest("first", BASE)
    assert nights.registry.versions() == ["v1", "v2"]


def test_a_week_of_nights(nights: Nights) -> None:
    week = [("mon", answers(3)), ("tue", answers(6)), ("wed", answers(6)), ("thu", answers(6, 9)), ("fri", answers(10))]
    decisions = [nights.promote(key, said)["promoted"] for key, said in week]
    assert decisions == [False, True, False, False, False]  # friday wins four, which chance explains
    champion = nights.registry.champion()
    assert champion is not None
    assert champion.version == "v2"


# ------------------------------------------------------------------------------------- champions that can't be compared


def changed(nights: Nights, **features: Feature) -> Request:
    made = nights.request.dataset
    return replace(nights.request, dataset=replace(made, features={**made.features, **features}))


def refused(nights: Nights, request: Request, key: str = "second") -> str:
    before = nights.pointer
    decision = nights.promote(key, answers(10), request)
    assert decision["promoted"] is False
    assert decision["champion_before"] == "v1"
    assert nights.pointer == before
    return decision["reason"]


@pytest.mark.parametrize("classes", [("circle", "cross", "ring", "star"), ("cross", "circle", "ring"), ("a", "b", "c")])
def test_a_champion_of_other_classes_stays_and_the_difference_is_named(nights: Nights, classes: Any) -> None:
    reason = refused(nights, changed(nights, label=Feature("int32", classes=classes)))
    assert str(list(toy.CLASSES)) in reason
    assert str(list(classes)) in reason


def test_a_champion_of_other_inputs_stays_and_the_difference_is_named(nights: Nights) -> None:
    made = nights.request.dataset
    columns = {"x": np.zeros((120, 7), np.float32), "label": np.concatenate([TRUTH, TRUTH]).astype(np.int32)}
    features = {"x": Feature("float32", (7,)), "label": made.features["label"]}
    request = replace(nights.request, dataset=replace(made, features=features, read=toy.reader_of(columns)))
    nights.records = toy.records_of(request, key="narrow")
    reason = refused(nights, request)
    assert "x is float32[60], now float32[7]" in reason


def test_a_champion_whose_input_is_gone_stays(nights: Nights) -> None:
    made = nights.request.dataset
    columns = {"z": np.eye(120, 60, dtype=np.float32), "label": np.concatenate([TRUTH, TRUTH]).astype(np.int32)}
    features = {"z": Feature("float32", (60,)), "label": made.features["label"]}
    request = replace(nights.request, dataset=replace(made, features=features, inputs="z", read=toy.reader_of(columns)))
    nights.records = toy.records_of(request, key="renamed")
    assert "x is float32[60], now nothing" in refused(nights, request)


def test_a_champion_of_a_model_that_is_gone_stays(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.candidate("second", answers(10))

    def gone(name: str, *args: Any, **options: Any) -> Any:
        raise ModuleNotFoundError(f"No module named 'tasks.models.{name}'")

    load = weights_module.load_model

    def load_without_models(folder: Path) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(weights_module, "build_model", gone)
            return load(folder)

    monkeypatch.setattr(weights_module, "load_model", load_without_models)
    assert "can't be evaluated today" in refused(nights, nights.request)


def test_a_champion_that_gives_nan_on_todays_data_stays(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    load = weights_module.load_model

    def load_nan(folder: Path) -> Any:
        model, card = load(folder)
        model.head.bias[...] = np.full(3, np.nan, np.float32)  # type: ignore[attr-defined]
        return model, card

    monkeypatch.setattr(weights_module, "load_model", load_nan)
    assert "isn't finite" in refused(nights, nights.request)


def test_a_damaged_champion_is_an_error_and_nothing_changes(nights: Nights) -> None:
    path = nights.registry.folder / "v1" / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = nights.pointer
    with pytest.raises(ArtifactDamaged) as caught:
        nights.promote("second", answers(10))
    assert caught.value.facts["file"] == path
    assert nights.pointer == before
    assert nights.registry.versions() == ["v1"]
    assert not (nights.store.root / "decision" / "toy" / "promote-second").exists()


# ------------------------------------------------------------------------------------------------------------ killed


class Killed(BaseException):
    pass


def kill(*args: Any, **options: Any) -> None:
    raise Killed


@pytest.mark.parametrize("moment", ["before the crown", "before the decision is kept"])
def test_killed_half_way_the_next_run_ends_the_same(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    shutil.copytree(nights.request.store, tmp_path / "undisturbed")
    undisturbed = Nights(replace(nights.request, store=tmp_path / "undisturbed"), nights.records)
    expected = undisturbed.promote("second", answers(5))

    nights.candidate("second", answers(5))
    before = nights.pointer
    with monkeypatch.context() as patch:
        if moment == "before the crown":
            patch.setattr(Registry, "crown", kill)
        else:
            patch.setattr(module, "write_json", kill)
        with pytest.raises(Killed):
            nights.promote("second", answers(5))
    assert (nights.pointer == before) is (moment == "before the crown")
    assert nights.promote("second", answers(5)) == expected
    champion, other = nights.registry.champion(), undisturbed.registry.champion()
    assert champion is not None
    assert other is not None
    assert (champion.version, champion.weights, champion.previous) == (other.version, other.weights, other.previous)
    assert nights.registry.versions() == ["v1", "v2"]


def test_the_same_again_is_the_same_decision(nights: Nights) -> None:
    first = nights.promote("second", answers(5))
    assert nights.promote("second", answers(5)) == first
    assert nights.registry.versions() == ["v1", "v2"]


# ------------------------------------------------------------------------------------------------------------- the key


def test_the_rival_keeps_a_decision_cached(nights: Nights) -> None:
    first, second = nights.digest("first", BASE), nights.digest("second", answers(5))
    assert nights.rival("first", BASE) is None
    assert nights.rival("second", answers(5)) == first
    nights.promote("second", answers(5))
    assert nights.rival("second", answers(5)) == first  # as when it was decided
    assert nights.rival("third", answers(7)) == second


def test_a_refusal_stays_cached_while_the_champion_stays(nights: Nights) -> None:
    before = nights.rival("second", answers(1))
    nights.promote("second", answers(1))
    assert nights.rival("second", answers(1)) == before == nights.digest("first", BASE)


def test_a_champion_moved_by_hand_is_respected(nights: Nights) -> None:
    decided = nights.rival("second", answers(5))
    nights.promote("second", answers(5))
    version_1 = nights.store.find("models", "toy", "v1")
    assert version_1 is not None
    nights.registry.crown(version_1)
    assert nights.rival("second", answers(5)) == decided  # so the old decision is found, and nothing is crowned again
    assert nights.rival("third", answers(7)) == nights.digest("first", BASE)
    decision = nights.promote("third", answers(7))
    assert (decision["champion_before"], decision["version"]) == ("v1", "v3")


def test_a_lost_champion_is_noticed(nights: Nights) -> None:
    decision = nights.store.find("decision", "toy", "promote-first")
    assert decision is not None
    assert lost_champion(nights.store, decision) is None
    nights.registry.pointer.unlink()
    assert str(nights.registry.pointer) in str(lost_champion(nights.store, decision))


def test_a_refusal_has_no_champion_to_lose(nights: Nights) -> None:
    nights.promote("second", answers(0))
    nights.registry.pointer.unlink()
    refusal = nights.store.find("decision", "toy", "promote-second")
    assert refusal is not None
    assert lost_champion(nights.store, refusal) is None
