"""The flow `train` without a run: its form, its command line and the order of its stages. test_train_flow runs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import pytest
from prefect.exceptions import ParameterTypeError

from flows.train import StageName, options, stages, train
from tasks.artifact import Artifact
from tasks.command import Command
from tasks.fetch import prepared
from tasks.planning import Plan
from tasks.request import STAGES
from tasks.stage import Stage

NAN, INF = float("nan"), float("inf")


def parsed(*arguments: str) -> dict[str, Any]:
    given = vars(options(Command("flows.train", "")).parser.parse_args(["mnist", *arguments]))
    return {name: value for name, value in given.items() if name not in ("json", "debug")}


def test_each_option_is_a_parameter_and_each_parameter_an_option() -> None:
    assert set(parsed()) == set(train.parameters.properties)
    assert train.parameters.required == ["dataset"]
    assert {name for name, value in parsed().items() if value is not None} == {"dataset"}


def test_what_the_command_reads_the_flow_takes_as_it_is() -> None:
    given = parsed(
        "--model", "mlp", "--epochs", "3", "--batch-size", "64", "--learning-rate", "1e-3", "--seed", "0",
        "--store", "7", "--raw", "8", "--checkpoint-every", "20", "--keep-best", "0", "--warm-start", "champion",
        "--warm-start-only", "9", "--on-nonfinite", "skip", "--debug-checks",
        "--refresh", "fit", "--from", "evaluate", "--timeout", "90",
        "--devices", "4", "--processes", "2", "--process", "1", "--coordinator", "host0:8476",
        "--set", "clip_norm=1.0", "--set", "optimizer=sgd",
    )  # fmt: skip
    assert None not in given.values()
    assert train.validate_parameters(given) == given
    assert (given["epochs"], given["learning_rate"], given["store"]) == (3, 0.001, "7")
    assert (given["debug_checks"], parsed("--debug-checks", "force")["debug_checks"]) == ("on", "force")


def test_the_form_explains_every_parameter() -> None:
    without = [name for name, field in train.parameters.properties.items() if not field.get("description")]
    assert not without


def test_the_form_knows_choices_and_bounds() -> None:
    fields = train.parameters.properties

    def of(name: str) -> dict[str, Any]:
        return fields[name].get("anyOf", [fields[name]])[0]

    least = {"epochs": 1, "batch_size": 1, "checkpoint_every": 1, "seed": 0, "keep_best": 0}
    assert {name: of(name)["minimum"] for name in least} == least
    assert of("learning_rate")["exclusiveMinimum"] == of("timeout")["exclusiveMinimum"] == 0
    assert of("on_nonfinite")["enum"] == ["stop", "skip"]
    assert "fit" in of("refresh")["enum"]
    assert of("recipe")["type"] == "object"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("epochs", "batch_size", "checkpoint_every") for value in (True, NAN, 0, 1.5, "3")],
        *[("learning_rate", value) for value in (True, NAN, 0, -1e-3, INF, "fast")],
        ("seed", -1), ("seed", False), ("keep_best", -1), ("on_nonfinite", "ignore"), ("debug_checks", "off"),
        ("refresh", "train"), ("from_stage", ""), ("timeout", 0), ("timeout", NAN), ("timeout", True),
    ],
)  # fmt: skip
def test_the_flow_refuses_what_can_not_work(name: str, value: Any) -> None:
    with pytest.raises(ParameterTypeError, match=f"- {name}"):
        train.validate_parameters({"dataset": "mnist", name: value})


def test_the_flow_takes_the_least_that_works() -> None:
    least = {"epochs": 1, "batch_size": 1, "checkpoint_every": 1, "learning_rate": 5e-324, "seed": 0, "keep_best": 0}
    taken = train.validate_parameters({"dataset": "mnist", **least})
    assert {name: taken[name] for name in least} == least


class Watched(Plan):
    """A plan that notes from which stage each stage takes its inputs."""

    def take(self, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        made = super().take(stage, inputs)
        makers = {id(outcome.artifact): outcome.name for outcome in self.outcomes}
        self.taken.append((stage.name, {name: makers[id(artifact)] for name, artifact in inputs.items()}))
        return made

    @cached_property
    def taken(self) -> list[tuple[str, dict[str, str]]]:
        return []


def test_seven_stages_in_order_each_on_what_those_before_it_made(tmp_path: Path) -> None:
    plan = Watched(prepared("mnist", keep=False, store=str(tmp_path / "store")))
    stages(plan)
    assert plan.taken == [
        ("fetch", {}),
        ("convert", {"raw": "fetch"}),
        ("validate", {"records": "convert"}),
        ("feed", {"records": "convert", "report": "validate"}),
        ("fit", {"records": "convert", "report": "validate", "plan": "feed"}),
        ("evaluate", {"records": "convert", "weights": "fit"}),
        ("promote", {"records": "convert", "weights": "fit", "evaluation": "evaluate"}),
    ]
    assert [row["name"] for row in plan.to_json()["stages"]] == [name for name, _ in plan.taken]
    assert [name for name, _ in plan.taken] == [name for name in STAGES if name != "transform"]  # it has no transforms
    assert get_args(StageName) == STAGES
    assert not (tmp_path / "store").exists()
