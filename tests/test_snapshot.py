"""One checkpoint on disk: it gives back what was saved, bit for bit, or says what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from checkpoint_states import bits, state_at
from orbax.checkpoint import v1 as ocp

from datasets.errors import CheckpointCorrupt, CheckpointError, CheckpointMismatch
from tasks import durable, snapshot
from tasks.leaves import abstract_like, to_host

META = {"iterator": {"next_index": 12, "seed": 2**63 - 1}, "best": 0.1, "history": [0.3, 1e-300], "name": "Größe"}


def write(folder: Path, state: Any, **metrics: float) -> Path:
    snapshot.write(folder, int(folder.name), to_host(state), META, metrics)
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pristine") / "7", state_at(7), loss=0.25)


@pytest.fixture
def step(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "7")


def test_everything_comes_back(pristine: Path) -> None:
    want = state_at(7)
    state, meta, manifest = snapshot.read(pristine, abstract_like(state_at(0)))
    assert bits(state) == bits(want)
    assert jax.tree.structure(state) == jax.tree.structure(want)
    assert meta == META
    assert (manifest.step, manifest.metrics) == (7, {"loss": 0.25})
    assert (
        jax.random.normal(state["rng"]["dropout"], (3,)).tolist() == jax.random.normal(jax.random.key(7), (3,)).tolist()
    )


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_each_dtype_comes_back(dtype: str, tmp_path: Path) -> None:
    state = {"x": (jnp.arange(5) % 2).astype(dtype)}
    got, _, _ = snapshot.read(write(tmp_path / "1", state), abstract_like(state))
    assert bits(got) == bits(state)


def test_stacked_keys_of_another_generator_come_back(tmp_path: Path) -> None:
    state = {"keys": jax.random.split(jax.random.key(3, impl="rbg"), 3)}
    got, _, _ = snapshot.read(write(tmp_path / "1", state), abstract_like(state))
    assert bits(got) == bits(state)
    assert str(jax.random.key_impl(got["keys"])) == "rbg"


def test_nan_and_negative_zero_keep_their_bits(tmp_path: Path) -> None:
    words = jnp.array([0x7FC00001, 0x80000000, 0x7F800000, 0x00000001], jnp.uint32)
    state = {"x": jax.lax.bitcast_convert_type(words, jnp.float32)}
    got, _, _ = snapshot.read(write(tmp_path / "1", state), abstract_like(state))
    assert bits(got) == bits(state)


def test_a_state_without_elements_comes_back(tmp_path: Path) -> None:
    state = {"x": jnp.zeros((0, 3)), "y": jnp.int32(1)}
    got, _, _ = snapshot.read(write(tmp_path / "1", state), abstract_like(state))
    assert bits(got) == bits(state)


def test_orbax_alone_reads_it(pristine: Path) -> None:
    tree: Any = ocp.load(str(pristine), checkpointable_name="state")
    assert tree["params"]["kernel"].tolist() == state_at(7)["params"]["kernel"].tolist()


def test_metrics_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "1", {"x": jnp.ones(1)}, a=float("nan"), b=float("inf"), c=-float("inf"), d=1.0)
    assert snapshot.read_manifest(folder).metrics == {"d": 1.0}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HARM: dict[str, Callable[[Path], None]] = {"flip": flip, "cut": cut, "delete": Path.unlink}


@pytest.mark.parametrize("harm", HARM)
def test_harm_to_any_file_is_found_and_named(harm: str, pristine: Path, tmp_path: Path) -> None:
    names = [str(p.relative_to(pristine)) for p in sorted(pristine.rglob("*")) if p.is_file()]
    assert len(names) >= 9
    for count, name in enumerate(names):
        folder = shutil.copytree(pristine, tmp_path / str(count) / "7")
        if not (folder / name).stat().st_size and harm != "delete":
            (folder / name).write_bytes(b"\0")  # an empty file can only grow
        else:
            HARM[harm](folder / name)
        with pytest.raises(CheckpointCorrupt) as caught:
            snapshot.read(folder, abstract_like(state_at(0)))
        assert caught.value.facts["file"] == folder / name
        assert caught.value.facts["got"]


def test_a_flipped_byte_of_the_manifest_is_found(step: Path) -> None:
    path = step / snapshot.MANIFEST
    data = path.read_bytes()
    for position in range(0, len(data), 5):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x01]) + data[position + 1 :])
        with pytest.raises(CheckpointCorrupt):
            snapshot.verify(step)


def test_a_wrong_array_behind_right_file_digests_is_found(tmp_path: Path) -> None:
    """As if Orbax, or memory, had changed a value on its way to the disk."""
    folder = write(tmp_path / "7", state_at(7))
    other = write(tmp_path / "8", state_at(8))
    shutil.rmtree(folder / "state")
    shutil.copytree(other / "state", folder / "state")
    content = durable.read_json(folder / snapshot.MANIFEST)
    body = content["body"]
    body["files"] = {
        str(p.relative_to(folder)): [p.stat().st_size, durable.sha256_file(p)]
        for p in sorted(folder.rglob("*")) if p.is_file() and p.name != snapshot.MANIFEST
    }  # fmt: skip
    durable.write_json(folder / snapshot.MANIFEST, {"body": body, "sha256": snapshot._json_digest(body)})
    with pytest.raises(CheckpointCorrupt, match=r"params/bias|blocks/0") as caught:
        snapshot.read(folder, abstract_like(state_at(0)))
    assert caught.value.facts["checkpoint"] == folder


def test_a_folder_under_another_steps_name_is_refused(step: Path) -> None:
    moved = step.rename(step.with_name("99"))
    with pytest.raises(CheckpointCorrupt, match="another step"):
        snapshot.read_manifest(moved)


def test_a_later_format_is_refused_but_not_called_damaged(step: Path) -> None:
    body = durable.read_json(step / snapshot.MANIFEST)["body"] | {"format": snapshot.FORMAT + 1}
    durable.write_json(step / snapshot.MANIFEST, {"body": body, "sha256": snapshot._json_digest(body)})
    with pytest.raises(CheckpointError, match="another format") as caught:
        snapshot.read_manifest(step)
    assert type(caught.value) is CheckpointError


def without_bias(state: Any) -> Any:
    return {**state, "params": {"kernel": state["params"]["kernel"]}}


OTHER: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "shape": (
        lambda s: {**s, "params": {**s["params"], "kernel": jnp.zeros((8, 4))}},
        ["params/kernel: stored float32[3, 4], wanted float32[8, 4]"],
    ),
    "layer more": (
        lambda s: {**s, "params": {**s["params"], "out": jnp.zeros(2)}},
        ["params/out: only in the model, float32[2]"],
    ),
    "layer less": (without_bias, ["params/bias: only in the checkpoint, bfloat16[4]"]),
    "dtype": (
        lambda s: {**s, "params": {**s["params"], "bias": jnp.zeros(4, jnp.float32)}},
        ["params/bias: stored bfloat16[4], wanted float32[4]"],
    ),
    "optimizer": (
        lambda s: {**s, "opt": optax.sgd(0.1, momentum=0.9).init(s["params"])},
        [
            "opt/0/mu/kernel: only in the checkpoint, float32[3, 4]",
            "opt/0/trace/kernel: only in the model, float32[3, 4]",
        ],
    ),
    "generator": (
        lambda s: {**s, "rng": {"dropout": jax.random.key(0, impl="rbg"), "none": None}},
        ["rng/dropout: stored key<fry>[], wanted key<rbg>[]"],
    ),
    "key or number": (
        lambda s: {**s, "rng": {"dropout": jnp.zeros(2, jnp.uint32), "none": None}},
        ["rng/dropout: stored key<fry>[], wanted uint32[2]"],
    ),
}


@pytest.mark.parametrize("change", OTHER)
def test_another_model_is_told_path_by_path(change: str, pristine: Path) -> None:
    other, expected = OTHER[change]
    with pytest.raises(CheckpointMismatch) as caught:
        snapshot.read(pristine, abstract_like(other(state_at(7))))
    lines = [line.strip() for line in caught.value.facts["differences"].strip().splitlines()]
    assert set(expected) <= set(lines)
    assert change == "optimizer" or lines == expected
    assert caught.value.facts["checkpoint"] == pristine


def test_a_long_list_of_differences_is_cut_and_counted(pristine: Path) -> None:
    with pytest.raises(CheckpointMismatch, match=r"\.\.\. and \d+ more"):
        snapshot.read(pristine, {f"x{i}": jax.ShapeDtypeStruct((1,), jnp.float32) for i in range(60)})


def test_damage_is_told_before_a_mismatch(step: Path) -> None:
    flip(step / "_CHECKPOINT_METADATA")
    with pytest.raises(CheckpointCorrupt):
        snapshot.read(step, {"x": jax.ShapeDtypeStruct((1,), jnp.float32)})


def test_sound_bytes_that_orbax_cannot_read_are_not_called_damaged(
    pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("no handler")

    monkeypatch.setattr(snapshot.ocp, "load", refuse)
    with pytest.raises(CheckpointError, match="no handler") as caught:
        snapshot.read(pristine, abstract_like(state_at(0)))
    assert type(caught.value) is CheckpointError


def test_the_manifest_is_json_with_every_file(pristine: Path) -> None:
    files = json.loads((pristine / snapshot.MANIFEST).read_text())["body"]["files"]
    on_disk = {str(p.relative_to(pristine)) for p in pristine.rglob("*") if p.is_file()} - {snapshot.MANIFEST}
    assert set(files) == on_disk
