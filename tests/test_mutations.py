"""The key is right, both ways: each change to code, data, options or machine runs exactly the stages that it must.

Each row is a real edit in a copy of the checkout (or an option, a variable ...) and what `python -m flows.plan` in that
copy then says. A stage that must run and isn't planned is a false hit: stale output, never allowed. One that is planned
and needn't run is a false miss: a needless run, counted and shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from checkouts import FOLLOWS, Checkout
from forks import TO_PLAN, TO_TRAIN
from mutations import TABLE, Row, closure, listed, planned
from random_changes import Changes

from tasks.artifact import Artifact, Store
from tasks.cache import flaw
from tasks.stage import ASKED_FOR

SAMPLE = 8
"""The default suite takes every eighth row; test_stage asks the same of the key alone, without a copy."""
CHANGES = int(os.environ.get("GRISTMILL_CHANGES", "100"))
ASKED = [{"component": "artifact", "old": None, "new": ASKED_FOR}]


@pytest.fixture(scope="module")
def checkout(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A copy in which everything was run once."""
    with Checkout(tmp_path_factory.mktemp("copy") / "checkout", (*TO_PLAN, *TO_TRAIN)) as made:
        made.train()
        yield made


@pytest.mark.parametrize("rows", [TABLE[::SAMPLE], pytest.param(TABLE, marks=pytest.mark.slow)], ids=["sample", "all"])
def test_each_change_runs_exactly_the_stages_that_it_must(checkout: Checkout, rows: list[Row]) -> None:
    assert len(TABLE) >= 30
    false_hits, false_misses, wrong = [], 0, []
    print(f"\n{'change':48} {'read by, so will run':44} {'and if their results change':40} false misses")
    for row in rows:
        certain, maybe = planned(checkout, row)
        own = row.own | row.needless
        expected = {stage for stage in own if not any(stage in FOLLOWS[other] for other in own)}
        hits, misses = closure(row.own) - certain - maybe, certain - closure(row.own)
        print(f"{row.what:48} {listed(certain):44} {listed(maybe):40} {listed(misses)}")
        false_hits += [(row.what, hits)] if hits else []
        false_misses += len(misses)
        wrong += [row.what] if certain != expected or maybe != closure(own) - expected else []
    print(f"{len(rows)} changes: {len(false_hits)} false hits, {false_misses} false misses")
    assert not false_hits
    assert not wrong
    assert planned(checkout, TABLE[0]) == (set(), set()), "an edit wasn't undone"


@pytest.mark.slow
def test_a_run_does_what_its_plan_said(checkout: Checkout) -> None:
    """Over random changes: the planned stages are those that run, and equal keys have equal bytes for ever.

    In the default suite every run of test_train_flow is held against its plan.
    """
    changes, digests, equal = Changes(checkout, seed=CHANGES), dict[str, str](), 0
    rows = checkout.train()["stages"]
    print(f"\n{'change':64} {'planned':44} ran")
    for _ in range(CHANGES):
        what = changes.next(rows)
        before = sorted(checkout.store.rglob("*"))
        plan = checkout.plan(*changes.arguments())
        assert sorted(checkout.store.rglob("*")) == before, "a plan touched the store"
        records = (checkout.store / "cache").iterdir()
        sound = {record.name for record in records if not flaw(record, Store(checkout.store), whole)}
        rows = checkout.train(*changes.arguments())["stages"]
        will = {name for name, row in plan.items() if row["will"] != "cached"}
        ran = {row["name"] for row in rows if row["state"] != "cached"}
        print(f"{what:64} {listed(will):44} {'the same' if ran == will else listed(ran)}", flush=True)
        equal += ran == will
        for row in rows:
            name, key, again = row["name"], row["key"], plan[row["name"]]["because"] == ASKED
            if plan[name]["certain"]:
                assert (name in ran) == (name in will), (what, row)
                assert (row["state"] == "resumed") == (plan[name]["will"] == "resume"), (what, row)
            else:
                assert name in will, (what, row)  # it may run, so the plan has to say so
            assert again or plan[name]["certain"] or (name in ran) == (key not in sound), (what, row)
            assert name == "feed" or digests.setdefault(key, row["digest"]) == row["digest"], (what, row)
    print(f"{CHANGES} changes: {equal} times the planned set ran; else what might have changed came out the same")


def whole(store: Store, artifact: Artifact) -> None:
    """Nothing is lost besides an artifact."""
