from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import toy

from tasks import compiled
from tasks.budget import TraceBudget
from tasks.compiled import MOST_BYTES, use_compilation_cache

NAMES = [
    "jax_compilation_cache_dir", "jax_compilation_cache_max_size", "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
]  # fmt: skip


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    from jax._src import compilation_cache  # it opens its folder once a process

    before = {name: getattr(jax.config, name) for name in NAMES}
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compile_one(factor: float) -> TraceBudget:
    budget = TraceBudget("f", 1)
    budget.compile(lambda x: jnp.sin(x) * factor, jax.ShapeDtypeStruct((3,), jnp.float32))
    return budget


def test_a_small_program_is_kept_and_found_again(tmp_path: Path) -> None:
    use_compilation_cache(tmp_path / "a")
    assert not compile_one(1.25).from_cache
    assert [path for path in (tmp_path / "a" / "compiled").iterdir() if path.stat().st_size > 100]
    assert compile_one(1.25).from_cache
    assert not compile_one(1.5).from_cache


OTHER = """
from pathlib import Path
import sys
import test_compiled
test_compiled.use_compilation_cache(Path({folder!r}))
print(test_compiled.compile_one(1.25).from_cache)
"""


def test_another_process_compiles_nothing(tmp_path: Path) -> None:
    answers = [toy.run_python(OTHER.format(folder=str(tmp_path))).stdout.strip() for _ in range(2)]
    assert answers == ["False", "True"]


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_BYTES == 1 << 30
    monkeypatch.setattr(compiled, "MOST_BYTES", 20_000)
    use_compilation_cache(tmp_path)
    for factor in range(12):
        compile_one(2.0 + factor)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert 0 < sum(sizes) <= 20_000
    assert compile_one(13.0).from_cache  # the newest stays
    assert not compile_one(2.0).from_cache  # the oldest went
