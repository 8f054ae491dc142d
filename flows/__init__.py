"""Flows say the order of steps; loading any of them settles the process and Prefect's configuration first."""

from tasks.allocator import keep_memory
from tasks.server import configure

keep_memory()
configure()
