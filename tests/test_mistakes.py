from __future__ import annotations

import numpy as np
import pytest

from datasets.schema import Feature
from tasks import mistakes as module
from tasks.mistakes import captions, is_picture, mistakes, page

ORIGIN = [["a.csv", 100, 3], ["sub/b.csv", 0, 3]]
LABELS = np.array([0, 1, 2, 0, 1, 2])
LOGITS = np.array([[5, 0, 0], [3, 2, 0], [0, 6, 1], [0, 0, 5], [0, 9, 0], [1, 2, 1.9]], np.float32)
LOSSES = np.array([0.1, 1.3, 5.1, 9.0, 0.0, 0.9], np.float32)


def test_mistakes_by_loss_with_their_raw_rows() -> None:
    rows = mistakes(LABELS, LOGITS, LOSSES, "xyz", ORIGIN)
    assert [(row["example"], row["file"], row["row"], row["truth"], row["predicted"]) for row in rows] == [
        (3, "sub/b.csv", 0, "x", "z"), (2, "a.csv", 102, "z", "y"), (1, "a.csv", 101, "y", "x"),
        (5, "sub/b.csv", 2, "z", "y"),
    ]  # fmt: skip
    assert rows[0]["confidence"] == pytest.approx(np.exp(5) / (np.exp(5) + 2))
    assert [row["loss"] for row in rows] == pytest.approx([9.0, 5.1, 1.3, 0.9])


def test_the_worst_and_the_surest_are_both_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    rows = mistakes(LABELS, LOGITS, LOSSES, "xyz", ORIGIN)
    assert {row["example"]: row["why"] for row in rows} == {3: "greatest loss", 2: "most confident"}


def test_a_perfect_model_has_none() -> None:
    assert mistakes(LABELS, np.eye(3, dtype=np.float32)[LABELS], LOSSES, "xyz", ORIGIN) == []
    assert "no mistake" in page([], {}, "x", "label")


def test_the_page_names_file_row_and_other_columns() -> None:
    rows = mistakes(LABELS, LOGITS, LOSSES, "xyz", ORIGIN)
    columns = {
        "x": np.arange(80, dtype=np.float32).reshape(4, 20), "label": LABELS[:4], "month": np.array([7, 8, 9, 10]),
    }  # fmt: skip
    lines = page(rows, columns, "x", "label").splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:8]] == ["sub/b.csv", "0", "x", "z", "98.7%", "9.0000", "7"]
    assert "| 0 1 2 3 4 5 6 7 8 9 10 11 |" in lines[2]
    assert lines[0].count("label") == 0
    assert len(lines) == 6


def test_captions_say_truth_answer_and_place() -> None:
    rows = mistakes(LABELS, LOGITS, LOSSES, "xyz", [["folder/with/a/very/long/name-of-file.png", 0, 6]])
    assert captions(rows)[0] == "x, said z (98.7%)\n...ery/long/name-of-file.png row 3"


@pytest.mark.parametrize(
    ("shape", "can"), [((8, 8, 1), True), ((8, 8, 3), True), ((8, 8), False), ((12,), False), ((8, 8, 5), False)]
)
def test_what_can_be_shown(shape: tuple[int, ...], can: bool) -> None:
    assert is_picture(Feature("uint8", shape)) is can


def test_a_number_is_told_with_its_error() -> None:
    row = {"file": "a.csv", "row": 3, "truth": 1234.5678, "predicted": 1200.0, "error": -34.5678, "loss": 1194.9}
    (caption,) = captions([row])
    assert caption == "1234.57, said 1200 (-34.57)\na.csv row 3"
    text = page([row], {"x": np.ones((1, 2), np.float32), "y": np.ones(1)}, "x", "y")
    assert "| error |" in text
    assert "| a.csv | 3 | 1234.57 | 1200 | -34.57 | 1194.9000 |" in text
