from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import scaffold_samples as samples

from datasets.errors import ParameterError
from tasks.scaffold_look import format_of, look


def test_formats_of_folders(tmp_path: Path) -> None:
    assert format_of(samples.pictures(tmp_path / "pets", each=2)) == "pictures"
    assert format_of(samples.parquet(tmp_path / "nights", files=1)) == "parquet"
    (tmp_path / "npz").mkdir()
    samples.arrays(tmp_path / "npz" / "a.npz")
    assert format_of(tmp_path / "npz") == "npz"


def test_several_formats_are_ambiguous(tmp_path: Path) -> None:
    folder = samples.pictures(tmp_path / "pets", each=2)
    samples.table(folder / "pets.csv")
    with pytest.raises(ParameterError, match="several formats") as caught:
        look(folder, None)
    assert "delimited (pets.csv)" in caught.value.facts["got"]
    assert "pictures (cat/000.jpg)" in caught.value.facts["got"]


@pytest.mark.parametrize("name", ["readme.md", "model.h5", "a.png"])
def test_files_of_other_kinds(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ParameterError, match="another kind") as caught:
        look(tmp_path / name, None)
    assert "npz" in caught.value.facts["expected"]


def test_a_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden.csv").write_text("a,b\n")
    with pytest.raises(ParameterError, match="no data that is known"):
        look(tmp_path, None)


def test_an_archive_of_a_folder(tmp_path: Path) -> None:
    folder = samples.pictures(tmp_path / "pets", each=3)
    shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path, "pets")
    sketch = look(tmp_path / "all.zip", None)
    assert sketch.features == look(folder, None).features
    assert sketch.place.where == "all/pets"
    assert sketch.place.archive
    assert "unpack=True" in sketch.place.source()
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("a.unknown", b"x")
    with pytest.raises(ParameterError, match="no data that is known"):
        look(tmp_path / "odd.zip", None)


def test_pictures_have_no_label_column(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="are the label"):
        look(samples.pictures(tmp_path / "pets", each=2), "kind")
