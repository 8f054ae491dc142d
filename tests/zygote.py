"""Forks a process for each command that is asked for, with the libraries loaded and nothing of the project.

python zygote.py ROOT LIBRARY,LIBRARY ...; one JSON object a line in, one out; see `forks.py`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any


def child(root: str, asked: dict[str, Any]) -> None:
    """Becomes `python -m ...`."""
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"] or root)
    known = importlib.metadata.version
    importlib.metadata.version = lambda name: asked["versions"].get(name) or known(name)  # type: ignore[assignment]
    sys.argv = list(asked["arguments"])
    if asked["point"]:
        sys.path.append(str(Path(__file__).parent))
        importlib.import_module("flows")
        importlib.import_module("doomed").die_at(asked["point"])
    runpy.run_module(asked["arguments"][0], run_name="__main__", alter_sys=True)


def forked(root: str, asked: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            for file, number in ((out, 1), (err, 2)):
                os.dup2(file.fileno(), number)
            status = 1
            try:
                child(root, asked)
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": status, "out": texts[0], "err": texts[1]}


if __name__ == "__main__":
    root, libraries = sys.argv[1], sys.argv[2]
    sys.path[0] = root
    for library in filter(None, libraries.split(",")):
        importlib.import_module(library)
    assert not {"flows", "tasks", "datasets"} & set(sys.modules)
    for line in sys.stdin:
        print(json.dumps(forked(root, json.loads(line))), flush=True)
