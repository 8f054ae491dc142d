from __future__ import annotations

import inspect
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

import datasets
from datasets.errors import ArtifactDamaged
from datasets.schema import Feature, Gate
from tasks import promote as module
from tasks import weights as weights_module
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_json
from tasks.evaluate import METRICS, PREDICTIONS, _npz
from tasks.handover import hand_over
from tasks.promote import DECISION, PAGE, lost_champion, promote_candidate, rival_of
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
    truth: np.ndarray = field(default_factory=lambda: TRUTH)

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
        logits = strength * np.eye(3, dtype=np.float32)[said]
        losses = (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(ROWS), self.truth]).astype(np.float32)
        metrics = score(self.truth, logits, losses, toy.CLASSES)

        def fill(draft: Draft) -> None:
            write_json(draft.folder / METRICS, metrics)
            (draft.folder / PREDICTIONS).write_bytes(_npz(logits=logits, losses=losses))
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
    assert {name: value for name, value in decision.items() if name not in ("digest", "gate", "rule")} == {
        "promoted": True, "reason": "no champion", "version": "v1", "champion_before": None, "format": 2,
        "outcome": "first", "checks": [],
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
    assert decision["outcome"] == ("tie" if better == worse else "not better")
    assert [decision["test"][name] for name in ("wins", "losses", "p")] == [better, worse, pytest.approx(p)]
    assert decision["test"]["champion_correct"] == 50
    assert "none are set" in decision["rule"]
    assert "not better than the champion beyond chance" in decision["reason"]
    assert f"{better} times" in decision["reason"]
    assert decision["champion_before"] == "v1"
    assert decision["records"] == nights.records.digest
    assert "version" not in decision
    assert nights.pointer == before
    assert nights.registry.versions() == ["v1"]


@pytest.mark.parametrize(("better", "worse"), [(5, 0), (10, 2)])
def test_a_better_one_is_promoted(nights: Nights, better: int, worse: int) -> None:
    decision = nights.promote("second", answers(better, worse))
    assert (decision["promoted"], decision["version"], decision["champion_before"]) == (True, "v2", "v1")
    assert decision["outcome"] == "better"
    assert (decision["test"]["wins"], decision["test"]["losses"]) == (better, worse)
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


# ------------------------------------------------------------------------------------------------------------ the gate


def gated(nights: Nights, **limits: Any) -> Request:
    made = nights.request.dataset
    return replace(nights.request, dataset=replace(made, gate=Gate(**limits)))


def test_a_first_candidate_outside_its_limits_is_refused(tmp_path: Path) -> None:
    nights = Nights(
        request := toy.table_request(tmp_path, ROWS, gate=Gate(minimum={"accuracy": 0.9})), toy.records_of(request)
    )
    decision = nights.promote("first", BASE)
    assert (decision["promoted"], decision["outcome"]) == (False, "outside its limits")
    assert decision["reason"] == "no champion; outside its limits: minimum accuracy 0.8333333333333334 (limit 0.9)"
    assert nights.registry.champion() is None
    assert nights.registry.versions() == []
    assert nights.promote("second", TRUTH)["version"] == "v1"


@pytest.mark.parametrize(
    "limits",
    [{"minimum": {"accuracy": 0.95}}, {"maximum": {"loss": 0.01}}, {"max_bytes": 100}, {"max_latency_ms": 1e-5},
     {"max_class_drop": 0.04}],
    ids=lambda limits: next(iter(limits)),
)  # fmt: skip
def test_a_better_one_outside_its_limits_is_refused_and_the_champion_untouched(
    nights: Nights, limits: dict[str, Any]
) -> None:
    before = toy.files_below(nights.registry.folder)
    said = BASE.copy()
    said[[0, 1, 3, 4, 6, 7, 9]] = TRUTH[[0, 1, 3, 4, 6, 7, 9]]
    said[59] = 0  # one of twenty in the third class
    decision = nights.promote("second", said, gated(nights, **limits))
    assert (decision["promoted"], decision["outcome"]) == (False, "outside its limits")
    assert decision["test"]["better"] is True
    (check,) = [check for check in decision["checks"] if not check["passed"]]
    assert f"{check['what']} {check['got']}" in decision["reason"]
    assert toy.files_below(nights.registry.folder) == before
    assert decision["gate"][next(iter(limits))] == next(iter(limits.values()))


def test_a_better_one_within_its_limits_is_promoted_and_they_are_recorded(nights: Nights) -> None:
    limits = {"minimum": {"accuracy": 0.9}, "max_class_drop": 0.05, "max_latency_ms": 1e6, "max_bytes": 10**6}
    decision = nights.promote("second", answers(8, 1), gated(nights, **limits))
    assert (decision["promoted"], decision["outcome"]) == (True, "better")
    assert [check["passed"] for check in decision["checks"]] == [True] * 4
    page = (nights.store.root / "decision" / "toy" / "promote-second" / PAGE).read_text()
    assert "Promoted: better than the champion" in page
    assert "| minimum accuracy | 0.9 | 0.95 | kept |" in page


def test_another_metric_decides_if_the_dataset_file_says_so(nights: Nights) -> None:
    # equal in accuracy, and surer where it is right: better in loss
    decision = nights.promote("zzzzzzzzzzzzzzzzzzzz", answers(4), gated(nights, metric="loss"))
    assert decision["test"]["method"] == "paired bootstrap"
    assert decision["test"]["metric"] == "loss"
    assert decision["promoted"] is (decision["test"]["interval"][0] > 0)
    assert nights.promote("worse", answers(0, 9), gated(nights, metric="loss"))["promoted"] is False


def test_a_changed_limit_asks_again(nights: Nights) -> None:
    run = Run(nights.request, [Outcome("fit", "k", "ran", 0.0, nights.candidate("second", BASE)[0], {})])
    plain = module.promote.parameters(run)
    run.request = gated(nights, minimum={"accuracy": 0.1})
    assert module.promote.parameters(run) != plain


def test_a_slice_may_not_fall(nights: Nights) -> None:
    made = nights.request.dataset
    place = (np.arange(2 * ROWS) % ROWS >= ROWS - 1).astype(np.int32)
    columns = {
        "x": np.concatenate([np.eye(ROWS, dtype=np.float32)] * 2), "place": place,
        "label": np.concatenate([TRUTH, TRUTH]).astype(np.int32),
    }  # fmt: skip
    features = {**made.features, "place": Feature("int32", classes=("many", "one"))}
    dataset = replace(
        made, features=features, read=toy.reader_of(columns), slices=("place",), gate=Gate(max_slice_drop=0.5)
    )
    request = replace(nights.request, dataset=dataset)
    nights.records = toy.records_of(request, key="with-place")
    decision = nights.promote("second", answers(9, 1), request)  # the one that it makes wrong is a slice by itself
    assert decision["test"]["better"] is True
    assert decision["promoted"] is False
    assert "fall in place one 1.0 (limit 0.5)" in decision["reason"]


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


@pytest.mark.parametrize("classes", [("circle", "cross", "ring", "star"), ("circle", "cross"), ("a", "b", "c")])
def test_a_champion_of_other_classes_stays_and_the_difference_is_named(nights: Nights, classes: Any) -> None:
    reason = refused(nights, changed(nights, label=Feature("int32", classes=classes)))
    assert str(list(toy.CLASSES)) in reason
    assert str(list(classes)) in reason


def test_classes_are_matched_by_name(nights: Nights) -> None:
    """The same answers, in a store whose labels are in another order."""
    order = ("ring", "circle", "cross")
    renumbered = np.array([order.index(name) for name in toy.CLASSES])
    made = nights.request.dataset
    columns = {
        "x": np.concatenate([np.eye(ROWS, dtype=np.float32)] * 2),
        "label": renumbered[np.concatenate([TRUTH, TRUTH])].astype(np.int32),
    }
    features = {"x": made.features["x"], "label": Feature("int32", classes=order)}
    request = replace(nights.request, dataset=replace(made, features=features, read=toy.reader_of(columns)))
    nights.records = toy.records_of(request, key="renumbered")
    nights.request, nights.truth = request, renumbered[TRUTH]
    decision = nights.promote("second", renumbered[answers(7, 1)])
    assert (decision["test"]["wins"], decision["test"]["losses"]) == (7, 1)
    assert decision["test"]["champion_correct"] == 50
    assert decision["promoted"] is True


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


# ------------------------------------------------------------------------------------------------------- the command


def test_the_deployment_takes_what_the_command_takes(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.promote import promote as flow

    asked = set(inspect.signature(hand_over).parameters) - {"only_list"}
    assert set(inspect.signature(flow.fn).parameters) == asked
    monkeypatch.setattr(datasets, "names", lambda: ["toy"])
    nights.promote("second", answers(5))
    store = str(nights.request.store)
    assert flow.fn("toy", store=store)["champion"] == "v2"
    assert flow.fn("toy", rollback=True, by="Ada", store=store)["by_hand"][0]["by"] == "Ada"
    assert flow.fn("toy", "v1", alias="old", store=store)["names"] == {"champion": "v1", "previous": "v2", "old": "v1"}
