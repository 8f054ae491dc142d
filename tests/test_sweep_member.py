from __future__ import annotations

from pathlib import Path

import recorded
import toy

from flows.train import ready
from tasks.stage import Outcome
from tasks.sweep_member import Member


def test_what_members_share_is_looked_up_once(tmp_path: Path) -> None:
    request = recorded.request(tmp_path)
    done: dict[str, Outcome] = {}
    with recorded.without_prefect():
        first, second = (Member(request, sources=toy.SOURCES, done=done) for _ in range(2))
        made = ready(first)
        for outcome in done.values():  # a stage that was executed again would look into the store
            (tmp_path / outcome.artifact.kind).rename(tmp_path / f"gone-{outcome.artifact.kind}")
        assert ready(second) == made
    assert {outcome.state for outcome in first.outcomes} == {"ran"}
    assert {(outcome.state, outcome.seconds) for outcome in second.outcomes} == {("cached", 0.0)}
    assert len(done) == len(first.outcomes)
