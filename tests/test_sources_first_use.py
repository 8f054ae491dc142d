from __future__ import annotations

from pathlib import Path

import pytest

from datasets.errors import FetchError
from datasets.schema import RawFile
from tasks.sources_first_use import FILE, FirstUse

FIRST = RawFile("a.csv", "1" * 64, 10)


def test_the_first_use_is_remembered(tmp_path: Path) -> None:
    assert FirstUse(tmp_path / "raw").pin("a.csv") == RawFile("a.csv")
    FirstUse(tmp_path / "raw").see(FIRST)
    assert (tmp_path / "raw" / FILE).is_file()
    assert FirstUse(tmp_path / "raw").pin("a.csv") == FIRST
    FirstUse(tmp_path / "raw").see(FIRST)  # again the same: fine


@pytest.mark.parametrize("other", [RawFile("a.csv", "2" * 64, 10), RawFile("a.csv", "1" * 64, 11)])
def test_other_bytes_under_the_same_version_are_an_error(tmp_path: Path, other: RawFile) -> None:
    FirstUse(tmp_path).see(FIRST, "v1")
    with pytest.raises(FetchError, match="changed upstream") as caught:
        FirstUse(tmp_path).see(other, "v1")
    assert other.sha256 in caught.value.facts["got"]
    assert FIRST.sha256 in caught.value.facts["expected"]
    assert str(tmp_path) in str(caught.value.cure)
    assert FirstUse(tmp_path).pin("a.csv", "v1") == FIRST


def test_a_new_version_is_a_new_first_use(tmp_path: Path) -> None:
    FirstUse(tmp_path).see(FIRST, "v1")
    assert FirstUse(tmp_path).pin("a.csv", "v2").sha256 == ""
    second = RawFile("a.csv", "2" * 64, 12)
    FirstUse(tmp_path).see(second, "v2")
    assert FirstUse(tmp_path).pin("a.csv", "v2") == second


def test_files_are_kept_apart(tmp_path: Path) -> None:
    FirstUse(tmp_path).see(FIRST)
    FirstUse(tmp_path).see(RawFile("b.csv", "3" * 64, 1))
    assert FirstUse(tmp_path).pin("a.csv") == FIRST
