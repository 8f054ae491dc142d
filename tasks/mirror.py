"""One try at one mirror: a request that goes on where an unfinished body stopped."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and, where the server says so, the bytes of the whole."""

PIECE = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
TRY_AGAIN = {408, 425, 429}  # besides 5xx


class MirrorFailed(Exception):  # noqa: N818
    """One try at one mirror failed; never leaves `download.fetch_file`.

    Attributes:
        reason: For the list of what was tried.
        again: Whether the same mirror may do better a little later.
        pause: Seconds that the server asks to wait.
    """

    def __init__(self, reason: str, *, again: bool, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.again, self.pause = reason, again, pause


def download(url: str, part: Path, largest: int, progress: Progress | None) -> bool:
    """Appends to `part` until it holds the whole body.

    Args:
        url: http or https.
        part: What is here of the body, from its first byte on; need not exist.
        largest: Most bytes that the body may have.
        progress: Told about bytes received.

    Returns:
        Whether the body is certain to be one server's one body.

    Raises:
        MirrorFailed: It can't be had, or not yet.
    """
    with part.open("ab") as out:
        done = out.tell()
        response = _ask(url, done)
        if response is None:  # nothing was missing
            return False
        with response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            if not resumed or not str(response.headers.get("Content-Range")).startswith(f"bytes {done}-"):
                out.truncate(0)
                if resumed:
                    raise MirrorFailed("the server resumed at another byte", again=True)
                done = 0
            total = None if response.length is None else done + response.length
            if total is not None and total > largest:
                raise MirrorFailed(f"a body of {total} bytes is too large, most is {largest}", again=False)
            for piece in _pieces(response):
                out.write(piece)
                done += len(piece)
                if done > largest:
                    raise MirrorFailed(f"a body of more than {largest} bytes is too large", again=False)
                if progress:
                    progress(done, total)
            if total is not None and done < total:
                raise MirrorFailed(f"connection broke off after {done} of {total} bytes", again=True)
    # A chunked body states its own end.
    return not resumed and (total is not None or response.chunked)


def _ask(url: str, done: int) -> http.client.HTTPResponse | None:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise MirrorFailed("not an http or https address", again=False)
    # Without "identity" a server may compress on the way, and lengths and ranges would be those of another body.
    headers = {"User-Agent": "gristmill", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        # A fresh opener sees the proxy settings of now, not those of the process's first request.
        return urllib.request.build_opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
                if error.headers.get("Content-Range") == f"bytes */{done}":
                    return None
                return _ask(url, 0)
            again = error.code >= 500 or error.code in TRY_AGAIN
            pause = error.headers.get("Retry-After") or ""
            wait = float(pause) if pause.isdecimal() else 0.0
            raise MirrorFailed(f"{error.code} {error.reason}", again=again, pause=wait) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        again = not isinstance(cause, ssl.SSLCertVerificationError | http.client.InvalidURL | ValueError)
        raise MirrorFailed(f"{type(cause).__name__}: {cause}", again=again) from error


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            piece = response.read(PIECE)
        except (OSError, http.client.HTTPException) as error:
            raise MirrorFailed(f"connection broke off: {type(error).__name__}: {error}", again=True) from error
        if not piece:
            return
        yield piece
