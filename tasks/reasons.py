"""Why a stage runs: what of its key differs from the last time that it made something."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.artifact import MANIFEST, Store

SHOWN = 6
NO_RECORD = "made, but the cache has no record of it"
NEVER = "never made"


def newest(store: Store, dataset: str) -> dict[str, dict[str, Any]]:
    """Manifest of the last artifact that each stage made for a dataset, by the stage."""
    found: dict[str, tuple[tuple[str, int], dict[str, Any]]] = {}
    for path in store.root.glob(f"*/{dataset}/*/{MANIFEST}"):
        try:
            manifest = json.loads(path.read_bytes())
            stage, age = manifest["provenance"]["stage"], (manifest["provenance"]["created"], path.stat().st_mtime_ns)
            if stage not in found or age > found[stage][0]:
                found[stage] = age, manifest
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged manifest explains nothing
    return {stage: manifest for stage, (_, manifest) in found.items()}


def differences(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:  # noqa: ANN401
    """What differs between two components, leaf by leaf: [{"component", "old", "new"}]."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for name in sorted({*old, *new}):
            rows += differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return rows
    return [] if old == new else [{"component": path, "old": old, "new": new}]


def artifact(what: str) -> list[dict[str, Any]]:
    """A reason that isn't in the key: the artifact is missing, damaged or asked for."""
    return [{"component": "artifact", "old": None, "new": what}]


def without_record(past: dict[str, Any] | None, components: dict[str, Any], *, there: bool) -> list[dict[str, Any]]:
    """Why a stage runs whose key the cache doesn't know.

    Args:
        past: See `newest`.
        components: Of its key.
        there: Whether an artifact of this very key lies in the store all the same.
    """
    changed = differences(past["provenance"]["components"], components) if past else []
    return changed or artifact(NO_RECORD if there else NEVER)


def sentences(rows: list[dict[str, Any]]) -> list[str]:
    """Reasons in words, the first SHOWN of them."""
    more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return [*map(_sentence, rows[:SHOWN]), *more]


def _sentence(row: dict[str, Any]) -> str:
    component, old, new = row["component"], row["old"], row["new"]
    if component.startswith("code."):
        what = "new" if old is None else "gone" if new is None else "changed"
        return f"code {component.removeprefix('code.')} {what}"
    if component == "artifact":
        return str(new)
    change = _shown(new) if old is None else f"{_shown(old)} -> {_shown(new)}"
    return f"{component.removeprefix('inputs.').removesuffix('.float')}: {change}"


def _shown(value: Any) -> str:  # noqa: ANN401
    """A digest by its first digits, and a float as people write it: keys have it in base 16, to the last bit."""
    text = str(value)
    if re.fullmatch(r"-?0x[01]\.[0-9a-f]+p[+-]\d+", text):
        return repr(float.fromhex(text))
    return text[:12] if re.fullmatch(r"[0-9a-f]{32,64}", text) else text
