from __future__ import annotations

from pathlib import Path

from tasks.free_memory import SHARE, allowed, free_here


def test_the_least_of_machine_and_container_is_free(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  900 kB\nMemFree:  10 kB\nMemAvailable:   400 kB\n")
    assert free_here(meminfo, tmp_path / "nowhere") == 400 << 10
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 200\nfile 700\ninactive_file 0\nactive_file 700\n")
    assert free_here(meminfo, tmp_path) == 400 << 10
    (tmp_path / "memory.max").write_text("300000\n")
    assert free_here(meminfo, tmp_path) == 299_000
    (tmp_path / "memory.max").write_text("900\n")
    assert free_here(meminfo, tmp_path) == 0
    (tmp_path / "memory.stat").write_text("anon 200\nfile 700\ninactive_file 600\nactive_file 100\n")
    assert free_here(meminfo, tmp_path) == 500  # what is kept of files that were read is not in the way


def test_a_program_may_take_a_share_of_it(monkeypatch) -> None:  # noqa: ANN001
    monkeypatch.setattr("tasks.free_memory.free_here", lambda meminfo, container: 1000)
    assert allowed() == int(SHARE * 1000)
