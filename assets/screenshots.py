"""Makes the screenshots of the README in a real browser (chromium): python assets/screenshots.py, from the checkout.

A server and a store of their own, two trainings of the bundled digits by the recipe of their file, the second with
another learning rate; then the pages that a person would look at.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parent.parent
PORT = 4288
SITE = f"http://127.0.0.1:{PORT}"
SECONDS = 600
WIDTH = 1280
PROGRESS = "mnist-fit-progress"
PAGES = {
    "stages": ("mnist-stages", 640),
    "data": ("mnist-data", 1000),
    "samples": ("mnist-samples", 760),
    "loss": ("mnist-loss-curve", 700),
    "confusion": ("mnist-confusion-matrix", 900),
    "model": ("mnist-model", 720),
}
"""Key and height of the pages of artifacts, by the name of the picture."""


def main() -> int:
    """Writes assets/ui-*.png."""
    with tempfile.TemporaryDirectory(prefix="gristmill-ui-") as folder:
        environment = {
            **os.environ, "PREFECT_HOME": f"{folder}/home", "PREFECT_API_URL": f"{SITE}/api",
            "PREFECT_SERVER_API_PORT": str(PORT), "GRISTMILL_STORE": f"{folder}/store",
        }  # fmt: skip
        with service(environment):
            browser = Path(folder, "browser")
            prefect(environment, "deployment", "run", "train/mnist")
            until(lambda: PROGRESS in artifacts())
            shoot(page_of(PROGRESS), "progress", 420, browser)  # while it trains
            wait_for_runs()
            prefect(environment, "deployment", "run", "train/mnist", "-p", "learning_rate=0.003")
            wait_for_runs()
            run = max(ask("flow_runs/filter"), key=lambda one: one["created"])
            shoot(f"/runs/flow-run/{run['id']}", "run", 900, browser)
            deployment = next(one["id"] for one in ask("deployments/filter") if one["name"] == "mnist")
            shoot(f"/deployments/deployment/{deployment}/run", "form", 1500, browser)
            for name, (key, height) in PAGES.items():
                shoot(page_of(key), name, height, browser)
    return 0


@contextlib.contextmanager
def service(environment: dict[str, str]) -> Iterator[None]:
    """`python -m flows.serve`, until all deployments are there."""
    process = subprocess.Popen([sys.executable, "-m", "flows.serve"], cwd=ROOT, env=environment)
    try:
        until(lambda: any(one["name"] == "mnist" for one in ask("deployments/filter")))
        yield
    finally:
        process.terminate()
        process.wait()


def artifacts() -> dict[str, str]:
    """Id of the newest artifact of each key: what a stage made is there from the run in which it made it."""
    made = sorted(ask("artifacts/filter"), key=lambda one: one["created"])
    return {one["key"]: one["id"] for one in made}


def page_of(key: str) -> str:
    """Path of an artifact's page."""
    return f"/artifacts/artifact/{artifacts()[key]}"


def ask(path: str) -> list[dict[str, Any]]:
    """What the server's API answers; nothing as long as there is no server."""
    request = urllib.request.Request(
        f"{SITE}/api/{path}", data=b'{"limit": 200}', headers={"Content-Type": "application/json"}
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)
    return []


def prefect(environment: dict[str, str], *arguments: str) -> None:
    """A command of Prefect's."""
    subprocess.run([sys.executable, "-m", "prefect", *arguments], cwd=ROOT, env=environment, check=True)


def wait_for_runs() -> None:
    """Waits until no triggered run is on its way."""
    done = {"COMPLETED", "FAILED", "CRASHED"}
    until(lambda: all(one["state_type"] in done or one["auto_scheduled"] for one in ask("flow_runs/filter")))


def until(condition: Any) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: It didn't come true.
    """
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(1)


def shoot(path: str, name: str, height: int, profile: Path) -> None:
    """A picture of a page, in 64 colours, so that it is small."""
    target = ROOT / "assets" / f"ui-{name}.png"
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    subprocess.run(
        [
            browser, "--headless", *sandbox, "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--run-all-compositor-stages-before-draw",  # else what fades in is seen half way
            f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}", "--virtual-time-budget=20000",
            f"--screenshot={target}", f"{SITE}{path}",
        ],
        check=True, timeout=SECONDS,
    )  # fmt: skip
    with Image.open(target) as picture:
        picture.convert("RGB").quantize(64).save(target, optimize=True)
    print(path, target.name, target.stat().st_size)


if __name__ == "__main__":
    sys.exit(main())
