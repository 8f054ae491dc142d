"""A split decoded once into memory-mapped columns: the fast tier of the feed.

A folder holds `<feature>.npy` for each feature and a manifest with their SHA-256, written last. The folder appears by
rename, so it is either whole or absent; it's derived from shards and may be deleted at any time. A process that asks
for columns that are there already reads every byte of them once before it relies on them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from datasets.errors import ArtifactDamaged, StoreError
from datasets.schema import Columns, Feature
from tasks.durable import fsync_dir, read_json, sha256_file, write_json
from tasks.hashing import Stamp, stamp_of
from tasks.lock import Lock
from tasks.record_layout import Layout
from tasks.records import Shards

MANIFEST = "columns.json"
_FORMAT = 1
LOG = logging.getLogger("gristmill")
_proven: set[tuple[tuple[Path, Stamp], ...]] = set()  # files whose content this process found to be right


def build_columns(shards: Shards, folder: Path) -> None:
    """Decodes a split into `folder`, unless that is there already; a damaged one is replaced, with a warning.

    Any number of processes may do it at once: one builds, the others wait and find it done. A killed builder leaves
    nothing but a `.partial` folder beside, which the next one removes.

    Args:
        shards: The split.
        folder: Made by this function; its parent may not exist yet.

    Raises:
        ArtifactDamaged, DataFormatError: A shard isn't what it was when it was written.
        StoreError: The disk is full or fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Lock(folder.parent / f".{folder.name}.lock"):  # the file stays: it costs nothing
        if folder.exists() and _is_of(folder, shards):
            return
        partial = folder.with_name(f".{folder.name}.partial")
        for leftover in (partial, folder):
            if leftover.exists():
                shutil.rmtree(leftover)
        partial.mkdir()
        try:
            _write(shards, partial)
            partial.rename(folder)
            fsync_dir(folder.parent)
        except OSError as error:
            raise StoreError("columns can't be written", folder=str(folder), reason=str(error)) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _is_of(folder: Path, shards: Shards) -> bool:
    try:
        columns = MappedColumns(folder)
        if columns.made_from != shards.digest:
            return False
        if (stamps := columns.stamps()) not in _proven:
            columns.verify(full=True)
            _proven.add(stamps)
    except ArtifactDamaged as damage:
        LOG.warning("decoded again from the shards: %s", damage)
        return False
    return True


def _write(shards: Shards, folder: Path) -> None:
    layout = Layout.of(shards.features)
    names = {name: f"{quote(name, safe='')}.npy" for name in layout.names}
    with _files(folder, list(names.values())) as files:
        digests = {name: hashlib.sha256() for name in layout.names}

        def put(name: str, data: bytes | memoryview) -> None:
            files[names[name]].write(data)
            digests[name].update(data)

        for name, dtype, shape in zip(layout.names, layout.dtypes, layout.shapes, strict=True):
            put(name, _npy_header(dtype, (len(shards), *shape)))
        for block in shards.blocks():
            for name in layout.names:
                # Written, not assigned to a mapping: there a full disk would be a SIGBUS instead of an error.
                put(name, np.ascontiguousarray(block[name]).reshape(-1).view(np.uint8).data)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    columns = [
        {"name": name, "file": names[name], "dtype": dtype.str, "shape": list(shape),
         "sha256": digests[name].hexdigest(), "bytes": (folder / names[name]).stat().st_size}
        for name, dtype, shape in zip(layout.names, layout.dtypes, layout.shapes, strict=True)
    ]  # fmt: skip
    manifest = {"format": _FORMAT, "rows": len(shards), "made_from": shards.digest, "columns": columns}
    write_json(folder / MANIFEST, manifest)


@contextmanager
def _files(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    files: dict[str, Any] = {}
    try:
        for name in names:
            files[name] = (folder / name).open("wb")
        yield files
    finally:
        for file in files.values():
            file.close()


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The start of a .npy file, version 1.0 (numpy.lib.format), 64-byte aligned."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    padding = -(len(text) + 11) % 64
    body = (text + " " * padding + "\n").encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


class MappedColumns:
    """The rows of one split in memory-mapped columns. Pickled copies map the same files again.

    Args:
        folder: That `build_columns` made.

    Raises:
        ArtifactDamaged: A file is missing or has another size, or the manifest can't be read.

    Attributes:
        features: dtype and shape of each column.
        made_from: Digest of the shards that it was decoded from.
        digest: SHA-256 over the names and contents of the columns; equal rows give equal digests, whatever shards
            they were in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / MANIFEST
        try:
            manifest = read_json(path)
            if manifest["format"] != _FORMAT:
                raise ValueError(f"format {manifest['format']}, expected {_FORMAT}")
            self._rows, self.made_from = int(manifest["rows"]), str(manifest["made_from"])
            self._columns = [{key: c[key] for key in ("name", "file", "dtype", "shape", "sha256", "bytes")}
                             for c in manifest["columns"]]  # fmt: skip
        except (OSError, ArtifactDamaged, ValueError, KeyError, TypeError) as error:
            raise ArtifactDamaged(
                "the columns' manifest can't be read", file=str(path), reason=f"{type(error).__name__}: {error}",
                cure="delete the folder; it is decoded again from the shards",
            ) from error  # fmt: skip
        self.features = {c["name"]: Feature(np.dtype(c["dtype"]).name, tuple(c["shape"])) for c in self._columns}
        text = json.dumps([[c["name"], c["sha256"]] for c in self._columns])
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.verify(full=False)
        # A plain array over the mapping: np.memmap's own bookkeeping costs as much as a small gather.
        self._arrays = {c["name"]: np.asarray(np.load(folder / c["file"], mmap_mode="r")) for c in self._columns}
        for name, array in self._arrays.items():
            if array.shape != (self._rows, *self.features[name].shape) or array.dtype != self.features[name].dtype:
                raise ArtifactDamaged(
                    "a column isn't what the manifest says", folder=str(folder), field=name,
                    got=f"{array.dtype} {array.shape}",
                    expected=f"{self.features[name].dtype} {(self._rows, *self.features[name].shape)}",
                )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedColumns, (self.folder,)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"MappedColumns({self._rows} rows, {self.digest[:12]})"

    def read(self, ids: np.ndarray) -> Columns:
        """Gives some rows, in the order of `ids`, as fresh arrays.

        Args:
            ids: int64 [N], 0 <= id < len(self); may repeat.

        Returns:
            One array a feature, [N, *feature.shape].

        Raises:
            IndexError: An id is out of range.
        """
        if ids.size and ids.view(np.uint64).max() >= self._rows:  # seen as unsigned, a negative id is a huge one
            raise IndexError(f"row {ids.min()} or {ids.max()} of {self._rows}")
        # "clip" changes nothing, because the ids were checked, and is nearly twice as fast as the default, which
        # checks each id again while it copies.
        return {name: array.take(ids, axis=0, mode="clip") for name, array in self._arrays.items()}

    def stamps(self) -> tuple[tuple[Path, Stamp], ...]:
        """The files, and of each what is another after a program changed it."""
        paths = [self.folder / column["file"] for column in self._columns]
        return tuple((path, stamp_of(path)) for path in paths)

    def verify(self, *, full: bool) -> None:
        """Checks that the files are there with their sizes, and with `full` also their digests.

        Raises:
            ArtifactDamaged: One isn't; names the file and the reason.
        """
        for column in self._columns:
            path = self.folder / column["file"]
            if not path.is_file():
                raise ArtifactDamaged("a column is missing", file=str(path))
            if (size := path.stat().st_size) != column["bytes"]:
                raise ArtifactDamaged(
                    "a column has another size than when it was written", file=str(path), got=f"{size} bytes",
                    expected=f"{column['bytes']} bytes",
                )  # fmt: skip
            if full and (digest := sha256_file(path)) != column["sha256"]:
                raise ArtifactDamaged(
                    "a column has other content than when it was written", file=str(path), got=f"sha256 {digest}",
                    expected=f"sha256 {column['sha256']}",
                )  # fmt: skip
