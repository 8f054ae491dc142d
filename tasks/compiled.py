"""The persistent compilation cache: in the store, bounded, so that a nightly run of known code compiles nothing."""

from __future__ import annotations

import os
from pathlib import Path

import jax

FOLDER = "compiled"
MOST_BYTES = 1 << 30
OWN = "JAX_COMPILATION_CACHE_DIR"


def use_compilation_cache(store: Path) -> None:
    """Lets JAX keep every compiled program in the store of this root, oldest out first beyond MOST_BYTES.

    A folder that JAX's own variable names is taken instead, and bounded as JAX's say; stores may share it.
    """
    folder = Path(os.environ.get(OWN) or store / FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if not os.environ.get(OWN):
        jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if jax.default_backend() != "gpu":
        # A GPU's autotuning is kept beside it, and where that lies is in every program's key: a store that was moved
        # would find none of its programs
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
