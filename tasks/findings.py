"""What a validation report finds fault with, and whether that ends the run: the dataset file says for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets.errors import GristmillError, SchemaError, SplitError
from datasets.schema import Dataset
from tasks.progress import LOG

CURES = {
    "leaks": 'mend the source, ByHash("<inputs>", ...) keeps equal inputs together, or Validation(leaks="warn")',
    "conflicts": 'mend the labels, or Validation(conflicts="warn")',
    "repeats": 'mend the source, or Validation(repeats="warn")',
    "missing_classes": 'another split, such as a stratified one, or Validation(missing_classes="warn")',
    "drift": "look at the data; if it is as it should be, raise the limit in Validation(drift=...)",
    "one_label": "another column as the label, or a split whose train part has more of its values",
    "train_classes": "declare only classes that occur, or split the data another way",
}


def findings(dataset: Dataset, report: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong, the worst first: [{"kind", "severity", "what", **facts}]."""
    policy = dataset.validation
    severity = {
        "train_classes": "error", "one_label": "error",
        "leaks": policy.leaks, "conflicts": policy.conflicts, "repeats": policy.repeats,
        "missing_classes": policy.missing_classes, "drift": policy.on_drift,
    }  # fmt: skip
    labels = [*_classes(dataset, report), *_one_label(dataset, report)]
    found = [*labels, *_duplicates(report["duplicates"]), *_drift(report["drift"])]
    rows = [{"kind": kind, "severity": severity[kind], "what": what, **facts} for kind, what, facts in found]
    return sorted(rows, key=lambda row: row["severity"] != "error")


def settle(rows: list[dict[str, Any]]) -> None:
    """Says the warnings; raises for the first error, which names the others.

    Raises:
        SplitError: Of classes and leaks.
        SchemaError: Of all other kinds.
    """
    errors = [row for row in rows if row["severity"] == "error"]
    for row in rows:
        if row["severity"] != "error":
            LOG.warning("validate: %s", row["what"])
    if errors:
        raise _error(errors)


def _error(errors: list[dict[str, Any]]) -> GristmillError:
    row = errors[0]
    kind = SplitError if row["kind"] in {"train_classes", "leaks", "missing_classes"} else SchemaError
    facts = {name: value for name, value in row.items() if name not in {"kind", "severity", "what"}}
    others = "; ".join(other["what"] for other in errors[1:]) or None
    return kind(row["what"], also_wrong=others, cure=CURES[row["kind"]], **facts)


def _classes(dataset: Dataset, report: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    # A label whose classes the train split decides has none here; it is an error where one is missing there
    counts = {split: part["classes"].get(dataset.label, {}) for split, part in report["splits"].items()}
    missing = [name for name, count in counts["train"].items() if count == 0]
    if missing:
        elsewhere = {split: [name for name in missing if some[name]] for split, some in counts.items()}
        only = ", ".join(f"{', '.join(names)} in {split} only" for split, names in elsewhere.items() if names) or None
        yield (
            "train_classes", "the train split has no example of a class",
            {"split": "train", "classes": ", ".join(missing), "elsewhere": only},
        )  # fmt: skip
    for split, some in counts.items():
        absent = [name for name, count in some.items() if count == 0 and name not in missing]
        if split != "train" and absent:
            yield (
                "missing_classes", f"split {split!r} has no example of {', '.join(absent)}",
                {"split": split, "got": f"0 of {sum(some.values())} records",
                 "in_train": ", ".join(f"{name}: {counts['train'][name]}" for name in absent)},
            )  # fmt: skip


def _one_label(dataset: Dataset, report: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A number that is the same in every train example: there is nothing to learn, and nothing to scale by."""
    if not dataset.features[dataset.label].is_number:
        return
    stats = report["splits"]["train"]["features"][dataset.label]
    if stats["min"] == stats["max"]:
        what = "the label is the same number in all examples of the train split"
        yield "one_label", what, {"split": "train", "field": dataset.label, "got": stats["min"]}


def _duplicates(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    examples = found["examples"]
    for pair, count in found["across"].items():
        if count:
            one, other = pair.split("/")
            places = [_places(row) for row in examples if {row["one"]["split"], row["other"]["split"]} == {one, other}]
            yield (
                "leaks", f"{_counted(count, other)} duplicates across {pair} (by decoded content)",
                {"splits": pair, "count": count, "conflicting_labels": found["conflicting"], "first": _first(places)},
            )  # fmt: skip
    if found["conflicting"]:
        places = [_places(row) for row in examples if row["labels_differ"]]
        yield (
            "conflicts", f"{found['conflicting']} inputs occur with different labels",
            {"count": found["conflicting"], "first": _first(places)},
        )  # fmt: skip
    for split, count in found["within"].items():
        if count:
            places = [_places(row) for row in examples if {row["one"]["split"], row["other"]["split"]} == {split}]
            yield (
                "repeats", f"{count} records of {split!r} repeat an earlier one",
                {"split": split, "count": count, "first": _first(places)},
            )  # fmt: skip


def _counted(count: int, split: str) -> str:
    return f"{count} records of {split!r} are"


def _first(places: list[str]) -> str | None:
    return places[0] if places else None


def _places(row: dict[str, Any]) -> str:
    return " = ".join(
        f"{place['split']} record {place['record']} ({place['file']} row {place['row']})"
        for place in (row["one"], row["other"])
    )


def _drift(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, row in found["features"].items():
        if row.get("limit") is not None and row["distance"] > row["limit"]:
            yield (
                "drift", f"{name!r} has drifted from the data of the last promoted run",
                {"field": name, "got": f"{row['measure']} distance {row['distance']:.4f}",
                 "expected": f"at most {row['limit']}", "component": row.get("component"),
                 "against": f"records {found['against']['records'][:12]}"},
            )  # fmt: skip
