"""How long a prediction of one example takes, from an array on the host to logits on the host."""

from __future__ import annotations

import statistics
import time

import numpy as np

from tasks.artifact import Artifact, Store
from tasks.feed import columns
from tasks.request import Request

CALLS = 50


def latency_ms(store: Store, request: Request, records: Artifact, weights: Artifact) -> float:
    """Median of `CALLS` predictions of the first test example by itself, in milliseconds; compiling isn't counted.

    Raises:
        CheckpointMismatch: As `load_model`.
    """
    from tasks.predictor import Predictor
    from tasks.target import target_of
    from tasks.weights import load_model

    model, card = load_model(store.path(weights))
    feature = request.dataset.features[card["inputs"]]
    predictor = Predictor(model, card["inputs"], card["label"], feature, 1, target_of(card["classes"]))
    example = columns(store, request, records, "test").read(np.arange(1))
    times = []
    for _ in range(CALLS + 1):
        start = time.perf_counter()
        predictor.predict(1, lambda ids: example)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[1:])  # the first one loads the program
