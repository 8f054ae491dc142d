"""Raw files that are converted one by one, each kept as an artifact of its own: a new file of 400 converts one file.

The rule: a dataset whose file says `by_file=True` is converted so. Its reader is then given a folder with one raw file
at a time and may speak of no other; its splits must look at nothing but a row and its file (Files, ByHash, ByTime),
which is checked when the dataset file is loaded. A file that the reader finds no reason to read (`_SUCCESS`, `.crc`,
notes) is a part without rows. Every other dataset is one part, such as IDX pairs (two files make
one example), folders of images (one file is one example) and splits that need to know all rows (Rows, ByFraction).

A part's key is made of all that decides its bytes: what is in the key of the stage, but the file's own digest and name
in place of those of all files. Its shards are hard-linked into the records, so that nothing is written twice.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets.errors import ArtifactDamaged, FetchError, NoRecordsError, SchemaError
from datasets.readers.cores import one_core
from datasets.readers.ignored import noting
from datasets.readers.zones import Zones, seeing
from datasets.schema import Block, Dataset
from tasks.artifact import Artifact, Draft, Store
from tasks.dealing import ORIGIN, Dealt, deal
from tasks.durable import fsync_dir, fsync_file, read_json, write_json
from tasks.lock import Lock
from tasks.pool import mapped
from tasks.progress import LOG, Bar
from tasks.quarantine import QUARANTINE
from tasks.records import Shard
from tasks.stage import Job, key_of

KIND = "part"


@dataclass(frozen=True)
class Part:
    """One raw file to convert.

    Attributes:
        name: Of the file, within the raw folder.
        key: Of the part's artifact.
        components: What the key is made of.
    """

    name: str
    key: str
    components: dict[str, Any]


def convert_files(job: Job, raw: Artifact, target: Path, progress: Bar) -> Dealt:
    """Converts the raw files that weren't before, and puts the shards of all of them together in `target`.

    Files follow one another by name, as the readers sort them, so the examples have the order that one pass gives.

    Raises:
        DataFormatError, SchemaError: As the reader and `deal`; or files that are sound alone don't fit each other.
    """
    store = job.store
    files = sorted((name, file["sha256"]) for name, file in store.manifest(raw)["files"].items())
    parts = [_part(job.components, name, digest) for name, digest in files]
    name = job.request.name
    missing = sum(store.find(KIND, name, part.key) is None for part in parts)
    work = functools.partial(
        make, store.root, name, job.request.dataset, store.path(raw), anew=job.anew,
        alone=len(parts) == 1 or (missing < 2 and not job.anew),
    )  # fmt: skip
    made: list[Artifact] = []
    converted: list[str] = []
    for part, (artifact, is_new) in zip(parts, mapped(work, parts), strict=True):
        made.append(artifact)
        converted += [part.name] if is_new and not store.facts(artifact).get("ignored") else []
        progress.advance(store.facts(artifact)["rows"])
    job.notes["parts"] = {"files": len(parts), "converted": converted}
    LOG.info("%s: %d of %d raw files were converted, the others before", job.stage, len(converted), len(parts))
    return _joined(store, made, target)


def make(
    root: Path, dataset_name: str, dataset: Dataset, raw: Path, part: Part, *, anew: bool = False, alone: bool = False
) -> tuple[Artifact, bool]:
    """The artifact of one raw file, and whether it had to be made; one process or thread at a time makes it.

    Args:
        root: Of the store.
        dataset_name: For the artifact.
        dataset: Whose reader, features and splits to take.
        raw: Folder of the raw files.
        part: Which of them.
        anew: Whether to make it also if it is there.
        alone: Whether no other is made meanwhile, so that this one may use every core.
    """
    store = Store(root)
    (root / "locks").mkdir(parents=True, exist_ok=True)
    with Lock(root / "locks" / f"{KIND}-{part.key}.lock"):
        if not anew and (kept := _sound(store, dataset_name, part)) is not None:
            store.touch(kept)
            return kept, False

        def fill(draft: Draft) -> None:
            only = draft.folder / "raw"
            (only / part.name).parent.mkdir(parents=True)
            (only / part.name).symlink_to(raw / part.name)
            # Where files are converted side by side, each core has a reader and a writer already
            cores = nullcontext() if alone else one_core()
            ignored, zones = Counter[str](), Zones()
            with cores, noting(ignored), seeing(zones):
                dealt = deal(dataset, _of_one_file(dataset, only, part.name), draft.folder, beside=alone)
            dealt.ignored, dealt.zones = dict(sorted(ignored.items())), zones.said
            shutil.rmtree(only)
            draft.sealed = dealt.digests
            draft.facts = {name: value for name, value in asdict(dealt).items() if name != "origins"}

        provenance = {"stage": KIND, "components": part.components}
        return store.commit(KIND, dataset_name, part.key, fill, provenance), True


def _part(components: dict[str, Any], name: str, digest: str) -> Part:
    parameters = {n: value for n, value in components.get("parameters", {}).items() if n != "most_bad"}
    mine = {**components, "parameters": parameters, "stage": KIND, "inputs": {"file": digest}, "name": name}
    return Part(name, key_of(mine), mine)


def _sound(store: Store, dataset: str, part: Part) -> Artifact | None:
    artifact = store.find(KIND, dataset, part.key)
    if artifact is None:
        return None
    try:
        store.verify(artifact)
    except ArtifactDamaged as error:
        LOG.warning("the converted %s is damaged and is made again: %s", part.name, error)
        return None
    return artifact


def _of_one_file(dataset: Dataset, folder: Path, name: str) -> Any:  # noqa: ANN401 - a generator of blocks
    try:
        for block in dataset.read(folder):
            yield _checked(block, name)
    except NoRecordsError:  # of all files together there must be some; `convert` says so
        return
    except FetchError:
        if not (folder / name).is_file():
            raise
        # It is there, and is not what the reader reads: it would have been passed over among the others, too


def _checked(block: Block, name: str) -> Block:
    if block.file != name:
        raise SchemaError(
            "the reader speaks of another file than the one that it was given", file=name, got=block.file,
            expected=name, cure="by_file=False in the dataset file",
        )  # fmt: skip
    return block


def _joined(store: Store, parts: list[Artifact], target: Path) -> Dealt:
    facts = [store.facts(part) for part in parts]
    splits = list(facts[0]["shards"]) if facts else []
    whole = Dealt({split: [] for split in splits}, {split: [] for split in splits})
    zones = Zones(whole.zones)
    for fact in facts:
        zones.see_all(fact["zones"])
    for split in splits:
        shards = [(part, one) for part, fact in zip(parts, facts, strict=True) for one in fact["shards"][split]]
        for index, (part, made) in enumerate(shards):
            shard = Shard(**made)
            name = f"{split}-{index:05d}-of-{len(shards):05d}.array_record"
            _link(store.path(part) / shard.name, target / name)
            whole.shards[split].append(asdict(Shard(name, shard.rows, shard.sha256, shard.bytes)))
    for part, fact in zip(parts, facts, strict=True):
        for split, runs in read_json(store.path(part) / ORIGIN).items():
            whole.origins[split] += runs
        whole.rows += fact["rows"]
        whole.left_out += fact["left_out"]
        whole.quarantined += fact["quarantined"]
        for what, count in fact.get("ignored", {}).items():
            whole.ignored[what] = whole.ignored.get(what, 0) + count
        for reason, count in fact["reasons"].items():
            whole.reasons[reason] = whole.reasons.get(reason, 0) + count
        if fact["quarantined"]:
            with (target / QUARANTINE).open("ab") as file:
                file.write((store.path(part) / QUARANTINE).read_bytes())
    whole.reasons = dict(sorted(whole.reasons.items()))
    write_json(target / ORIGIN, whole.origins)
    fsync_dir(target)
    return whole


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
        fsync_file(target)
