"""A member of a sweep: a run that shares stages with the others, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tasks.artifact import Artifact
from tasks.stage import Outcome, Run, Stage, key_of


@dataclass
class Member(Run):
    """A training of a sweep.

    Attributes:
        done: Outcomes of the sweep's stages so far, by key: a stage that members share is looked up once.
    """

    done: dict[str, Outcome] = field(default_factory=dict)

    def take(self, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
        """The artifact of a stage: from this sweep, from the cache, or made."""
        key = key_of(stage.components(self, inputs))
        if key in self.done:
            self.outcomes.append(replace(self.done[key], state="cached", seconds=0.0, because=()))
        else:
            super().take(stage, inputs)
            self.done[key] = self.outcomes[-1]
        return self.outcomes[-1].artifact


@dataclass
class Trained:
    """What became of a member.

    Attributes:
        run: With its outcomes.
        seed: Of the training.
        name: Of its record.
        made: Artifacts by the name under which `promote` takes them; empty if it failed.
        score: The metric that is chosen by; None if it failed or the metric is undefined.
        failed: What went wrong.
    """

    run: Run
    seed: int
    name: str
    made: dict[str, Artifact]
    score: float | None
    failed: str | None = None
