"""Why a step was traced or compiled again: what a call looked like, and what changed since the nearest earlier one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

SHOWN = 8
"""Changes that a message lists; the rest is counted."""


@dataclass(frozen=True)
class Leaf:
    """One array, or one value that isn't an array, among the arguments of a call.

    Attributes:
        shape: Of an array.
        dtype: Of an array, as the device has it; or the type's name of a static value.
        weak_type: True for an array that came from a Python number.
        sharding: Where it is; None if that isn't known, "" if it isn't on a device.
        committed: True if it is pinned to its device; None if that isn't known.
        static: repr of a value that isn't an array.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    weak_type: bool = False
    sharding: str | None = None
    committed: bool | None = None
    static: str = ""

    def __str__(self) -> str:
        if self.static:
            return f"{self.dtype} {self.static}"
        text = f"{self.dtype}[{','.join(map(str, self.shape))}]" + (" weak" if self.weak_type else "")
        if self.sharding:
            text += f" on {self.sharding}"
        return text + ("" if self.committed is None else " committed" if self.committed else " uncommitted")


@dataclass(frozen=True)
class Signature:
    """What decides whether a call needs a new program.

    Attributes:
        leaves: By path, such as "batch/image".
        tree: Structure of the arguments with its static parts.
        context: Settings of JAX that are part of the program.
    """

    leaves: Mapping[str, Leaf]
    tree: Any
    context: Mapping[str, str]


def signature(
    parameters: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, on_host: bool
) -> Signature:
    """The signature of one call.

    Args:
        parameters: Of the function.
        args: As called.
        kwargs: As called.
        on_host: True for real arguments, whose placement is known; False inside of a trace.
    """
    arguments = dict(parameters.bind(*args, **kwargs).arguments)
    flat, tree = jax.tree_util.tree_flatten_with_path(arguments)
    leaves = {jax.tree_util.keystr(path, simple=True, separator="/"): _leaf(x, on_host) for path, x in flat}
    context = {
        "jax_enable_x64": str(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
        "jax_default_matmul_precision": str(jax.config.jax_default_matmul_precision),  # type: ignore[attr-defined]
        "jax_numpy_dtype_promotion": str(jax.config.jax_numpy_dtype_promotion),  # type: ignore[attr-defined]
        "jax_debug_nans": str(jax.config.jax_debug_nans),  # type: ignore[attr-defined]
    }
    return Signature(leaves, tree, context)


def _leaf(x: Any, on_host: bool) -> Leaf:  # noqa: ANN401
    if isinstance(x, jax.ShapeDtypeStruct):
        sharding = None if x.sharding is None else _placement(x.sharding)
        return Leaf(x.shape, str(x.dtype), bool(x.weak_type), sharding)
    if not on_host and isinstance(x, bool | int | float | complex):  # in a trace, all that isn't traced is static
        return Leaf(dtype=type(x).__name__, static=repr(x))
    try:
        aval: Any = jax.typeof(x)
    except TypeError:
        return Leaf(dtype=type(x).__name__, static=repr(x)[:60])
    leaf = Leaf(tuple(aval.shape), str(aval.dtype), bool(getattr(aval, "weak_type", False)))
    if on_host:
        if isinstance(x, jax.Array):
            return dataclasses.replace(leaf, sharding=_placement(x.sharding), committed=x.committed)
        return leaf
    spec = getattr(getattr(aval, "sharding", None), "spec", None)
    partitioned = spec is not None and any(axis is not None for axis in spec)
    return dataclasses.replace(leaf, sharding=str(spec) if partitioned else "")


def _placement(sharding: Any) -> str:  # noqa: ANN401
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return str(next(iter(sharding.device_set)))
    return f"{type(sharding).__name__}({getattr(sharding, 'spec', '')})"


def autopsy(earlier: Sequence[Signature], new: Signature) -> tuple[list[str], str, str]:
    """What changed against the nearest earlier signature, the likely cause, and the cure."""
    if not earlier:
        return ["nothing: there was no earlier call"], "the budget was spent elsewhere", "raise the budget"
    nearest = min(earlier, key=lambda old: len(_differences(old, new)))
    changes = _differences(nearest, new)
    cause, cure = _diagnosis(nearest, new, changes)
    if len(changes) > SHOWN:
        changes = [*changes[:SHOWN], f"... and {len(changes) - SHOWN} more"]
    return changes or ["no argument changed"], cause, cure


def differ(old: Signature, new: Signature) -> bool:
    """Whether anything that decides the program differs, as far as it is known on both sides."""
    return bool(_differences(old, new))


def _differences(old: Signature, new: Signature) -> list[str]:
    both = [path for path in new.leaves if path in old.leaves]
    found = [f"{path}: {old.leaves[path]} -> {new.leaves[path]}" for path in both if _differ(old, new, path)]
    replaced: set[str] = set()  # an array that became a list, or the reverse: one line instead of one an element
    for path in [*(p for p in new.leaves if p not in old.leaves), *(p for p in old.leaves if p not in new.leaves)]:
        above = {path.rsplit("/", n)[0] for n in range(1, path.count("/") + 1)}
        whole = above & (old.leaves.keys() | new.leaves.keys())
        replaced |= whole
        if not whole and not any(p.startswith(f"{path}/") for p in (*old.leaves, *new.leaves)):
            found.append(f"{path}: {old.leaves.get(path, 'absent')} -> {new.leaves.get(path, 'absent')}")
    for path in sorted(replaced):
        inside = f"{sum(p.startswith(f'{path}/') for p in (*old.leaves, *new.leaves))} separate values"
        found.append(f"{path}: {old.leaves.get(path, inside)} -> {new.leaves.get(path, inside)}")
    if old.tree != new.tree:
        found += _static_differences(old.tree, new.tree, "arguments")
    found += [f"{k}: {v} -> {new.context[k]}" for k, v in old.context.items() if new.context[k] != v]
    return found


def _differ(old: Signature, new: Signature, path: str) -> bool:
    before, after = old.leaves[path], new.leaves[path]
    if before.committed is None or after.committed is None:
        after = dataclasses.replace(after, committed=before.committed)
    if before.sharding is None or after.sharding is None:
        after = dataclasses.replace(after, sharding=before.sharding)
    return before != after


def _static_differences(old: Any, new: Any, path: str) -> list[str]:  # noqa: ANN401
    """Walks two PyTreeDefs side by side and names the nodes whose type or static data differ."""
    before, after = old.node_data(), new.node_data()
    if before is None or after is None or before[0] is not after[0]:
        return [] if before == after else [f"{path}: {_node(before)} -> {_node(after)}"]
    ours, theirs = _static_parts(before), _static_parts(after)
    found = [
        f"{path}{name}: {_short(ours.get(name))} -> {_short(theirs.get(name))}"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    if found or len(old.children()) != len(new.children()):
        return found or [f"{path}: {len(old.children())} -> {len(new.children())} elements"]
    pairs = zip(_child_names(before, len(old.children())), old.children(), new.children(), strict=True)
    return [line for name, x, y in pairs for line in _static_differences(x, y, f"{path}/{name}")]


def _node(data: tuple[type, Any] | None) -> str:
    return "an array" if data is None else data[0].__name__


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def _is_flax(data: tuple[type, Any]) -> bool:
    """Whether static data has the layout of a Flax module: names of children, names of statics, values of statics."""
    aux = data[1]
    return isinstance(aux, tuple) and len(aux) == 3 and all(isinstance(x, tuple) for x in aux) and (
        len(aux[1]) == len(aux[2])
    )  # fmt: skip


def _static_parts(data: tuple[type, Any]) -> dict[str, Any]:
    if _is_flax(data):
        return {f".{name}": value for name, value in zip(data[1][1], data[1][2], strict=True)}
    # The keys of a dict are its children's names, and those are told apart leaf by leaf.
    return {} if data[0] in (dict, list, tuple) else {"": data[1]}


def _child_names(data: tuple[type, Any], count: int) -> list[Any]:
    if data[0] is dict:
        return list(data[1])
    return list(data[1][0]) if _is_flax(data) and len(data[1][0]) == count else list(range(count))


def _diagnosis(old: Signature, new: Signature, changes: list[str]) -> tuple[str, str]:
    pairs = [(old.leaves[p], new.leaves[p]) for p in new.leaves if p in old.leaves and _differ(old, new, p)]
    arrays = [(a, b) for a, b in pairs if not a.static and not b.static]
    if any(a.shape[1:] == b.shape[1:] and a.shape[:1] != b.shape[:1] for a, b in arrays if a.shape and b.shape):
        return "another number of rows: a short last batch?", "drop the remainder, or pad and mask it"
    if any(a.shape != b.shape for a, b in arrays):
        return "an array of another shape", "give every batch the same shape"
    if any(a.dtype != b.dtype for a, b in arrays):
        return "an array of another dtype", "cast where the batch is made: column.astype(dtype)"
    if any(a.weak_type != b.weak_type for a, b in arrays):
        return (
            "a Python number became an array, or the reverse",
            "pass jnp.asarray(value, dtype) from the first call on",
        )
    if any(a.sharding != b.sharding or a.committed != b.committed for a, b in arrays):
        return "an array lies elsewhere, or was pinned to its device after the first call (a restored checkpoint?)", (
            "jax.device_put the whole state to its final sharding before the first step"
        )
    if lists := [p for p in old.leaves if any(q.startswith(f"{p}/") for q in new.leaves)]:
        return f"{lists[0]} is a list, of which JAX makes one argument an element", "np.asarray(values, dtype)"
    if missing := sorted(old.leaves.keys() ^ new.leaves.keys()):
        return f"an argument came or went: {missing[0]}", "give every call the same arguments"
    if pairs or old.tree != new.tree:
        return "a static part changed: train/eval mode, a new optax object, a static argument", (
            "build model, optimizer and batch once and in one way; give evaluation a step of its own"
        )
    if changes:
        return "a setting of JAX changed between two calls", "set it once, before the first step"
    return "the function itself is a new object, or something that it closes over changed", (
        "make the step once, outside of the loop"
    )
