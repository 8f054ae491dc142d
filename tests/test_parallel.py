from __future__ import annotations

from typing import Any

import pytest
import toy

from datasets.errors import ParameterError
from tasks.fit import fit, part_of
from tasks.parallel import Parallel
from tasks.request import check
from tasks.stage import Run


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"devices": 0}, "devices"), ({"devices": True}, "devices"), ({"processes": 0}, "processes"),
        ({"processes": 1.0}, "processes"), ({"process": 0}, "process"), ({"coordinator": "a:1"}, "process"),
        ({"processes": 2, "process": 2, "coordinator": "a:1"}, "process"),
        ({"processes": 2, "process": -1, "coordinator": "a:1"}, "process"),
        *[({"processes": 2, "process": 1, "coordinator": bad}, "coordinator")
          for bad in ("a", "a:", ":1", "a:0", "a:x", "http://a:1", "a b:1", "a:1 ")],
        ({"devices": 3}, "batch_size"), ({"processes": 5}, "batch_size"),
        ({"devices": 16, "processes": 16}, "batch_size"),
        ({"devices": 2, "debug_checks": "on"}, "debug_checks"),
    ],
)  # fmt: skip
def test_what_can_not_work_is_refused_before_any_work(given: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check("mnist", **given)
    assert caught.value.facts["parameter"] == parameter


@pytest.mark.parametrize(("batch_size", "cure"), [(128, 129), (1, 3), (100, 99), (4, 3), (5, 6)])
def test_the_cure_is_the_nearest_batch_size_that_works(batch_size: int, cure: int) -> None:
    with pytest.raises(ParameterError, match="shared out evenly") as caught:
        Parallel(3).check_batch_size(batch_size)
    assert caught.value.cure == f"--batch-size {cure}"
    Parallel(3).check_batch_size(cure)


def test_the_mesh_is_in_the_key_of_fit_and_one_device_is_no_mesh() -> None:
    def parts(**given: Any) -> dict[str, Any]:
        return fit.parameters(Run(check("mnist", **given)))

    assert parts(devices=1, processes=1) == parts()
    assert parts(devices=4) == {**parts(), "mesh": {"processes": 1, "devices": 4}}
    assert parts(processes=4) == {**parts(), "mesh": {"processes": 4, "devices": 1}}
    # Where the processes run decides nothing.
    assert parts(processes=2, process=1, coordinator="host0:8476") == parts(processes=2)


def test_runs_of_one_part_wait_for_each_other_and_runs_of_others_do_not() -> None:
    alone, first, second = (
        check("mnist", **given)
        for given in ({}, *({"processes": 2, "process": p, "coordinator": "host0:8476"} for p in (0, 1)))
    )
    assert [part_of(request) for request in (alone, first, second)] == ["", "-0", "-1"]
    assert fit.part is part_of


def test_a_dataset_that_is_no_file_has_it_too(tmp_path: Any) -> None:
    assert toy.request_for(tmp_path, toy.dataset(), devices=2).parallel == Parallel(2)
