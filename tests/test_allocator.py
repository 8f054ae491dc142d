"""The kernel's count of page faults shows whether freed memory comes back from it."""

import os
import subprocess
import sys

import pytest

from tasks.allocator import keep_memory

COUNT = """
import resource
import numpy as np
from tasks.allocator import keep_memory

{call}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def once():
    np.empty(64 << 20, np.uint8).fill(1)
once()
before = faults()
for _ in range(5):
    once()
print(faults() - before)
"""


def faults_of_five(call: str, environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", COUNT.format(call=call)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_memory_that_was_freed_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert faults_of_five("assert keep_memory()", plain) < 100
    assert faults_of_five("import flows", plain) < 100
    assert faults_of_five("", plain) > 100  # so that what is counted is what is meant
    for name in os.environ.keys() - plain.keys():
        monkeypatch.delenv(name)
    keep_memory()
    assert faults_of_five("", dict(os.environ)) < 100  # a child of this process
