"""`python -m flows.plan` as a command: JSON as the last line, no JAX, no server, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_plan_needs_neither_jax_nor_a_server(tmp_path: Path) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['flows.plan', 'mnist', '--json', '--store', {str(tmp_path / 'store')!r}]\n"
        "try:\n    runpy.run_module('flows.plan', run_name='__main__')\n"
        "except SystemExit as end:\n    print('status', end.code)\n"
        "print('loaded', sorted({'jax', 'grain', 'orbax', 'flax', 'matplotlib', 'sklearn'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    planned, status, loaded = done.stdout.strip().splitlines()[-3:]
    assert (status, loaded) == ("status 0", "loaded []"), done.stderr
    assert [row["name"] for row in json.loads(planned)["stages"]] == [
        "fetch", "convert", "validate", "feed", "fit", "evaluate", "promote",
    ]  # fmt: skip
    assert not (tmp_path / "store").exists()
