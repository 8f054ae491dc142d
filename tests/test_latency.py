from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy

from tasks import latency as module
from tasks import predictor
from tasks.artifact import Store
from tasks.latency import latency_ms


def test_one_example_is_timed_without_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = toy.table_request(tmp_path)
    records = toy.records_of(request)
    weights = toy.weights_that_say(request, np.arange(60) % 3, "w")
    predict, sizes = predictor.Predictor.predict, list[int]()

    def slow(self: Any, size: int, read: Any) -> Any:
        sizes.append(size)
        time.sleep(0.25 if len(sizes) == 1 else 0.01)
        return predict(self, size, read)

    monkeypatch.setattr(predictor.Predictor, "predict", slow)
    monkeypatch.setattr(module, "CALLS", 5)
    found = latency_ms(Store(request.store), request, records, weights)
    assert sizes == [1] * 6
    assert 10 <= found < 250
