"""What a batch, a model's output and a loss must look like: on the host for every batch, and while JAX traces.

The checks on the host are plain Python and NumPy: neither `python -O` nor `chex.disable_asserts()` switches them off.
The checks at trace time are Chex assertions, which leave the compiled program as it is, and behind each stands a plain
comparison of our own, so that a process which disables Chex still refuses a wrong shape.

Where a batch is wrong in its structure (keys, kind of array, shape, dtype) the error is a ContractError: a fault in the
program. Where a value is wrong (NaN, a label out of range) it is a SchemaError: a fault in the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from datasets.errors import ContractError, GristmillError, SchemaError
from datasets.schema import Columns, Feature, in_batches

Shape = tuple[int | None, ...]
"""Expected shape; None stands for any size."""


def device_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype that an array of `dtype` has on the device: 64 bits become 32 unless jax_enable_x64 is set."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.dtype(dtype)))


def check_batch(
    batch: Columns,
    features: Mapping[str, Feature],
    batch_size: int,
    step: int | None = None,
    ids: Sequence[object] | None = None,
) -> None:
    """Checks a batch on the host before it goes to the device.

    Args:
        batch: One array a feature, [batch_size, *feature.shape], of exactly the feature's dtype.
        features: What the batch holds, no more and no fewer; those of varying lengths are in no batch.
        batch_size: Rows of every column.
        step: For the message only.
        ids: Id of the record in each row, for the message only.

    Raises:
        ContractError: The keys, the kind of a column (a list isn't an array), a shape or a dtype is another.
        SchemaError: A value is NaN, infinite, outside the feature's bounds, or doesn't fit the device's 32 bits.
    """
    features = in_batches(features)
    if batch.keys() != features.keys():
        raise ContractError(
            "the batch has other columns than the dataset states",
            step=step, got=", ".join(sorted(map(str, batch))), expected=", ".join(sorted(features)),
            missing=", ".join(sorted(features.keys() - batch.keys())) or None,
            unknown=", ".join(sorted(map(str, batch.keys() - features.keys()))) or None,
        )  # fmt: skip
    for name, feature in features.items():
        column = batch[name]
        if not isinstance(column, np.ndarray):
            raise ContractError(
                f"column {name!r} isn't a NumPy array", step=step, field=name, got=type(column).__name__,
                expected=_describe(feature.dtype, (batch_size, *feature.shape)),
                cure="np.asarray(column, dtype) where the batch is made: a list is another input to a compiled step",
            )  # fmt: skip
        if column.shape != (batch_size, *feature.shape) or column.dtype != feature.dtype:
            raise _structure("the batch", name, column, (batch_size, *feature.shape), feature.dtype, step)
        row = _first_bad_row(column, feature)
        if row is not None:
            raise _value(name, feature, column, row, step, ids)


def _first_bad_row(column: np.ndarray, feature: Feature) -> int | None:
    low, high = _limits(feature)
    if column.dtype.kind == "f":
        flat = column.reshape(-1)
        if low is None and high is None:
            # The sum of huge finite values overflows too, so a bad sum only asks for the slow look. It isn't np.dot,
            # although that is faster: BLAS starts threads, and they take the cores from XLA's.
            with np.errstate(over="ignore", invalid="ignore"):
                sound = bool(np.isfinite(flat.sum()))
        else:
            least, greatest = flat.min(), flat.max()  # both are NaN where there is a NaN
            sound = bool(
                (least >= (-np.inf if low is None else low))
                and (greatest <= (np.inf if high is None else high))
                and np.isfinite(least) and np.isfinite(greatest)
            )  # fmt: skip
        if sound:
            return None
    elif (low is None or column.min() >= low) and (high is None or column.max() <= high):
        return None
    rows = np.flatnonzero(_bad(column, low, high).reshape(len(column), -1).any(axis=1))
    return int(rows[0]) if len(rows) else None


def _bad(values: np.ndarray, low: float | None, high: float | None) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(values)
        bad |= False if low is None else values < low
        bad |= False if high is None else values > high
    return bad


def _limits(feature: Feature) -> tuple[float | None, float | None]:
    """Bounds that the dtype itself doesn't give: those of the feature and those of the device's narrower dtype."""
    return _limits_on(feature, device_dtype(feature.dtype))


@lru_cache
def _limits_on(feature: Feature, on_device: np.dtype[Any]) -> tuple[float | None, float | None]:
    low, high = feature.bounds
    dtype = np.dtype(feature.dtype)
    if dtype.kind == "b":
        return None, None
    info = np.iinfo if dtype.kind in "iu" else np.finfo
    own = info(dtype)
    if on_device.itemsize < dtype.itemsize:
        device = info(on_device)
        low = float(device.min) if low is None else max(low, float(device.min))
        high = float(device.max) if high is None else min(high, float(device.max))
    if dtype.kind in "iu":
        low = None if low is None or low <= own.min else low
        high = None if high is None or high >= own.max else high
    return low, high


def _value(
    name: str, feature: Feature, column: np.ndarray, row: int, step: int | None, ids: Sequence[object] | None
) -> SchemaError:
    low, high = _limits(feature)
    cell = column[row].reshape(-1)
    value = cell[int(np.flatnonzero(_bad(cell, low, high))[0])].item()
    count = int(_bad(column, low, high).reshape(len(column), -1).any(axis=1).sum())
    expected = "finite values" if low is None and high is None else f"{low} <= {name} <= {high}"
    cure = None
    if feature.classes and value == len(feature.classes) and column.min() >= 1:
        cure = "labels seem to start at 1: subtract 1 in the dataset's reader"
    elif device_dtype(feature.dtype) != np.dtype(feature.dtype) and feature.bounds == (None, None):
        cure = f"{feature.dtype} becomes {device_dtype(feature.dtype)} on the device: rescale it in the reader"
    return SchemaError(
        f"column {name!r} has a bad value", step=step, field=name, row=row,
        record=None if ids is None else ids[row], got=value, expected=expected,
        found=f"{column.min()} ... {column.max()}, {count} bad rows of {len(column)}", cure=cure,
    )  # fmt: skip


def array_contract(where: str, field: str, x: Any, shape: Shape, dtype: object = None) -> None:  # noqa: ANN401
    """States at trace time the shape, and if given the dtype, of one array.

    Args:
        where: Whose border this is, such as "model mlp, output"; opens the message.
        field: Name of the array.
        x: Array, tracer or ShapeDtypeStruct.
        shape: Expected; None for any size.
        dtype: Expected; None for any.

    Raises:
        ContractError: The array is another; says field, got and expected.
    """
    try:
        chex.assert_rank(x, len(shape))
        chex.assert_shape(x, shape)
        if dtype is not None:
            chex.assert_type(x, dtype)
    except (AssertionError, AttributeError, ValueError) as error:
        raise _structure(where, field, x, shape, dtype) from error
    # chex.disable_asserts() makes the lines above do nothing.
    got = tuple(getattr(x, "shape", ("no array",)))
    same = len(got) == len(shape) and all(want in (None, size) for size, want in zip(got, shape, strict=True))
    if not same or (dtype is not None and x.dtype != dtype):
        raise _structure(where, field, x, shape, dtype)


def batch_contract(where: str, batch: Mapping[str, Any], features: Mapping[str, Feature], batch_size: int) -> None:
    """States at trace time that a batch is what the dataset says, with one row count for all of its columns.

    Raises:
        ContractError: A key, rank, shape or dtype (as it is on the device) is another.
    """
    features = in_batches(features)
    if batch.keys() != features.keys():
        raise ContractError(
            f"{where}: the batch has other columns", got=", ".join(sorted(batch)), expected=", ".join(sorted(features))
        )
    for name, feature in features.items():
        array_contract(where, name, batch[name], (batch_size, *feature.shape), device_dtype(feature.dtype))
    equal_prefix(where, batch)


def equal_prefix(where: str, arrays: Mapping[str, Any]) -> None:
    """States at trace time that all arrays have the same number of rows.

    Raises:
        ContractError: They differ, or one is a scalar.
    """
    rows = {name: tuple(x.shape)[:1] for name, x in arrays.items()}
    try:
        chex.assert_equal_shape_prefix(list(arrays.values()), 1)
    except (AssertionError, ValueError) as error:
        raise ContractError(f"{where}: the row counts differ", got=rows, expected="one row count") from error
    if len(set(rows.values())) > 1 or () in rows.values():
        raise ContractError(f"{where}: the row counts differ", got=rows, expected="one row count")


def image_contract(where: str, image: Any, shape: tuple[int, int, int], dtype: object = jnp.float32) -> None:  # noqa: ANN401
    """States at trace time that `image` is [batch, height, width, channels] of `dtype`.

    Raises:
        ContractError: The rank, a size or the dtype is another.
    """
    array_contract(where, "image", image, (None, *shape), dtype)


def cross_entropy(
    logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0, mask: jax.Array | None = None
) -> jax.Array:
    """Mean softmax cross-entropy, with shapes that can't broadcast.

    A label outside 0 ... classes - 1 gives NaN for every class count and sign, so that the firewall stops; the usual
    gather takes -1 for the last class.

    Args:
        logits: float [batch, classes].
        labels: int [batch].
        label_smoothing: Share of the target that is spread evenly over all classes, 0 <= share < 1.
        mask: bool or float [batch], the weight of each example; rows of weight 0 may hold anything. All weights 0
            gives NaN.

    Returns:
        float32 [].

    Raises:
        ContractError: A shape, or the kind of a dtype, is another.
    """
    per_example = example_cross_entropy(logits, labels, label_smoothing=label_smoothing)
    if mask is None:
        return per_example.mean()
    array_contract("cross_entropy", "mask", mask, per_example.shape)
    weight = mask.astype(jnp.float32)
    return jnp.sum(jnp.where(weight > 0, per_example, 0.0) * weight) / jnp.sum(weight)


def example_cross_entropy(logits: jax.Array, labels: jax.Array, *, label_smoothing: float = 0.0) -> jax.Array:
    """Softmax cross-entropy of each example, float32 [batch]; see `cross_entropy`."""
    where = "cross_entropy"
    array_contract(where, "logits", logits, (None, None))
    array_contract(where, "labels", labels, (logits.shape[0],))
    _kind(where, "logits", logits, jnp.floating, "a float dtype")
    _kind(where, "labels", labels, jnp.integer, "an integer dtype")
    classes = logits.shape[1]
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    known = (labels >= 0) & (labels < classes)
    # The gather itself makes the NaN, and only for a bad label, so that jax_debug_nans has nothing to say otherwise.
    index = jnp.where(known, labels, classes)[:, None]
    target = jnp.take_along_axis(log_p, index, axis=1, mode="fill", fill_value=jnp.nan)[:, 0]
    if not label_smoothing:
        return -target
    return -((1.0 - label_smoothing) * target + label_smoothing * log_p.mean(axis=1))


def example_squared_error(outputs: jax.Array, numbers: jax.Array) -> jax.Array:
    """Squared error of each example, float32 [batch], with shapes that can't broadcast.

    Args:
        outputs: float [batch, 1], of a model with one output.
        numbers: float [batch], the truth.

    Raises:
        ContractError: A shape, or the kind of a dtype, is another: [batch] against [batch, 1] would be every pair.
    """
    where = "squared_error"
    estimates = single_output(where, outputs)
    array_contract(where, "numbers", numbers, estimates.shape)
    _kind(where, "numbers", numbers, jnp.floating, "a float dtype")
    return jnp.square(estimates - numbers.astype(jnp.float32))


def single_output(where: str, outputs: jax.Array) -> jax.Array:
    """What a model with one output says of each example: float [batch, 1] -> float32 [batch].

    Raises:
        ContractError: There are more outputs, or none.
    """
    array_contract(where, "outputs", outputs, (None, 1))
    _kind(where, "outputs", outputs, jnp.floating, "a float dtype")
    return outputs[:, 0].astype(jnp.float32)


def _kind(where: str, field: str, x: jax.Array, kind: Any, expected: str) -> None:  # noqa: ANN401
    if not jnp.issubdtype(x.dtype, kind):
        raise ContractError(f"{where}: {field} has another dtype", field=field, got=x.dtype.name, expected=expected)


def surfacing(where: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that is called while tracing: Chex's own failures come out as ContractError.

    Raises:
        ContractError: A Chex assertion of the function failed; the text of Chex is the fact `chex`.
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            return function(*args, **kwargs)
        except GristmillError:
            raise
        except AssertionError as error:
            text = " ".join(str(error).split())
            raise ContractError(f"{where}: an assertion failed while tracing", chex=text) from error

    return wrapped


def _structure(
    where: str, field: str, x: Any, shape: Shape, dtype: object, step: int | None = None  # noqa: ANN401
) -> ContractError:  # fmt: skip
    got_shape, got_dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    wanted = np.dtype(dtype).name if dtype is not None else None  # type: ignore[call-overload]
    cure = None
    if got_shape is not None and len(got_shape) == len(shape) and got_shape[1:] == shape[1:] and shape[0] is not None:
        if got_shape[0] < shape[0]:
            cure = "a short last batch: drop the remainder in training, pad and mask it in evaluation"
    elif got_shape is not None and tuple(n for n in got_shape if n != 1) == tuple(n for n in shape if n != 1):
        cure = "an axis of size 1 is too many or missing, which would broadcast: squeeze or reshape it"
    return ContractError(
        f"{where}: {field} has another {'shape or dtype' if dtype is not None else 'shape'}", step=step, field=field,
        got=type(x).__name__ if got_shape is None else _describe(got_dtype, got_shape),
        expected=_describe(wanted, shape), cure=cure,
    )  # fmt: skip


def _describe(dtype: object, shape: Shape) -> str:
    sizes = ",".join("*" if n is None else str(n) for n in shape)
    return f"{'any dtype' if dtype is None else np.dtype(dtype)}[{sizes}]"  # type: ignore[call-overload]
