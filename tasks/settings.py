"""Settings in the environment by which JAX and XLA compute other numbers: in the key of every stage that uses JAX."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LIBRARY = "jax"
NAMES = (
    "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_PRNG_IMPL", "JAX_THREEFRY_PARTITIONABLE",
    "JAX_NUMPY_DTYPE_PROMOTION", "JAX_RANDOM_SEED_OFFSET", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
FLAGS = "XLA_FLAGS"
HARMLESS = ("--xla_force_host_platform_device_count", "--xla_dump")
"""Flags that change no number; how many devices take part is in the key of `fit` anyway."""


def settings() -> dict[str, str]:
    """Those that are set, by name; read from the environment, so that a plan needn't load JAX."""
    found = {name: os.environ[name] for name in NAMES if os.environ.get(name)}
    last = {flag.partition("=")[0]: flag for flag in _flags() if not flag.startswith(HARMLESS)}  # XLA takes the last
    return {**found, FLAGS: " ".join(sorted(last.values()))} if last else found


def _flags() -> list[str]:
    text = os.environ.get(FLAGS, "").strip()
    if text and not text.startswith("-"):  # XLA takes it for the name of a file that holds them
        with suppress(OSError):
            text = Path(text).read_text(encoding="utf-8")
    return text.split()
