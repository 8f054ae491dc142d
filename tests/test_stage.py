"""The key of a stage: every change that decides bytes is in it, nothing else is; and what Prefect does with it."""

from __future__ import annotations

import ast
import contextvars
import json
import shutil
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy import python

from datasets import augment
from datasets.errors import SchemaError, StoreError, TransientError
from datasets.schema import Feature, Files, Rows
from tasks.artifact import Artifact, Store
from tasks.convert import convert
from tasks.evaluate import evaluate
from tasks.feed import feed
from tasks.fetch import fetch
from tasks.fingerprint import ROOT, Sources
from tasks.fit import fit
from tasks.promote import promote
from tasks.request import Request, check
from tasks.stage import Outcome, Run, Stage, key_of
from tasks.validate import validate

STAGES = (fetch, convert, validate, feed, fit, evaluate, promote)
ALL = {stage.name for stage in STAGES}
INPUTS = {"raw": "raw", "records": "records", "report": "report", "plan": "plan", "weights": "weights"}


def keys(request: Request, sources: Sources) -> dict[str, str]:
    """Key of each stage, were its inputs the same."""
    weights = Artifact("weights", request.name, "k", "d")
    run = Run(request, [Outcome("fit", "k", "ran", 0.0, weights, {})], sources)
    inputs = {name: Artifact(kind, request.name, "k", "d") for name, kind in INPUTS.items()}
    return {stage.name: key_of(stage.components(run, inputs)) for stage in STAGES}


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return check("mnist", store=tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's code as it is now, to be changed."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("flows", "tasks", "datasets"):
        shutil.copytree(ROOT / folder, root / folder, ignore=lambda _, names: [
            name for name in names if ("." in name and not name.endswith(".py")) or name in ("bundled", "__pycache__")
        ])  # fmt: skip
    return root


@pytest.fixture(scope="module")
def sources(tree: Path) -> Sources:
    """The code before any change."""
    return Sources(tree)


@pytest.fixture(scope="module")
def before(request_: Request, sources: Sources) -> dict[str, str]:
    return keys(request_, sources)


def recipe(**changes: Any) -> Callable[[Request], Request]:
    return lambda r: replace(r, dataset=replace(r.dataset, recipe=replace(r.dataset.recipe, **changes)))


def dataset(**changes: Any) -> Callable[[Request], Request]:
    return lambda r: replace(r, dataset=replace(r.dataset, **changes))


def feature(name: str, **changes: Any) -> Callable[[Request], Request]:
    return lambda r: dataset(
        features={n: replace(f, **changes) if n == name else f for n, f in r.dataset.features.items()}
    )(r)


def pin(r: Request) -> Request:
    first, *others = r.dataset.source.files
    return dataset(source=replace(r.dataset.source, files=(replace(first, sha256="0" * 64), *others)))(r)


FIT = {"fit"}
# What is asked for: (the change, stages whose own key changes; those after them change by their inputs)
REQUESTS: dict[str, tuple[Callable[[Request], Request], set[str]]] = {
    "learning rate": (recipe(learning_rate=0.5), FIT),
    "epochs": (recipe(epochs=9), FIT),
    "seed": (recipe(seed=9), FIT),
    "dropout": (recipe(dropout=0.5), FIT),
    "optimizer": (recipe(optimizer="sgd"), FIT),
    "clip norm": (recipe(clip_norm=1.0), FIT),
    "batch size": (recipe(batch_size=64), FIT | {"feed"}),
    "augmentation": (recipe(augment=(augment.Flip(),)), FIT | {"feed"}),
    "model": (recipe(model="mlp"), FIT | {"evaluate"}),
    "pinned raw bytes": (pin, {"fetch"}),
    "splits": (dataset(splits={"train": Rows(0, 8_000), "test": Rows(8_000, 10_000)}), {"convert"}),
    "splits by file": (dataset(splits={"train": Files("train"), "test": Files("test")}), {"convert"}),
    "dtype": (feature("image", dtype="float32"), {"convert", "validate", "feed", "fit"}),
    "name of the dataset": (lambda r: replace(r, name="other"), ALL),
    "store": (lambda r: replace(r, store=Path("elsewhere")), set()),
    "raw folder": (lambda r: replace(r, raw=Path("elsewhere")), set()),
    "steps between checkpoints": (lambda r: replace(r, checkpoint_every=7), set()),
    "a text about the data": (dataset(about="Other words"), set()),
    "order of names": (lambda r: dataset(splits=dict(reversed(list(vars(r.dataset)["splits"].items()))))(r), set()),
    "mirrors": (lambda r: dataset(source=replace(r.dataset.source, mirrors=("http://127.0.0.1",)))(r), set()),
    "a recipe's value, given": (recipe(epochs=5), set()),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_asked_for_changes_exactly_the_stages_that_read_it(
    request_: Request, sources: Sources, before: dict[str, str], name: str
) -> None:
    change, expected = REQUESTS[name]
    after = keys(change(request_), sources)
    assert {stage for stage in ALL if after[stage] != before[stage]} == expected


@pytest.mark.parametrize("change", [feature("image", low=0, high=200), feature("label", classes=tuple("abcdefghij"))])
def test_bounds_and_classes_are_validated_anew(
    request_: Request, sources: Sources, before: dict[str, str], change: Callable[[Request], Request]
) -> None:
    after = keys(change(request_), sources)
    assert after["validate"] != before["validate"]
    assert after["convert"] == before["convert"]


def named(tree: Path, place: str) -> tuple[Path, ast.stmt]:
    """File and syntax tree of "module:name"."""
    module, _, name = place.partition(":")
    path = tree / f"{module.replace('.', '/')}.py"
    for statement in ast.parse(path.read_text()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if getattr(statement, "name", None) == name or any(getattr(t, "id", None) == name for t in targets):
            return path, statement
    raise AssertionError(f"{place} isn't there any more: name another in this test")


def change_code(tree: Path, place: str) -> tuple[Path, str]:
    """Makes a function do one thing more, or a constant be made once more; gives the file and what it was."""
    path, statement = named(tree, place)
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        last = statement.body[-1]
        first = min([last.lineno, *(d.lineno for d in getattr(last, "decorator_list", []))])
        lines.insert(first - 1, " " * last.col_offset + "_more = 1\n")
    else:
        lines.insert(statement.end_lineno or 0, f"{place.partition(':')[2]} = 1\n")
    path.write_text("".join(lines))
    return path, text


def reread(sources: Sources, *changed: str) -> Sources:
    """The code after a change; files that didn't change aren't parsed again."""
    after = Sources(sources.root)
    after._modules = {name: module for name, module in sources._modules.items() if name not in changed}
    return after


# Code that is changed: the stages whose own key changes
CODE: dict[str, set[str]] = {
    "datasets.mnist:read": {"convert"},
    "datasets.readers.idx:PIECE": {"convert"},
    "datasets.readers.raw:opened": {"convert"},
    "tasks.dealing:deal": {"convert"},
    "tasks.validate:validate_records": {"validate"},
    "tasks.feed:plan_input": {"feed"},
    "tasks.permutation:permute": {"feed", "fit"},
    "tasks.optimizers:build_optimizer": {"fit"},
    "tasks.checkpoint:Checkpoints": {"fit"},
    "tasks.models.cnn:HIDDEN": {"fit", "evaluate"},
    "tasks.layers:ConvBlock": {"fit", "evaluate"},
    "tasks.plots:confusion_matrix": {"evaluate"},
    "tasks.promote:compare": {"promote"},
}
UNRELATED = (
    "tasks.models.mlp:build", "datasets.mnist:DATASET", "datasets.fashion_mnist:DATASET", "datasets.mnist_full:read",
    "datasets.readers.jsonl:DECODER", "tasks.artifact:Store", "tasks.progress:Bar", "tasks.server:stop",
    "flows.train:train",
)  # fmt: skip


@pytest.mark.parametrize("place", CODE)
def test_code_changes_exactly_the_stages_that_reach_it(
    request_: Request, sources: Sources, before: dict[str, str], place: str
) -> None:
    path, text = change_code(sources.root, place)
    try:
        after = keys(request_, reread(sources, place.partition(":")[0]))
    finally:
        path.write_text(text)
    assert {stage for stage in ALL if after[stage] != before[stage]} == CODE[place]


def test_code_that_no_stage_reaches_changes_nothing(
    request_: Request, sources: Sources, before: dict[str, str]
) -> None:
    changed = [change_code(sources.root, place) for place in UNRELATED]
    try:
        assert keys(request_, Sources(sources.root)) == before
    finally:
        for path, text in reversed(changed):
            path.write_text(text)


def test_comments_formatting_and_docstrings_everywhere_and_new_files_change_nothing(
    request_: Request, tree: Path, before: dict[str, str]
) -> None:
    for path in tree.rglob("*.py"):
        parsed = ast.parse(path.read_text())
        for node in ast.walk(parsed):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body[0] = ast.Expr(ast.Constant("Other words."))
        path.write_text(f'"""Other words."""\n# a comment\n{ast.unparse(parsed)}\n# the end\n')
    (tree / "datasets" / "new.py").write_text("DATASET = 1\n")
    assert keys(request_, Sources(tree)) == before


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("jax", {"fit", "evaluate"}),
        ("optax", {"fit"}),
        ("grain", {"feed"}),
        ("pyarrow", {"convert"}),
        ("prefect", set()),
    ],
)
def test_versions_of_libraries_change_exactly_the_stages_whose_bytes_they_decide(
    request_: Request, sources: Sources, before: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    library: str, expected: set[str],
) -> None:  # fmt: skip
    from tasks import stage

    known = stage.installed
    monkeypatch.setattr(stage, "installed", lambda name: "0.0.1" if name == library else known(name))
    after = keys(request_, sources)
    assert {name for name in ALL if after[name] != before[name]} == expected


def test_digests_of_inputs_count_and_keys_of_inputs_do_not(request_: Request) -> None:
    run = Run(request_)

    def key(**inputs: Artifact) -> str:
        return key_of(feed.components(run, inputs))

    records, report = Artifact("records", "mnist", "k", "d"), Artifact("report", "mnist", "k", "d")
    same = key(records=records, report=report)
    assert key(records=replace(records, key="l"), report=report) == same  # early cut-off
    assert key(records=replace(records, digest="e"), report=report) != same
    assert key(records=records, report=replace(report, digest="e")) == same  # advisory
    assert key(report=report) != same


def test_the_key_does_not_depend_on_the_order_of_components() -> None:
    assert key_of({"a": 1, "b": {"c": 2, "d": 3}}) == key_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": True}) != key_of({"a": "1"})


MADE = """
from pathlib import Path
from datasets.errors import SchemaError, TransientError

VALUE = 1

def body(job, **inputs):
    log = Path(job.request.raw) / "entered"
    with log.open("a") as file:
        file.write("x")
    entered = log.stat().st_size
    if (plan := Path(job.request.raw) / "plan").exists():
        plan.read_text() == "schema" and fail()
        if entered < 3:
            raise TransientError("not yet")
    if (meeting := Path(job.request.raw) / "meeting").exists():
        import time
        (meeting / job.key).touch()
        deadline = time.monotonic() + 60
        while len(list(meeting.iterdir())) < 2:
            assert time.monotonic() < deadline, "nobody else came"
            time.sleep(0.01)
    if (slow := Path(job.request.raw) / "slow").exists():
        import time
        time.sleep(0.5)
    def fill(draft):
        (draft.folder / "value").write_text(f"{VALUE} {sorted(inputs)}")
    return job.commit("records", fill)

def fail():
    raise SchemaError("labels out of range")
"""


class Toy:
    """A stage whose code is a file of a small project; `entered` counts how often its body ran."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, root / "store"
        for folder in ("flows", "tasks", "datasets"):
            (root / "project" / folder).mkdir(parents=True)
            (root / "project" / folder / "__init__.py").touch()
        self.write(MADE)

    def write(self, text: str) -> None:
        (self.root / "project" / "tasks" / "made.py").write_text(text)

    def run(self, **options: Any) -> Outcome:
        from prefect import flow

        module = types.ModuleType("tasks.made")
        exec((self.root / "project" / "tasks" / "made.py").read_text(), module.__dict__)
        stage = Stage("toy", module.body, lambda run: {"seed": run.request.dataset.recipe.seed})
        run = Run(check("mnist", store=self.store, raw=self.root, **options), sources=Sources(self.root / "project"))

        @flow(name="toy", persist_result=False)
        def work() -> None:
            stage(run)

        work()
        return run.outcomes[-1]

    @property
    def entered(self) -> int:
        path = self.root / "entered"
        return path.stat().st_size if path.exists() else 0

    def records(self) -> list[Path]:
        return list((self.store / "cache").iterdir())


@pytest.fixture
def toy(tmp_path: Path, prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> Toy:
    from tasks import cache

    monkeypatch.setattr(cache, "FIRST_PAUSE", 0.01)
    return Toy(tmp_path)


def test_it_runs_once_and_is_cached_until_code_record_or_artifact_change(
    toy: Toy, said: pytest.LogCaptureFixture
) -> None:
    first = toy.run()
    assert (first.state, toy.entered) == ("ran", 1)
    folder = Store(toy.store).path(first.artifact)
    assert (folder / "value").read_text() == "1 []"
    assert Store(toy.store).manifest(first.artifact)["provenance"]["components"]["stage"] == "toy"

    again = toy.run()
    assert (again.state, again.artifact, again.key, toy.entered) == ("cached", first.artifact, first.key, 1)

    toy.write(MADE.replace("VALUE = 1", "VALUE = 1  # a comment"))
    assert (toy.run().state, toy.entered) == ("cached", 1)

    (record,) = toy.records()
    record.unlink()
    assert (toy.run().state, toy.entered) == ("ran", 2)

    (record,) = toy.records()
    record.write_text(record.read_text()[:100])
    said.clear()
    assert (toy.run().state, toy.entered) == ("ran", 3)
    assert f"toy runs again: the cache record is damaged (JSONDecodeError): {record}" in said.messages

    (folder / "value").write_text("2 []")
    said.clear()
    healed = toy.run()
    assert (healed.state, healed.artifact, toy.entered) == ("ran", first.artifact, 4)
    assert f"toy runs again: cached a file of an artifact was edited: {folder / 'value'}" in said.messages
    assert (folder / "value").read_text() == "1 []"

    shutil.rmtree(folder)
    said.clear()
    assert (toy.run().state, toy.entered) == ("ran", 5)
    assert f"toy runs again: cached artifact missing: {folder}" in said.messages

    toy.write(MADE.replace("VALUE = 1", "VALUE = 7"))
    changed = toy.run()
    assert (changed.state, toy.entered) == ("ran", 6)
    assert changed.key != first.key
    assert changed.artifact.digest != first.artifact.digest

    toy.write(MADE)
    assert toy.run().artifact == first.artifact
    assert toy.entered == 6


def test_a_record_that_would_load_a_pickle_is_never_read(toy: Toy) -> None:
    """X3, and worse: what stands in the record would run on loading."""
    import base64
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (toy.root / "exploded",))

    toy.run()
    (record,) = toy.records()
    outer = json.loads(record.read_text())
    outer["metadata"]["serializer"] = {"type": "pickle"}
    outer["result"] = base64.b64encode(pickle.dumps(Bomb())).decode()
    record.write_text(json.dumps(outer))
    assert toy.run().state == "ran"
    assert not (toy.root / "exploded").exists()


def test_trouble_that_passes_is_tried_again(toy: Toy) -> None:
    (toy.root / "plan").write_text("transient")
    assert (toy.run().state, toy.entered) == ("ran", 3)
    assert (toy.run().state, toy.entered) == ("cached", 3)


def test_a_data_error_fails_at_once_leaves_nothing_and_is_not_a_cached_success(toy: Toy) -> None:
    (toy.root / "plan").write_text("schema")
    for entered in (1, 2):
        with pytest.raises(SchemaError, match="labels out of range"):
            toy.run()
        assert toy.entered == entered
        assert not (toy.store / "records").exists()
    (toy.root / "plan").unlink()
    assert toy.run().state == "ran"


def test_trouble_that_does_not_pass_ends_after_some_tries(toy: Toy) -> None:
    from tasks import cache

    (toy.root / "plan").write_text("transient")
    toy.write(MADE.replace("entered < 3", "True"))
    with pytest.raises(TransientError):
        toy.run()
    assert toy.entered == 1 + cache.RETRIES


def test_a_store_is_moved_and_everything_is_still_cached(toy: Toy) -> None:
    first = toy.run()
    toy.store.rename(toy.root / "moved")
    toy.store = toy.root / "moved"
    assert toy.run() == replace(first, state="cached", because=(), seconds=pytest.approx(0, abs=1e9))
    assert toy.entered == 1


def test_two_threads_that_want_the_same_make_it_once(toy: Toy) -> None:
    (toy.root / "slow").touch()
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(lambda: outcomes.append(toy.run()),))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert toy.entered == 1
    assert sorted(outcome.state for outcome in outcomes) == ["cached", "ran"]
    assert outcomes[0].artifact == outcomes[1].artifact


def test_what_differs_is_made_side_by_side(toy: Toy) -> None:
    (toy.root / "meeting").mkdir()  # each body waits for the other's
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(lambda seed=seed: outcomes.append(toy.run(seed=seed)),)
        )
        for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.state for outcome in outcomes] == ["ran", "ran"]
    assert len({outcome.key for outcome in outcomes}) == 2


def test_a_retry_runs_again_only_what_its_first_try_did_not_come_to(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """`refresh` is asked for once a run, not once a try; see `cache.came_here_before`."""
    from tasks import cache

    monkeypatch.setattr("tasks.request.STAGES", ("toy",))
    assert (toy.run().state, toy.entered) == ("ran", 1)
    assert (toy.run(refresh="toy").state, toy.entered) == ("ran", 2)
    monkeypatch.setattr(cache, "came_here_before", lambda name: name == "toy mnist")
    assert (toy.run(refresh="toy").state, toy.entered) == ("cached", 2)


PROCESS = """
from pathlib import Path
import test_stage
toy = test_stage.Toy.__new__(test_stage.Toy)
toy.root, toy.store = Path({root!r}), Path({root!r}) / "store"
print(toy.run().state)
"""


def test_two_processes_that_want_the_same_make_it_once(toy: Toy) -> None:
    (toy.root / "slow").touch()
    code = PROCESS.format(root=str(toy.root))
    processes = [python(code) for _ in range(2)]
    said = [process.communicate(timeout=180) for process in processes]
    assert sorted(out.splitlines()[-1] for out, _ in said) == ["cached", "ran"], said
    assert toy.entered == 1


def test_a_body_outside_of_the_project_is_refused(request_: Request) -> None:
    def body(job: Any) -> Artifact:
        raise AssertionError

    with pytest.raises(StoreError, match="no such code"):
        Stage("x", body, lambda run: {}).components(Run(request_), {})


def test_every_feature_option_is_compared(request_: Request) -> None:
    """A new field of Feature must not slip out of the keys of those who read features."""
    seen = {json.dumps(validate.components(Run(request_), {})["parameters"]["features"]["label"])}
    for name in Feature.__dataclass_fields__:
        assert f'"{name}"' in next(iter(seen))
