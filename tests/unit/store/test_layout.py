"""Paths stay below the results and do not meet."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.store.layout import DataLayout, ExperimentLayout, group_name

ARGUMENTS = {"stage": "sample", "job": "sample-group-000", "identity": "00ff", "group": 3}


def paths_of(layout: DataLayout | ExperimentLayout) -> Iterator[tuple[str, Path]]:
    """Yield every path that a layout gives, found by looking: a new one is tested unasked."""
    yield from ((name, value) for name, value in vars(layout).items() if isinstance(value, Path) and name != "results")
    for name, member in inspect.getmembers(layout, inspect.ismethod):
        # These give some of the other paths, by the words of an analysis.
        if not name.startswith("_") and name not in ("inputs", "read_by"):
            values = {k: ARGUMENTS[k] for k in inspect.signature(member).parameters}
            yield name, member(**values | ({"group": group_name(3)} if name == "sampled" else {}))


LAYOUTS = [DataLayout(Path("results"), "mnist-28", "half"), ExperimentLayout(Path("results"), "mnist")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: type(layout).__name__)
def test_paths_stay_in_the_folder_and_differ(layout: DataLayout | ExperimentLayout) -> None:
    paths = dict(paths_of(layout))
    assert len(paths) >= 5
    assert all(path.is_relative_to(layout.folder) and ".." not in path.parts for path in paths.values())
    assert len(set(paths.values())) == len(paths), "two names for one path"
    assert layout.folder.is_relative_to(layout.results)
