"""A fetch is whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import fetch
from bayesmesh.data.sources import gaussian
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.sealed import read_sealed


class Fragile(base.Source):
    """Writes a file, and fails where it is told to."""

    pretty_name = "Fragile"
    fails = False

    def fetch(self, folder: Path) -> dict[str, Any]:
        assert not list(folder.iterdir()), "starts clean"
        (folder / "part").write_text("x")
        if self.fails:
            raise DataError("interrupted")
        return {"origin": "here"}

    def read(self, folder: Path) -> Dataset:
        raise NotImplementedError


@pytest.fixture
def source() -> Fragile:
    return Fragile(gaussian.Options(num_rows=3))


def test_manifest_names_source_options_and_origin(source: Fragile, layout: DataLayout) -> None:
    manifest = fetch(source, {"name": "fragile"}, layout)
    assert read_sealed(layout.fetched, must_have_digest=True) == manifest
    assert manifest["source"] == {"name": "fragile"}
    assert manifest["options"]["num_rows"] == 3
    assert manifest["origin"] == {"origin": "here"}
    assert (layout.records / "part").exists()


def test_failed_fetch_leaves_nothing_that_looks_complete(source: Fragile, layout: DataLayout) -> None:
    fetch(source, {}, layout)
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    assert not layout.fetched.exists()
    assert not layout.records.exists()


def test_fetch_after_a_failed_one_starts_clean(source: Fragile, layout: DataLayout) -> None:
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    source.fails = False
    fetch(source, {}, layout)
    assert [path.name for path in layout.records.iterdir()] == ["part"]
    assert sorted(path.name for path in layout.folder.iterdir()) == ["fetched.json", "records"]
