from __future__ import annotations

import numpy as np

from tasks import regression, scoring
from tasks.judge import drawn, fall_of, measures_of, mistakes_of, part_of, score_of

LABELS, LOGITS = np.array([0, 1, 1]), np.array([[2, 0], [0, 1], [3, 0]], np.float32)
LOSSES = np.array([0.1, 0.3, 3.0], np.float32)
ORIGIN = [["raw", 0, 3]]


def test_classes_are_counted_and_numbers_are_measured() -> None:
    assert score_of(("a", "b"))(LABELS, LOGITS, LOSSES)["classes"]["b"]["support"] == 2
    assert score_of(()) is regression.score
    assert (part_of(("a", "b")), part_of(())) == (scoring.score_part, regression.score_part)
    assert (measures_of(("a", "b")), measures_of(())) == (scoring.measures, regression.measures)
    assert (fall_of(("a", "b")), fall_of(())) == (scoring.fewer_right, regression.rise)


def test_each_has_its_own_mistakes_and_its_own_plot() -> None:
    number, one = LABELS.astype(np.float32), LOGITS[:, :1]
    (wrong,) = mistakes_of(("a", "b"))(LABELS, LOGITS, LOSSES, ORIGIN)
    assert (wrong["truth"], wrong["predicted"], wrong["row"]) == ("b", "a", 2)
    assert [row["error"] for row in mistakes_of(())(number, one, LOSSES, ORIGIN)] == [2.0, 2.0, -1.0]
    matrix = drawn(("a", "b"), {"confusion": [[1, 0], [1, 1]]}, LABELS, LOGITS)
    dots = drawn((), {}, number, one)
    assert matrix[:4] == dots[:4] == b"\x89PNG"
    assert matrix != dots
