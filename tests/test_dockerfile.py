"""The image can be built from what is committed, and is where the deployments for containers expect it to be."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import PurePosixPath

import pytest
import toy
import yaml
from packaging.specifiers import SpecifierSet

NEEDED = ("flows/train.py", "tasks/embedded.py", "datasets/mnist.py", "datasets/bundled", "prefect.toml")


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Instructions of a Dockerfile with their words."""
    joined = text.replace("\\\n", " ")
    words = [line.split() for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(first, rest) for first, *rest in words]


def missing(text: str) -> list[str]:
    """What a Dockerfile copies or installs from that isn't there then."""
    absent, here = [], set[str]()
    for instruction, words in steps(text):
        if instruction == "COPY":
            *sources, _ = [word for word in words if not word.startswith("--")]
            absent += [source for source in sources if not committed(source)]
            here |= set(sources)
        elif instruction == "RUN" and "-r" in words:
            listed = words[words.index("-r") + 1]
            absent += [] if listed in here else [f"{listed}, before it is copied"]
    return absent


def committed(path: str) -> bool:
    """Whether git has a path and the build is given it."""
    known = subprocess.run(["git", "ls-files", "--", path], cwd=toy.ROOT, check=True, capture_output=True, text=True)
    return bool(known.stdout.strip()) and not ignored(path)


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out: one of its lines is that path, or a folder above it."""
    lines = [line for line in (toy.ROOT / ".dockerignore").read_text().splitlines() if line and line[0] not in "#!"]
    above = [str(one) for one in (PurePosixPath(path), *PurePosixPath(path).parents)]
    anywhere = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    return any(one in lines or PurePosixPath(one).name in anywhere for one in above)


def test_all_that_is_copied_and_installed_is_there() -> None:
    assert missing((toy.ROOT / "Dockerfile").read_text()) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("COPY nowhere.txt .", ["nowhere.txt"]), ("COPY .venv /x", [".venv"]),
        ("COPY requirements.lock nowhere \\\n  .", ["nowhere"]),
        ("RUN pip install -r requirements.lock\nCOPY . .", ["requirements.lock, before it is copied"]),
    ],
)  # fmt: skip
def test_a_file_that_is_not_there_is_found(text: str, what: list[str]) -> None:
    assert missing(f"FROM python\n{text}") == what


def test_the_build_is_given_all_of_the_code_and_nothing_that_a_run_made() -> None:
    assert [path for path in NEEDED if not committed(path)] == []
    assert all(map(ignored, (".git", ".venv", ".prefect", "store", "datasets/raw", "tasks/__pycache__/fit.pyc")))


def test_its_python_is_one_that_the_project_and_the_locked_libraries_are_for() -> None:
    made = dict(steps((toy.ROOT / "Dockerfile").read_text()))["FROM"][0]
    version = re.fullmatch(r"python:(3\.\d+)-slim", made)
    assert version is not None, made
    asked = tomllib.loads((toy.ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"{version[1]}.0" in SpecifierSet(asked)
    lock = (toy.ROOT / "requirements.lock").read_text()
    assert lock.count("==") == len(re.findall(r"==\S+ \\\n    --hash=sha256:", lock))  # every one with its hashes


def test_volumes_and_the_store_are_below_the_folder_of_the_image() -> None:
    (workdir,) = [
        words[0] for instruction, words in steps((toy.ROOT / "Dockerfile").read_text()) if instruction == "WORKDIR"
    ]
    docker, kubernetes = (
        yaml.safe_load((toy.ROOT / "deploy" / f"{kind}.yaml").read_text())["definitions"]["work_pool"]["job_variables"]
        for kind in ("docker", "kubernetes")
    )
    mounts = [volume.partition(":")[2] for volume in docker["volumes"]]
    assert mounts == [f"{workdir}/store", f"{workdir}/datasets/raw"]
    assert kubernetes["env"]["GRISTMILL_STORE"] == f"{workdir}/store"
