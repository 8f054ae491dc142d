from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental.compilation_cache import compilation_cache

from datasets.errors import ContractError, TraceBudgetExceeded
from tasks.budget import TraceBudget


def step(carry: Any, batch: Any, scale: Any = None) -> Any:
    return carry + jnp.sum(batch["x"]) * (1 if scale is None else scale)


def zeros(n: int = 3, dtype: Any = np.float32) -> dict[str, Any]:
    return {"x": np.zeros(n, dtype)}


@pytest.mark.parametrize(
    ("first", "second", "changed", "cause"),
    [
        ((1.0, zeros(3)), (1.0, zeros(1)), "batch/x: float32[3] -> float32[1]", "short last batch"),
        ((1.0, zeros()), (1.0, zeros(dtype=np.uint8)), "batch/x: float32[3] -> uint8[3]", "dtype"),
        ((1.0, zeros()), (1.0, {"x": [0.0] * 3}), "batch/x: float32[3] -> 3 separate values", "is a list"),
        ((1.0, zeros()), (np.float32(1), zeros()), "carry: float32[] weak -> float32[]", "Python number"),
        ((1.0, zeros()), (1.0, {**zeros(), "y": 1}), "batch/y: absent -> int32[] weak", "came or went: batch/y"),
        ((1.0, zeros()), (1.0, zeros(), 2.0), "scale: absent -> float32[] weak", "came or went: scale"),
    ],
)
def test_a_second_trace_is_refused_and_explained(first: Any, second: Any, changed: str, cause: str) -> None:
    budget = TraceBudget("train")
    guarded = budget.jit(step)
    guarded(*first)
    guarded(*first)
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(*second)
    facts = caught.value.facts
    assert (facts["budget"], facts["traces"]) == (1, 2)
    assert facts["changed"].startswith(changed)
    assert cause in facts["cause"]
    assert caught.value.cure
    assert len(budget.compilations) == 1  # refused before anything was compiled


def test_values_and_kinds_of_arrays_are_no_new_trace() -> None:
    budget = TraceBudget("train")
    guarded = budget.jit(step)
    for x in (np.ones(3, np.float32), np.zeros(3, np.float32), jnp.ones(3)):
        for scale in (1.0, 2.0):
            guarded(np.float32(0), {"x": x}, scale)
    assert budget.report()["used"] == 1


def test_the_nearest_earlier_trace_is_compared() -> None:
    guarded = TraceBudget("train", 2).jit(step)
    guarded(1.0, zeros(3))
    guarded(1.0, zeros(5, np.int32))
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(np.float32(1), zeros(5, np.int32))
    assert caught.value.facts["changed"] == "carry: float32[] weak -> float32[]"
    assert (caught.value.facts["budget"], caught.value.facts["traces"]) == (2, 3)


def test_a_recompilation_without_a_trace_is_refused_before_it_runs() -> None:
    budget = TraceBudget("train")
    guarded = budget.jit(step, donate_argnums=0)
    guarded(jnp.float32(0), zeros())
    committed = jax.device_put(jnp.float32(7), jax.devices()[0])
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(committed, zeros())
    assert len(budget.traces) == 1
    assert caught.value.facts["changed"] == "carry: float32[] on cpu:0 uncommitted -> float32[] on cpu:0 committed"
    assert "device_put" in str(caught.value.cure)
    assert float(committed) == 7  # donated only if the program had run


def test_a_static_argument_is_named() -> None:
    guarded = TraceBudget("train").jit(step, static_argnums=2)
    guarded(1.0, zeros(), 2)
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(1.0, zeros(), 3)
    assert caught.value.facts["changed"] == "scale: int 2 -> int 3"


def test_a_changed_setting_is_named() -> None:
    guarded = TraceBudget("train").jit(step)
    guarded(1.0, zeros())
    with jax.default_matmul_precision("float32"), pytest.raises(TraceBudgetExceeded) as caught:
        guarded(1.0, zeros())
    assert caught.value.facts["changed"] == "jax_default_matmul_precision: None -> float32"


@nnx.jit
def forward(model: nnx.Module, x: jax.Array) -> jax.Array:
    return model(x)  # type: ignore[operator]


def test_an_already_jitted_function_is_counted_by_compilations() -> None:
    budget = TraceBudget("eval")
    guarded = budget.jit(forward)
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    guarded(model, jnp.ones((4, 2)))
    guarded(model, jnp.zeros((4, 2)))
    assert budget.used == 1
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(model, jnp.ones((1, 2)))
    assert caught.value.facts["changed"].startswith("x: float32[4,2]")


def test_the_mode_of_a_model_is_named() -> None:
    guarded = TraceBudget("eval").jit(forward)
    model = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    guarded(model, jnp.ones((4, 2)))
    model.eval()
    with pytest.raises(TraceBudgetExceeded) as caught:
        guarded(model, jnp.ones((4, 2)))
    assert caught.value.facts["changed"] == "arguments/model.deterministic: False -> True"
    assert "train/eval mode" in caught.value.facts["cause"]


def test_the_wrong_order_of_wrappers_is_refused() -> None:
    # Chex accepts this for nnx.jit, and then counts nothing.
    silent = chex.assert_max_traces(forward, 1)
    for wrong in (silent, functools.partial(forward, nnx.Linear(2, 3, rngs=nnx.Rngs(0)))):
        with pytest.raises(ContractError, match="wrong order"):
            TraceBudget("train").jit(wrong)
        with pytest.raises(ContractError, match="wrong order"):
            TraceBudget("train").guard(wrong)


def test_options_for_a_jitted_function_are_refused() -> None:
    with pytest.raises(ContractError, match="donate_argnums"):
        TraceBudget("train").jit(jax.jit(step), donate_argnums=0)


@pytest.fixture
def no_chex() -> Iterator[None]:
    chex.disable_asserts()
    yield
    chex.enable_asserts()


@pytest.mark.usefixtures("no_chex")
def test_disabling_chex_disables_nothing() -> None:
    guarded = TraceBudget("train").jit(step)
    guarded(1.0, zeros(3))
    with pytest.raises(TraceBudgetExceeded):
        guarded(1.0, zeros(2))


def test_chex_guards_from_inside_too() -> None:
    budget = TraceBudget("train")
    budget._count_trace = lambda new: None  # type: ignore[method-assign]
    guarded = jax.jit(budget.guard(step))
    guarded(1.0, zeros(3))
    with pytest.raises(AssertionError, match="traced > 1 times"):
        guarded(1.0, zeros(2))


def test_runs_of_one_process_have_budgets_of_their_own() -> None:
    def training() -> int:  # the same function, name and place: Chex alone would count 3 traces
        budget = TraceBudget("train")
        guarded = budget.jit(step)
        guarded(1.0, zeros())
        return budget.used

    assert [training() for _ in range(3)] == [1, 1, 1]


def test_compiled_ahead_of_time_it_spends_its_budget_at_once() -> None:
    budget = TraceBudget("train")
    compiled = budget.compile(
        step, jax.ShapeDtypeStruct((), jnp.float32), {"x": jax.ShapeDtypeStruct((3,), np.float32)}
    )
    assert compiled(jnp.float32(1), {"x": np.ones(3, np.float32)}) == 4
    assert (len(budget.traces), len(budget.compilations)) == (1, 1)
    assert budget.seconds > budget.compilations[0].seconds > 0
    with pytest.raises(TraceBudgetExceeded):
        budget.compile(step, jax.ShapeDtypeStruct((), jnp.float32), {"x": jax.ShapeDtypeStruct((2,), np.float32)})


def test_compilations_of_others_are_not_counted() -> None:
    budget = TraceBudget("train")
    guarded = budget.jit(step)
    guarded(1.0, zeros())
    jax.jit(lambda x: x * 3 + 1)(jnp.ones(5))
    other = TraceBudget("train")
    other.jit(step)(1.0, zeros(7))
    assert (budget.used, other.used) == (1, 1)


def test_a_closed_budget_listens_no_more() -> None:
    budget = TraceBudget("train", 2)
    guarded = budget.jit(step)
    guarded(1.0, zeros(3))
    budget.close()
    guarded(1.0, zeros(2))
    assert (len(budget.traces), len(budget.compilations)) == (2, 1)


@pytest.fixture
def persistent_cache(tmp_path: Path) -> Iterator[None]:
    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("persistent_cache")
def test_a_program_from_the_persistent_cache_is_told_from_a_compiled_one() -> None:
    def build(budget: TraceBudget) -> TraceBudget:
        budget.compile(step, jax.ShapeDtypeStruct((), jnp.float32), {"x": jax.ShapeDtypeStruct((3,), np.float32)})
        return budget

    assert [build(TraceBudget("train")).from_cache for _ in range(2)] == [False, True]
    assert build(TraceBudget("train")).report()["from_cache"] is True


@pytest.mark.parametrize("budget", [0, -1, True, 1.5, "1"])
def test_a_budget_is_a_whole_number(budget: Any) -> None:
    with pytest.raises(ContractError):
        TraceBudget("train", budget)


def test_functions_without_source_code_are_guarded_too() -> None:
    space: dict[str, Callable[..., Any]] = {}
    exec("def double(x):\n    return x * 2", space)
    guarded = TraceBudget("train").jit(space["double"])
    guarded(np.ones(2))
    with pytest.raises(TraceBudgetExceeded):
        guarded(np.ones(3))
