from __future__ import annotations

import numpy as np
import pytest

from datasets.errors import SchemaError
from datasets.learning import along_last, as_on_device, on_device, width_of
from datasets.schema import Feature


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((5,), 5), ((4, 6, 3), 3)])
def test_statistics_lie_along_the_last_axis(shape: tuple[int, ...], width: int) -> None:
    feature = Feature("float32", shape)
    assert width_of(feature) == width
    made = np.ones((2, *shape), np.float32) * along_last(list(range(width)), np.dtype("float32"), feature)
    assert made.shape == (2, *shape)
    np.testing.assert_array_equal(made.reshape(-1, width)[-1], np.arange(width))


def test_64_bits_are_32_on_the_device() -> None:
    assert [on_device(name).name for name in ("int64", "uint64", "float64", "uint8", "bool")] == [
        "int32", "uint32", "float32", "uint8", "bool",
    ]  # fmt: skip
    assert as_on_device(np.array([2**31 - 1]), np).dtype == np.int32
    with pytest.raises(SchemaError, match="32 bits") as caught:
        as_on_device(np.array([1, 2**31]), np)
    assert caught.value.facts["got"] == 2**31
