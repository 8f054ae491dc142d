"""The page of a validation report: Markdown, complete in itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST_ROWS = 40


def page(name: str, report: dict[str, Any]) -> str:
    """The page, from the report as JSON."""
    parts = [f"# Data of {name}", _findings(report), _splits(report), _classes(report)]
    parts += [_features(split, part) for split, part in report["splits"].items()]
    parts += [_duplicates(report["duplicates"]), _drift(report["drift"])]
    return "\n\n".join(parts) + "\n"


def _findings(report: dict[str, Any]) -> str:
    if not report["findings"]:
        return "Nothing was found that the dataset file asks to be told of."
    return "\n".join(f"- **{row['severity']}** {row['what']}: {_facts(row)}" for row in report["findings"])


def _facts(row: dict[str, Any]) -> str:
    hidden = {"kind", "severity", "what"}
    return ", ".join(f"{name} {value}" for name, value in row.items() if name not in hidden and value is not None)


def _splits(report: dict[str, Any]) -> str:
    conversion = report["conversion"]
    rows = [[split, f"{part['examples']:,}"] for split, part in report["splits"].items()]
    rows += [["in no split", f"{conversion['left_out']:,}"], ["set aside", f"{conversion['quarantined']:,}"]]
    rows += [[f"- {reason}", f"{count:,}"] for reason, count in conversion["reasons"].items()]
    rows.append(["raw rows", f"{conversion['raw_rows']:,}"])
    ignored = ", ".join(f"{count:,} x {what}" for what, count in report["ignored"].items())
    return table(["rows", "count"], rows) + (f"\n\nFiles that were ignored: {ignored}." if ignored else "")


def _classes(report: dict[str, Any]) -> str:
    blocks = []
    for feature in next(iter(report["splits"].values()))["classes"]:
        counts = {split: part["classes"][feature] for split, part in report["splits"].items()}
        names = list(next(iter(counts.values())))
        totals = {split: max(sum(some.values()), 1) for split, some in counts.items()}
        rows = [
            [str(i), name, *(f"{some[name]:,} ({some[name] / totals[split]:.1%})" for split, some in counts.items())]
            for i, name in enumerate(names[:MOST_ROWS])
        ]
        more = f"\n\n... and {len(names) - MOST_ROWS} more" if len(names) > MOST_ROWS else ""
        blocks.append(f"## Classes of {feature}\n\n{table(['index', 'class', *counts], rows)}{more}")
    return "\n\n".join(blocks)


def _features(split: str, part: dict[str, Any]) -> str:
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
    return f"## Features of {split}\n\n{table(['feature', 'min', '5 %', 'median', '95 %', 'max', 'mean', 'std'], rows)}"


def _numbers(name: str, low: float, high: float, mean: float, std: float, quantiles: dict[str, float]) -> list[str]:
    values = (low, quantiles["0.05"], quantiles["0.5"], quantiles["0.95"], high, mean, std)
    return [name, *(f"{value:.4g}" for value in values)]


def _duplicates(found: dict[str, Any]) -> str:
    rows = [[f"repeated within {split}", f"{count:,}"] for split, count in found["within"].items()]
    rows += [[f"in both of {pair}", f"{count:,}"] for pair, count in found["across"].items()]
    rows.append(["inputs with different labels", f"{found['conflicting']:,}"])
    lines = [
        [f"{p['split']} {p['record']} ({p['file']} row {p['row']})" for p in (row["one"], row["other"])]
        + ["differ" if row["labels_differ"] else "same"]
        for row in found["examples"]
    ]
    examples = f"\n\n{table(['record', 'the same as', 'labels'], lines)}" if lines else ""
    return f"## Duplicates, by decoded content\n\n{table(['what', 'count'], rows)}{examples}"


def _drift(found: dict[str, Any]) -> str:
    if found["against"] is None:
        return "## Drift\n\nNo other data was promoted before this, so there is nothing to compare with."
    rows = [
        [name, row["skipped"], "", ""] if "skipped" in row
        else [name + (f"[{row['component']}]" if "component" in row else ""), f"{row['distance']:.4f}",
              "" if row["limit"] is None else f"{row['limit']:g}", row["measure"]]
        for name, row in found["features"].items()
    ]  # fmt: skip
    against = f"Against the data of the last promoted run, records `{found['against']['records'][:12]}`."
    return f"## Drift\n\n{against}\n\n{table(['feature', 'distance', 'limit', 'measure'], rows)}"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; bars and line breaks in a cell can't break it."""
    lines = [head, ["---"] * len(head), *rows]
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)
