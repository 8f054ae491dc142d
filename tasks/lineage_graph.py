"""The way from raw files to the champion as a drawing: what each stage made of what, for one run."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from datasets.errors import ArtifactDamaged
from tasks.artifact import Store
from tasks.registry import Registry
from tasks.run_record import artifact

ADVICE = (("validate", "fit"), ("feed", "fit"))
"""What a training reads besides what is in its key: the report vouches, the plan advises, neither decides a byte."""
BEHIND = {"transform": "convert"}
"""Stages whose key names a part of what another made."""
WIDTH, HEIGHT, ACROSS, DOWN = 120, 58, 146, 78
ARC = 40  # room above the boxes for arrows over others
SHOWN = 4  # raw files by name


@dataclass(frozen=True)
class Node:
    """A box of the drawing.

    Attributes:
        name: Of a stage, or "raw files", "version", "champion before".
        lines: What stands in it, the first in bold.
        strong: Whether it stands out.
    """

    name: str
    lines: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True)
class Edge:
    """An arrow from box to box; dashed where what it brings decides no byte of the target."""

    source: str
    target: str
    dashed: bool = False


def lineage_graph(store: Store, record: dict[str, Any]) -> tuple[list[Node], list[Edge]]:
    """Boxes and arrows of a run's artifacts, as their manifests and the registry tell them.

    Args:
        store: Where the artifacts are; one that is gone has a box, but nothing tells what it was made of.
        record: Of the run.
    """
    states = {stage["name"]: stage["state"] for stage in record["stages"]}
    digests = {record["made"][name]["digest"]: name for name in states}
    nodes, edges = [], list[Edge]()
    for name in states:
        made = artifact(record, name)
        known = store.find(made.kind, made.dataset, made.key) == made
        nodes.append(Node(name, (made.kind, made.digest[:12], states[name] if known else "no longer in the store")))
        if not known:
            continue
        inputs = store.manifest(made)["provenance"].get("components", {}).get("inputs", {})
        edges += [Edge(digests[digest], name) for digest in inputs.values() if digest in digests]
        if name in BEHIND:
            edges.append(Edge(BEHIND[name], name))
        if name == "fetch" and (files := store.facts(made).get("files")):
            nodes.insert(0, Node("raw files", _few(files)))
            edges.append(Edge("raw files", name))
    edges += [Edge(*pair, dashed=True) for pair in ADVICE if {*pair} <= states.keys()]
    if "promote" in states:
        more_nodes, more_edges = _registered(store, record)
        nodes, edges = nodes + more_nodes, edges + more_edges
    return nodes, list(dict.fromkeys(edges))


def _registered(store: Store, record: dict[str, Any]) -> tuple[list[Node], list[Edge]]:
    """The versions of the run's weights, and the champion that they were held against."""
    registry = Registry(store, record["dataset"])
    try:
        decision = store.facts(artifact(record, "promote"))
        champion = registry.current()
    except ArtifactDamaged:
        return [], []  # a decision that is gone has its box
    nodes, edges = [], []
    before = decision.get("champion_before")
    if before is not None:
        nodes.append(Node("champion before", (f"version {before}", "champion then")))
        edges.append(Edge("champion before", "promote", dashed=True))
    if (version := decision.get("version")) is not None:
        now = champion is not None and champion.version == version
        state = "the champion" if now else f"champion now: {champion.version if champion else 'none'}"
        nodes.append(Node("version", (f"version {version}", state), strong=now))
        edges += [Edge("promote", "version"), Edge("fit", "version")]
    return nodes, edges


def _few(files: Iterable[str]) -> tuple[str, ...]:
    names = sorted(files)
    more = [f"and {len(names) - SHOWN + 1} more"] if len(names) > SHOWN else []
    return ("raw files", *(names[: SHOWN - 1] if more else names), *more)


def drawn(nodes: list[Node], edges: list[Edge]) -> str:
    """The drawing as SVG, from left to right: a box stands right of all that it was made from."""
    ranks = _ranks(nodes, edges)
    columns = [[node for node in nodes if ranks[node.name] == rank] for rank in range(max(ranks.values()) + 1)]
    tallest = max(map(len, columns))
    places = {
        node.name: (rank * ACROSS, (tallest - len(column)) * DOWN / 2 + at * DOWN)
        for rank, column in enumerate(columns)
        for at, node in enumerate(column)
    }
    width, height = (len(columns) - 1) * ACROSS + WIDTH, ARC + tallest * DOWN
    arrows = "".join(_arrow(places[edge.source], places[edge.target], edge.dashed) for edge in edges)
    boxes = "".join(_box(node, *places[node.name]) for node in nodes)
    return (
        f'<svg viewBox="-4 {-ARC} {width + 8} {height}" width="{width + 8}" role="img" aria-label="lineage"'
        ' font-family="system-ui,sans-serif" font-size="11">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="#5b6b80"/></marker></defs>{arrows}{boxes}</svg>'
    )


def _ranks(nodes: list[Node], edges: list[Edge]) -> dict[str, int]:
    """The length of the longest way to each box."""
    ranks = dict.fromkeys((node.name for node in nodes), 0)
    for _ in nodes:  # no way is longer than there are boxes
        for edge in edges:
            ranks[edge.target] = max(ranks[edge.target], ranks[edge.source] + 1)
    if "champion before" in ranks:
        ranks["champion before"] = ranks["promote"] - 1
    return ranks


def _arrow(source: tuple[float, float], target: tuple[float, float], dashed: bool) -> str:
    style = ' stroke-dasharray="4 3"' if dashed else ""
    (x0, y0), (x1, y1) = source, target
    if x1 - x0 <= ACROSS:
        a, b = (x0 + WIDTH, y0 + HEIGHT / 2), (x1, y1 + HEIGHT / 2)
        bend = (b[0] - a[0]) / 2
        path = f"M{a[0]} {a[1]}C{a[0] + bend} {a[1]} {b[0] - bend} {b[1]} {b[0]} {b[1]}"
    else:  # over the boxes between, not through them
        top = -16 - 8 * round((x1 - x0) / ACROSS)
        path = f"M{x0 + WIDTH - 24} {y0}C{x0 + WIDTH + 20} {top} {x1 - 20} {top} {x1 + 24} {y1}"
    return f'<path d="{path}" fill="none" stroke="#5b6b80" marker-end="url(#tip)"{style}/>'


def _box(node: Node, x: float, y: float) -> str:
    fill, line = ("#e3f1e6", "#3a7d44") if node.strong else ("#f1f4f8", "#9fb0c6")
    step = HEIGHT / (len(node.lines) + 0.6)
    weights = ("700", *("400" for _ in node.lines))
    texts = "".join(
        f'<text x="{x + 8}" y="{y + step * (at + 0.95):.1f}" font-weight="{weight}">{html.escape(_short(text))}</text>'
        for at, (text, weight) in enumerate(zip(node.lines, weights, strict=False))
    )
    return f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="{line}"/>{texts}'


def _short(text: str, most: int = 19) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
