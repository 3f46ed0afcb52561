"""Chains that are being written are left as they are, with all that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.versions import DRAWS
from bayesmesh.operations.gc import Unnamed, find_unnamed, remove, table
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.records.checked import write_checked
from bayesmesh.workflow.plan import Plan

IDENTITY = "0123456789abcdef"


@pytest.fixture
def unnamed(tmp_path: Path) -> Unnamed:
    for group in ("group-000", "group-001"):
        (tmp_path / IDENTITY / group).mkdir(parents=True)
        write_checked(tmp_path / f"{group}.json", {"identity": IDENTITY})
    write_checked(tmp_path / "group-002.json", {"identity": "f" * 16})
    return Unnamed(tmp_path / IDENTITY, 0, 0, 0.0)


def test_all_groups_are_locked_until_the_folder_has_another_name(
    unnamed: Unnamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, seen = Path.rename, []

    def renamed(path: Path, target: Path) -> Path:
        seen.append([p.parent.name for p in sorted(path.glob(f"*/{LOCK_NAME}"))])
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    remove(unnamed)
    assert seen == [["group-000", "group-001"]]
    assert [p.name for p in unnamed.folder.parent.iterdir()] == ["group-002.json"]


def test_chains_of_an_earlier_version_are_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    other = "title: Other\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"
    (tmp_path / "config" / "experiments" / "other.yaml").write_text(other)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [other]\n")
    for identity, record in ((IDENTITY, {"config": {}}), ("f" * 16, {"config": {}, "draws": DRAWS})):
        write_checked(tmp_path / "results" / "some" / "chains" / identity / "identity.json", record)
    lines = table(find_unnamed(Plan())[0]).splitlines()
    assert [IDENTITY in line for line in lines if line.endswith("of an earlier version")] == [True]
