"""Leaves of a state: copied to the host with a description, proven and put back, compared with a model."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_states import bits, state_at

from datasets.errors import CheckpointCorrupt, CheckpointError
from tasks import leaves
from tasks.leaves import abstract_like, blank, describe, differences, from_tree, pick, to_host, to_tree


def tree_of(state: Any) -> tuple[dict[str, Any], leaves.Description]:
    """What Orbax would be given and the description that would be kept, after its way through JSON."""
    host = to_host(state)
    return to_tree({path: leaf.data for path, leaf in host.items()}), json.loads(json.dumps(describe(host)))


def test_paths_shapes_and_dtypes_of_a_state() -> None:
    state = state_at(3)
    host = to_host(state)
    assert {"params/kernel", "params/bias", "opt/0/count", "opt/0/mu/kernel", "rng/dropout", "blocks/0"} <= set(host)
    assert len(host) == len(jax.tree.leaves(state))
    kernel, bias, key = host["params/kernel"], host["params/bias"], host["rng/dropout"]
    assert (kernel.shape, kernel.dtype, kernel.impl) == ((3, 4), "float32", None)
    assert (bias.dtype, bias.data.dtype) == ("bfloat16", jnp.bfloat16)
    assert (key.shape, key.dtype, key.impl, key.data.dtype) == ((), "key<fry>", "threefry2x32", np.uint32)
    np.testing.assert_array_equal(key.data, jax.random.key_data(jax.random.key(3)))


def test_copies_share_no_memory_with_the_state() -> None:
    state = {"x": jnp.arange(50_000.0)}
    copied = to_host(state)["x"].data
    assert not np.shares_memory(copied, np.asarray(state["x"]))
    assert copied.flags.owndata
    assert copied.flags.c_contiguous


@pytest.mark.parametrize("leaf", [1.0, 3, np.ones(3), "text"])
def test_only_jax_arrays_are_taken(leaf: Any) -> None:
    with pytest.raises(CheckpointError, match="made of jax arrays") as caught:
        to_host({"good": jnp.ones(1), "inner": [{"leaf": leaf}]})
    assert caught.value.facts == {"field": "inner/0/leaf", "got": type(leaf).__name__}


def test_weak_types_shared_paths_and_empty_states_are_refused() -> None:
    with pytest.raises(CheckpointError, match="weakly typed") as caught:
        to_host({"rate": jax.jit(lambda: 1.0)()})
    assert caught.value.facts["field"] == "rate"
    with pytest.raises(CheckpointError, match="own path"):
        to_host({"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})
    with pytest.raises(CheckpointError, match="own path"):
        to_host({"none": None})


def test_everything_comes_back_bit_by_bit_from_a_tree_and_a_description() -> None:
    state = state_at(5)
    tree, described = tree_of(state)
    got = from_tree(tree, described, abstract_like(state_at(0)))
    assert bits(got) == bits(state)
    assert jax.tree.structure(got) == jax.tree.structure(state)


def test_what_comes_back_lies_where_the_target_says() -> None:
    state = {"x": jnp.ones(3), "key": jax.random.split(jax.random.key(1, impl="rbg"), 2)}
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    tree, described = tree_of(state)
    got = from_tree(tree, described, abstract_like(jax.device_put(state, sharding)))
    assert all(leaf.committed and leaf.sharding == sharding for leaf in jax.tree.leaves(got))
    assert str(jax.random.key_impl(got["key"])) == "rbg"


def test_arrays_without_elements_are_in_the_description_alone() -> None:
    tree, described = tree_of({"a": {"none": jnp.zeros((0, 2), jnp.int8), "some": jnp.ones(1)}})
    assert set(tree["a"]) == {"some"}
    found = pick(tree, "a/none", described["a/none"])
    assert (found.shape, found.dtype) == ((0, 2), np.int8)


def test_a_blank_has_the_stored_shapes_and_dtypes() -> None:
    host = to_host(state_at(1))
    empty = blank(describe(host))
    assert {path: (data.shape, data.dtype) for path, data in empty.items()} == {
        path: (leaf.data.shape, leaf.data.dtype) for path, leaf in host.items()
    }


def test_equal_values_of_any_memory_order_have_one_digest() -> None:
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    turned = leaves.Leaf((3, 4), "float32", None, np.asfortranarray(values))
    straight = leaves.Leaf((3, 4), "float32", None, values)
    other = leaves.Leaf((3, 4), "float32", None, values.T.reshape(3, 4))
    digests = [row["sha256"] for row in describe({"a": turned, "b": straight, "c": other}).values()]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("harm", ["value", "sign of zero", "dtype"])
def test_another_array_than_the_one_described_is_refused_by_path(harm: str) -> None:
    tree, described = tree_of({"a": {"x": jnp.zeros(4)}})
    if harm == "dtype":
        tree["a"]["x"] = tree["a"]["x"].view(np.int32)
    else:
        tree["a"]["x"][2] = 1.0 if harm == "value" else -0.0
    with pytest.raises(CheckpointCorrupt, match="isn't the one that was saved") as caught:
        from_tree(tree, described, {"a": {"x": jax.ShapeDtypeStruct((4,), jnp.float32)}})
    assert caught.value.facts["field"] == "a/x"
    assert described["a/x"]["sha256"] in caught.value.facts["expected"]


def test_differences_name_path_and_both_sides() -> None:
    described = describe(to_host({"a": jnp.ones((2, 3)), "b": jnp.ones(1), "key": jax.random.key(0)}))
    same = abstract_like({"a": jnp.ones((2, 3)), "b": jnp.ones(1), "key": jax.random.key(9)})
    assert differences(described, same) == []
    other = abstract_like({"a": jnp.ones((3, 2)), "c": jnp.ones(2, jnp.int8), "key": jax.random.key(0, impl="rbg")})
    assert differences(described, other) == [
        "b: only in the checkpoint, float32[1]",
        "c: only in the model, int8[2]",
        "a: stored float32[2, 3], wanted float32[3, 2]",
        "key: stored key<fry>[], wanted key<rbg>[]",
    ]
