"""One request to one mirror, against a bare socket on 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks import mirror
from tasks.mirror import MirrorFailed, download

BODY = bytes(range(200))


@contextmanager
def server(answer: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """Gives each request the same bytes, or none at all until the end; lists the requests."""
    requests: list[bytes] = []
    done = threading.Event()

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(1 << 16))
                if answer is None:
                    done.wait(20)
                else:
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/body", requests
        finally:
            done.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def reply(status: str, body: bytes, **headers: object) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_body_whose_length_is_known_is_certain(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    with server(reply("200 OK", BODY, Content_Length=len(BODY))) as (url, requests):
        assert download(url, tmp_path / "part", 1000, lambda *state: seen.append(state))
    assert (tmp_path / "part").read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert b"Range:" not in requests[0]
    assert b"Accept-Encoding: identity" in requests[0]


def test_a_body_without_a_length_is_whole_at_best(tmp_path: Path) -> None:
    with server(reply("200 OK", BODY)) as (url, _):
        assert not download(url, tmp_path / "part", 1000, None)
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_part_is_gone_on_with_and_never_certain(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(BODY[:50])
    answer = reply("206 Partial Content", BODY[50:], Content_Range=f"bytes 50-199/{len(BODY)}", Content_Length=150)
    with server(answer) as (url, requests):
        assert not download(url, tmp_path / "part", 1000, None)
    assert b"Range: bytes=50-" in requests[0]
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_server_that_goes_on_elsewhere_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(BODY[:50])
    answer = reply("206 Partial Content", BODY[40:], Content_Range=f"bytes 40-199/{len(BODY)}", Content_Length=160)
    with server(answer) as (url, _), pytest.raises(MirrorFailed, match="resumed at another byte") as caught:
        download(url, tmp_path / "part", 1000, None)
    assert caught.value.again
    assert (tmp_path / "part").read_bytes() == b"", "the next try starts anew"


def test_a_silent_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "TIMEOUT", 0.2)
    with server(None) as (url, _), pytest.raises(MirrorFailed, match="timed out") as caught:
        download(url, tmp_path / "part", 1000, None)
    assert caught.value.again


@pytest.mark.parametrize(
    ("status", "again", "pause"),
    [("404 Not Found", False, 0.0), ("500 Oh", True, 0.0), ("429 Many", True, 7.0), ("408 Late", True, 7.0)],
)
def test_which_answers_may_change(tmp_path: Path, status: str, again: bool, pause: float) -> None:
    more = {"Retry_After": 7} if pause else {}
    with server(reply(status, b"", Content_Length=0, **more)) as (url, _), pytest.raises(MirrorFailed) as caught:
        download(url, tmp_path / "part", 1000, None)
    assert (caught.value.again, caught.value.pause) == (again, pause)
    assert caught.value.reason == status


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "no address"])
def test_addresses_that_are_not_http(tmp_path: Path, url: str) -> None:
    with pytest.raises(MirrorFailed, match="not an http or https address") as caught:
        download(url, tmp_path / "part", 1000, None)
    assert not caught.value.again
