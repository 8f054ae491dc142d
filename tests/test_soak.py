"""Compressed nights: a new raw file each, the whole flow, cleaning. `make soak` runs the long ones and shows a plot."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import toy

from datasets.make_fraud import write
from flows.train import train
from tasks import soak
from tasks.housekeeping import clean
from tasks.soak import Sample, a_day_passes, grew, growth, sample, size, table

NIGHTS = int(os.environ.get("GRISTMILL_NIGHTS", "30"))
PLOT = os.environ.get("GRISTMILL_SOAK_PLOT")


def night(raw: Path, number: int) -> None:
    """A new file, a month's transfers with other amounts, in the place of the oldest of five."""
    (raw / f"night-{number - 5:03}.parquet").unlink(missing_ok=True)
    rows = pq.read_table(raw / f"month-{1 + number % 10:02}.parquet")
    amounts = pc.multiply(rows["amount"], 1 + number / 1e4)  # type: ignore[attr-defined]
    at = rows.column_names.index("amount")
    pq.write_table(rows.set_column(at, "amount", amounts.cast(pa.float32())), raw / f"night-{number:03}.parquet")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw", rows=6_000, users=400)
    return tmp_path / "raw"


def shown(samples: list[Sample], kind: str) -> None:
    print(f"\n{len(samples)} nights {kind}\n\n{table(samples)}\n")
    if PLOT:
        path = Path(PLOT).with_stem(f"{Path(PLOT).stem}-{kind.split()[0]}")
        path.write_bytes(soak.plot(samples))
        print(path)


@pytest.mark.slow
def test_nights_in_one_process_leave_nothing_behind(prefect_server: str, raw: Path, tmp_path: Path) -> None:
    store, samples = tmp_path / "store", []
    for number in range(NIGHTS):
        night(raw, number)
        train("fraud", raw=str(raw), store=str(store), epochs=1, batch_size=256)
        a_day_passes(store)
        clean(store=str(store), days=3, keep=2)
        samples.append(sample(store, Path(os.environ["PREFECT_HOME"])))
    shown(samples, "inside one process")
    assert not grew(samples), growth(samples)


@pytest.mark.slow
def test_nights_in_processes_of_their_own_leave_nothing_behind(raw: Path, tmp_path: Path) -> None:
    store, samples, nights = tmp_path / "store", [], max(9, NIGHTS // 3)
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    environment.pop("PREFECT_API_URL", None)
    module = [sys.executable, "-m"]
    for number in range(nights):
        night(raw, number)
        options = [f"--raw={raw}", f"--store={store}", "--epochs=1", "--batch-size=256", "--json"]
        subprocess.run(
            [*module, "flows.train", "fraud", *options], cwd=toy.ROOT, env=environment, check=True, capture_output=True
        )
        subprocess.run(
            [*module, "flows.clean", f"--store={store}", "--days=3", "--keep=2"], cwd=toy.ROOT, env=environment,
            check=True, capture_output=True,
        )  # fmt: skip
        a_day_passes(store)
        here = sample(store, tmp_path / "prefect")
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        samples.append(Sample(largest, here.handles, here.threads, here.processes, here.disk, here.history))
    shown(samples, "processes of their own")
    assert not grew(samples), growth(samples)


def made(**rises: float) -> list[Sample]:
    """Thirty nights in which some things rise by a share a night."""
    base = {"memory": 300.0, "handles": 40.0, "threads": 20.0, "processes": 1.0, "disk": 50.0, "history": 2.0}
    return [Sample(**{k: v * (1 + rises.get(k, 0) * i) for k, v in base.items()}) for i in range(30)]  # pyright: ignore[reportArgumentType]


def test_what_grows_is_named() -> None:
    assert grew(made()) == {}
    assert set(grew(made(memory=0.01, disk=0.01, history=0.5))) == {"memory", "disk"}
    assert growth(made(threads=0.1))["threads"] == pytest.approx((1 + 2.45) / (1 + 1.45) - 1)


def test_a_warm_up_is_no_growth() -> None:
    samples = made()
    assert grew([*(made(memory=-0.02)[:10]), *samples[10:]]) == {}


def test_a_sample_sees_a_handle_a_process_and_a_file_once(tmp_path: Path) -> None:
    before = sample(tmp_path, tmp_path)
    (tmp_path / "a").write_bytes(bytes(1_000_000))
    os.link(tmp_path / "a", tmp_path / "b")
    with (tmp_path / "a").open("rb"), subprocess.Popen(["sleep", "30"]) as child:
        after = sample(tmp_path, tmp_path)
        child.kill()
    assert (after.handles - before.handles, after.processes - before.processes) == (1, 1)
    assert 0.9 < after.disk - before.disk < 1.2
    assert size(tmp_path / "absent") == 0


def test_a_day_passes_for_every_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("x")
    before = {path: path.stat().st_mtime for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")}
    a_day_passes(tmp_path)
    assert {path: pytest.approx(path.stat().st_mtime + 86_400, abs=1) for path in before} == before


def test_the_table_and_the_plot_hold_the_first_and_the_last_night() -> None:
    text = table(made())
    assert text.splitlines()[2].startswith("| 1 | 300.0 | 40")
    assert "\n| 30 | 300.0 " in text
    assert "+0.0%" in text.splitlines()[-1]
    assert soak.plot(made()).startswith(b"\x89PNG")
