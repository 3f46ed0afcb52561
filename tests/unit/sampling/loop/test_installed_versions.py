"""Versions by the names of folders are those that `importlib.metadata` reads."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from bayesmesh.sampling.loop.installed_versions import find_versions


def test_all_that_is_installed_has_the_version_that_it_declares() -> None:
    names = [each.metadata["Name"] for each in metadata.distributions()]
    assert len(names) > 50
    assert find_versions(names) == {name: metadata.version(name) for name in names}


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("some_thing-1.5.dist-info", "1.5"), ("Some.Thing-2.0+cu12.dist-info", "2.0+cu12"), ("some_thing-3.0-py3.12.egg-info", "3.0"),
        ("some_thing.egg-info", "4.0"),
    ],
)  # fmt: skip
def test_the_first_folder_of_the_search_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, version: str
) -> None:
    later = tmp_path / "later" / "some_thing-9.9.dist-info"
    first = tmp_path / "first" / folder
    for path, said in ((first, version), (later, "9.9")):
        path.mkdir(parents=True)
        for name in ("METADATA", "PKG-INFO"):
            (path / name).write_text(f"Metadata-Version: 2.1\nName: some-thing\nVersion: {said}\n", encoding="utf-8")
    gone = tmp_path / "gone"
    monkeypatch.setattr(sys, "path", [str(gone), str(first.parent), str(later.parent)])
    assert find_versions(["some-thing"]) == {"some-thing": version}
