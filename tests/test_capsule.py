from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from step_cases import BATCH, FEATURES, Tiny, bad_batch, batch, bits, loss_fn, run, watched

from datasets.errors import ArtifactDamaged, CheckpointMismatch
from tasks.capsule import Capsule, load_capsule
from tasks.firewall import Firewall
from tasks.replay import replay
from tasks.step import TrainStep


def fragile_loss(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    share = 1.0 / (columns["x"][:, 1] - 7.0)  # a row with 7 divides by zero
    return loss + (0 * share).mean(), aux


def rooted_loss(model: Tiny, columns: Any) -> Any:
    loss, aux = loss_fn(model, columns)
    far = jnp.abs(columns["x"][:, 1] - 7.0) * (1 + 0 * model.head.kernel[...].sum())
    return loss + 0 * jnp.sqrt(far).mean(), aux


class Half(Tiny):
    """Parameters in bfloat16 and random keys of another generator, both of which npz doesn't know."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        super().__init__(rngs)
        self.head = nnx.Linear(8, 3, param_dtype=jnp.bfloat16, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(jax.random.key(3, impl="rbg")))


def build(loss: Any = fragile_loss) -> TrainStep:
    return TrainStep(Half(nnx.Rngs(0)), optax.adamw(1e-2), loss, FEATURES, BATCH)


def seven(index: int, *rows: int) -> Any:
    columns = batch(index)
    columns["x"][list(rows), 1] = 7
    return columns


@pytest.fixture(scope="module")
def step() -> TrainStep:
    return build()


def trip(step: TrainStep, root: Path, bad: Any) -> Path:
    firewall = Firewall(step, every=4, folder=root, context={"seed": 0, "dataset": "tiny"})
    _, error = watched(step, firewall, [batch(0), batch(1), bad, batch(3)])
    return Path(error.facts["capsule"])


@pytest.fixture(scope="module")
def written(step: TrainStep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trip(step, tmp_path_factory.mktemp("capsules"), seven(2, 5, 6))


@pytest.fixture
def capsule(written: Path) -> Capsule:
    return load_capsule(written)


def test_it_holds_the_batch_the_state_before_it_and_the_verdict(step: TrainStep, capsule: Capsule) -> None:
    before, _ = run(step, step.initial_carry(), [batch(0), batch(1)])
    assert bits(capsule.carry(step)) == bits(before)
    assert {n: c.tobytes() for n, c in capsule.batch.items()} == {n: c.tobytes() for n, c in seven(2, 5, 6).items()}
    assert {c.dtype.name for c in capsule.batch.values()} == {"float32", "int32"}
    assert (capsule.verdict.step, capsule.verdict.kind) == (2, "loss")
    assert np.isnan(capsule.verdict.loss)
    assert capsule.ids[6] == {"file": "raw", "row": 22}
    assert capsule.context == {"seed": 0, "dataset": "tiny"}
    assert capsule.versions["jax"] == jax.__version__


def test_dtypes_and_random_keys_come_back_as_they_were(step: TrainStep, capsule: Capsule) -> None:
    carry = capsule.carry(step)
    model = carry.state["model"]
    assert model["head"]["kernel"].dtype == jnp.bfloat16
    assert str(jax.random.key_impl(step.model(carry).dropout.rngs.key[...])) == "rbg"
    abstract = step.abstract_carry()
    assert jax.tree.all(jax.tree.map(lambda x, y: x.sharding == y.sharding, carry, abstract))


def test_nothing_is_pickled(written: Path) -> None:
    assert sorted(p.name for p in written.iterdir()) == ["batch.npz", "capsule.json", "manifest.json", "state.npz"]
    for name in ("batch.npz", "state.npz"):
        with np.load(written / name, allow_pickle=False) as file:
            assert all(file[key].dtype.kind in "iuf" for key in file.files)


def test_the_same_failure_gives_the_same_folder_and_leaves_nothing_else(step: TrainStep, written: Path) -> None:
    assert trip(step, written.parent, seven(2, 5, 6)) == written
    assert trip(step, written.parent, seven(2, 5)) != written
    assert not [p for p in written.parent.iterdir() if p.name.startswith(".")]


def test_the_replay_names_the_line_and_the_examples(step: TrainStep, capsule: Capsule) -> None:
    found = replay(capsule, step)
    assert found.reproduced
    assert (found.rows, found.ids) == ((5, 6), ({"file": "raw", "row": 21}, {"file": "raw", "row": 22}))
    assert found.line is not None
    assert found.nan_line is not None
    assert found.line.startswith(__file__)
    assert "in fragile_loss: share = 1.0 /" in found.line
    assert "in fragile_loss: return loss + (0 * share).mean(), aux" in found.nan_line
    assert step.budget.used == 1


def test_the_replay_names_the_line_of_a_gradient(tmp_path: Path) -> None:
    step = build(rooted_loss)
    capsule = load_capsule(trip(step, tmp_path, seven(2, 4)))
    assert (capsule.verdict.kind, capsule.verdict.leaves) == ("grad", ("head/kernel",))
    found = replay(capsule, step)
    assert found.reproduced
    assert found.rows == (4,)
    assert found.line is not None
    assert "in rooted_loss: return loss + 0 * jnp.sqrt(far).mean(), aux" in found.line


def test_a_replay_of_sound_numbers_says_so(step: TrainStep, capsule: Capsule) -> None:
    sound = Capsule(**{**vars(capsule), "batch": batch(2)})
    found = replay(sound, step)
    assert not found.reproduced
    assert (found.verdict, found.line, found.nan_line, found.rows) == (None, None, None, ())


def test_it_is_replayed_in_a_fresh_process(written: Path) -> None:
    code = """
import json, sys
from pathlib import Path
import test_capsule
from tasks.capsule import load_capsule
from tasks.replay import replay
found = replay(load_capsule(Path(sys.argv[1])), test_capsule.build())
print(json.dumps([found.reproduced, found.verdict.as_json(), found.line, found.rows]))
"""
    tests = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(tests.parent), str(tests)]}\n{code}", str(written)],
        cwd=tests.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    reproduced, verdict, line, rows = json.loads(done.stdout.splitlines()[-1])
    assert reproduced
    assert verdict == load_capsule(written).verdict.as_json()
    assert "in fragile_loss: share = 1.0 /" in line
    assert rows == [5, 6]


def test_a_capsule_of_another_model_is_refused(capsule: Capsule) -> None:
    other = TrainStep(Half(nnx.Rngs(0)), optax.sgd(1e-2), loss_fn, FEATURES, BATCH)
    with pytest.raises(CheckpointMismatch, match="optimizer/opt_state"):
        capsule.carry(other)


@pytest.mark.parametrize("name", ["batch.npz", "state.npz", "capsule.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "edit", "remove"])
def test_damage_is_found(written: Path, tmp_path: Path, name: str, damage: str) -> None:
    for file in written.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    load_capsule(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    if damage == "remove":
        (tmp_path / name).unlink()
    else:
        data[len(data) // 2] ^= 1
        (tmp_path / name).write_bytes(data[:-9] if damage == "cut" else data)
    with pytest.raises(ArtifactDamaged):
        load_capsule(tmp_path)


def test_a_folder_that_is_no_capsule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactDamaged):
        load_capsule(tmp_path / "absent")


def test_poisoned_batches_of_any_kind_are_kept_exactly(step: TrainStep, tmp_path: Path) -> None:
    columns = bad_batch(2, row=0)
    capsule = load_capsule(trip(step, tmp_path, columns))
    assert capsule.batch["x"].tobytes() == columns["x"].tobytes()
    assert replay(capsule, step).rows == (0,)
