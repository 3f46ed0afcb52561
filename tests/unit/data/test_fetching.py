"""Given files are checked, a network that is not there is noticed at once, and a fetch is whole or not there."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import fetch, probe
from bayesmesh.data.sources import gaussian
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.records.sealed import read_sealed


def test_probe_gives_up_on_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        start = time.monotonic()
        assert probe(f"http://127.0.0.1:{server.getsockname()[1]}/x", limit_s=1.0)
        assert time.monotonic() - start < 3


class Fragile(base.Source):
    """Writes a file, and fails where it is told to."""

    pretty_name = "Fragile"
    fails = False
    content = "x"

    def fetch(self, folder: Path) -> dict[str, Any]:
        assert not list(folder.iterdir()), "starts clean"
        (folder / "part").write_text(self.content)
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


def test_manifests_differ_where_what_was_kept_or_a_file_of_the_user_does(
    source: Fragile, layout: DataLayout, tmp_path: Path
) -> None:
    """Or shards would be taken for those of the present rows."""
    own = tmp_path / "own.csv"
    own.write_text("x")
    seen = [fetch(source, {}, layout, {"own.csv": own})]
    assert fetch(source, {}, layout, {"own.csv": own}) == seen[0]
    own.write_text("y")
    seen.append(fetch(source, {}, layout, {"own.csv": own}))
    source.content = "other"
    seen.append(fetch(source, {}, layout, {"own.csv": own}))
    assert len({str(manifest) for manifest in seen}) == 3


def test_failed_fetch_leaves_the_files_of_the_last_one(source: Fragile, layout: DataLayout) -> None:
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    assert not layout.fetched.exists()
    assert not layout.records.exists()
    source.fails = False
    fetch(source, {}, layout)
    before = layout.fetched.read_bytes()
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    assert layout.fetched.read_bytes() == before
    assert (layout.records / "part").exists()


def test_fetch_after_a_failed_one_starts_clean(source: Fragile, layout: DataLayout) -> None:
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    source.fails = False
    fetch(source, {}, layout)
    assert [path.name for path in layout.records.iterdir()] == ["part"]
    assert sorted(path.name for path in layout.folder.iterdir()) == ["fetched.json", "records"]
