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
    for name, member in inspect.getmembers(type(layout), lambda m: isinstance(m, property) or inspect.isfunction(m)):
        # `read_by` gives some of the other paths, by the words of an analysis.
        if name.startswith("_") or name == "read_by":
            continue
        if isinstance(member, property):
            found = getattr(layout, name)
        else:
            wanted = list(inspect.signature(member).parameters)[1:]
            values = {k: group_name(3) if (name, k) == ("sampled", "group") else ARGUMENTS[k] for k in wanted}
            found = member(layout, **values)
        # Several together are those of other members.
        if isinstance(found, Path):
            yield name, found


LAYOUTS = [DataLayout(Path("results"), "mnist-28", "half"), ExperimentLayout(Path("results"), "mnist")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: type(layout).__name__)
def test_paths_stay_in_the_folder_and_differ(layout: DataLayout | ExperimentLayout) -> None:
    paths = dict(paths_of(layout))
    assert len(paths) >= 5
    assert all(path.is_relative_to(layout.folder) and ".." not in path.parts for path in paths.values())
    assert len(set(paths.values())) == len(paths), "two names for one path"
    assert layout.folder.is_relative_to(layout.results)


def test_a_manifest_is_beside_the_identities_and_not_in_one() -> None:
    layout = ExperimentLayout(Path("results"), "mnist")
    assert layout.group("00ff", 3).parent == layout.identity("00ff")
    assert layout.sampled(group_name(3)).parent == layout.identity("00ff").parent


def test_names_of_groups_sort_as_their_numbers() -> None:
    names = [group_name(g) for g in range(0, 1000, 37)]
    assert sorted(names) == names
