from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import recorded

from tasks.artifact import Store
from tasks.lineage_graph import Edge, Node, drawn, lineage_graph
from tasks.registry import Registry
from tasks.run_record import artifact


def graph(store: Store, record: dict[str, Any]) -> tuple[dict[str, Node], set[tuple[str, str]], set[tuple[str, str]]]:
    nodes, edges = lineage_graph(store, record)
    assert len({node.name for node in nodes}) == len(nodes)
    ends = [{(e.source, e.target) for e in edges if e.dashed == dashed} for dashed in (False, True)]
    return {node.name: node for node in nodes}, ends[0], ends[1]


@pytest.mark.slow
def test_every_step_from_raw_file_to_champion_is_there(tmp_path: Path) -> None:
    store, first, _ = recorded.two_runs(tmp_path)
    nodes, made_from, advised = graph(store, first)
    assert nodes["raw files"].lines == ("raw files", "toy-images-idx3-ubyte", "toy-labels-idx1-ubyte")
    assert nodes["fit"].lines == ("weights", first["made"]["fit"]["digest"][:12], "ran")
    assert nodes["version"] == Node("version", ("version v1", "the champion"), strong=True)
    assert made_from == {
        ("raw files", "fetch"), ("fetch", "convert"), ("convert", "validate"), ("convert", "feed"), ("convert", "fit"),
        ("convert", "evaluate"), ("convert", "promote"), ("fit", "evaluate"), ("fit", "promote"),
        ("evaluate", "promote"), ("promote", "version"), ("fit", "version"),
    }  # fmt: skip
    assert advised == {("validate", "fit"), ("feed", "fit")}


def test_a_refused_run_shows_what_it_was_held_against(tmp_path: Path) -> None:
    store, _, second = recorded.two_runs(tmp_path)
    nodes, _, advised = graph(store, second)
    assert "version" not in nodes
    assert nodes["champion before"].lines == ("version v1", "champion then")
    assert ("champion before", "promote") in advised


def test_a_version_that_is_champion_no_more_says_who_is(tmp_path: Path) -> None:
    store, first, second = recorded.two_runs(tmp_path)
    registry = Registry(store, "toy")
    registry.crown(registry.add(artifact(second, "fit"), {}))
    nodes, _, _ = graph(store, first)
    assert nodes["version"] == Node("version", ("version v1", "champion now: v2"))


def test_what_is_gone_has_a_box_that_says_so(tmp_path: Path) -> None:
    store, first, _ = recorded.two_runs(tmp_path)
    shutil.rmtree(store.path(artifact(first, "evaluate")))
    shutil.rmtree(store.path(artifact(first, "promote")))
    nodes, made_from, _ = graph(store, first)
    assert nodes["evaluate"].lines[2] == nodes["promote"].lines[2] == "no longer in the store"
    assert not [edge for edge in made_from if edge[1] == "evaluate"]
    assert "version" not in nodes


def test_the_drawing_is_sound_whatever_the_names() -> None:
    nodes = [
        Node("a", ("raw", "<script>&amp;")), Node("b", ("x",)), Node("c", ("long" * 20,), strong=True),
        Node("promote", ("y",)), Node("champion before", ("z",)),
    ]  # fmt: skip
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("a", "c"), Edge("c", "promote", dashed=True),
             Edge("champion before", "promote", dashed=True)]  # fmt: skip
    tree = ET.fromstring(drawn(nodes, edges))
    texts = [text.text for text in tree.iter("text")]
    assert texts == ["raw", "<script>&amp;", "x", "longlonglonglong...", "y", "z"]
    at = {text: float(box.get("x") or 0) for text, box in zip("abcdz", tree.iter("rect"), strict=True)}
    assert at["a"] < at["b"] < at["c"] < at["d"]
    assert at["z"] == at["c"]
    arrows = [path for path in tree.iter("path") if path.get("marker-end")]
    assert [path.get("stroke-dasharray") is not None for path in arrows] == [False, False, False, True, True]


def test_many_raw_files_are_counted(tmp_path: Path) -> None:
    from tasks.lineage_graph import _few

    assert _few([f"f{i}" for i in range(4)]) == ("raw files", "f0", "f1", "f2", "f3")
    assert _few([f"f{i}" for i in range(9)]) == ("raw files", "f0", "f1", "f2", "and 6 more")
