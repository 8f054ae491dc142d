"""The persistent compilation cache: in the store, bounded, so that a nightly run of known code compiles nothing."""

from __future__ import annotations

from pathlib import Path

import jax

FOLDER = "compiled"
MOST_BYTES = 1 << 30


def use_compilation_cache(store: Path) -> None:
    """Lets JAX keep every compiled program in the store of this root, oldest out first beyond MOST_BYTES."""
    folder = store / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
