"""Settings in the environment by which JAX and XLA compute other numbers: in the key of every stage that uses JAX."""

from __future__ import annotations

import os

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
    flags = [flag for flag in os.environ.get(FLAGS, "").split() if not flag.startswith(HARMLESS)]
    return {**found, FLAGS: " ".join(sorted(flags))} if flags else found
