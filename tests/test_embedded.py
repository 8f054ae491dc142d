"""The process of a command's own server; test_server starts a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
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


TURNS = """
import asyncio, sys
from tasks.embedded import take_turns
from prefect.server.database.configurations import AioSqliteConfiguration
import sqlalchemy as sa

async def reads_then_writes(database, between, *arguments):
    session = await database.session(await database.engine())
    async with session, database.begin_transaction(session):
        await session.execute(sa.text("select * from counted"))
        await between(*arguments)
        await session.execute(sa.text("update counted set value = value + 1"))

async def both():
    database = AioSqliteConfiguration(f"sqlite+aiosqlite:///{sys.argv[1]}")
    async with (await database.engine()).begin() as connection:
        await connection.execute(sa.text("create table counted (value int)"))
        await connection.execute(sa.text("insert into counted values (0)"))
        await connection.commit()
    others = []

    async def let_another_write():  # begun inside of the first, as the server's own services are, but not a part of it
        others.append(asyncio.create_task(reads_then_writes(database, asyncio.sleep, 0)))
        await asyncio.wait(others, timeout=1)

    try:
        await reads_then_writes(database, let_another_write)
    except sa.exc.OperationalError as error:
        print(error.orig.sqlite_errorname)
    await others[0]
    session = await database.session(await database.engine())
    print((await session.execute(sa.text("select value from counted"))).scalar())
    await session.close()

if sys.argv[2] == "ours":
    take_turns()
asyncio.run(both())
"""


@pytest.mark.parametrize(
    ("whose", "said"), [("ours", ["2"]), ("theirs", ["SQLITE_BUSY_SNAPSHOT", "1"])], ids=["ours", "Prefect's own"]
)
def test_writers_take_turns_where_prefect_alone_refuses_the_second(tmp_path: Path, whose: str, said: list[str]) -> None:
    done = toy.run_python(f"import sys; sys.argv += [{str(tmp_path / 'file.db')!r}, {whose!r}]\n{TURNS}")
    assert done.stdout.splitlines() == said, done.stderr
