"""Times with a zone in one file and without in another."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.errors import SchemaError
from datasets.readers import delimited, jsonl, parquet
from datasets.readers.zones import Zones, seeing, zones_here
from datasets.schema import Feature

FEATURES = {"at": Feature("int32")}
NOON = datetime(2026, 3, 1, 12)


def write(folder: Path, kind: str, name: str, zoned: bool) -> None:
    if kind == "parquet":
        at = NOON.replace(tzinfo=UTC) if zoned else NOON
        pq.write_table(pa.table({"at": [at]}), folder / f"{name}.parquet")
    elif kind == "delimited":
        (folder / f"{name}.csv").write_text(f"at\n{NOON.isoformat()}{'Z' if zoned else ''}\n")
    else:
        (folder / f"{name}.jsonl").write_text(f'{{"at": "{NOON.isoformat()}{"Z" if zoned else ""}"}}\n')


def read(folder: Path, kind: str) -> list[int]:
    options: dict[str, Any] = {} if kind == "parquet" else {"times": ("at",)}
    module = {"parquet": parquet, "delimited": delimited, "jsonl": jsonl}[kind]
    return [int(block.columns["at"][0]) for block in module.blocks(folder, ".", FEATURES, **options)]


@pytest.mark.parametrize("kind", ["parquet", "delimited", "jsonl"])
def test_a_mixture_is_refused_with_both_files_and_the_cure(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind, "a", zoned=True)
    write(tmp_path, kind, "b", zoned=True)
    assert read(tmp_path, kind) == [int(NOON.replace(tzinfo=UTC).timestamp())] * 2
    write(tmp_path, kind, "c", zoned=False)
    with pytest.raises(SchemaError, match="'at': times without a zone here and with a zone in another") as caught:
        read(tmp_path, kind)
    assert Path(caught.value.facts["file"]).stem == "c"
    assert "as in a." in caught.value.facts["expected"]
    assert caught.value.cure
    (tmp_path / caught.value.facts["expected"].rpartition(" ")[2]).unlink()
    write(tmp_path, kind, "b", zoned=False)
    assert len(read(tmp_path, kind)) == 2


def test_readers_within_it_share_what_they_saw(tmp_path: Path) -> None:
    zones = Zones()
    with seeing(zones):
        assert zones_here() is zones
        for name, zoned in (("a", True), ("b", False)):
            write(tmp_path, "delimited", name, zoned)
        with pytest.raises(SchemaError):
            read(tmp_path, "delimited")
    assert zones.said == {"at": (True, "a.csv")}
    assert zones_here() is not zones_here()


def test_what_was_kept_of_other_files_counts() -> None:
    zones = Zones()
    zones.see_all({"at": (True, "a"), "until": (False, "a")})
    zones.see("at", True, "b")
    with pytest.raises(SchemaError, match="'until': times with a zone here"):
        zones.see("until", True, "b")
