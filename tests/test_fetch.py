from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import toy

import datasets
from datasets.errors import FetchError
from datasets.schema import Dataset, Source
from tasks import fetch as stage
from tasks import request as requests
from tasks.fetch import fetch_raw, local_folder, prepared


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return toy.write_raw(tmp_path / "raw", toy.pictures())


@pytest.fixture
def mirror(tmp_path: Path, source: Source) -> Iterator[str]:
    (tmp_path / "mirror").mkdir()
    for file in source.files:
        (tmp_path / "mirror" / f"{file.name}.gz").write_bytes(
            gzip.compress((tmp_path / "raw" / file.name).read_bytes())
        )

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "mirror"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def nothing_is_left(store: Path) -> bool:
    return not list((store / "raw").rglob("*")) and not list((store / "tmp").iterdir())


def test_files_of_a_folder_become_an_artifact(tmp_path: Path, source: Source) -> None:
    job = toy.job(toy.request_for(tmp_path / "store", toy.dataset(source), tmp_path / "raw"), "fetch")
    raw = fetch_raw(job)
    files = toy.files_below(job.store.path(raw))
    assert files.pop("manifest.json")
    assert files == toy.files_below(tmp_path / "raw")
    assert job.store.facts(raw) == {"files": {n: hashlib.sha256(b).hexdigest() for n, b in files.items()}}


def test_it_does_not_matter_where_the_bytes_came_from(tmp_path: Path, source: Source, mirror: str) -> None:
    local = toy.request_for(tmp_path / "a", toy.dataset(source), tmp_path / "raw")
    remote = toy.request_for(tmp_path / "b", toy.dataset(replace(source, mirrors=(mirror,))))
    assert local_folder(remote) is None
    assert fetch_raw(toy.job(local, "fetch")).digest == fetch_raw(toy.job(remote, "fetch")).digest
    assert toy.key_parts(stage.fetch, local) == toy.key_parts(stage.fetch, remote)
    assert not [p for p in (tmp_path / "b" / "partial").iterdir() if p.stat().st_size]


def test_a_pinned_digest_is_part_of_the_key(tmp_path: Path, source: Source) -> None:
    first, second = source.files
    other = replace(source, files=(first, replace(second, sha256="0" * 64)))
    keys = [toy.key_parts(stage.fetch, toy.request_for(tmp_path, toy.dataset(s))) for s in (source, other)]
    assert keys[0] != keys[1]


def test_a_file_of_other_bytes_is_named_and_leaves_nothing(tmp_path: Path, source: Source) -> None:
    path = tmp_path / "raw" / toy.LABELS
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    request = toy.request_for(tmp_path / "store", toy.dataset(source), tmp_path / "raw")
    with pytest.raises(FetchError) as caught:
        fetch_raw(toy.job(request, "fetch"))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(caught.value.facts["file"]) == str(path)
    assert found in str(caught.value.facts["got"])
    assert source.files[1].sha256 in str(caught.value.facts["expected"])
    assert nothing_is_left(tmp_path / "store")


def test_a_missing_file_is_named_and_leaves_nothing(tmp_path: Path, source: Source) -> None:
    (tmp_path / "raw" / toy.LABELS).unlink()
    request = toy.request_for(tmp_path / "store", toy.dataset(source), tmp_path / "raw")
    with pytest.raises(FetchError, match=toy.LABELS) as caught:
        fetch_raw(toy.job(request, "fetch"))
    assert caught.value.facts["folder_holds"] == toy.IMAGES
    assert nothing_is_left(tmp_path / "store")


def test_a_mirror_without_the_file_leaves_nothing(tmp_path: Path, source: Source, mirror: str) -> None:
    (tmp_path / "mirror" / f"{toy.LABELS}.gz").unlink()
    request = toy.request_for(tmp_path / "store", toy.dataset(replace(source, mirrors=(mirror,))))
    with pytest.raises(FetchError, match="404"):
        fetch_raw(toy.job(request, "fetch"))
    assert nothing_is_left(tmp_path / "store")


# ----------------------------------------------------------------------------------------------- before anything starts


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, source: Source) -> Dataset:
    made = toy.dataset(source)
    monkeypatch.setattr(requests.datasets, "load", lambda name: made)
    return made


def test_prepared_gives_the_request_when_the_raw_files_are_the_pinned_ones(tmp_path: Path, known: Dataset) -> None:
    request = prepared("toy", raw=tmp_path / "raw", store=tmp_path / "store", batch_size=50)
    assert request.dataset.recipe.batch_size == 50
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("change", ["other", "longer", "missing"])
def test_prepared_looks_at_the_raw_files(tmp_path: Path, known: Dataset, change: str) -> None:
    path = tmp_path / "raw" / toy.IMAGES
    content = path.read_bytes()
    if change == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + b"x" if change == "other" else content + b"x")
    with pytest.raises(FetchError) as caught:
        prepared("toy", raw=tmp_path / "raw", store=tmp_path / "store")
    assert toy.IMAGES in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_the_folder_that_ships_is_used_unless_another_is_given(tmp_path: Path) -> None:
    made = datasets.load("mnist")
    assert local_folder(toy.request_for(tmp_path, made)) == datasets.FOLDER / "bundled/mnist-10k"
    assert local_folder(toy.request_for(tmp_path, made, tmp_path)) == tmp_path
