"""What a run would do, stage by stage, and why. Only reads: no server, no training, nothing written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from tasks import reasons
from tasks.artifact import Artifact
from tasks.cache import flaw, recorded
from tasks.other_mesh import unfinished
from tasks.stage import ASKED_FOR, Outcome, Run, Stage, key_of


@dataclass
class Plan(Run):
    """A run that looks instead of working; `stages` of the flow fills it.

    Attributes:
        steps: One row a stage, as JSON; "will" is cached, run or resume. A stage that waits for bytes that aren't made
            yet will "run", but isn't "certain": bytes equal to those of before are found in the cache.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)

    def take(self, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        """Says what would become of a stage; its artifact has no digest when that can't be known before it ran."""
        waits_for = [name for name, made in inputs.items() if not made.digest and name not in stage.advisory]
        past = self.before.get(stage.name)
        kind = past["kind"] if past else ""
        if waits_for:
            # Whether it runs depends on bytes that aren't made yet: equal bytes would be found in the cache.
            because = [{"component": f"inputs.{name}", "old": None, "new": "not made yet"} for name in waits_for]
            certain = stage.name in self.request.again
            return self._note(stage, Artifact(kind, self.request.name, "", ""), "run", because, past, certain=certain)
        components = self.components_of(stage, inputs)
        key = key_of(components)
        record = self.records / key
        # What is made again from the same key has the same digest, so what follows can still be planned
        there = self.store.find(kind, self.request.name, key)
        known = there or Artifact(kind, self.request.name, key, "")
        again = stage.name in self.request.again
        step = None if again else self.checkpoint(key, components)
        if record.exists():
            reason = ASKED_FOR if again else flaw(record, self.store, stage.lost)
            artifact = recorded(record) or known
            if reason is None:
                return self._note(stage, artifact, "cached", [], past)
            because = reasons.artifact(reason)
            return self._note(stage, artifact, "run" if step is None else "resume", because, past, step)
        because = reasons.without_record(past, components, there=there is not None)
        return self._note(stage, known, "run" if step is None else "resume", because, past, step)

    def components_of(self, stage: Stage, inputs: dict[str, Artifact]) -> dict[str, Any]:
        """The components of a stage's key."""
        return stage.components(self, inputs)

    def _note(
        self, stage: Stage, artifact: Artifact, will: str, because: list[dict[str, Any]], past: dict[str, Any] | None,
        step: int | None = None, *, certain: bool = True,
    ) -> Artifact:  # fmt: skip
        expected = past if will != "cached" else None
        self.steps.append({
            "name": stage.name, "key": artifact.key or None, "will": will, "because": because, "from_step": step,
            "certain": certain,
            "seconds": expected["provenance"].get("seconds") if expected else None,
            "bytes": sum(file["bytes"] for file in expected["files"].values()) if expected else None,
        })  # fmt: skip
        self.outcomes.append(Outcome(stage.name, artifact.key, will, 0.0, artifact, {}))
        return artifact

    def checkpoint(self, key: str, components: dict[str, Any]) -> int | None:
        """Step of the furthest checkpoint that a training would go on from, on whichever mesh it was made."""
        folder = self.store.root / "checkpoints" / self.request.name / key
        folders = [folder, *unfinished(folder, components)]
        return max((int(path.name) for one in folders for path in one.glob("*") if path.name.isdigit()), default=None)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {"dataset": self.request.name, "store": str(self.store.root), "stages": self.steps}


def show(plan: dict[str, Any], console: Console) -> None:
    """Prints a plan as a table."""
    table = Table("stage", "will", "because", "last time", title=f"train/{plan['dataset']}", title_justify="left")
    for step in plan["stages"]:
        will = f"resume at step {step['from_step']}" if step["will"] == "resume" else step["will"]
        will = will if step["certain"] else f"{will}, if that changes"
        cost = "" if step["seconds"] is None else f"{step['seconds']:.1f} s, {step['bytes'] / 1e6:.1f} MB"
        table.add_row(step["name"], will, "\n".join(reasons.sentences(step["because"])), cost)
    console.print(table)
