from __future__ import annotations

import numpy as np
import pytest
from test_pipeline import Memory

from datasets.schema import Columns
from tasks import source_digest
from tasks.source_digest import digest_of


def columns() -> Columns:
    return {"id": np.arange(50), "x": np.arange(100, dtype=np.float32).reshape(50, 2)}


def changed(name: str, values: np.ndarray) -> str:
    return digest_of(Memory({**columns(), name: values}))


def test_the_digest_is_of_names_types_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = digest_of(Memory(columns()))
    assert digest_of(Memory(dict(reversed(columns().items())))) == plain
    monkeypatch.setattr(source_digest, "_ROWS_AT_ONCE", 7)
    assert digest_of(Memory(columns())) == plain
    x = columns()["x"]
    others = {
        changed("x", x + np.eye(50, 2, dtype=np.float32)), changed("x", x[::-1]), changed("x", x.reshape(50, 2, 1)),
        changed("x", x.view(np.int32)), changed("y", x), digest_of(Memory({k: v[:49] for k, v in columns().items()})),
    }  # fmt: skip
    assert len(others - {plain}) == 6
