"""The store: artifacts named by the key of what made them, described by a manifest, trusted only after verification.

    <root>/<kind>/<dataset>/<key>/manifest.json + files

A folder is filled under a temporary name, the manifest is written into it last, everything is synced, and one rename
makes it visible: an artifact is there whole or not at all. What a killed process leaves under `<root>/tmp` is
recognised by its lock and removed by the next commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets.errors import ArtifactDamaged, StoreError
from tasks.durable import as_json, fsync_dir, fsync_tree, read_json, sha256_file, sizes_below, write_json
from tasks.lock import Lock

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """A handle: what travels between stages instead of data. It holds no path, so a store can be moved.

    Attributes:
        kind: What it is: raw, records, report, plan, weights, evaluation or decision.
        dataset: Name of the dataset.
        key: Of the stage run that made it.
        digest: SHA-256 over its files and facts, so that equal content has equal digests whatever the key.
    """

    kind: str
    dataset: str
    key: str
    digest: str

    def to_json(self) -> dict[str, str]:
        """The handle as a flat JSON object; `Artifact(**value)` is the way back."""
        return asdict(self)


class Draft:
    """An artifact that is being made: `folder` takes its files, `facts` what later stages read from the manifest.

    Attributes:
        folder: Put files here.
        facts: JSON, part of the digest: only what is the same whenever the same thing is made again.
        provenance: JSON, not part of the digest: times, versions, measurements.
        sealed: SHA-256 by name of files that are synced, and hashed since they were written: neither is done again.
    """

    def __init__(self, folder: Path, provenance: dict[str, Any]) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self.provenance = provenance
        self.sealed: dict[str, str] = {}


class Store:
    """Artifacts below one folder.

    Args:
        root: The folder; made when the first artifact is committed.
        sha256: Digest of a file that is verified.
    """

    def __init__(self, root: Path, sha256: Callable[[Path], str] = sha256_file) -> None:
        self.root, self._sha256 = root.absolute(), sha256
        self._sealed: dict[Path, bytes] = {}  # manifests whose seal held, so that these bytes aren't checked again

    def path(self, artifact: Artifact) -> Path:
        """Folder of an artifact."""
        return self.root / artifact.kind / artifact.dataset / artifact.key

    def commit(
        self, kind: str, dataset: str, key: str, fill: Callable[[Draft], None], provenance: dict[str, Any]
    ) -> Artifact:
        """Makes an artifact: `fill` writes its files into a temporary folder, which then gets its final name.

        Args:
            kind: See `Artifact`.
            dataset: Name of the dataset.
            key: Of the stage run.
            fill: Writes into `draft.folder` and sets `draft.facts`.
            provenance: Kept in the manifest, outside the digest.

        Raises:
            OSError: The store is full, read-only or gone; nothing is left at the final path.
            StoreError: `fill` made a file with the manifest's name.
        """
        temporary = self.root / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        self._sweep(temporary)
        name = f"{kind}-{dataset}-{uuid.uuid4().hex[:12]}"
        with Lock(temporary / f"{name}.lock"):
            draft = Draft(
                temporary / name,
                {**provenance, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())},
            )
            draft.folder.mkdir()
            try:
                fill(draft)
                artifact = self._seal(draft, kind, dataset, key)
                self._publish(draft.folder, artifact)
            finally:
                shutil.rmtree(draft.folder, ignore_errors=True)
                (temporary / f"{name}.lock").unlink(missing_ok=True)
        return artifact

    def manifest(self, artifact: Artifact) -> dict[str, Any]:
        """The manifest of an artifact, checked against its own seal and the handle's digest.

        Raises:
            ArtifactDamaged: It is missing, edited, or of another artifact.
        """
        path = self.path(artifact) / MANIFEST
        if not path.is_file():
            raise ArtifactDamaged("artifact missing", file=path.parent, cure="the stage that makes it runs again")
        manifest = self._read_sealed(path)
        if manifest["digest"] != artifact.digest:
            raise ArtifactDamaged(
                "another artifact is in this place",
                file=path,
                got=manifest["digest"],
                expected=artifact.digest,
            )
        return manifest

    def _read_sealed(self, path: Path) -> dict[str, Any]:
        text = path.read_bytes()
        manifest = as_json(text, path)
        if self._sealed.get(path) != text:
            if not _is_sealed(manifest):
                raise ArtifactDamaged("the manifest was edited", file=path)
            self._sealed[path] = text
        return manifest

    def facts(self, artifact: Artifact) -> dict[str, Any]:
        """What the stage that made it wrote for later ones.

        Raises:
            ArtifactDamaged: As `manifest`.
        """
        return self.manifest(artifact)["facts"]

    def verify(self, artifact: Artifact) -> None:
        """Reads every byte of an artifact (about 1.5 GB/s) and compares it with the manifest.

        Raises:
            ArtifactDamaged: A file is missing, cut, edited or too many; it is named, with expected and got.
        """
        folder = self.path(artifact)
        expected = self.manifest(artifact)["files"]
        found = sizes_below(folder)
        for name in sorted({*expected, *found} - {MANIFEST}):
            path = folder / name
            if name not in found:
                raise ArtifactDamaged("a file of an artifact is missing", file=path)
            if name not in expected:
                raise ArtifactDamaged("a file doesn't belong to the artifact that holds it", file=path)
            if found[name] != expected[name]["bytes"]:
                raise ArtifactDamaged(
                    "a file of an artifact was cut or grew", file=path, got=f"{found[name]} bytes",
                    expected=f"{expected[name]['bytes']} bytes",
                )  # fmt: skip
            if (digest := self._sha256(path)) != expected[name]["sha256"]:
                raise ArtifactDamaged(
                    "a file of an artifact was edited",
                    file=path,
                    got=digest,
                    expected=expected[name]["sha256"],
                )

    def touch(self, artifact: Artifact) -> None:
        """Notes that an artifact was used now, for `flows.clean`; only the time of its manifest changes."""
        with contextlib.suppress(OSError):  # a store that is only readable is used all the same
            os.utime(self.path(artifact) / MANIFEST)

    def find(self, kind: str, dataset: str, key: str) -> Artifact | None:
        """The handle of the artifact in a place, or None when there is none that its own manifest vouches for."""
        path = self.root / kind / dataset / key / MANIFEST
        try:
            manifest = read_json(path)
            artifact = Artifact(kind, dataset, key, manifest["digest"])
            self.manifest(artifact)
        except (OSError, ArtifactDamaged, KeyError, TypeError):
            return None
        return artifact

    def _seal(self, draft: Draft, kind: str, dataset: str, key: str) -> Artifact:
        if (draft.folder / MANIFEST).exists():
            raise StoreError("a file of an artifact has the manifest's name", got=MANIFEST, cure="another name")
        files = {
            name: {
                "sha256": draft.sealed.get(name) or sha256_file(draft.folder / name),
                "bytes": size,
            }
            for name, size in sorted(sizes_below(draft.folder).items())
        }
        content = {"kind": kind, "dataset": dataset, "files": files, "facts": draft.facts}
        manifest = {
            "format": FORMAT,
            **content,
            "key": key,
            "digest": _hash(content),
            "provenance": draft.provenance,
        }
        manifest["seal"] = _seal_of(manifest)
        fsync_tree(draft.folder, {draft.folder / name for name in draft.sealed})
        write_json(draft.folder / MANIFEST, manifest)
        return Artifact(kind, dataset, key, manifest["digest"])

    def discard(self, folder: Path) -> None:
        """Removes a folder of the store, so that a crash leaves all of it or nothing; harmless when it isn't there."""
        if folder.exists():
            (self.root / "tmp").mkdir(exist_ok=True)
            shutil.rmtree(folder.rename(self._aside()), ignore_errors=True)

    def _aside(self) -> Path:
        return self.root / "tmp" / f"old-{uuid.uuid4().hex[:12]}"  # swept by the next commit if we die here

    def _publish(self, folder: Path, artifact: Artifact) -> None:
        final = self.path(artifact)
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():  # damaged, or made again on purpose: out of sight first, so that no mixture is ever seen
            aside = self._aside()
            final.rename(aside)
            folder.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            folder.rename(final)
        fsync_dir(final.parent)

    def _sweep(self, temporary: Path) -> None:
        """Removes drafts whose maker died: their lock is free."""
        for path in temporary.iterdir():
            lock = Lock(temporary / f"{path.name.removesuffix('.lock')}.lock")
            if lock.acquire(blocking=False):
                try:
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    elif path != lock.path:
                        path.unlink(missing_ok=True)
                    lock.path.unlink(missing_ok=True)  # while it is ours: a moment later it may be a living draft's
                finally:
                    lock.release()


def _hash(value: Any) -> str:  # noqa: ANN401
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _is_sealed(manifest: Any) -> bool:  # noqa: ANN401
    """Whether a manifest is as it was written, and its digest is that of what it says."""
    try:
        return manifest["seal"] == _seal_of(manifest) and manifest["digest"] == _hash(_content(manifest))
    except (KeyError, TypeError, ValueError, AttributeError):  # of another shape, or with a number that JSON has not
        return False


def _content(manifest: dict[str, Any]) -> dict[str, Any]:
    return {name: manifest[name] for name in ("kind", "dataset", "files", "facts")}


def _seal_of(manifest: dict[str, Any]) -> str:
    return _hash({name: value for name, value in manifest.items() if name != "seal"})
