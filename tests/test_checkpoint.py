"""The checkpoints of a training: killed, damaged, full, locked; it resumes with the right numbers or says why not."""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_states import bits, state_at

from datasets.errors import CheckpointCorrupt, CheckpointError, CheckpointLocked, CheckpointMismatch
from tasks import checkpoint, snapshot
from tasks.checkpoint import Checkpoints
from tasks.leaves import abstract_like
from tasks.training import SAVE_SECONDS

HERE = Path(__file__).parent
ABSTRACT = abstract_like(state_at(0))


def saved(root: Path, *steps: int, **options: Any) -> Path:
    with Checkpoints(root, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, state_at(step), meta={"at": step}, metrics={"loss": 1 / (1 + step)})
    return root


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("pristine") / "run", 10, 20)


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "run")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def data_file(step: Path) -> Path:
    return max((step / "state").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else -1)


def test_a_new_folder_has_nothing_and_says_so(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "a" / "b") as checkpoints:
        assert checkpoints.restore_latest(ABSTRACT) is None
        assert checkpoints.steps() == []
        assert checkpoints.best() is None


def test_the_next_process_goes_on_from_the_newest(root: Path) -> None:
    with Checkpoints(root) as checkpoints:
        assert checkpoints.steps() == [10, 20]
        found = checkpoints.restore_latest(ABSTRACT)
    assert found is not None
    assert (found.step, found.meta, found.metrics) == (20, {"at": 20}, {"loss": 1 / 21})
    assert bits(found.state) == bits(state_at(20))


def test_an_older_step_can_be_asked_for(root: Path) -> None:
    with Checkpoints(root) as checkpoints:
        assert bits(checkpoints.restore(10, ABSTRACT).state) == bits(state_at(10))
        with pytest.raises(CheckpointError, match="no such step") as caught:
            checkpoints.restore(15, ABSTRACT)
    assert not isinstance(caught.value, CheckpointCorrupt)
    assert caught.value.facts["known"] == [10, 20]


def test_the_state_may_be_donated_and_its_buffer_reused_as_soon_as_save_returns(tmp_path: Path) -> None:
    scramble = jax.jit(lambda x: x * -3 + 1, donate_argnums=0)
    with Checkpoints(tmp_path / "run") as checkpoints:
        state = {"x": scramble(jnp.arange(50_000.0))}
        want = np.array(state["x"])
        address = state["x"].unsafe_buffer_pointer()
        checkpoints.save(1, state, meta={})
        scrambled = scramble(state["x"])
        if jax.default_backend() == "cpu":
            assert scrambled.unsafe_buffer_pointer() == address
        found = checkpoints.restore_latest({"x": jax.ShapeDtypeStruct(want.shape, want.dtype)})
    assert found is not None
    assert np.array_equal(found.state["x"], want)


def test_every_file_is_synced_before_the_commit_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def recording_fsync(descriptor: int) -> None:
        events.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def recording_rename(self: Path, target: Path) -> Path:
        events.append(f"{self} -> {target}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "rename", recording_rename)
    root = saved(tmp_path / "run", 1)
    [commit] = [number for number, event in enumerate(events) if event.endswith(f"-> {root / '1'}")]
    partial = events[commit].split(" -> ")[0]
    inside = {str(path).replace(str(root / "1"), partial) for path in [root / "1", *(root / "1").rglob("*")]}
    assert inside <= set(events[:commit])
    assert str(root) in events[commit:]


def test_best_and_latest_are_both_kept(tmp_path: Path) -> None:
    losses = {100: 0.9, 200: 0.1, 300: float("nan"), 400: 0.6, 500: 0.5, 600: None}
    with Checkpoints(tmp_path / "run") as checkpoints:
        for step, loss in losses.items():
            checkpoints.save(step, state_at(step), meta={}, metrics=None if loss is None else {"loss": loss})
        checkpoints.wait()
        assert checkpoints.steps() == [200, 500, 600]
        assert checkpoints.best() == 200
    with Checkpoints(tmp_path / "run", mode="max") as checkpoints:
        assert checkpoints.steps() == [200, 500, 600]
        assert checkpoints.best() == 500
        found = checkpoints.restore_latest(ABSTRACT)
        assert found is not None
        assert found.step == 600


def test_the_save_under_way_counts_for_what_is_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, write = threading.Event(), snapshot.write

    def waiting(*arguments: Any) -> Any:
        go_on.wait(30)
        return write(*arguments)

    monkeypatch.setattr(snapshot, "write", waiting)
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.would_be_best({"loss": 0.3})
        checkpoints.save(1, state_at(1), meta={}, metrics={"loss": 0.2})
        assert not checkpoints.would_be_best({"loss": 0.3})
        assert checkpoints.would_be_best({"loss": 0.1})
        go_on.set()
        checkpoints.wait()
        assert not checkpoints.would_be_best({"loss": 0.3})
        checkpoints.save(2, state_at(2), meta={}, metrics={"loss": float("nan")})
        assert checkpoints.would_be_best({"loss": 0.1})


def test_a_held_step_is_written_by_the_next_save_if_it_is_still_the_best(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, state_at(1), meta={"at": 1}, metrics={"loss": 0.5})
        checkpoints.hold(2, state_at(2), meta={"at": 2}, metrics={"loss": 0.3})
        checkpoints.hold(3, state_at(3), meta={"at": 3}, metrics={"loss": 0.2})
        assert not checkpoints.would_be_best({"loss": 0.25})
        checkpoints.hold(4, state_at(4), meta={"at": 4}, metrics={"loss": 0.4})
        checkpoints.wait()
        assert checkpoints.steps() == [1]
        with pytest.raises(CheckpointError, match="steps only go up"):
            checkpoints.hold(3, state_at(3), meta={}, metrics={"loss": 0.1})
        checkpoints.save(5, state_at(5), meta={"at": 5}, metrics={"loss": 0.9})
        checkpoints.save(6, state_at(6), meta={"at": 6})
        checkpoints.wait()
        assert checkpoints.steps() == [3, 5, 6]
        assert checkpoints.best() == 3
        found = checkpoints.restore(3, ABSTRACT)
        assert found.meta == {"at": 3}
        assert bits(found.state) == bits(state_at(3))


def test_a_held_step_is_a_copy(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run") as checkpoints:
        state = state_at(1)
        checkpoints.hold(1, state, meta={}, metrics={"loss": 0.3})
        jax.tree.map(lambda leaf: leaf.delete(), state)
        checkpoints.save(2, state_at(2), meta={}, metrics={})
        checkpoints.wait()
        assert bits(checkpoints.restore(1, ABSTRACT).state) == bits(state_at(1))


def test_what_a_checkpoint_refers_to_is_checked_with_it(root: Path) -> None:
    warnings: list[str] = []

    def check(meta: Any) -> None:
        if meta["at"] == 20:
            raise CheckpointCorrupt("the log is cut", file="log")

    with Checkpoints(root, warn=warnings.append) as checkpoints:
        found = checkpoints.restore_latest(ABSTRACT, check)
        assert found is not None
        assert found.step == 10
        assert checkpoints.steps() == [10]
    assert "the log is cut" in warnings[0]


@pytest.mark.parametrize("step", [20, 15, 0])
def test_a_step_that_is_not_above_the_newest_is_an_error(step: int, root: Path) -> None:
    with Checkpoints(root) as checkpoints:
        with pytest.raises(CheckpointError, match="steps only go up") as caught:
            checkpoints.save(step, state_at(step), meta={})
        assert checkpoints.steps() == [10, 20]
    assert caught.value.facts["got"] == step
    assert "20" in caught.value.facts["expected"]


@pytest.mark.parametrize("meta", [{"loss": float("nan")}, {"when": object()}, {"x": np.float32(1)}])
def test_meta_that_is_not_json_is_refused_at_once(meta: Any, root: Path) -> None:
    with Checkpoints(root) as checkpoints, pytest.raises(CheckpointError, match="meta is JSON"):
        checkpoints.save(30, state_at(30), meta=meta)


@pytest.mark.parametrize("leaf", [1.0, np.ones(3), "text"])
def test_leaves_that_are_not_jax_arrays_are_refused_by_name(leaf: Any, root: Path) -> None:
    with Checkpoints(root) as checkpoints, pytest.raises(CheckpointError, match="inner/leaf"):
        checkpoints.save(30, {"inner": {"leaf": leaf}}, meta={})


def test_a_weakly_typed_leaf_is_refused_because_it_would_come_back_as_another_type(root: Path) -> None:
    weak = jax.jit(lambda: 1.0)()
    assert weak.weak_type
    with Checkpoints(root) as checkpoints, pytest.raises(CheckpointError, match="rate"):
        checkpoints.save(30, {"rate": weak}, meta={})


def test_two_leaves_of_one_path_are_refused(root: Path) -> None:
    with Checkpoints(root) as checkpoints, pytest.raises(CheckpointError, match="own path"):
        checkpoints.save(30, {"a": {"b": jnp.ones(1)}, "a/b": jnp.zeros(1)}, meta={})


def test_harm_to_any_file_of_the_newest_step_falls_back_to_the_one_before(root: Path, tmp_path: Path) -> None:
    names = [p.relative_to(root) for p in sorted((root / "20").rglob("*")) if p.is_file() and p.stat().st_size]
    assert len(names) >= 8
    for number, name in enumerate(names):
        for harm in ("flip", "cut", "delete"):
            copy = shutil.copytree(root, tmp_path / f"{number}-{harm}")
            path = copy / name
            if harm == "flip":
                flip(path)
            elif harm == "cut":
                os.truncate(path, path.stat().st_size // 2)
            else:
                path.unlink()
            warnings: list[str] = []
            with Checkpoints(copy, warn=warnings.append) as checkpoints:
                found = checkpoints.restore_latest(ABSTRACT)
                assert found is not None
                assert (found.step, found.meta, bits(found.state)) == (10, {"at": 10}, bits(state_at(10)))
                assert len(warnings) == 1
                assert all(text in warnings[0] for text in (str(path), "got: ", "set aside"))
                with pytest.raises(CheckpointCorrupt):
                    checkpoints.restore(20, ABSTRACT)
                assert checkpoints.steps() == [10]


def test_a_warning_names_file_expected_and_got(root: Path) -> None:
    path = data_file(root / "20")
    good = snapshot.durable.sha256_file(path)
    flip(path)
    warnings: list[str] = []
    with Checkpoints(root, warn=warnings.append) as checkpoints:
        checkpoints.restore_latest(ABSTRACT)
    [aside] = root.glob("damaged-20-*")
    bad = snapshot.durable.sha256_file(aside / path.relative_to(root / "20"))
    assert all(text in warnings[0] for text in (str(path), good, bad, aside.name))


def test_a_cut_file_is_noticed_when_the_folder_is_opened(root: Path) -> None:
    os.truncate(data_file(root / "20"), 100)
    with Checkpoints(root, warn=lambda _: None) as checkpoints:
        assert checkpoints.steps() == [10]
        assert checkpoints.best() == 10


def test_the_default_warning_goes_to_the_log(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    flip(data_file(root / "20"))
    with caplog.at_level(logging.WARNING), Checkpoints(root) as checkpoints:
        checkpoints.restore_latest(ABSTRACT)
    assert "set aside" in caplog.text


def test_a_damaged_step_that_is_asked_for_is_an_error_and_stays(root: Path) -> None:
    flip(data_file(root / "10"))
    with Checkpoints(root) as checkpoints:
        with pytest.raises(CheckpointCorrupt, match="sha256"):
            checkpoints.restore(10, ABSTRACT)
        assert checkpoints.steps() == [10, 20]


def test_training_goes_on_over_a_damaged_step(root: Path) -> None:
    flip(data_file(root / "20"))
    with Checkpoints(root, warn=lambda _: None) as checkpoints:
        checkpoints.restore_latest(ABSTRACT)
        checkpoints.save(20, state_at(20), meta={"at": 20})
        found = checkpoints.restore_latest(ABSTRACT)
    assert found is not None
    assert (found.step, bits(found.state)) == (20, bits(state_at(20)))


@pytest.mark.parametrize("how", ["content", "manifest gone", "emptied"])
def test_no_step_that_verifies_is_never_a_fresh_start_not_even_later(how: str, root: Path) -> None:
    for step in (root / "10", root / "20"):
        if how == "content":
            flip(data_file(step))
        elif how == "manifest gone":
            (step / snapshot.MANIFEST).unlink()
        else:
            shutil.rmtree(step)
            step.mkdir()
    for _ in range(2):
        with (
            Checkpoints(root, warn=lambda _: None) as checkpoints,
            pytest.raises(CheckpointCorrupt, match="verifies") as caught,
        ):
            checkpoints.restore_latest(ABSTRACT)
        assert str(caught.value.facts["checkpoint"]) == str(root)


def test_a_mismatch_never_falls_back_to_an_older_step(root: Path) -> None:
    with Checkpoints(root) as checkpoints:
        with pytest.raises(CheckpointMismatch, match="params/kernel"):
            checkpoints.restore_latest(abstract_like(state_at(0, width=5)))
        assert checkpoints.steps() == [10, 20]


def test_a_second_writer_is_told_who_holds_it(root: Path) -> None:
    with Checkpoints(root):
        with pytest.raises(CheckpointLocked, match=str(os.getpid())) as caught:
            Checkpoints(root)
        assert caught.value.facts["pid"] == os.getpid()
    with Checkpoints(root):
        pass


def test_a_relative_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Checkpoints(Path("run")) as checkpoints:
        monkeypatch.chdir("elsewhere")
        checkpoints.save(1, state_at(1), meta={})
        assert checkpoints.root == tmp_path / "run"
        assert checkpoints.restore_latest(ABSTRACT) is not None
    assert (tmp_path / "run" / "1").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_plain_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(CheckpointError, match=str(tmp_path / "run")):
        Checkpoints(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "x"


@pytest.mark.parametrize("put", ["nothing", "a file", "a folder"])
def test_the_folder_vanishes_during_the_training(put: str, root: Path) -> None:
    with Checkpoints(root) as checkpoints:
        shutil.rmtree(root)
        if put == "a file":
            root.write_text("x")
        elif put == "a folder":
            root.mkdir()
        with pytest.raises(CheckpointError, match="removed or replaced") as caught:
            checkpoints.save(30, state_at(30), meta={})
        assert caught.value.facts["checkpoint"] == root
    assert root.exists() == (put != "nothing")
    assert put != "a folder" or list(root.iterdir()) == []


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("wrapped") from OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint.snapshot, "write", fail)


def test_a_failed_save_is_raised_by_check_wait_next_save_or_close(root: Path, failing: None) -> None:
    said = r"step 30 couldn't be saved(.|\n)*/run/30(.|\n)*OSError(.|\n)*Input/output error"
    with Checkpoints(root) as checkpoints:
        for surfaces in (
            checkpoints.wait,
            lambda: checkpoints.save(40, state_at(40), meta={}),
            lambda: checkpoints.restore_latest(ABSTRACT),
        ):
            checkpoints.save(30, state_at(30), meta={})
            with pytest.raises(CheckpointError, match=said):
                surfaces()
            checkpoints.check()
        checkpoints.save(30, state_at(30), meta={})
        with pytest.raises(CheckpointError, match=said):  # noqa: PT012
            while True:
                checkpoints.check()
        assert checkpoints.steps() == [10, 20]
        checkpoints.save(30, state_at(30), meta={})
        with pytest.raises(CheckpointError, match=said):
            checkpoints.close()
    assert {p.name for p in root.iterdir()} == {".lock", "10", "20"}


def test_a_failed_save_does_not_hide_the_error_of_the_training(root: Path, failing: None) -> None:
    with pytest.raises(ZeroDivisionError) as caught, Checkpoints(root) as checkpoints:  # noqa: PT012
        checkpoints.save(30, state_at(30), meta={})
        _ = 1 / 0
    assert "step 30 couldn't be saved" in caught.value.__notes__[0]
    with Checkpoints(root):
        pass


def test_an_error_in_the_training_still_commits_the_save_under_way(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Checkpoints(tmp_path / "run") as checkpoints:  # noqa: PT012
        checkpoints.save(1, state_at(1), meta={})
        raise KeyboardInterrupt
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.steps() == [1]


def test_a_signal_during_a_wait_does_not_lose_the_error_of_the_save(
    root: Path, failing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(root)
    checkpoints.save(30, state_at(30), meta={})
    with monkeypatch.context() as patch:

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(checkpoint.futures, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.wait()
    with pytest.raises(CheckpointError, match="step 30"):
        checkpoints.close()


def test_after_closing_nothing_is_saved(root: Path) -> None:
    checkpoints = Checkpoints(root)
    checkpoints.close()
    checkpoints.close()
    with pytest.raises(CheckpointError, match="closed"):
        checkpoints.save(30, state_at(30), meta={})


def test_cost_is_counted(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run") as checkpoints:
        blocked = [checkpoints.save(step, state_at(step), meta={}) for step in (1, 2)]
        checkpoints.wait()
        assert checkpoints.cost.saves == 2
        assert checkpoints.cost.blocked_s == pytest.approx(sum(blocked))
        assert checkpoints.cost.written_s > 0
        sizes = [
            p.stat().st_size for p in (tmp_path / "run" / "2").rglob("*") if p.is_file() and p.name != "manifest.json"
        ]
        assert checkpoints.cost.bytes == sum(sizes)


def test_restored_arrays_cause_no_compilation_and_can_be_donated(tmp_path: Path) -> None:
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    state = jax.device_put(state_at(1), place)
    abstract = abstract_like(state)

    @jax.jit
    def step(state: Any) -> Any:
        return jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x + 1, state)

    after = bits(step(state))
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(1, state, meta={})
        found = checkpoints.restore_latest(abstract)
    assert found is not None
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if "backend_compile" in event or "jaxpr_trace" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        result = step(found.state)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []
    assert bits(result) == after
    kernel = found.state["params"]["kernel"]
    jax.jit(lambda x: x + 1, donate_argnums=0)(kernel)
    assert kernel.is_deleted()


FOUR = """
import sys
from pathlib import Path
import jax
from checkpoint_states import bits, state_at
from tasks.checkpoint import Checkpoints
from tasks.leaves import abstract_like
from tasks.training import SAVE_SECONDS

assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("data",))
whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
state = jax.device_put(state_at(0), whole)
state["params"]["kernel"] = jax.device_put(state["params"]["kernel"], split)
with Checkpoints(Path(sys.argv[1])) as checkpoints:
    found = checkpoints.restore_latest(abstract_like(state))
assert bits(found.state) == bits(state_at(20))
assert jax.tree.map(lambda x: x.sharding, found.state) == jax.tree.map(lambda x: x.sharding, state)
assert [s.data.shape for s in found.state["params"]["kernel"].addressable_shards] == [(3, 1)] * 4
with Checkpoints(Path(sys.argv[2])) as checkpoints:
    checkpoints.save(21, found.state, meta={"devices": 4})
"""


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{HERE.parent}:{HERE}", **extra}


def test_one_checkpoint_restores_on_one_and_on_four_devices(root: Path, tmp_path: Path) -> None:
    env = environment(XLA_FLAGS="--xla_force_host_platform_device_count=4")
    done = subprocess.run(
        [sys.executable, "-c", FOUR, root, tmp_path / "four"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    with Checkpoints(tmp_path / "four") as checkpoints:
        found = checkpoints.restore_latest(ABSTRACT)
    assert found is not None
    assert found.meta == {"devices": 4}
    assert bits(found.state) == bits(state_at(20))


# One child after the other resumes the same training and kills itself at its n-th change of the file system, in
# whatever thread that is: within Orbax's write, between the syncs, at the commit, during retention, scrub or restore.
KILLED = """
import os, signal, sys, threading
from pathlib import Path
import jax, optax
from orbax.checkpoint import v1
from checkpoint_states import bits, state_at
from tasks.checkpoint import Checkpoints
from tasks.leaves import abstract_like
from tasks.training import SAVE_SECONDS

root, progress = Path(sys.argv[1]), Path(sys.argv[2])
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}

def train(limit):
    left = [limit]
    lock = threading.Lock()
    def count(event, args):
        if event in CHANGES and str(root) in str(args[0]) or event in ("os.rmdir", "os.remove"):
            with lock:
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    log = os.open(progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Checkpoints(root) as checkpoints:
        found = checkpoints.restore_latest(abstract_like(state_at(0)))
        step = found.step if found else 0
        if found:
            assert found.meta == {"at": step} and bits(found.state) == bits(state_at(step))
        while True:
            step += 1
            checkpoints.save(step, state_at(step), meta={"at": step}, metrics={"loss": step % 5})
            if step % 2:
                checkpoints.wait()
                os.write(log, f"{step}\\n".encode())

for limit in map(int, sys.argv[3:]):
    child = os.fork()
    if not child:
        train(limit)
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
"""


def test_kill_9_at_any_change_of_the_file_system(tmp_path: Path) -> None:
    root, progress = tmp_path / "run", tmp_path / "progress"
    dice = random.Random(20260101)
    limits = [str(dice.randrange(1, 400)) for _ in range(12)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, root, progress, *limits],
        env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    confirmed = int(progress.read_text().split()[-1])
    warnings: list[str] = []
    with Checkpoints(root, warn=warnings.append) as checkpoints:
        found = checkpoints.restore_latest(ABSTRACT)
        steps = checkpoints.steps()
        for step in steps:
            assert bits(checkpoints.restore(step, ABSTRACT).state) == bits(state_at(step))
    assert found is not None
    assert found.step >= confirmed >= 5
    assert warnings == []
    assert {p.name for p in root.iterdir()} == {".lock", *map(str, steps)}


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True).returncode
    ):
        pytest.skip("a file system can't be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_full_and_read_only_disk(tiny_disk: Path) -> None:
    root = tiny_disk / "run"
    noise = {"x": jax.random.uniform(jax.random.key(0), (400_000,))}
    with Checkpoints(root) as checkpoints:
        checkpoints.save(1, state_at(1), meta={})
        checkpoints.save(2, noise, meta={})
        with pytest.raises(CheckpointError, match=r"No space left|RESOURCE_EXHAUSTED") as caught:
            checkpoints.wait()
        assert caught.value.facts["checkpoint"] == root / "2"
        assert {p.name for p in root.iterdir()} == {".lock", "1"}
    with Checkpoints(root) as checkpoints:
        found = checkpoints.restore_latest(ABSTRACT)
        assert found is not None
        assert bits(found.state) == bits(state_at(1))
        checkpoints.save(2, state_at(2), meta={})
    with (tiny_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):  # noqa: PT012
        while True:
            filler.write(bytes(512))
    with Checkpoints(root) as checkpoints:
        found = checkpoints.restore_latest(ABSTRACT)
        assert found is not None
        assert found.step == 2
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    with pytest.raises(CheckpointError, match=r"run(.|\n)*Read-only"):
        Checkpoints(root)


@pytest.mark.slow
def test_the_benchmark_measures_a_real_training() -> None:
    from tasks.benchmarks.checkpoint import run

    rows = {row.name: row for row in run("mlp", rounds=1, steps=2)}
    assert rows["state on disk"].value > 101_770 * 4 / 1e6  # the parameters; moments near 0 compress well
    assert rows["a save until it is committed"].value > rows["a save until the training goes on"].value > 0
    blocked, start = rows["blocked by saves"], rows["resume until the first step is done"]
    assert blocked.ratio == pytest.approx(blocked.value / SAVE_SECONDS)
    assert (blocked.goal, start.goal) == ("< 0.05", "<= 2")
    assert start.ratio is not None
    assert start.ratio > 0
