"""The fraud data: what an example is, the split by time, the contract of the step, and that a model learns it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from mixed import InMemory
from sklearn.metrics import roc_auc_score

from datasets.errors import ContractError, TraceBudgetExceeded
from datasets.fraud import DATASET
from datasets.make_fraud import write
from datasets.schema import Columns, Dataset
from tasks.contracts import batch_contract, equal_prefix
from tasks.convert import convert_raw
from tasks.fetch import fetch, fetch_raw
from tasks.objective import Objective
from tasks.request import Request, check
from tasks.transform import learned

ROWS = 24_000
SMALL: Dataset = replace(DATASET, source=replace(DATASET.source, generate=partial(write, rows=ROWS, users=1000)))


def request_of(store: Path, dataset: Dataset = SMALL) -> Request:
    return replace(check("fraud", store=store), dataset=dataset)


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    folder = tmp_path_factory.mktemp("fraud")
    write(folder, rows=ROWS, users=1000)
    blocks = list(SMALL.read(folder))
    assert len({block.file for block in blocks}) == 12
    read = {name: np.concatenate([block.columns[name] for block in blocks]) for name in SMALL.features}
    train = {name: column[read["month"] < 11] for name, column in read.items()}
    return dict(learned(SMALL, InMemory(train)).apply(read))


def test_the_file_says_what_the_whole_data_is() -> None:
    assert DATASET.source.generate is write
    assert DATASET.recipe.model == "mlp"
    assert DATASET.recipe.class_weights is not None
    assert DATASET.features["label"].classes == ("honest", "fraud")


def test_examples_are_twelve_scaled_numbers(columns: Columns) -> None:
    assert columns["inputs"].shape == (ROWS, 12)
    assert columns["inputs"].dtype == np.float32
    assert columns["user"].dtype == columns["label"].dtype == np.int32
    train = columns["inputs"][columns["month"] < 11]
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-3)
    assert np.abs(columns["inputs"].mean(axis=0)).max() > 1e-3  # the test split taught it nothing


def test_the_last_two_months_are_the_test(tmp_path: Path, columns: Columns) -> None:
    request = request_of(tmp_path)
    raw = fetch_raw(toy.job(request, "fetch"))
    facts = toy.Store(tmp_path).facts(convert_raw(toy.job(request, "convert"), raw=raw))
    months = Counter((columns["month"] >= 11).tolist())
    assert {name: split["rows"] for name, split in facts["splits"].items()} == {
        "train": months[False], "test": months[True],
    }  # fmt: skip


def test_the_key_knows_the_generator_and_its_size(tmp_path: Path) -> None:
    whole, small = request_of(tmp_path, DATASET), request_of(tmp_path)
    assert toy.key_parts(fetch, whole) != toy.key_parts(fetch, small)
    code: set[str] = set()
    from tasks.canonical import canonical
    from tasks.stage import Run

    canonical(fetch.parameters(Run(whole)), code)
    assert code == {"datasets.make_fraud:write"}
    reached = Run(whole).sources.fingerprint(code)
    assert any("make_fraud" in name and "_month" in name for name in reached)


# --------------------------------------------------------------------------------------------- the contract of the step


def batch_of(rows: int = 8) -> dict[str, jax.Array]:
    return {
        "inputs": jnp.zeros((rows, 12), jnp.float32), "user": jnp.zeros(rows, jnp.int32),
        "month": jnp.ones(rows, jnp.int32), "label": jnp.zeros(rows, jnp.int32),
    }  # fmt: skip


def traced(batch: dict[str, jax.Array]) -> None:
    jax.eval_shape(lambda b: batch_contract("fraud", b, DATASET.features, 8), batch)


def test_the_contract_as_chex_states_it() -> None:
    batch = batch_of()
    chex.assert_rank(batch["inputs"], 2)
    chex.assert_axis_dimension(batch["inputs"], 1, 12)
    chex.assert_type([batch["inputs"], batch["user"]], [jnp.float32, jnp.int32])
    chex.assert_rank(batch["user"], 1)
    chex.assert_equal_shape_prefix(list(batch.values()), 1)
    traced(batch)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("inputs", jnp.zeros((8, 11), jnp.float32)), ("inputs", jnp.zeros((8, 12, 1), jnp.float32)),
     ("inputs", jnp.zeros((8, 12), jnp.float16)), ("inputs", jnp.zeros(12, jnp.float32)),
     ("user", jnp.zeros((8, 1), jnp.int32)), ("user", jnp.zeros(8, jnp.float32)), ("user", jnp.zeros(8, jnp.int16)),
     ("user", jnp.zeros(7, jnp.int32))],
)  # fmt: skip
@pytest.mark.parametrize("asserts", [True, False])
def test_every_other_batch_is_refused_while_tracing(name: str, bad: jax.Array, asserts: bool) -> None:
    if not asserts:
        chex.disable_asserts()
    try:
        with pytest.raises(ContractError, match=name):
            traced({**batch_of(), name: bad})
    finally:
        chex.enable_asserts()


def test_all_columns_have_one_row_count() -> None:
    with pytest.raises(ContractError, match="row counts differ"):
        jax.eval_shape(lambda b: equal_prefix("fraud", b), {**batch_of(), "user": jnp.zeros(7, jnp.int32)})


def test_the_compiled_step_learns_and_states_the_contract(columns: Columns) -> None:
    recipe = replace(DATASET.recipe, batch_size=256)
    objective = Objective(replace(DATASET, recipe=recipe), np.asarray(recipe.class_weights, np.float32))
    train, steps = columns["month"] < 11, 150
    step = objective.train_step(steps)
    carry = step.initial_carry()
    random = np.random.default_rng(0)
    ids = np.flatnonzero(train)
    for _ in range(steps):
        rows = random.choice(ids, 256, replace=False)
        carry, _ = step(carry, {name: jnp.asarray(column[rows]) for name, column in columns.items()})
    model = step.model(carry)
    model.eval()
    test = ~train
    logits = np.asarray(model(jnp.asarray(columns["inputs"][test])))
    assert roc_auc_score(columns["label"][test], logits[:, 1] - logits[:, 0]) > 0.85
    wrong = {name: jnp.asarray(column[:256]) for name, column in columns.items()}
    wrong["inputs"] = wrong["inputs"][:, :11]
    with pytest.raises(TraceBudgetExceeded, match="inputs"):
        step(carry, wrong)
