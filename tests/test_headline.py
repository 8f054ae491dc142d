from __future__ import annotations

from tasks.headline import figure_rows, headline

CLASSES = {"accuracy": 0.975, "correct": 975, "examples": 1000, "loss": 0.08765, "roc_auc": 0.9912}
NUMBER = {"rmse": 12.3456, "mae": 9.5, "r2": 0.8, "examples": 1000, "loss": 152.4138}


def test_the_one_figure() -> None:
    assert headline(CLASSES) == "97.50%"
    assert headline(NUMBER) == "RMSE 12.35"


def test_the_rows_of_a_table() -> None:
    assert figure_rows(CLASSES) == [
        ("test accuracy", "97.50% (975 of 1,000)"), ("test loss", "0.0877"), ("ROC-AUC", "0.9912"),
    ]  # fmt: skip
    rows = [("test RMSE", "12.35"), ("test MAE", "9.5"), ("test R2", "0.8"), ("test loss", "152.4138")]
    assert figure_rows(NUMBER) == rows
    undefined = {name: value for name, value in NUMBER.items() if name != "r2"}
    assert figure_rows(undefined) == [row for row in rows if row[0] != "test R2"]
