"""The registry of a dataset's models: immutable versions, and names that point to them and move atomically.

<store>/models/<dataset>/<version>/     weights, model card, metrics, manifest; never changed
<store>/models/<dataset>/champion.json  which version is the champion, and which one was before it
<store>/models/<dataset>/aliases.json   versions by names of one's own
"""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from typing import Any

from datasets.errors import ArtifactDamaged, ParameterError, StoreError, UnknownNameError
from tasks.artifact import Artifact, Draft, Store
from tasks.durable import read_json, write_bytes, write_json
from tasks.lock import Lock

KIND = "models"
POINTER, ALIASES = "champion.json", "aliases.json"
CHAMPION, PREVIOUS = "champion", "previous"
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Champion:
    """The model that is in use.

    Attributes:
        version: Its name, such as "v3".
        model: Handle of its folder.
        weights: Digest of the weights artifact that it was made from.
        previous: Digest of the weights that were champion before it; None for the first.
    """

    version: str
    model: Artifact
    weights: str
    previous: str | None


class Registry:
    """The models of one dataset.

    Args:
        store: Where they are.
        dataset: Name of the dataset.
    """

    def __init__(self, store: Store, dataset: str) -> None:
        self.store, self.dataset = store, dataset
        self.folder = store.root / KIND / dataset
        self.pointer = self.folder / POINTER

    def champion(self) -> Champion | None:
        """The champion, its folder verified byte by byte; None if nothing was ever promoted.

        Raises:
            ArtifactDamaged: The pointer or the champion's folder was damaged; it isn't replaced silently.
        """
        champion = self.current()
        if champion is not None:
            self.store.verify(champion.model)
        return champion

    def current(self) -> Champion | None:
        """What the pointer says, without a look at the champion's folder.

        Raises:
            ArtifactDamaged: The pointer was damaged.
        """
        if not self.pointer.exists():
            return None
        try:
            value = read_json(self.pointer)
            return Champion(value["version"], Artifact(**value["model"]), value["weights"], value["previous"])
        except (KeyError, TypeError) as error:
            raise ArtifactDamaged("the champion's pointer is damaged", file=self.pointer, got=repr(error)) from error

    def lock(self) -> Lock:
        """One process at a time changes the registry."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Lock(self.folder / ".lock")

    def add(self, weights: Artifact, extra: dict[str, Any]) -> Artifact:
        """A version with these weights: a new one, or the one that a killed promotion left.

        Args:
            weights: Copied into the version.
            extra: More files by name: bytes as they are, other values as JSON.
        """
        for version in self.versions():
            made = self.store.find(KIND, self.dataset, version)
            if made is None or self.store.facts(made)["weights"] != weights.digest:
                continue
            with contextlib.suppress(ArtifactDamaged):  # a damaged version is left as it is, and a sound one made
                self.store.verify(made)
                return made
        version = self.next()

        def fill(draft: Draft) -> None:
            shutil.copytree(self.store.path(weights), draft.folder, dirs_exist_ok=True)
            (draft.folder / "manifest.json").rename(draft.folder / "training.json")
            for name, value in extra.items():
                (write_bytes if isinstance(value, bytes) else write_json)(draft.folder / name, value)
            draft.facts = {"weights": weights.digest, "version": version}

        return self.store.commit(KIND, self.dataset, version, fill, {})

    def next(self) -> str:
        """Name of the version that is made next."""
        return f"v{max((int(v[1:]) for v in self.versions()), default=0) + 1}"

    def versions(self) -> list[str]:
        """Names of the versions, in the order in which they were made."""
        names = [path.name for path in self.folder.glob("v*") if path.name[1:].isdigit()]
        return sorted(names, key=lambda name: int(name[1:]))

    def crown(self, model: Artifact) -> Champion:
        """Makes a version the champion; a crash leaves the old one or this one.

        Raises:
            StoreError: There is no such version.
            ArtifactDamaged: It was damaged on disk.
        """
        if model.key not in self.versions():
            raise StoreError("there is no such version", got=model.key, known=", ".join(self.versions()))
        self.store.verify(model)
        weights = self.store.facts(model)["weights"]
        before = self.current()  # not verified: a damaged champion must be replaceable
        previous = before.previous if before and before.weights == weights else before.weights if before else None
        champion = Champion(model.key, model, weights, previous)
        write_json(self.pointer, {
            "version": champion.version, "model": model.to_json(), "weights": weights, "previous": previous,
        })  # fmt: skip
        return champion

    def previous(self) -> Artifact | None:
        """The newest version with the weights that were champion before; None if there is none."""
        champion = self.current()
        weights = champion.previous if champion is not None else None
        for version in reversed(self.versions()) if weights is not None else ():
            model = self.store.find(KIND, self.dataset, version)
            if model is not None and self.store.facts(model)["weights"] == weights:
                return model
        return None

    def aliases(self) -> dict[str, str]:
        """Versions by the names that were given to them; besides "champion" and "previous".

        Raises:
            ArtifactDamaged: The file with the names was damaged.
        """
        path = self.folder / ALIASES
        names = read_json(path) if path.exists() else {}
        if not isinstance(names, dict) or not all(isinstance(version, str) for version in names.values()):
            raise ArtifactDamaged("the file with the models' names is damaged", file=path, got=repr(names)[:200])
        return names

    def pinned(self) -> set[str]:
        """Digests of the weights that something points to: the champion's, those before it, and the named versions'.

        Raises:
            ArtifactDamaged: The pointer, the names or the manifest of a named version was damaged.
        """
        champion = self.current()
        weights = {champion.weights, champion.previous} if champion is not None else set()
        weights |= {self.store.facts(self.find(version))["weights"] for version in self.aliases().values()}
        return weights - {None}

    def name(self, alias: str, model: Artifact) -> None:
        """Makes a name point to a version; a crash leaves where it pointed before, or this one.

        Raises:
            ParameterError: The name is taken by the registry, or isn't one.
            ArtifactDamaged: The version was damaged on disk.
        """
        if not NAME.fullmatch(alias) or alias in (CHAMPION, PREVIOUS) or re.fullmatch(r"v\d+", alias):
            raise ParameterError(
                "a model can't be named so", parameter="alias", got=alias,
                expected="lower-case letters, digits, - and _; no version, not champion, not previous",
            )  # fmt: skip
        self.store.verify(model)
        write_json(self.folder / ALIASES, {**self.aliases(), alias: model.key})

    def find(self, name: str) -> Artifact:
        """The version of a name: "v3", "champion", "previous" or an alias; not verified.

        Raises:
            UnknownNameError: There is none of that name.
            ArtifactDamaged: Its manifest was damaged.
        """
        names = {**{version: version for version in self.versions()}, **self.aliases()}
        if (champion := self.current()) is not None:
            names[CHAMPION] = champion.version
        if (before := self.previous()) is not None:
            names[PREVIOUS] = before.key
        if name not in names:
            raise UnknownNameError.among("version", name, names)
        model = self.store.find(KIND, self.dataset, names[name])
        if model is None:
            raise ArtifactDamaged("the version was damaged", file=self.folder / names[name])
        return model


def made(store: Store, kind: str, dataset: str, digest: str | None) -> Artifact | None:
    """The artifact of a dataset with this content; None if it is gone."""
    for path in sorted((store.root / kind / dataset).glob("*")) if digest else ():
        found = store.find(kind, dataset, path.name)
        if found is not None and found.digest == digest:
            return found
    return None
