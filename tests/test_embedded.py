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

async def reads_then_writes(database, between):
    session = await database.session(await database.engine())
    async with session, database.begin_transaction(session):
        await session.execute(sa.text("select * from counted"))
        await between()
        await session.execute(sa.text("update counted set value = value + 1"))

async def both():
    database = AioSqliteConfiguration(f"sqlite+aiosqlite:///{sys.argv[1]}")
    async with (await database.engine()).begin() as connection:
        await connection.execute(sa.text("create table counted (value int)"))
        await connection.execute(sa.text("insert into counted values (0)"))
        await connection.commit()
    has_read = asyncio.Event()

    async def let_the_other_write():
        has_read.set()
        await asyncio.wait([other], timeout=1)

    async def at_once():
        pass

    async def second():
        await has_read.wait()
        await reads_then_writes(database, at_once)

    other = asyncio.create_task(second())
    try:
        await reads_then_writes(database, let_the_other_write)
    except sa.exc.OperationalError as error:
        print(error.orig.sqlite_errorname)
    await other
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
