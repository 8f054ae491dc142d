"""How far a stage is, as a progress artifact in Prefect's UI; made only once the stage takes long enough to ask."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tasks.progress import LOG


class ProgressArtifact:
    """The progress of one stage of the current flow run.

    Args:
        stage: Its name.
        unit: What is counted.
    """

    def __init__(self, stage: str, unit: str) -> None:
        self.stage, self.unit = stage, unit
        self._id: UUID | None = None
        self._works = True

    def show(self, done: int, total: int, note: str = "") -> None:
        """Shows how far it is; outside of a flow run nothing happens, and no trouble of the server stops the work."""
        from prefect.artifacts import create_progress_artifact, update_progress_artifact
        from prefect.context import FlowRunContext

        context = FlowRunContext.get()
        if not self._works or context is None:
            return
        said = f"{self.stage}: {done:,} of {total:,} {self.unit}{f', {note}' if note else ''}"
        percent = min(100.0, 100 * done / total)
        try:
            if self._id is None:
                made: Any = create_progress_artifact(percent, key=self._key(context), description=said)
                self._id = made
            else:
                update_progress_artifact(self._id, percent, description=said)
        except Exception as error:
            self._works = False
            LOG.warning("%s: its progress can't be shown in the UI: %s", self.stage, error)

    def _key(self, context: Any) -> str:  # noqa: ANN401
        from tasks.publish import key_part

        return f"{key_part(str((context.parameters or {}).get('dataset', '')))}-{self.stage}-progress"
