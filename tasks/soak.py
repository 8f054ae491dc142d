"""What many nights leave behind: memory, handles, threads, processes and disk after each, and whether they grow."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WARM = 3  # the first third of the nights loads libraries, compiles and fills the store
UNITS = {"memory": "MB", "handles": "", "threads": "", "processes": "", "disk": "MB", "history": "MB"}
ALLOWED = {"memory": 0.05, "handles": 0.02, "threads": 0.02, "processes": 0.0, "disk": 0.05, "history": float("inf")}
"""Growth from the second third of the nights to the last, as a share. History is kept on purpose."""
KEPT = "models"  # versions of a model never go
DAY = 86_400


@dataclass(frozen=True)
class Sample:
    """What is in use after a night.

    Attributes:
        memory: Resident, of this process, in MB.
        handles: Open files, sockets and pipes of this process.
        threads: Of this process.
        processes: Children of this process, and theirs.
        disk: Size of the store without versions of models, in MB.
        history: Size of these and of Prefect's database, in MB.
    """

    memory: float
    handles: int
    threads: int
    processes: int
    disk: float
    history: float


def sample(store: Path, history: Path) -> Sample:
    """What is in use now; Linux only.

    Args:
        store: Folder of the artifacts.
        history: Folder of Prefect's database.
    """
    status = Path("/proc/self/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return Sample(
        resident / 1024, len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir())),
        len(descendants(os.getpid())), size(store) - size(store / KEPT), size(store / KEPT) + size(history),
    )  # fmt: skip


def a_day_passes(store: Path) -> None:
    """Makes every file and folder of a store a day older, so that cleaning sees nights and not minutes."""
    for base, _, names in os.walk(store, topdown=False):
        for path in [*(Path(base, name) for name in names), Path(base)]:
            status = path.lstat()
            if not path.is_symlink():
                os.utime(path, (status.st_atime - DAY, status.st_mtime - DAY))


def descendants(process: int) -> set[int]:
    """Ids of the children of a process, and theirs."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(path.parent.name)] = int(after_name[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {process}} - found:
        found |= more
    return found


def size(folder: Path) -> float:
    """MB on disk below a folder; a file with several names counts once."""
    blocks: dict[int, int] = {}
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(Path(base, name))
            except FileNotFoundError:
                continue
            blocks[status.st_ino] = status.st_blocks
    return sum(blocks.values()) * 512 / 1e6


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """By what share each rose from the second third of the nights to the last."""
    third = max(1, len(samples) // WARM)
    rows = [asdict(one) for one in samples]
    found = {}
    for name in UNITS:
        before = median(row[name] for row in rows[third : 2 * third])
        found[name] = median(row[name] for row in rows[-third:]) / max(before, 1e-9) - 1 if before else 0.0
    return found


def grew(samples: Sequence[Sample]) -> dict[str, float]:
    """What rose by more than is allowed."""
    return {name: share for name, share in growth(samples).items() if share > ALLOWED[name]}


def table(samples: Sequence[Sample]) -> str:
    """Markdown: about ten of the nights, and the growth."""
    step = max(1, len(samples) // 10)
    lines = [["night", *(f"{name} {unit}".strip() for name, unit in UNITS.items())], ["---:"] * (len(UNITS) + 1)]
    for night in sorted({*range(0, len(samples), step), len(samples) - 1}):
        row = asdict(samples[night])
        lines.append(
            [str(night + 1), *(f"{row[name]:,.1f}" if unit else str(row[name]) for name, unit in UNITS.items())]
        )
    lines.append(["growth", *(f"{share:+.1%}" for share in growth(samples).values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot(samples: Sequence[Sample]) -> bytes:
    """A PNG: each of them against the night."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for axes, (name, unit) in zip(figure.subplots(2, 3).flat, UNITS.items(), strict=True):
        axes.plot(range(1, len(samples) + 1), [asdict(one)[name] for one in samples], color="#27548a")
        axes.set(title=name, xlabel="night", ylabel=unit)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    return file.getvalue()
