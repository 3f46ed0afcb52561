"""The memory that is left is the least of what the machine and its control groups say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.store.machine import available_memory, limited_memory

GIB = 2**30


def _write(root: Path, files: dict[str, object]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ({}, 8 * GIB),
        ({"proc/self/cgroup": "0::/job/step", "sys/fs/cgroup/job/memory.max": 3 * GIB, "sys/fs/cgroup/job/memory.current": 2 * GIB,
          "sys/fs/cgroup/job/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7",
          "sys/fs/cgroup/job/step/memory.max": "max", "sys/fs/cgroup/job/step/memory.current": 5}, 2 * GIB + 7),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": GIB, "sys/fs/cgroup/memory.current": 2 * GIB}, 0),
        ({"proc/self/cgroup": "4:memory:/job\n3:cpu:/job", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 4 * GIB,
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes": GIB}, 3 * GIB),
    ],
    ids=["none", "version 2", "exceeded", "version 1"],
)  # fmt: skip
def test_the_smallest_limit_counts(tmp_path: Path, groups: dict[str, object], left: int) -> None:
    _write(tmp_path, {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:    {8 * 2**20} kB", **groups})
    assert available_memory(tmp_path) == left


def test_an_allocation_beyond_the_limit_fails_and_later_ones_do_not() -> None:
    with pytest.raises(MemoryError), limited_memory(2**28):
        np.ones(2**27)
    assert np.ones(2**27, np.uint8).nbytes == 2**27
