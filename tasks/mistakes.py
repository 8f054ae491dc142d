"""Where a model is wrong: the examples with the greatest loss and those it was surest of, each with its raw row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from datasets.schema import Columns, Feature
from tasks.calibration import probabilities
from tasks.dealing import origin_of
from tasks.document import table

MOST = 15
SHOWN = 12


def mistakes(
    labels: np.ndarray, logits: np.ndarray, losses: np.ndarray, classes: Sequence[str], origin: list[list[Any]]
) -> list[dict[str, Any]]:
    """The `MOST` mistakes of the greatest loss and the `MOST` of the greatest confidence, by loss.

    Args:
        labels: int [N], the truth.
        logits: float32 [N, classes].
        losses: float32 [N].
        classes: Names by index.
        origin: Runs of raw rows of this split, from `origin.json`.

    Returns:
        For each: example, file and row (counted from 0), truth, predicted, confidence (the probability of what was
        predicted), loss, and why it is here.
    """
    predicted = logits.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    confidence = probabilities(logits[wrong]).max(axis=1)
    worst = set(wrong[np.argsort(-losses[wrong], kind="stable")[:MOST]].tolist())
    surest = set(wrong[np.argsort(-confidence, kind="stable")[:MOST]].tolist())
    sure = dict(zip(wrong.tolist(), confidence.tolist(), strict=True))
    rows = []
    for example in sorted(worst | surest, key=lambda each: (-losses[each], each)):
        file, row = origin_of(origin, example)
        why = [name for name, group in (("greatest loss", worst), ("most confident", surest)) if example in group]
        rows.append({
            "example": example, "file": file, "row": row, "truth": classes[int(labels[example])],
            "predicted": classes[int(predicted[example])], "confidence": sure[example], "loss": float(losses[example]),
            "why": " and ".join(why),
        })  # fmt: skip
    return rows


def is_picture(feature: Feature) -> bool:
    """Whether examples can be shown: height, width and one or three channels."""
    return len(feature.shape) == 3 and feature.shape[2] in (1, 3)


def captions(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What stands above each picture."""
    return [
        f"{_said(row['truth'])}, said {_said(row['predicted'])} ({_how_wrong(row)})\n"
        f"{_short(row['file'])} row {row['row']}"
        for row in rows
    ]


def page(rows: Sequence[dict[str, Any]], columns: Columns, inputs: str, label: str) -> str:
    """The mistakes as a Markdown table, with the first numbers of the input and the columns of one number.

    Args:
        rows: Of `mistakes`, here or in `regression.py`.
        columns: Of these examples.
        inputs: Name of the column that the model sees.
        label: Name of the label.
    """
    if not rows:
        return "The model makes no mistake on the test split.\n"
    others = [name for name, column in columns.items() if column.ndim == 1 and name not in (inputs, label)]
    how = "confidence" if "confidence" in rows[0] else "error"
    head = ["raw file", "row", "truth", "predicted", how, "loss", *others, f"{inputs}, the first numbers"]
    lines = []
    for i, row in enumerate(rows):
        numbers = columns[inputs][i].reshape(-1)[:SHOWN].tolist()
        lines.append([
            row["file"], str(row["row"]), _said(row["truth"]), _said(row["predicted"]), _how_wrong(row),
            f"{row['loss']:.4f}", *(str(columns[name][i].item()) for name in others),
            " ".join(f"{number:.4g}" for number in numbers),
        ])  # fmt: skip
    return f"{table(head, lines)}\n"


def _said(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _how_wrong(row: dict[str, Any]) -> str:
    """How sure the model was of the wrong class, or how far off its number is."""
    return f"{row['confidence']:.1%}" if "confidence" in row else f"{row['error']:+.4g}"


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"...{name[3 - most :]}"
