from __future__ import annotations

import pytest

from datasets.checks import check_float, check_int
from datasets.errors import ParameterError


def test_checks_say_what_they_got_and_expected() -> None:
    with pytest.raises(ParameterError) as caught:
        check_int("epochs", True, 1)
    assert caught.value.facts == {
        "parameter": "epochs", "got": "bool True", "expected": "a whole number of at least 1"
    }  # fmt: skip
    with pytest.raises(ParameterError) as caught:
        check_float("rate", 1.0, 0, 1)
    assert caught.value.facts["expected"] == "a finite number, 0 <= rate < 1"
    check_float("rate", 0, 0, 1)
