"""How much memory a program may take here: the device's own, or what this machine or its container has left."""

from __future__ import annotations

from pathlib import Path

SHARE = 0.5
"""Of what is free: batches, other programs and other processes need some too."""
MEMINFO = Path("/proc/meminfo")
CONTAINER = Path("/sys/fs/cgroup")


def allowed() -> int:
    """Bytes that one program may take on the first device."""
    import jax

    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    free = stats["bytes_limit"] - stats["bytes_in_use"] if stats else free_here(MEMINFO, CONTAINER)
    return int(SHARE * free)


def free_here(meminfo: Path, container: Path) -> int:
    """Bytes that this process could still take from the host: the least of what machine and container have left.

    Args:
        meminfo: As `/proc/meminfo` of Linux.
        container: Folder of the control group (version 2); it needn't have a limit.
    """
    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
    free = int(line.split()[1]) << 10
    try:
        limit, used, stat = ((container / f"memory.{name}").read_text().strip() for name in ("max", "current", "stat"))
    except OSError:
        return free
    if limit == "max":
        return free
    # Files that were read count as used until the kernel needs their place, so a container that reads much looks full
    counts = (line.split() for line in stat.splitlines())
    dropped = next((int(count) for name, count in counts if name == "inactive_file"), 0)
    return min(free, max(0, int(limit) - int(used) + dropped))
