"""Downloads against a scripted server on 127.0.0.1: refusals, cuts, resumption, web pages, wrong bytes, bombs."""

from __future__ import annotations

import gzip
import hashlib
import random
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from datasets.errors import FetchError, StoreError, TransientError
from datasets.schema import RawFile
from tasks import download

CONTENT = random.Random(7).randbytes(150_000) + b"0" * 150_000
PACKED = gzip.compress(CONTENT, mtime=0)
NAME = "train-images-idx3-ubyte"
FILE = RawFile(NAME, sha256=hashlib.sha256(CONTENT).hexdigest(), bytes=len(CONTENT))
PAGE = b"<!DOCTYPE html><html><body>Sign in</body></html>"

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Plays one scripted answer a request; the last one of a mirror is repeated."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        mirror = self.path.split("/")[1]
        self.server.asked[mirror].append(self.headers.get("Range"))
        answers = self.server.script[mirror]
        answers[min(len(self.server.asked[mirror]), len(answers)) - 1](self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: dict[str, list[Answer]] = {}
        self.asked: dict[str, list[str | None]] = defaultdict(list)

    def mirror(self, name: str, *answers: Answer) -> str:
        self.script[name] = list(answers)
        return f"http://127.0.0.1:{self.server_port}/{name}/"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def status(code: int, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"no!\n")

    return answer


def body(data: bytes, *, stop: int | None = None, kind: str = "application/gzip", length: bool = True) -> Answer:
    """The whole of `data` or, when asked for a range, the rest; the connection breaks off at byte `stop`."""

    def answer(handler: Handler) -> None:
        wanted = handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(data) > 0:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(data)}")
            handler.end_headers()
            return
        handler.send_response(206 if wanted else 200)
        if wanted:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if length:
            handler.send_header("Content-Length", str(len(data) - start))
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        handler.wfile.write(data[start:stop])

    return answer


def drop(handler: Handler) -> None:
    """Closes the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def no_ranges(data: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        del handler.headers["Range"]
        body(data)(handler)

    return answer


class Clock:
    """Counts pauses instead of waiting."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


def fetch(target: Path, *mirrors: str, clock: Clock | None = None, **more: object) -> Path:
    return download.fetch_file(
        FILE, mirrors, ".gz", target, sleep=clock or Clock(), rng=random.Random(0), **more  # type: ignore[arg-type]
    )  # fmt: skip


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_first_mirror_that_gives_the_pinned_bytes(server: Server, tmp_path: Path) -> None:
    mirrors = [
        server.mirror("refuses", status(403)),
        server.mirror("down", status(503), status(503), drop),
        server.mirror("page", body(PAGE, kind="text/html")),
        server.mirror("good", body(PACKED)),
        server.mirror("spare", body(PACKED)),
    ]
    clock = Clock()
    path = fetch(tmp_path, *mirrors, clock=clock)
    assert path == tmp_path / NAME
    assert path.read_bytes() == CONTENT
    assert {name: len(asked) for name, asked in server.asked.items()} == {
        "refuses": 1, "down": 4, "page": 1, "good": 1,
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == [NAME]
    # Doubling pauses, each jittered to between half and one and a half times.
    assert len(clock.pauses) == 3
    assert all(0.5 <= pause / (0.5 * 2**n) <= 1.5 for n, pause in enumerate(clock.pauses))
    assert len({pause / 2**n for n, pause in enumerate(clock.pauses)}) == 3


def test_no_good_mirror_lists_them_all(server: Server, tmp_path: Path) -> None:
    wrong = gzip.compress(CONTENT[:-1] + b"x")
    mirrors = [
        server.mirror("refuses", status(403)),
        server.mirror("gone", status(404)),
        server.mirror("down", status(503)),
        server.mirror("page", body(PAGE, kind="text/html")),
        server.mirror("wrong", body(wrong)),
        server.mirror("cut", body(PACKED[:-9])),
    ]
    with pytest.raises(FetchError) as caught:
        fetch(tmp_path, *mirrors)
    lines = str(caught.value).splitlines()
    expected = {
        "refuses": ["403 Forbidden"],
        "gone": ["404 Not Found"],
        "down": ["503 Service Unavailable", "4 attempts"],
        "page": [
            "body is not gzip (starts b'<!DO')",
            f"sha256 expected {FILE.sha256} got {hashlib.sha256(PAGE).hexdigest()}",
        ],
        "wrong": [f"got {hashlib.sha256(CONTENT[:-1] + b'x').hexdigest()}"],
        "cut": ["truncated"],
    }
    for mirror, facts in expected.items():
        line = next(line for line in lines if f"/{mirror}/{NAME}.gz: " in line)
        for fact in facts:
            assert fact in line
    assert [len(server.asked[name]) for name in expected] == [1, 1, 4, 1, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_trouble_everywhere_is_worth_another_try(server: Server, tmp_path: Path) -> None:
    closed = f"http://127.0.0.1:{closed_port()}"
    with pytest.raises(TransientError) as caught:
        fetch(tmp_path, closed, server.mirror("down", status(500)), attempts=2)
    assert "ConnectionRefusedError" in str(caught.value)
    assert "500 Internal Server Error (2 attempts)" in str(caught.value)
    assert len(server.asked["down"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_when_to_come_back_is_heeded(server: Server, tmp_path: Path) -> None:
    clock = Clock()
    fetch(tmp_path, server.mirror("busy", status(429, Retry_After="7"), body(PACKED)), clock=clock)
    assert clock.pauses == [7.0]


@pytest.mark.parametrize("length", [True, False])
def test_a_cut_download_goes_on_where_it_stopped(server: Server, tmp_path: Path, length: bool) -> None:
    mirror = server.mirror("cuts", body(PACKED, stop=100_000, length=length), body(PACKED))
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    # Without a length nothing tells a cut from an end but the damage, so the download starts over.
    assert server.asked["cuts"] == [None, "bytes=100000-" if length else None]


def test_a_later_call_goes_on_too(server: Server, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    mirror = server.mirror("cuts", body(PACKED, stop=60_000), drop, body(PACKED))
    with pytest.raises(TransientError):
        fetch(tmp_path / "a", mirror, attempts=2, partial=parts)
    assert list((tmp_path / "a").iterdir()) == []
    assert fetch(tmp_path / "b", mirror, partial=parts).read_bytes() == CONTENT
    assert server.asked["cuts"] == [None, "bytes=60000-", "bytes=60000-"]
    assert list(parts.iterdir()) == []


def test_a_download_that_only_lacked_its_check_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    mirror = server.mirror("good", body(PACKED))
    part = tmp_path / download._part_name(f"{mirror}{NAME}.gz")
    part.write_bytes(PACKED)
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    assert server.asked["good"] == [f"bytes={len(PACKED)}-"]


@pytest.mark.parametrize("left", [b"\0" * 1_000, PACKED + b"more"])
def test_a_leftover_of_other_bytes_costs_one_more_try(server: Server, tmp_path: Path, left: bytes) -> None:
    mirror = server.mirror("good", body(PACKED))
    (tmp_path / download._part_name(f"{mirror}{NAME}.gz")).write_bytes(left)
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    assert server.asked["good"] == [f"bytes={len(left)}-", None]


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    mirror = server.mirror("plain", body(PACKED, stop=50_000), no_ranges(PACKED))
    assert fetch(tmp_path, mirror).read_bytes() == CONTENT
    assert server.asked["plain"] == [None, "bytes=50000-"]


def test_uncompressed_and_recompressed_mirrors_pass(server: Server, tmp_path: Path) -> None:
    assert fetch(tmp_path / "a", server.mirror("plain", body(CONTENT))).read_bytes() == CONTENT
    assert fetch(tmp_path / "b", server.mirror("fast", body(gzip.compress(CONTENT, 1)))).read_bytes() == CONTENT


class Count:
    """Stands before the opener of raw files and counts the uncompressed bytes that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.real = download.raw.opened
        monkeypatch.setattr(download.raw, "opened", self)

    @contextmanager
    def __call__(self, path: Path) -> Iterator[Count]:
        with self.real(path) as self.stream:
            yield self

    def read(self, n: int) -> bytes:
        data = self.stream.read(n)
        self.bytes += len(data)
        return data


def test_bombs_and_endless_bodies_are_cut_short(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Count(monkeypatch)
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(FetchError) as caught:
        fetch(
            tmp_path, server.mirror("bomb", body(bomb)), server.mirror("long", body(b"x" * 400_000)),
            server.mirror("endless", body(b"x" * 400_000, length=False)),
        )  # fmt: skip
    assert f"more than the pinned {len(CONTENT)} bytes" in str(caught.value)
    assert "a body of 400000 bytes is too large" in str(caught.value)
    assert f"a body of more than {download._largest_body(FILE)} bytes is too large" in str(caught.value)
    assert [len(server.asked[name]) for name in ("bomb", "long", "endless")] == [1, 1, 1]
    assert len(CONTENT) < count.bytes < len(CONTENT) + 1_000_000


def test_progress_counts_up_to_the_whole(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    mirror = server.mirror("cuts", body(PACKED, stop=100_000), body(PACKED))
    fetch(tmp_path, mirror, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (len(PACKED), len(PACKED))
    assert (100_000, len(PACKED)) in seen


def test_what_is_there_is_not_fetched_again_unless_it_is_wrong(server: Server, tmp_path: Path) -> None:
    mirror = server.mirror("good", body(PACKED))
    (tmp_path / NAME).write_bytes(CONTENT[:-1] + b"x")
    fetch(tmp_path, mirror)
    fetch(tmp_path, mirror)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert len(server.asked["good"]) == 1


def test_two_at_once_do_not_mix_their_bytes(server: Server, tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def together(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(PACKED)))
        handler.end_headers()
        handler.wfile.write(PACKED[:100_000])
        both.wait(20)
        handler.wfile.write(PACKED[100_000:])

    mirror = server.mirror("good", together)
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda to=to: paths.append(fetch(tmp_path / to, mirror, partial=tmp_path / "parts")))
        for to in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == CONTENT for path in paths] == [True, True]
    assert list((tmp_path / "parts").iterdir()) == []


def test_addresses_that_are_not_http(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / f"{NAME}.gz").write_bytes(PACKED)
    with pytest.raises(FetchError, match="not an http or https address"):
        fetch(tmp_path / "to", f"file://{tmp_path}/from/")
    with pytest.raises(FetchError, match="no mirror is known"):
        fetch(tmp_path / "to")


def test_a_target_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="can't read or write") as caught:
        fetch(tmp_path / "file" / "target", server.mirror("good", body(PACKED)))
    assert str(tmp_path / "file") in str(caught.value)
