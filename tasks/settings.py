"""Settings in the environment by which JAX and XLA compute other numbers: in the key of every stage that uses JAX."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LIBRARY = "jax"
NAMES = (
    # Types, precision and random numbers
    "JAX_ENABLE_X64", "JAX_EXPLICIT_X64_DTYPES", "JAX_DEFAULT_MATMUL_PRECISION", "NVIDIA_TF32_OVERRIDE",
    "JAX_NUMPY_DTYPE_PROMOTION", "JAX_DEFAULT_PRNG_IMPL", "JAX_ENABLE_CUSTOM_PRNG", "JAX_THREEFRY_PARTITIONABLE",
    "JAX_RANDOM_SEED_OFFSET", "JAX_HIGH_DYNAMIC_RANGE_GUMBEL",
    # What is derived and compiled, which rounds in another way then
    "JAX_SOFTMAX_CUSTOM_JVP", "JAX_USE_DIRECT_LINEARIZE", "JAX_DISABLE_JIT", "JAX_COMPILER_ENABLE_REMAT_PASS",
    "JAX_OPTIMIZATION_LEVEL", "JAX_EXEC_TIME_OPTIMIZATION_EFFORT", "JAX_MEMORY_FITTING_LEVEL",
    "JAX_MEMORY_FITTING_EFFORT", "JAX_USE_SHARDY_PARTITIONER",
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
