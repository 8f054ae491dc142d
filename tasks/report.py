"""The page of a validation report: Markdown, complete in itself."""

from __future__ import annotations

from typing import Any

from tasks.document import Document

MOST_ROWS = 40


def page(name: str, report: dict[str, Any]) -> str:
    """The page, from the report as JSON."""
    document = Document(f"Data of {name}")
    write_report(document, report)
    return document.markdown()


def write_report(document: Document, report: dict[str, Any], level: int = 2) -> None:
    """Adds a report to a page.

    Args:
        document: The page.
        report: As JSON.
        level: Of its headings.
    """
    _findings(document, report)
    _splits(document, report)
    _classes(document, report, level)
    for split, part in report["splits"].items():
        document.heading(f"Features of {split}", level)
        _features(document, part)
    document.heading("Duplicates, by decoded content", level)
    _duplicates(document, report["duplicates"])
    document.heading("Drift", level)
    _drift(document, report["drift"])


def _findings(document: Document, report: dict[str, Any]) -> None:
    if report["findings"]:
        document.points([(row["severity"], f"{row['what']}: {_facts(row)}") for row in report["findings"]])
    else:
        document.text("Nothing was found that the dataset file asks to be told of.")


def _facts(row: dict[str, Any]) -> str:
    hidden = {"kind", "severity", "what"}
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in hidden and value is not None)


def _splits(document: Document, report: dict[str, Any]) -> None:
    conversion = report["conversion"]
    rows = [[split, f"{part['examples']:,}"] for split, part in report["splits"].items()]
    rows += [["in no split", f"{conversion['left_out']:,}"], ["set aside", f"{conversion['quarantined']:,}"]]
    rows += [[f"- {reason}", f"{count:,}"] for reason, count in conversion["reasons"].items()]
    rows.append(["raw rows", f"{conversion['raw_rows']:,}"])
    document.table(["rows", "count"], rows)
    if ignored := ", ".join(f"{count:,} x {what}" for what, count in report["ignored"].items()):
        document.text(f"Files that were ignored: {ignored}.")


def _classes(document: Document, report: dict[str, Any], level: int) -> None:
    for feature in next(iter(report["splits"].values()))["classes"]:
        counts = {split: part["classes"][feature] for split, part in report["splits"].items()}
        names = list(next(iter(counts.values())))
        totals = {split: max(sum(some.values()), 1) for split, some in counts.items()}
        rows = [
            [str(i), name, *(f"{some[name]:,} ({some[name] / totals[split]:.1%})" for split, some in counts.items())]
            for i, name in enumerate(names[:MOST_ROWS])
        ]
        document.heading(f"Classes of {feature}", level)
        document.table(["index", "class", *counts], rows)
        if len(names) > MOST_ROWS:
            document.text(f"... and {len(names) - MOST_ROWS} more")


def _features(document: Document, part: dict[str, Any]) -> None:
    rows = []
    for name, one in part["features"].items():
        size = f" {one['size']}" if "size" in one else " (length)" if one.get("of") == "length" else ""
        if isinstance(one["mean"], list):
            rows += [
                _numbers(f"{name}[{i}]", *(one[key][i] for key in ("min", "max", "mean", "std", "quantiles")))
                for i in range(min(len(one["mean"]), MOST_ROWS))
            ]
        else:
            rows.append(_numbers(name + size, *(one[key] for key in ("min", "max", "mean", "std", "quantiles"))))
    document.table(["feature", "min", "5 %", "median", "95 %", "max", "mean", "std"], rows)


def _numbers(name: str, low: float, high: float, mean: float, std: float, quantiles: dict[str, float]) -> list[str]:
    values = (low, quantiles["0.05"], quantiles["0.5"], quantiles["0.95"], high, mean, std)
    return [name, *(f"{value:.4g}" for value in values)]


def _duplicates(document: Document, found: dict[str, Any]) -> None:
    rows = [[f"repeated within {split}", f"{count:,}"] for split, count in found["within"].items()]
    rows += [[f"in both of {pair}", f"{count:,}"] for pair, count in found["across"].items()]
    rows.append(["inputs with different labels", f"{found['conflicting']:,}"])
    document.table(["what", "count"], rows)
    lines = [
        [f"{p['split']} {p['record']} ({p['file']} row {p['row']})" for p in (row["one"], row["other"])]
        + ["differ" if row["labels_differ"] else "same"]
        for row in found["examples"]
    ]
    if lines:
        document.table(["record", "the same as", "labels"], lines)


def _drift(document: Document, found: dict[str, Any]) -> None:
    if found["against"] is None:
        document.text("No other data was promoted before this, so there is nothing to compare with.")
        return
    rows = [
        [name, row["skipped"], "", ""] if "skipped" in row
        else [name + (f"[{row['component']}]" if "component" in row else ""), f"{row['distance']:.4f}",
              "" if row["limit"] is None else f"{row['limit']:g}", row["measure"]]
        for name, row in found["features"].items()
    ]  # fmt: skip
    document.text(f"Against the data of the last promoted run, records `{found['against']['records'][:12]}`.")
    document.table(["feature", "distance", "limit", "measure"], rows)
