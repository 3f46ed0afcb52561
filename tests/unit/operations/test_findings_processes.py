"""A group of several processes is whole when the folders of all of them are."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.errors import StoreError
from bayesmesh.operations.verify_files import check
from bayesmesh.store.chains.manifests import PROCESSES_REMEDY, read_manifest
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.layout import ExperimentLayout, process_folder
from bayesmesh.store.records.checked import write_checked
from bayesmesh.workflow.stages.assemble import _verified
from recording import record_as

IDENTITY = "0123456789abcdef"
DATA = {"source": "gaussian", "held_out_fraction": 0.0, "split_seed": 0}


@pytest.fixture
def layout(tmp_path: Path) -> ExperimentLayout:
    """Two processes with 4 draws each, and the manifest of their group."""
    layout = ExperimentLayout(tmp_path, "some")
    config = {"data": DATA, "compute": {"processes": 2}}
    write_checked(layout.identity_record(IDENTITY), {"segment_draws": 4, "config": config})
    for process in range(2):
        _sample(layout, process)
    content = {"identity": IDENTITY, "folder": f"chains/{IDENTITY}/group-000", "num_processes": 2, "num_chains": 2}
    content |= {"num_draws": 4, "committed_draws": 4, "segment_draws": 4, "environment": {}, "changed_environment": []}
    write_checked(layout.sampled("group-000"), content)
    record_as(tmp_path, "some", "sample-group-000", [layout.sampled("group-000")], [layout.chains])
    return layout


def _sample(layout: ExperimentLayout, process: int, draws: int = 4) -> ChainStore:
    store = ChainStore(process_folder(layout.group(IDENTITY, 0), process), 4, {"identity": IDENTITY})
    values = {"sample_stats": {"diverging": np.zeros((draws, 2), bool)}}
    store.commit("sample", 0, values, {"x": np.zeros(1)}, {})
    store.end_writing()
    return store


def _damage(layout: ExperimentLayout) -> list[str]:
    """Return the damage found in chains; these experiments have no ledgers."""
    return [line for line in check(layout.results, "some").damaged if "/chains/" in line]


def test_a_whole_group_is_no_damage(layout: ExperimentLayout) -> None:
    assert _damage(layout) == []
    assert len(_verified(layout, read_manifest(layout.sampled("group-000")), 4)) == 2


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("process", [0, 1])
def test_the_folder_of_a_process_that_is_gone_is_damage(
    layout: ExperimentLayout, process: int, has_manifest: bool
) -> None:
    manifest = read_manifest(layout.sampled("group-000"))
    shutil.rmtree(folder := process_folder(layout.group(IDENTITY, 0), process))
    if not has_manifest:
        layout.sampled("group-000").unlink()
    lines = _damage(layout)
    assert f"{folder}: is missing, although 2 processes made the draws of group-000" in lines
    with pytest.raises(StoreError, match="the chains are missing") as caught:
        _verified(layout, manifest, 4)
    assert caught.value.remedy == PROCESSES_REMEDY


def test_a_group_that_is_gone_with_all_its_processes_is_sampled_again(layout: ExperimentLayout) -> None:
    for process in range(2):
        shutil.rmtree(process_folder(layout.group(IDENTITY, 0), process))
    with pytest.raises(StoreError, match="the chains are missing\n  remedy: run the sample stage again"):
        _verified(layout, read_manifest(layout.sampled("group-000")), 4)
    path = layout.sampled("group-000")
    ChainStore(layout.group(IDENTITY, 0), 4, {"identity": IDENTITY}).reconcile_manifest(path)
    assert not path.exists(), "it tells of chains that are gone"


def test_a_store_with_fewer_draws_than_its_manifest_tells_of(layout: ExperimentLayout) -> None:
    for process in range(2):
        shutil.rmtree(process_folder(layout.group(IDENTITY, 0), process))
        store = _sample(layout, process, draws=3)
    path = layout.sampled("group-000")
    gone = [line for line in _damage(layout) if "commits/sample-000000000-000000004.json: is missing" in line]
    assert len(gone) == 2
    again = ChainStore(store.folder, 4, {"identity": IDENTITY})
    with pytest.raises(StoreError, match=r"names 3 draws, though 4 were committed by .*: markers were lost\n  remedy"):
        again.reconcile_manifest(path)
    assert path.exists()
