"""Flows say the order of steps; loading any of them settles Prefect's configuration first."""

from tasks.server import configure

configure()
