"""The kernel's count of page faults shows whether freed memory comes back from it."""

import subprocess
import sys

import pytest

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


def faults_of_five(call: str) -> int:
    out = subprocess.run([sys.executable, "-c", COUNT.format(call=call)], capture_output=True, text=True, check=True)
    return int(out.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_memory_that_was_freed_is_used_again() -> None:
    assert faults_of_five("assert keep_memory()") < 100
    assert faults_of_five("") > 100  # so that what is counted is what is meant
