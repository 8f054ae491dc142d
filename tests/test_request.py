"""A request is checked in full before any work starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasets
from datasets.errors import ParameterError, UnknownNameError
from datasets.schema import RECIPE_FIELDS, Files
from tasks.request import CHECKOUT, check, model_names, store_root

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "cure"), [("mnits", "did you mean mnist"), ("fashion", "did you mean fashion_mnist"), ("zzz", None)]
)
def test_an_unknown_dataset_is_answered_with_the_nearest(name: str, cure: str | None) -> None:
    with pytest.raises(UnknownNameError, match=f"there is no dataset '{name}'") as caught:
        check(name)
    assert (caught.value.cure is None) if cure is None else str(caught.value.cure).startswith(cure)
    assert "mnist_full" in caught.value.facts["known"]


@pytest.mark.parametrize("model", ["cnnn", "../mlp", "", 3])
def test_an_unknown_model_is_answered_with_those_that_exist(model: Any) -> None:
    with pytest.raises(UnknownNameError, match="there is no model") as caught:
        check("mnist", model=model)
    assert caught.value.facts["known"] == ", ".join(model_names())


def test_an_unknown_parameter_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="there is no recipe field 'learning_rat'") as caught:
        check("mnist", learning_rat=0.1)
    assert caught.value.cure == "did you mean learning_rate?"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("epochs", 0), ("epochs", -1), ("epochs", 1.0), ("epochs", True), ("epochs", "3"), ("epochs", NAN),
        ("batch_size", 0), ("batch_size", True), ("batch_size", 12.5), ("batch_size", 9_001),
        ("learning_rate", NAN), ("learning_rate", INF), ("learning_rate", -INF), ("learning_rate", 0.0),
        ("learning_rate", True), ("learning_rate", "fast"), ("learning_rate", 10**400),
        ("seed", -1), ("seed", False), ("seed", 1.5), ("seed", 2**32),
        ("dropout", 1.0), ("clip_norm", NAN),
    ],
)  # fmt: skip
def test_a_value_that_can_not_work_is_one_typed_error_that_names_it(parameter: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        check("mnist", **{parameter: value})
    assert caught.value.facts["parameter"] == parameter
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("value", [0, -5, 1.0, True, "200", NAN])
def test_steps_between_checkpoints(value: Any) -> None:
    with pytest.raises(ParameterError, match="checkpoint_every"):
        check("mnist", checkpoint_every=value)
    assert check("mnist").checkpoint_every is None


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", NAN, None])
def test_how_many_of_the_best_checkpoints_stay(value: Any) -> None:
    with pytest.raises(ParameterError, match="keep_best"):
        check("mnist", keep_best=value)
    assert check("mnist", keep_best=0).keep_best == 0


def test_a_batch_may_be_as_large_as_the_train_split_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check("mnist", batch_size=9_000).dataset.recipe.batch_size == 9_000
    with pytest.raises(ParameterError, match="larger than the train split") as caught:
        check("mnist", batch_size=9_001)
    assert caught.value.facts["expected"] == "at most 9000 examples"
    known = datasets.load("mnist")
    by_file = replace(known, splits={"train": Files("train", count=10), "test": Files("test")})
    monkeypatch.setattr(datasets, "load", lambda name: by_file)
    with pytest.raises(ParameterError, match="larger than the train split"):
        check("mnist", batch_size=11)
    unknown = replace(known, splits={"train": Files("train"), "test": Files("test")})
    monkeypatch.setattr(datasets, "load", lambda name: unknown)
    assert check("mnist", batch_size=11).dataset.recipe.batch_size == 11


def test_only_what_differs_from_the_dataset_file_is_a_change() -> None:
    own = datasets.load("mnist").recipe
    request = check("mnist", epochs=own.epochs, learning_rate=0.5, seed=None, model=None)
    assert request.changed == {"learning_rate": 0.5}
    assert request.dataset.recipe == replace(own, learning_rate=0.5)
    assert datasets.load("mnist").recipe == own
    assert request.raw is None
    assert request.name == "mnist"


def test_every_recipe_field_can_be_asked_for() -> None:
    own = datasets.load("mnist").recipe
    assert check("mnist", **{name: getattr(own, name) for name in RECIPE_FIELDS}).changed == {}


def test_the_store_is_found_from_any_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRISTMILL_STORE", "from/environment")
    assert store_root() == CHECKOUT / "from/environment"
    assert store_root("given") == CHECKOUT / "given"
    assert store_root(tmp_path) == tmp_path
    monkeypatch.setenv("GRISTMILL_STORE", "")
    assert store_root() == CHECKOUT / "store"
    assert check("mnist", store="given").store == CHECKOUT / "given"


def test_the_raw_folder_starts_at_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert check("mnist", raw="files").raw == tmp_path / "files"
    assert check("mnist", raw=tmp_path / "x").raw == tmp_path / "x"


def test_models_are_the_files() -> None:
    assert {"cnn", "mlp"} <= set(model_names())
    assert "__init__" not in model_names()


def test_debug_checks_have_a_key_of_their_own(tmp_path: Path) -> None:
    from tasks.fit import fit
    from tasks.stage import Run

    plain, checked, forced = (check("mnist", store=tmp_path, debug_checks=how) for how in (None, "on", "force"))
    parts = [fit.parameters(Run(request)) for request in (plain, checked, forced)]
    assert "debug_checks" not in parts[0]
    assert parts[1] == parts[2] == {**parts[0], "debug_checks": True}
    with pytest.raises(UnknownNameError, match="debug_checks"):
        check("mnist", store=tmp_path, debug_checks="yes")


@pytest.mark.parametrize(
    ("how", "scheduled", "refused"),
    [("on", True, True), ("on", False, False), (None, True, False), ("force", True, False)],
)
def test_a_schedule_does_not_debug(
    monkeypatch: pytest.MonkeyPatch, how: str | None, scheduled: bool, refused: bool
) -> None:
    from types import SimpleNamespace

    from prefect.context import FlowRunContext

    from tasks.request import refuse_scheduled_debug

    run = SimpleNamespace(flow_run=SimpleNamespace(auto_scheduled=scheduled))
    monkeypatch.setattr(FlowRunContext, "get", classmethod(lambda cls: run))
    if refused:
        with pytest.raises(ParameterError, match="scheduled run"):
            refuse_scheduled_debug(how)
    else:
        refuse_scheduled_debug(how)


def test_stages_that_run_again_are_named_one_by_one_or_from_one_on(tmp_path: Path) -> None:
    def again(**given: Any) -> set[str]:
        return set(check("mnist", store=tmp_path, **given).again)

    assert again() == set()
    assert again(refresh="convert") == {"convert"}
    assert again(from_stage="fit") == {"fit", "evaluate", "promote"}
    assert again(refresh="fetch", from_stage="promote") == {"fetch", "promote"}
    for name in ("refresh", "from_stage"):
        with pytest.raises(UnknownNameError, match="there is no stage 'evalute'") as caught:
            again(**{name: "evalute"})
        assert str(caught.value.cure).startswith("did you mean evaluate")


@pytest.mark.parametrize("value", [0, -1, NAN, INF, True, "60"])
def test_a_timeout_that_can_not_work(value: Any) -> None:
    with pytest.raises(ParameterError, match="timeout"):
        check("mnist", timeout=value)
