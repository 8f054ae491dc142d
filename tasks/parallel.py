"""How many devices and processes share the batches of a training; says nothing of JAX, so that a plan can ask it.

Each process has the same number of devices; together they are the mesh. A batch is cut into as many equal parts as the
mesh has devices, each device has all of the parameters, and gradients are summed over the mesh at every step. The sum's
order is that of the mesh, so the mesh is part of the key of `fit`; but a training that was stopped may go on with
another mesh (see `lineage.py`), because nothing else depends on it: order of examples, dropout, schedule, checkpoints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from datasets.errors import ParameterError
from datasets.schema import check_int


@dataclass(frozen=True)
class Parallel:
    """What a run was asked for.

    Attributes:
        devices: Of each process.
        processes: Of the whole training.
        process: Which of them this run starts, counted from 0, where there is a run a host; None if it starts all.
        coordinator: "host:port" of process 0, at which the processes of several runs meet; None on one host.

    Raises:
        ParameterError: A value can't work.
    """

    devices: int = 1
    processes: int = 1
    process: int | None = None
    coordinator: str | None = None

    def __post_init__(self) -> None:
        check_int("devices", self.devices, 1)
        check_int("processes", self.processes, 1)
        if (self.process is None) != (self.coordinator is None):
            raise ParameterError(
                "a run for one of several processes says which, and where they meet", parameter="process",
                got=f"process={self.process}, coordinator={self.coordinator}",
                cure="both --process and --coordinator, or neither to start all processes on this host",
            )  # fmt: skip
        if self.process is None:
            return
        check_int("process", self.process, 0)
        if self.process >= self.processes:
            raise ParameterError(
                "there is no such process",
                parameter="process",
                got=self.process,
                expected=f"0 ... {self.processes - 1}",
            )
        if not re.fullmatch(r"[^\s:/]+:[1-9]\d{0,4}", str(self.coordinator)):
            raise ParameterError(
                "processes meet at a host and a port", parameter="coordinator", got=self.coordinator,
                expected="such as host0:8476",
            )  # fmt: skip

    @property
    def size(self) -> int:
        """Devices of the mesh."""
        return self.devices * self.processes

    def check_batch_size(self, batch_size: int) -> None:
        """Raises ParameterError unless a batch can be cut into equal parts."""
        if batch_size % self.size:
            raise ParameterError(
                "a batch can't be shared out evenly", parameter="batch_size", got=batch_size,
                expected=f"a multiple of {self.size} (processes {self.processes} x devices {self.devices})",
                cure=f"--batch-size {max(1, round(batch_size / self.size)) * self.size}",
            )  # fmt: skip

    def check_devices(self) -> None:
        """Raises ParameterError if this process has fewer devices. Loads JAX, unless one device is enough."""
        if self.devices == 1:
            return
        import jax

        if (here := jax.local_device_count()) < self.devices:
            on_cpu = jax.default_backend() == "cpu"
            raise ParameterError(
                "there aren't so many devices", parameter="devices", got=self.devices, expected=f"at most {here}",
                cure=f"to try it on a CPU: XLA_FLAGS=--xla_force_host_platform_device_count={self.devices}"
                if on_cpu else "fewer --devices",
            )  # fmt: skip

    def in_key(self) -> dict[str, Any]:
        """Its part of a key; nothing for one device, whose keys are those of a run that was asked for nothing."""
        return {} if self.size == 1 else {"mesh": self.mesh()}

    def mesh(self) -> dict[str, int]:
        """What decides bits, as JSON."""
        return {"processes": self.processes, "devices": self.devices}
