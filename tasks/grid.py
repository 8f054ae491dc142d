"""Which recipes a sweep tries: every combination of a grid's values, or what a search proposes inside of ranges."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from datasets.errors import ParameterError
from tasks.recipe_changes import recipe_changes

FACTOR = 10.0
"""A range whose ends differ by this factor or more is searched on a logarithmic scale."""


def grid_of(given: Mapping[str, Any] | None) -> dict[str, list[Any]]:
    """The values of each field: {"learning_rate": "1e-4,1e-3"} is {"learning_rate": [1e-4, 1e-3]}.

    Args:
        given: A list of values for each field, one value, or values in a text with commas between.

    Raises:
        UnknownNameError: There is no such field.
        ParameterError: A value is given twice, or it is a field that a sweep can't change.
    """
    grid = {name: _values(value) for name, value in (given or {}).items()}
    recipe_changes(grid, {})  # refuses names
    for name, values in grid.items():
        if name == "seed":
            raise ParameterError("each recipe is trained with several seeds", parameter="seed", cure="--seeds 5")
        if any(value in values[:at] for at, value in enumerate(values)):
            raise ParameterError("a value is given twice", parameter=name, got=values)
    return grid


def ranges_of(given: Mapping[str, Any] | None, grid: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """The ends of each range: {"learning_rate": "1e-5,1e-2"} is {"learning_rate": (1e-5, 1e-2)}.

    Raises:
        UnknownNameError: There is no such field.
        ParameterError: A range hasn't two numbers, the lower first, or the field is in the grid too.
    """
    ranges = {name: tuple(_values(value)) for name, value in (given or {}).items()}
    recipe_changes(ranges, {})
    for name, ends in ranges.items():
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        if name == "seed" or name in grid or not numbers or len(ends) != 2 or not ends[0] < ends[1]:
            raise ParameterError(
                "this can't be searched", parameter=name, got=list(ends), expected="two numbers, the lower first; no "
                "seed, and no field that is in the grid too",
            )  # fmt: skip
    return ranges  # type: ignore[return-value]


def combinations(grid: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values; the last field changes fastest. An empty grid has one, which changes nothing."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def search(
    grid: Mapping[str, list[Any]], ranges: Mapping[str, tuple[float, float]], trials: int, seed: int, *, lower: bool,
    measure: Callable[[dict[str, Any]], float | None],
) -> None:  # fmt: skip
    """Lets Optuna's TPE propose recipes one after the other, each from what was measured before.

    Its proposals follow from the seed and the measurements, so a search that is started again proposes the same ones.

    Args:
        grid: Choices.
        ranges: Ends of numbers; whole ones if both ends are.
        trials: How many recipes.
        seed: Of the proposals.
        lower: Whether less is better.
        measure: Gives what a recipe is worth, None if it failed.

    Raises:
        ParameterError: There is nothing to search, or Optuna isn't installed.
    """
    if not grid and not ranges:
        raise ParameterError("there is nothing to search", parameter="search", cure="--range learning_rate=1e-5,1e-2")
    try:
        import optuna  # pyright: ignore[reportMissingImports] - an optional extra
    except ImportError as error:
        raise ParameterError("a search needs Optuna", parameter="search", cure="pip install optuna") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    spaces: dict[str, Any] = {
        # A list is no choice of Optuna's, so a choice is the place in the list.
        **{name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in grid.items()
           if len(values) == 1},
        **{name: optuna.distributions.CategoricalDistribution(range(len(values))) for name, values in grid.items()
           if len(values) > 1},
        **{name: _distribution(optuna, *ends) for name, ends in ranges.items()},
    }  # fmt: skip
    study = optuna.create_study(
        direction="minimize" if lower else "maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    for _ in range(trials):
        trial = study.ask(spaces)
        value = measure({n: grid[n][at] if n in grid else at for n, at in trial.params.items()})
        if value is None or not math.isfinite(value):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)


def _distribution(optuna: Any, low: float, high: float) -> Any:  # noqa: ANN401
    log = low > 0 and high / low >= FACTOR
    if isinstance(low, int) and isinstance(high, int):
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(low, high, log=log)


def _values(given: Any) -> list[Any]:  # noqa: ANN401
    if not isinstance(given, str):
        return list(given) if isinstance(given, list | tuple) else [given]
    return [_value(part) for part in given.split(",")]


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return text
