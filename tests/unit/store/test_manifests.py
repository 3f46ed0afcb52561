"""Manifests of chain groups: those of earlier versions are read, incomplete ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.manifests import missing_draws, read_manifest
from bayesmesh.store.sealed import write_sealed

FIRST_RELEASE: dict[str, Any] = {
    "identity": "0123456789abcdef", "folder": "chains/0123456789abcdef/group-000", "num_chains": 4, "num_draws": 6,
    "segment_draws": 4, "environment": {"kind": "cpu"}, "changed_environment": [],
}  # fmt: skip


def test_a_manifest_of_the_first_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / "group-000.json"
    write_sealed(path, {**FIRST_RELEASE, "acceptance": 1})
    manifest = read_manifest(path)
    assert (manifest.num_processes, manifest.committed_draws, manifest.stop, manifest.statistics) == (1, None, None, {})
    assert "names 0 draws, though 6 were committed" in missing_draws(path, manifest, tmp_path, None)


@pytest.mark.parametrize("change", [{"num_draws": "6"}, {"num_chains": None}, {"stop": []}, {"environment": "cpu"}])
def test_a_manifest_with_a_value_of_another_type_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "group-000.json"
    write_sealed(path, FIRST_RELEASE | change)
    with pytest.raises(StoreError, match=f"{path}: is damaged: not the manifest of a chain group"):
        read_manifest(path)


def test_a_manifest_without_a_key_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "group-000.json"
    write_sealed(path, {k: v for k, v in FIRST_RELEASE.items() if k != "folder"})
    with pytest.raises(StoreError, match="is damaged: not the manifest of a chain group"):
        read_manifest(path)
