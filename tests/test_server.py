from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import toy

from datasets.errors import ServeError
from tasks import server
from tasks.server import answers, spawn, stop, wait_until_healthy


def dead_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def gone(pid: int) -> bool:
    """Whether a process ended; one that is only waited for by nobody counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it didn't happen"
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------------------------ settings

CONFIGURED = """
import os, sys
os.chdir(sys.argv[1])
from tasks.server import configure
configure()
import prefect, prefect.settings as s
now = s.get_current_settings()
print(now.api.url, now.home, now.server.analytics_enabled, now.server.ephemeral.startup_timeout_seconds,
      now.runner.poll_frequency, os.environ["DO_NOT_TRACK"], now.server.ui.show_promotional_content, sep="|")
"""


def configured(folder: Path, **environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DO_NOT"))}
    code = CONFIGURED.replace("sys.argv[1]", repr(str(folder)))
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ) - set(clean):
            patch.delenv(name)
        process = toy.python(code, env=environment)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip().split("|")


def test_settings_of_the_checkout_hold_from_any_folder_and_the_environment_beats_them(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/api"
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://127.0.0.1:7/api"\n')  # another project's
    assert configured(tmp_path) == [
        "http://127.0.0.1:4200/api", str(server.CHECKOUT / ".prefect"), "False", "180", "2", "1", "False",
    ]  # fmt: skip
    assert configured(tmp_path, PREFECT_API_URL=url, PREFECT_HOME=str(tmp_path), PREFECT_RUNNER_POLL_FREQUENCY="5") == [
        url, str(tmp_path), "False", "180", "5", "1", "False",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("postgresql://me:pw@host:5432/runs?x=1", "postgresql+asyncpg://me:pw@host:5432/runs?x=1"),
        ("postgres://host/runs", "postgresql+asyncpg://host/runs"),
        ("postgresql+asyncpg://host/runs", "postgresql+asyncpg://host/runs"),
        ("sqlite+aiosqlite:////x.db", "sqlite+aiosqlite:////x.db"),
    ],
)
def test_a_database_is_named_as_people_name_it(monkeypatch: pytest.MonkeyPatch, given: str, address: str) -> None:
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    monkeypatch.setenv("GRISTMILL_DATABASE", given)
    server.configure()
    assert os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == address


def test_our_own_servers_are_never_asked_for_through_a_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import urllib.request

    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{dead_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "example.org")
    server.configure()
    server.configure()
    assert urllib.request.proxy_bypass("127.0.0.1:4200")
    assert urllib.request.proxy_bypass("localhost")
    assert urllib.request.proxy_bypass("example.org")
    assert not urllib.request.proxy_bypass("example.com")
    assert os.environ["no_proxy"].count("localhost") == 1
    with listening(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntrue") as port:
        assert answers(f"http://127.0.0.1:{port}/api")


# ------------------------------------------------------------------------------------------------------- does it answer


@contextlib.contextmanager
def listening(response: bytes | None) -> Iterator[int]:
    """A port at which something gives this response to everyone; None accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        ended = threading.Event()

        def serve() -> None:
            held = []
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    held.append(connection)
                    if response is not None:
                        connection.recv(4096)
                        connection.sendall(response)
                        connection.shutdown(socket.SHUT_WR)
            for connection in held:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def http(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("response", "healthy"),
    [(http("200 OK", "true"), True), (http("200 OK", "false"), False), (http("200 OK", "<html>"), False),
     (http("503 Service Unavailable", "true"), False), (http("404 Not Found", ""), False),
     (b"SSH-2.0-OpenSSH_9.6\r\n", False), (b"", False), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntr", False),
     (None, False)],
    ids=["healthy", "unhealthy", "another site", "503", "404", "not HTTP", "hangs up", "cut", "silent"],
)  # fmt: skip
def test_only_a_healthy_server_answers(response: bytes | None, healthy: bool) -> None:
    with listening(response) as port:
        assert answers(f"http://127.0.0.1:{port}/api") is healthy


@pytest.mark.parametrize("address", ["", "nonsense", "http://127.0.0.1:99999/api", "http://[::1/api"])
def test_an_address_that_is_none_answers_no(address: str) -> None:
    assert answers(address) is False


def test_nobody_answers_at_a_dead_port() -> None:
    assert answers(f"http://127.0.0.1:{dead_port()}/api") is False


def test_a_dead_address_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{dead_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setattr(server, "start_embedded", lambda: pytest.fail("no other server may be started"))
    with pytest.raises(ServeError, match="no Prefect server answers") as caught, server.connected():
        pytest.fail("there is no server")
    assert caught.value.facts["got"] == url


def test_a_command_with_a_dead_address_ends_with_the_address(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{dead_port()}/api"
    code = "import runpy, sys; sys.argv = ['train', 'mnist']; runpy.run_module('flows.train', run_name='__main__')"
    process = toy.python(code, env={"PREFECT_API_URL": url, "GRISTMILL_STORE": str(tmp_path)})
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert url in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_server_that_answers_is_used(prefect_server: str) -> None:
    from prefect.settings import get_current_settings

    with server.connected() as api:
        assert api == prefect_server
        assert get_current_settings().api.url == api


# ------------------------------------------------------------------------------------------------------ child processes


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_server_that_ends_at_its_start_is_an_error() -> None:
    process = spawn(child("raise SystemExit(3)"), dict(os.environ))
    with pytest.raises(ServeError, match="ended at its start") as caught:
        wait_until_healthy(process, f"http://127.0.0.1:{dead_port()}/api")
    assert caught.value.facts["got"] == "exit status 3"


def test_a_server_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS_TO_START", 0.3)
    process = spawn(child("import time; time.sleep(60)"), dict(os.environ))
    try:
        with pytest.raises(ServeError, match="doesn't answer"):
            wait_until_healthy(process, f"http://127.0.0.1:{dead_port()}/api")
        wait_until_healthy(process, f"http://127.0.0.1:{dead_port()}/api", unless=lambda: True)
    finally:
        stop(process)
    assert process.returncode == -signal.SIGTERM


def test_what_does_not_end_politely_is_ended_for_certain(tmp_path: Path) -> None:
    deaf = (
        f"import signal, time, pathlib; signal.signal(15, lambda *a: 0); pathlib.Path({str(tmp_path / 'x')!r}).touch()"
    )
    process = spawn(child(f"{deaf}\nwhile True: time.sleep(1)"), dict(os.environ))
    wait_for((tmp_path / "x").exists)
    stop(process, seconds=0.2)
    assert process.returncode == -signal.SIGKILL
    stop(process)  # harmless


def test_a_child_gets_no_signal_of_the_terminal() -> None:
    process = spawn(child("import time; time.sleep(60)"), dict(os.environ))
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        stop(process)


OWNER = """
import sys, time
from tasks.server import configure, start_embedded, wait_until_healthy
configure()
process, api = start_embedded()
wait_until_healthy(process, api)
print(process.pid, api, flush=True)
time.sleep(600)
"""


def test_an_own_server_starts_and_dies_with_its_owner(tmp_path: Path) -> None:
    owner = toy.python(OWNER, env={"PREFECT_HOME": str(tmp_path)}, stderr=None)
    try:
        assert owner.stdout is not None
        pid, api = owner.stdout.readline().split()
        assert answers(api)
        assert not gone(int(pid))
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        wait_for(lambda: gone(int(pid)))
        assert not answers(api)
    finally:
        owner.kill()
        owner.communicate()


# -------------------------------------------------------------------------------------------------------- started ahead


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, str]]:
    """The servers that were started; none answers at the default address, at which the environment is."""
    made: list[tuple[object, str]] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    monkeypatch.setattr(sys, "argv", ["train", "mnist"])
    monkeypatch.setattr(server, "answers", lambda api: False)
    monkeypatch.setattr(server, "start_embedded", lambda: made.append((object(), "http://x/api")) or made[-1])
    monkeypatch.setattr(server, "_ahead", [])
    return made


def test_a_command_starts_its_server_before_it_needs_it_and_takes_that_one(
    starts: list[tuple[object, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[object] = []
    monkeypatch.setattr(server, "wait_until_healthy", lambda process, api: None)
    monkeypatch.setattr(server, "stop", lambda process, seconds=0: stopped.append(process))
    server.start_ahead("__main__")
    ((process, address),) = starts
    with server.embedded() as api:
        assert api == address
    assert stopped == [process]
    assert len(starts) == 1
    with server.embedded():  # a second one is another
        assert len(starts) == 2


@pytest.mark.parametrize(
    ("module", "arguments", "url", "up"),
    [
        ("flows.train", ["mnist"], "http://127.0.0.1:4200/api", False),  # only imported
        ("__main__", ["--help"], "http://127.0.0.1:4200/api", False),
        ("__main__", ["mnist"], "http://127.0.0.1:9/api", False),  # the user's own, which isn't up: an error later
        ("__main__", ["mnist"], "http://127.0.0.1:4200/api", True),
    ],
)
def test_nothing_is_started_that_is_not_needed(
    starts: list[tuple[object, str]], monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str], url: str,
    up: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    monkeypatch.setattr(server, "answers", lambda api: up)
    server.start_ahead(module)
    assert not starts


def test_a_server_that_came_up_meanwhile_is_used_and_the_own_one_ends(
    starts: list[tuple[object, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[object] = []
    monkeypatch.setattr(server, "stop", lambda process, seconds=0: stopped.append(process))
    server.start_ahead("__main__")
    monkeypatch.setattr(server, "answers", lambda api: True)
    with server.connected() as api:
        assert api == "http://127.0.0.1:4200/api"
    assert stopped == [starts[0][0]]
    assert not server._ahead


def test_our_section_of_the_settings_is_ours_and_the_environment_goes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {"api": {"url": "http://127.0.0.1:1/api"}, "gristmill": {"pool": "dask", "workers": 3}}
    monkeypatch.setattr(server, "_settings", lambda: made)
    monkeypatch.setattr(server.os, "environ", {"GRISTMILL_WORKERS": "2"})
    server.configure()
    ours = {name: value for name, value in server.os.environ.items() if "GRISTMILL" in name}
    assert ours == {"GRISTMILL_POOL": "dask", "GRISTMILL_WORKERS": "2"}
    assert server.os.environ["PREFECT_API_URL"] == made["api"]["url"]
