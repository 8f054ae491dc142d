"""What arrays must look like while JAX traces; `batch_check.py` looks at the values of every batch.

The checks are Chex assertions, which leave the compiled program as it is, and behind each stands a plain comparison of
our own, so that a process which disables Chex still refuses a wrong shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from datasets.errors import ContractError, GristmillError
from datasets.schema import Feature, in_batches

Shape = tuple[int | None, ...]
"""Expected shape; None stands for any size."""


def device_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype that an array of `dtype` has on the device: 64 bits become 32 unless jax_enable_x64 is set."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.dtype(dtype)))


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
        raise structure_error(where, field, x, shape, dtype) from error
    # chex.disable_asserts() makes the lines above do nothing.
    got = tuple(getattr(x, "shape", ("no array",)))
    same = len(got) == len(shape) and all(want in (None, size) for size, want in zip(got, shape, strict=True))
    if not same or (dtype is not None and x.dtype != dtype):
        raise structure_error(where, field, x, shape, dtype)


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


def kind_contract(where: str, field: str, x: jax.Array, kind: Any, expected: str) -> None:  # noqa: ANN401
    """States at trace time the kind of an array's dtype, such as `jnp.floating`; raises ContractError."""
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


def structure_error(
    where: str, field: str, x: Any, shape: Shape, dtype: object, step: int | None = None  # noqa: ANN401
) -> ContractError:  # fmt: skip
    """The error about an array that isn't of this shape and dtype, with the cure where its shape tells one."""
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
        got=type(x).__name__ if got_shape is None else described(got_dtype, got_shape),
        expected=described(wanted, shape), cure=cure,
    )  # fmt: skip


def described(dtype: object, shape: Shape) -> str:
    """Such as "float32[*,28,28]"."""
    sizes = ",".join("*" if n is None else str(n) for n in shape)
    return f"{'any dtype' if dtype is None else np.dtype(dtype)}[{sizes}]"  # type: ignore[call-overload]
