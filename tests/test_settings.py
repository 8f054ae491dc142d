from __future__ import annotations

from pathlib import Path

import jax
import pytest

from tasks.convert import convert
from tasks.fetch import prepared
from tasks.fit import fit
from tasks.settings import FLAGS, NAMES, settings
from tasks.stage import Run, key_of


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, FLAGS):
        monkeypatch.delenv(name, raising=False)


def test_what_is_set_is_told_and_what_changes_no_number_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings() == {}
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "")
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    monkeypatch.setenv(FLAGS, "--xla_force_host_platform_device_count=4 --xla_dump_to=dump")
    assert settings() == {"JAX_ENABLE_X64": "1"}


def test_names_are_those_of_jax() -> None:
    assert {name.lower() for name in NAMES if name.startswith("JAX_")} <= set(jax.config.values)


def test_the_order_of_flags_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAGS, "--xla_b=1 --xla_a=2")
    first = settings()
    monkeypatch.setenv(FLAGS, "--xla_a=2  --xla_b=1")
    assert first == settings() == {FLAGS: "--xla_a=2 --xla_b=1"}


def test_of_a_flag_that_is_given_twice_the_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAGS, "--xla_a=1 --xla_a=2")
    assert settings() == {FLAGS: "--xla_a=2"}
    monkeypatch.setenv(FLAGS, "--xla_a=2 --xla_a=1")
    assert settings() == {FLAGS: "--xla_a=1"}


def test_flags_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FLAGS, str(tmp_path / "flags"))
    (tmp_path / "flags").write_text("--xla_b=1\n--xla_dump_to=dump\n")
    assert settings() == {FLAGS: "--xla_b=1"}
    (tmp_path / "flags").unlink()
    assert settings() == {FLAGS: str(tmp_path / "flags")}


def test_only_stages_that_compute_with_jax_get_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Run(prepared("mnist", store=tmp_path))
    before = {stage.name: stage.components(run, {}) for stage in (convert, fit)}
    assert "settings" not in before["fit"]  # so whoever sets nothing keeps the keys that there were
    monkeypatch.setenv("JAX_DEFAULT_PRNG_IMPL", "rbg")
    after = {stage.name: stage.components(run, {}) for stage in (convert, fit)}
    assert key_of(after["convert"]) == key_of(before["convert"])
    assert after["fit"] == {**before["fit"], "settings": {"JAX_DEFAULT_PRNG_IMPL": "rbg"}}
