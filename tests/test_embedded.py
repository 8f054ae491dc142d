"""The process of a command's own server; test_server starts a real one."""

from __future__ import annotations

import json

import toy

CODE = """
import gc, json, sys, uvicorn
from tasks import embedded
seen = []
uvicorn.run = lambda app, **options: seen.append(
    [type(app).__name__, gc.isenabled(), gc.get_freeze_count() > 10_000, options]
)
embedded.main(4321)
print(json.dumps(seen))
"""


def test_it_serves_prefect_on_this_machine_alone_and_collects_garbage_from_then_on() -> None:
    done = toy.run_python(CODE)
    ((app, collects, frozen, options),) = json.loads(done.stdout.splitlines()[-1])
    assert (app, collects, frozen) == ("FastAPI", True, True), done.stderr
    assert (options["host"], options["port"]) == ("127.0.0.1", 4321)
