"""A version of a dataset's model with all that it needs: weights, card, and the transforms that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets.errors import CheckpointMismatch, StoreError
from datasets.schema import Dataset, Feature
from tasks.artifact import Artifact, Store
from tasks.feed import layout
from tasks.fitted import Fitted, read_fitted
from tasks.registry import CHAMPION, Registry


@dataclass(frozen=True)
class Trained:
    """A model that was verified byte by byte.

    Attributes:
        version: Its name, such as "v3".
        artifact: Its folder in the store.
        weights: Digest of the weights artifact that it was made from.
        folder: Path of `artifact`.
        model: In eval mode.
        card: Its `model.json`.
        fitted: From a record's inputs to what it sees; without steps if that is the same.
    """

    version: str
    artifact: Artifact
    weights: str
    folder: Path
    model: Any
    card: Mapping[str, Any]
    fitted: Fitted

    @property
    def classes(self) -> tuple[str, ...]:
        """Names by index."""
        return tuple(self.card["classes"])

    @property
    def takes(self) -> dict[str, Feature]:
        """The features of a record that its inputs are made from."""
        joined = [step for step in self.fitted.steps if step.name == self.card["inputs"] and step.takes]
        names = joined[0].takes if joined else (self.card["inputs"],)
        return {name: self.fitted.takes[name] for name in names}

    @property
    def to_inputs(self) -> Fitted:
        """The transforms of its inputs alone: from `takes` to one feature."""
        names = {*self.takes, self.card["inputs"]}
        return Fitted(self.takes, tuple(step for step in self.fitted.steps if step.name in names))

    @property
    def sees(self) -> Feature:
        """What an example is to the model."""
        return self.to_inputs.gives[self.card["inputs"]]


def load_version(store: Store, name: str, version: str | None = None) -> Trained:
    """A version of a dataset's model by any of its names, such as "v2" or "staging"; the champion if none is given.

    Raises:
        StoreError: There is no champion yet.
        UnknownNameError: There is no such version.
        ArtifactDamaged: It was damaged on disk.
        CheckpointMismatch: Today's code builds another model than the one that was trained.
    """
    from tasks.weights import load_model

    registry = Registry(store, name)
    if version is None and registry.current() is None:
        raise StoreError("there is no model yet", dataset=name, cure=f"python -m flows.train {name}")
    model = registry.find(version or CHAMPION)
    store.verify(model)
    folder = store.path(model)
    made, card = load_model(folder)
    seen = replace(Feature.from_json(card["feature"]), classes=())
    fitted = read_fitted(folder) or Fitted({card["inputs"]: seen})
    return Trained(model.key, model, store.facts(model)["weights"], folder, made, card, fitted)


def check_inputs(trained: Trained, dataset: Dataset) -> None:
    """Raises CheckpointMismatch unless the dataset file's records still have what the model's inputs are made from."""
    for name, feature in trained.takes.items():
        if layout(dataset.features.get(name)) != layout(feature):
            raise CheckpointMismatch(
                "the model was trained on another feature than the dataset file has now", version=trained.version,
                field=name, got=layout(dataset.features.get(name)), expected=layout(feature),
                cure="another --version, or train again",
            )  # fmt: skip
