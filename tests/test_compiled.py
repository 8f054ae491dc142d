from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import toy

from tasks import compiled
from tasks.budget import TraceBudget
from tasks.compiled import MOST_BYTES, OWN, use_compilation_cache

DEFAULTS = {  # JAX's own
    "jax_compilation_cache_dir": None, "jax_compilation_cache_max_size": -1,
    "jax_persistent_cache_min_compile_time_secs": 1.0, "jax_persistent_cache_min_entry_size_bytes": 0,
    "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(OWN, raising=False)
    before = {name: getattr(jax.config, name) for name in DEFAULTS}
    set_to(DEFAULTS)
    yield
    set_to(before)


def set_to(settings: dict[str, Any]) -> None:
    from jax._src import compilation_cache  # it opens its folder once a process

    for name, value in settings.items():
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


def test_a_store_that_was_moved_finds_its_programs(tmp_path: Path) -> None:
    use_compilation_cache(tmp_path / "a")
    compile_one(1.25)
    (tmp_path / "a").rename(tmp_path / "b")
    set_to(DEFAULTS)
    use_compilation_cache(tmp_path / "b")
    assert compile_one(1.25).from_cache


def test_a_folder_of_the_users_own_is_taken_and_left_unbounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, str(tmp_path / "own"))
    for store in ("a", "b"):
        use_compilation_cache(tmp_path / store)
        assert compile_one(1.25).from_cache is (store == "b")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert jax.config.values["jax_compilation_cache_max_size"] == -1


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
