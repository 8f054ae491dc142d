from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import threading
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toy
from PIL import Image

import datasets
from datasets.errors import DataFormatError, FetchError, ParameterError, TransientError
from datasets.readers import images, parquet
from datasets.schema import Dataset, Feature, RawFile, Source
from tasks import fetch as stage
from tasks import request as requests
from tasks.download import fetch_file
from tasks.fetch import fetch_raw, local_folder, prepared
from tasks.request import Request
from tasks.sources_remote import RemoteFile, download


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


# -------------------------------------------------------------------------------- files that no list names


def known_as(monkeypatch: pytest.MonkeyPatch, source: Source) -> Dataset:
    made = toy.dataset(source)
    monkeypatch.setattr(requests.datasets, "load", lambda name: made)
    return made


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    for name in ("day-1.csv", "day-2.csv", "_SUCCESS"):
        (tmp_path / "nights").mkdir(exist_ok=True)
        (tmp_path / "nights" / name).write_bytes(name.encode())
    return tmp_path / "nights"


def fetched(request: Request, key: str = "fetch-1") -> tuple[dict[str, bytes], dict[str, Any]]:
    job = toy.job(request, "fetch", key)
    raw = fetch_raw(job)
    files = toy.files_below(job.store.path(raw))
    assert files.pop("manifest.json")
    return files, job.store.facts(raw)["files"]


@pytest.mark.parametrize("by", ["source", "raw"])
def test_a_folder_is_walked_when_a_run_starts(
    tmp_path: Path, nights: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    known_as(monkeypatch, Source(folder=str(nights) if by == "source" else None, pattern="day-*.csv"))
    raw = nights if by == "raw" else None
    first = prepared("toy", raw=raw, store=tmp_path / "store")
    assert [file.name for file in first.dataset.source.files] == ["day-1.csv", "day-2.csv"]
    assert fetched(first)[0] == {"day-1.csv": b"day-1.csv", "day-2.csv": b"day-2.csv"}
    (nights / "day-3.csv").write_bytes(b"three")
    second = prepared("toy", raw=raw, store=tmp_path / "store")
    assert set(fetched(second, "fetch-2")[1]) == {"day-1.csv", "day-2.csv", "day-3.csv"}
    assert toy.key_parts(stage.fetch, first) != toy.key_parts(stage.fetch, second)


def test_the_key_of_a_folder_knows_contents_and_names_but_no_paths(
    tmp_path: Path, nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, Source(folder=str(nights), pattern="**"))
    before = toy.key_parts(stage.fetch, prepared("toy"))
    moved = nights.rename(tmp_path / "moved")
    assert toy.key_parts(stage.fetch, prepared("toy", raw=moved)) == before
    (moved / "day-1.csv").write_bytes(b"DAY-1.csv")
    edited = toy.key_parts(stage.fetch, prepared("toy", raw=moved))
    assert edited != before
    (moved / "day-1.csv").rename(moved / "day-9.csv")
    assert toy.key_parts(stage.fetch, prepared("toy", raw=moved)) not in (before, edited)


def test_what_was_stored_does_not_change_when_the_folder_does(
    tmp_path: Path, nights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, Source(folder=str(nights), pattern="**"))
    request = prepared("toy", store=tmp_path / "store")
    job = toy.job(request, "fetch")
    raw = fetch_raw(job)
    with (nights / "day-1.csv").open("r+b") as file:  # in place, as an editor may do it
        file.write(b"xxx")
    job.store.verify(raw)


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_a_file_that_changes_between_start_and_copy_is_named(
    tmp_path: Path, nights: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    known_as(monkeypatch, Source(folder=str(nights), pattern="**"))
    request = prepared("toy", store=tmp_path / "store")
    path = nights / "day-2.csv"
    path.unlink() if change == "removed" else path.write_bytes(b"DAY-2.csv")
    with pytest.raises(FetchError, match=r"day-2\.csv"):
        fetched(request)
    assert nothing_is_left(tmp_path / "store")


def test_archives_are_unpacked_and_known_by_their_own_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "cats.zip", "w") as archive:
        archive.writestr("tabby/1.png", b"one")
    digest = hashlib.sha256((tmp_path / "in" / "cats.zip").read_bytes()).hexdigest()
    known_as(monkeypatch, Source(folder=str(tmp_path / "in"), pattern="*.zip", unpack=True))
    request = prepared("toy", store=tmp_path / "store")
    assert fetched(request) == ({"cats/tabby/1.png": b"one"}, {"cats.zip": digest})
    packed = replace(request.dataset, source=replace(request.dataset.source, unpack=False))
    assert toy.key_parts(stage.fetch, replace(request, dataset=packed)) != toy.key_parts(stage.fetch, request)


def test_a_pattern_over_http_is_refused(monkeypatch: pytest.MonkeyPatch, mirror: str) -> None:
    known_as(monkeypatch, Source(mirrors=(mirror,), pattern="*.csv"))
    with pytest.raises(ParameterError, match="a place whose files can be listed"):
        prepared("toy")


# ------------------------------------------------------------------------------------------------------------ generated


def write_numbers(folder: Path, *, count: int) -> None:
    (folder / "deep").mkdir()
    for i in range(count):
        (folder / "deep" / f"{i}.txt").write_text(str(i))


def test_raw_files_that_code_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, Source(generate=partial(write_numbers, count=2)))
    request = prepared("toy", store=tmp_path / "store")
    files, digests = fetched(request)
    assert files == {"deep/0.txt": b"0", "deep/1.txt": b"1"}
    assert digests["deep/1.txt"] == hashlib.sha256(b"1").hexdigest()
    more = replace(request.dataset, source=Source(generate=partial(write_numbers, count=3)))
    assert toy.key_parts(stage.fetch, replace(request, dataset=more)) != toy.key_parts(stage.fetch, request)
    assert "tests" not in str(toy.key_parts(stage.fetch, request)["generate"])  # no path


def test_a_folder_given_replaces_the_generator(tmp_path: Path, nights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, Source(generate=partial(write_numbers, count=2)))
    request = prepared("toy", store=tmp_path / "store", raw=nights)
    assert set(fetched(request)[0]) == {"_SUCCESS", "day-1.csv", "day-2.csv"}


def test_a_generator_that_makes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, Source(generate=lambda folder: None))
    with pytest.raises(FetchError, match="no raw file"):
        fetched(prepared("toy", store=tmp_path / "store"))


# ------------------------------------------------------------------------------------------- downloads without a digest


def loose(source: Source) -> Source:
    return replace(source, files=tuple(RawFile(file.name) for file in source.files))


def test_a_download_without_a_digest_is_pinned_by_its_first_use(
    tmp_path: Path, source: Source, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, replace(loose(source), mirrors=(mirror,)))
    request = prepared("toy", store=tmp_path / "store")
    files, digests = fetched(request)
    assert files == toy.files_below(tmp_path / "raw")
    assert digests == {file.name: file.sha256 for file in source.files}
    assert set(json.loads((tmp_path / "store" / "raw" / "toy" / "first_use.json").read_text())) == set(digests)
    again = prepared("toy", store=tmp_path / "store")
    assert toy.key_parts(stage.fetch, again) == toy.key_parts(stage.fetch, request)
    shutil.rmtree(tmp_path / "store" / "raw" / "toy" / "fetch-1")
    (tmp_path / "mirror" / f"{toy.LABELS}.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(FetchError, match="changed upstream since its first use") as caught:
        fetched(again)
    assert caught.value.facts["file"] == toy.LABELS
    assert hashlib.sha256(b"other").hexdigest() in str(caught.value.facts["got"])


@pytest.mark.parametrize(("body", "reason"), [(b"<!DOCTYPE html><p>maintenance", "not gzip"), (b"\0" * 20, "not gzip")])
def test_a_body_that_can_be_no_data_is_not_taken(
    tmp_path: Path, source: Source, mirror: str, body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror" / f"{toy.IMAGES}.gz").write_bytes(body)
    known_as(monkeypatch, replace(loose(source), mirrors=(mirror,)))
    with pytest.raises(FetchError, match=reason):
        fetched(prepared("toy", store=tmp_path / "store"))
    assert not (tmp_path / "store" / "raw" / "toy" / "first_use.json").exists()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"\n<HTML><body>moved", "web page"), (b"", "body is empty"), (gzip.compress(b"", mtime=0), "body is empty")],
)
def test_a_web_page_or_nothing_in_place_of_a_table_is_not_taken(
    tmp_path: Path, mirror: str, body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror" / "a.csv").write_bytes(body)
    known_as(monkeypatch, Source((RawFile("a.csv"),), mirrors=(mirror,), suffix=""))
    with pytest.raises(FetchError, match=f"no mirror gave 'a.csv'\n.*\n.*{reason}") as caught:
        fetched(prepared("toy", store=tmp_path / "store"))
    assert "expected" not in caught.value.facts
    assert not (tmp_path / "store" / "raw" / "toy" / "first_use.json").exists()


def test_what_is_in_the_store_is_not_downloaded_again(
    tmp_path: Path, source: Source, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, replace(source, mirrors=(mirror,)))
    request = prepared("toy", store=tmp_path / "store")
    before = fetched(request)
    for path in (tmp_path / "mirror").iterdir():
        path.unlink()
    assert fetched(request, "fetch-2") == before
    damaged = tmp_path / "store" / "raw" / "toy" / "fetch-1" / toy.IMAGES
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    (tmp_path / "store" / "raw" / "toy" / "fetch-2" / toy.IMAGES).unlink()
    with pytest.raises(FetchError, match="404"):
        fetched(request, "fetch-3")


# -------------------------------------------------------------------------------------------------------- object stores


@pytest.fixture
def bucket() -> Iterator[str]:
    url = f"memory://bucket-{uuid.uuid4().hex}"
    put(url, "day-1.csv", b"one")
    put(url, "day-2.csv", b"two")
    yield url
    fsspec.filesystem("memory").rm(url.removeprefix("memory:/"), recursive=True)


def put(url: str, name: str, content: bytes) -> None:
    fsspec.filesystem("memory").pipe(f"{url.removeprefix('memory:/')}/{name}", content)


def test_a_new_object_is_a_new_run_that_downloads_only_it(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_as(monkeypatch, Source(mirrors=(bucket,), pattern="day-*.csv"))
    first = prepared("toy", store=tmp_path / "store")
    assert fetched(first)[0] == {"day-1.csv": b"one", "day-2.csv": b"two"}
    assert toy.key_parts(stage.fetch, prepared("toy")) == toy.key_parts(stage.fetch, first)
    put(bucket, "day-3.csv", b"three")
    second = prepared("toy", store=tmp_path / "store")
    assert toy.key_parts(stage.fetch, second) != toy.key_parts(stage.fetch, first)
    asked: list[str] = []

    def noted(url: str, remote: RemoteFile, *more: Any) -> RawFile:
        asked.append(remote.name)
        return download(url, remote, *more)

    monkeypatch.setattr(stage, "download", noted)
    assert fetched(second, "fetch-2")[0] == {"day-1.csv": b"one", "day-2.csv": b"two", "day-3.csv": b"three"}
    assert asked == ["day-3.csv"]


def test_a_changed_object_is_a_new_run(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, Source((RawFile("day-1.csv"),), mirrors=(bucket,)))
    first = prepared("toy", store=tmp_path / "store")
    assert fetched(first)[0] == {"day-1.csv": b"one"}
    put(bucket, "day-1.csv", b"ONE")
    assert fetched(first, "fetch-2")[0] == {"day-1.csv": b"one"}  # what the run saw is in the store
    with pytest.raises(FetchError, match="changed since the run started"):
        fetched(replace(first, store=tmp_path / "other"))
    second = prepared("toy", store=tmp_path / "store")
    assert fetched(second, "fetch-3")[0] == {"day-1.csv": b"ONE"}
    assert toy.key_parts(stage.fetch, second) != toy.key_parts(stage.fetch, first)


def test_a_pinned_object_must_be_what_is_pinned(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = RawFile("day-1.csv", hashlib.sha256(b"one").hexdigest(), 3)
    known_as(monkeypatch, Source((pin,), mirrors=(bucket,)))
    assert fetched(prepared("toy", store=tmp_path / "a"))[1] == {"day-1.csv": pin.sha256}
    put(bucket, "day-1.csv", b"ONE")
    with pytest.raises(FetchError, match="isn't the file that the dataset pins") as caught:
        fetched(prepared("toy", store=tmp_path / "b"))
    assert pin.sha256 in caught.value.facts["expected"]


def test_an_object_store_has_no_mirrors(bucket: str, mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, Source((RawFile("a"),), mirrors=(mirror, bucket)))
    with pytest.raises(ParameterError, match="no mirrors"):
        prepared("toy")


# ------------------------------------------------------------------------------------------------- folders as they come


def test_pictures_with_what_systems_leave_and_odd_names_are_read_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsencode(tmp_path / "pets")
    for name in (b"cat/a\xff.png", "猫/1.png".encode(), b"cat/._1.png", b"__MACOSX/cat/._1.png", b".DS_Store",
                 b"cat/Thumbs.db", b"cat/notes.txt"):  # fmt: skip
        path = Path(os.fsdecode(folder + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 200).save(path, "PNG")
    (tmp_path / "pets" / "bird").mkdir()
    known_as(monkeypatch, Source(folder=str(tmp_path / "pets"), pattern="**"))
    job = toy.job(prepared("toy", store=tmp_path / "store"), "fetch")
    raw = fetch_raw(job)
    assert set(job.store.facts(raw)["files"]) == {"cat/a\\xff.png", "cat/notes.txt", "猫/1.png"}
    features = {"image": Feature("uint8", (4, 4, 1)), "label": Feature("int32", classes=("bird", "cat", "猫"))}
    blocks = list(images.blocks(job.store.path(raw), features))
    assert [(block.file, block.columns["label"].tolist()) for block in blocks] == [
        ("cat/a\\xff.png", [1]), ("猫/1.png", [2]),
    ]  # fmt: skip


def test_a_parquet_folder_with_a_marker_and_a_file_that_is_no_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = tmp_path / "nights"
    nights.mkdir()
    pq.write_table(pa.table({"x": [1, 2], "label": [0, 1]}), nights / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([], pa.int64()), "label": pa.array([], pa.int64())}), nights / "b.parquet")
    (nights / "_SUCCESS").touch()
    (nights / ".a.parquet.crc").write_bytes(b"crc")
    known_as(monkeypatch, Source(folder=str(nights), pattern="**"))
    features = {"x": Feature("int32"), "label": Feature("int32", classes=("no", "yes"))}

    def rows(key: str) -> int:
        job = toy.job(prepared("toy", store=tmp_path / "store"), "fetch", key)
        blocks = parquet.blocks(job.store.path(fetch_raw(job)), "", features)
        return sum(len(block.columns["x"]) for block in blocks)

    assert rows("fetch-1") == 2
    (nights / "z.parquet").touch()
    with pytest.raises(DataFormatError, match="0 bytes") as caught:
        rows("fetch-2")
    assert str(caught.value.facts["file"]).endswith("z.parquet")


def test_a_body_of_unknown_length_needs_a_pinned_digest(tmp_path: Path) -> None:
    class Endless(BaseHTTPRequestHandler):  # HTTP/1.0 without a length: a broken connection looks like the end
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a,b\n1,2\n")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        pin = RawFile("a.csv", hashlib.sha256(b"a,b\n1,2\n").hexdigest(), 8)
        assert fetch_file(pin, (url,), "", tmp_path / "pinned").read_bytes() == b"a,b\n1,2\n"
        with pytest.raises(TransientError, match="says how long it is"):
            fetch_file(RawFile("a.csv"), (url,), "", tmp_path / "loose", sleep=lambda seconds: None)
        assert not (tmp_path / "loose" / "a.csv").exists()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
