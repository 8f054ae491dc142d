"""Arrays of a state as plain host arrays with a description, and back onto their devices.

A description is JSON: for each leaf its path, shape, dtype and the SHA-256 of its values. It is how a checkpoint is
compared with a model before anything is loaded, and how what was loaded is proven to be what was saved.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from datasets.errors import CheckpointCorrupt, CheckpointError

Description = dict[str, dict[str, Any]]
"""By path: shape, dtype and impl as in `Leaf`; shape ("words"), dtype ("stored") and sha256 of its data."""


@dataclass(frozen=True)
class Leaf:
    """One array of the state, copied to the host.

    Attributes:
        shape: Of the array in the state; that of a typed PRNG key leaves its words out.
        dtype: NumPy name, or such as "key<fry>" for a typed PRNG key.
        impl: Name of the key's generator; None for numbers.
        data: The values; the uint32 words of a key.
    """

    shape: tuple[int, ...]
    dtype: str
    impl: str | None
    data: np.ndarray


def to_host(state: Any) -> dict[str, Leaf]:  # noqa: ANN401 - a pytree
    """Copies the arrays of a pytree to the host, by path such as "opt/0/mu/conv/kernel".

    The copies share no memory with the state, so the next step may donate it.

    Raises:
        CheckpointError: A leaf isn't a jax array, is weakly typed or lies partly on another process; or two leaves
            have one path.
    """
    found = jax.tree_util.tree_flatten_with_path(state)[0]
    for path, value in found:
        if not isinstance(value, jax.Array) or not (value.is_fully_addressable or value.is_fully_replicated):
            raise CheckpointError(
                "a state is made of jax arrays that this process holds",
                field=name(path), got=type(value).__name__, cure="put other values into meta",
            )  # fmt: skip
        if getattr(value, "weak_type", False):  # a key has no such thing
            raise CheckpointError(
                "a weakly typed leaf would come back strongly typed, and the step would be traced anew for it",
                field=name(path), got=value.dtype, cure="give it a dtype: jnp.asarray(x, dtype)",
            )  # fmt: skip
        value.copy_to_host_async()
    leaves = {name(path): _copy(local(value)) for path, value in found}
    if len(leaves) != len(found) or not found:
        raise CheckpointError(
            "each leaf of a state has its own path", got=f"{len(found)} leaves", expected=f"{len(leaves)} paths"
        )
    return leaves


def local(value: jax.Array) -> jax.Array:
    """This process's own copy of an array that lies whole on the devices of several; any other array as it is."""
    return value if value.is_fully_addressable else value.addressable_data(0)


def put(value: Any, sharding: jax.sharding.Sharding | None) -> jax.Array:  # noqa: ANN401 - of JAX or NumPy
    """An array on its devices; over several processes each puts its equal copy on its own devices."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    copies = [jax.device_put(value, device) for device in sharding.addressable_devices_indices_map(value.shape)]
    return jax.make_array_from_single_device_arrays(value.shape, sharding, copies)


def _copy(value: jax.Array) -> Leaf:
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return Leaf(value.shape, value.dtype.name, None, np.array(value, order="C"))
    words = np.array(jax.random.key_data(value), order="C")
    return Leaf(value.shape, str(value.dtype), str(jax.random.key_impl(value)), words)


@functools.cache  # a training asks for the same few at every save
def name(path: tuple[Any, ...]) -> str:
    """A path as text: keys, positions and attributes joined by "/"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _digest(data: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data).hexdigest()


def describe(leaves: Mapping[str, Leaf]) -> Description:
    """What a checkpoint keeps about its leaves, as JSON."""
    return {
        path: {"shape": list(leaf.shape), "dtype": leaf.dtype, "impl": leaf.impl, "words": list(leaf.data.shape),
               "stored": leaf.data.dtype.name, "sha256": _digest(leaf.data)}
        for path, leaf in leaves.items()
    }  # fmt: skip


def to_tree(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arrays as nested dicts of text keys, for Orbax.

    It reads the caller's own nodes (None, named tuples, whole-number keys) back differently, depending on the target,
    and can't hold arrays without elements: those are left out, their description says everything.
    """
    tree: dict[str, Any] = {}
    for path, data in arrays.items():
        if data.size:
            *parents, last = path.split("/")
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = data
    return tree


def blank(described: Description) -> dict[str, np.ndarray]:
    """Arrays of the shapes and dtypes that were stored, by path; the target of a load."""
    return {path: np.empty(leaf["words"], jnp.dtype(leaf["stored"])) for path, leaf in described.items()}


def from_tree(tree: Mapping[str, Any], described: Description, abstract: Any) -> Any:  # noqa: ANN401
    """Arrays that Orbax read, proven and put where the abstract tree wants them; a pytree of its structure.

    Raises:
        CheckpointCorrupt: An array isn't the one that was described.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(abstract)
    return structure.unflatten(
        [_place(pick(tree, name(path), described[name(path)]), described[name(path)]["impl"], leaf)
         for path, leaf in wanted]
    )  # fmt: skip


def pick(tree: Any, path: str, leaf: Mapping[str, Any]) -> np.ndarray:  # noqa: ANN401
    """One array of a tree that Orbax read, proven to be the one that was described.

    Raises:
        CheckpointCorrupt: It isn't.
    """
    if 0 in leaf["words"]:
        return np.empty(leaf["words"], jnp.dtype(leaf["stored"]))
    for key in path.split("/"):
        tree = tree[key]
    data = np.asarray(tree)
    if (got := _digest(data)) != leaf["sha256"] or data.dtype.name != leaf["stored"]:
        raise CheckpointCorrupt(
            "an array isn't the one that was saved", field=path,
            expected=f"{leaf['stored']}, sha256 {leaf['sha256']}", got=f"{data.dtype.name}, sha256 {got}",
        )  # fmt: skip
    return data


def _place(data: np.ndarray, impl: str | None, want: Any) -> jax.Array:  # noqa: ANN401
    sharding = getattr(want, "sharding", None)
    if impl:
        return put(jax.random.wrap_key_data(jnp.asarray(data), impl=impl), sharding)
    return put(data, sharding)


def differences(described: Description, abstract: Any) -> list[str]:  # noqa: ANN401
    """One line for each path that a checkpoint and a model don't share, or whose shape or dtype they don't."""
    have = {path: f"{leaf['dtype']}{leaf['shape']}" for path, leaf in described.items()}
    want = {name(path): f"{leaf.dtype}{list(leaf.shape)}"
            for path, leaf in jax.tree_util.tree_flatten_with_path(abstract)[0]}  # fmt: skip
    lines = [f"{path}: only in the checkpoint, {have[path]}" for path in have if path not in want]
    lines += [f"{path}: only in the model, {want[path]}" for path in want if path not in have]
    return lines + [f"{path}: stored {have[path]}, wanted {want[path]}"
                    for path in want if path in have and have[path] != want[path]]  # fmt: skip


def abstract_like(state: Any) -> Any:  # noqa: ANN401
    """Shape, dtype and sharding of each array of a pytree: the target of a restore.

    Commit the initial state (`jax.device_put(state, sharding)`) before it is compiled for: restored arrays are
    committed, and the step of an uncommitted state would be compiled once more for them.
    """
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
