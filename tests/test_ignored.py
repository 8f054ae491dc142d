from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import toy
from pictures import picture

from datasets.readers import images, tables
from datasets.readers.ignored import note, noting
from datasets.schema import Block, Feature, Rows
from tasks.artifact import Draft, Store
from tasks.convert import convert_raw
from tasks.durable import read_json
from tasks.validate import PAGE, REPORT, validate_records


def test_what_is_ignored_is_said_and_added_up_for_who_wants_to_know(said: pytest.LogCaptureFixture) -> None:
    total: Counter[str] = Counter()
    with noting(total):
        note(Counter({"hidden": 2}), "a")
        note(Counter({"hidden": 1, ".txt": 1}), "b")
    note(Counter({"hidden": 9}), "c")
    note(Counter(), "d")
    assert total == {"hidden": 3, ".txt": 1}
    assert "ignored in b: 1 x .txt, 1 x hidden" in said.text
    assert "in d" not in said.text


def test_markers_beside_a_table_are_noted(tmp_path: Path) -> None:
    for name in ("a.csv", "_SUCCESS", ".a.csv.crc", "notes.txt"):
        (tmp_path / name).write_text("x\n1\n")
    total: Counter[str] = Counter()
    with noting(total):
        assert [name for _, name in tables.files_of(tmp_path, "", (".csv",))] == ["a.csv"]
    assert total == {"hidden or marker": 2, ".txt": 1}


def test_the_validation_report_names_ignored_files_and_records_do_not_depend_on_them(tmp_path: Path) -> None:
    features = {"image": Feature("uint8", (4, 4, 3)), "label": Feature("int32", classes=("cat", "dog"))}

    def read(raw: Path):  # noqa: ANN202 - a generator of blocks
        found = [block.columns for block in images.blocks(raw, features)]
        for i, columns in enumerate([*found, *found]):
            yield Block({**columns, "image": columns["image"] + np.uint8(i)}, "pictures", i)

    digests = []
    for place, extra in (("clean", ()), ("littered", (".DS_Store", "cat/Thumbs.db", "cat/notes.txt"))):
        splits = {"train": Rows(0, 2), "test": Rows(2, 4)}
        request = toy.request_for(tmp_path / place, toy.dataset(read=read, features=features, splits=splits))

        def fill(draft: Draft, extra: tuple[str, ...] = extra) -> None:
            for i, kind in enumerate(("cat", "dog")):
                picture(draft.folder / kind / "1.png", (50 * i + 10,) * 3, size=(4, 4))
            for name in extra:
                (draft.folder / name).write_bytes(b"x")

        raw = toy.job(request, "fetch").commit("raw", fill)
        records = convert_raw(toy.job(request, "convert"), raw=raw)
        report = validate_records(toy.job(request, "validate"), records=records)
        digests.append(records.digest)
    assert digests[0] == digests[1]
    folder = Store(tmp_path / "littered").path(report)
    assert read_json(folder / REPORT)["ignored"] == {".DS_Store": 1, ".txt": 1, "Thumbs.db": 1}
    assert "Files that were ignored: 1 x .DS_Store, 1 x .txt, 1 x Thumbs.db." in (folder / PAGE).read_text()
