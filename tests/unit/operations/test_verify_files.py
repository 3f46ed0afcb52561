"""Damaged, outdated and unfinished results are named apart from each other, and whole ones are not named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.operations.verify_files import Findings, check, list_owners
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.records.checked import write_checked
from bayesmesh.store.records.jobs import read_record, record_file, record_outputs
from recording import record_as

IDENTITY = "0123456789abcdef"
WHOLE = Findings([], [], [])


def _record(layout: ExperimentLayout, job: str, *outputs: Path, **more: object) -> None:
    """Record results as a job does, which also leaves a ledger."""
    record_as(layout.results, layout.experiment, job, outputs, **{"specification": "s", **more})  # type: ignore[arg-type]  # as the caller says
    ledger = Ledger(layout.ledger_part(job), job)
    ledger.finish()
    ledger.save()


def _commit(layout: ExperimentLayout, start: int) -> None:
    store = ChainStore(layout.group(IDENTITY, 0), 4, {"identity": IDENTITY})
    values = {"sample_stats": {"diverging": np.zeros((2, 2), bool)}}
    store.commit("sample", start, values, {"x": np.zeros(1)}, {})
    store.end_writing()


@pytest.fixture
def layout(tmp_path: Path) -> ExperimentLayout:
    """Return an experiment with chains, a posterior and a summary made from it."""
    layout = ExperimentLayout(tmp_path, "toy")
    write_checked(layout.identity_record(IDENTITY), {"segment_draws": 4, "config": {"compute": {"processes": 1}}})
    _commit(layout, 0)
    layout.sampled("group-000").write_text("{}")
    _record(layout, "sample-group-000", layout.sampled("group-000"), kept=[layout.identity(IDENTITY)])
    (layout.posterior / "x" / "c").mkdir(parents=True)
    (layout.posterior / "x" / "c" / "0").write_bytes(b"draws")
    (layout.posterior / "zarr.json").write_text("{}")
    _record(layout, "assemble", layout.posterior)
    layout.summary.parent.mkdir()
    layout.summary.write_text("a,b\n")
    name = layout.posterior.relative_to(tmp_path).as_posix()
    _record(
        layout,
        "diagnose",
        layout.summary,
        inputs={name: read_record(record_file(tmp_path, "toy", "assemble")).digest(name)},
    )
    return layout


def test_what_is_as_it_was_written_is_whole(layout: ExperimentLayout) -> None:
    assert list_owners(layout.results) == ["toy"]
    assert check(layout.results, "toy") == WHOLE


@pytest.mark.parametrize(
    "name",
    [
        "toy/posterior.zarr/x/c/0", "toy/posterior.zarr/zarr.json", "toy/diagnostics/summary.csv", "toy/chains/group-000.json",
        f"toy/chains/{IDENTITY}/identity.json", f"toy/chains/{IDENTITY}/group-000/store.json", "toy/ledger/assemble.json",
        f"toy/chains/{IDENTITY}/group-000/checkpoints/sample-000000002.npz", "seals/toy/diagnose.json",
        f"toy/chains/{IDENTITY}/group-000/commits/sample-000000000-000000002.json",
        f"toy/chains/{IDENTITY}/group-000/draws.zarr/sample_stats/diverging/zarr.json",
        f"toy/chains/{IDENTITY}/group-000/draws.zarr/sample_stats/diverging/c/0/0",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", ["emptied", "gone", "a folder", "a link to nothing", "a link to itself", "a pipe", "longer"]
)
def test_every_damage_of_every_file_is_named(layout: ExperimentLayout, name: str, kind: str) -> None:
    path = layout.results / name
    content = path.read_bytes()
    path.unlink()
    if kind == "a folder":
        path.mkdir()
    elif kind.startswith("a link"):
        path.symlink_to("nowhere" if kind == "a link to nothing" else path.name)
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind != "gone":
        path.write_bytes(b"" if kind == "emptied" else content + b" ")
    assert any(str(path) in line for line in check(layout.results, "toy").damaged)


def test_what_was_made_from_something_else_is_out_of_date(layout: ExperimentLayout) -> None:
    (layout.posterior / "zarr.json").write_text("[]")
    _record(layout, "assemble", layout.posterior)
    found = check(layout.results, "toy")
    assert found.damaged == []
    assert found.outdated == [
        f"{layout.folder}: diagnose was made from another {layout.posterior} than the present one"
    ]


def test_what_is_being_written_is_told_apart(layout: ExperimentLayout) -> None:
    layout.summary.write_text("half")
    with WriterLock(layout.results / "seals" / "toy", name=".diagnose.lock"):
        found = check(layout.results, "toy")
    assert found.damaged == []
    assert f"diagnose is being written by process {os.getpid()} of" in found.writers[0]
    assert check(layout.results, "toy").damaged


def test_results_outside_the_flow_are_compared_with_their_records(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("reproduction/claims.csv", "studies/stopping.csv", "index.html")]
    for path, job in zip(files, ("claims", "stopping", "index"), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a\n")
        record_outputs(tmp_path, "" if job == "index" else path.parent.name, job, [path])
    assert list_owners(tmp_path) == ["reproduction", "studies", ""]
    assert [check(tmp_path, owner) for owner in list_owners(tmp_path)] == [WHOLE] * 3
    for path in files:
        path.write_text("b\n")
    assert [len(check(tmp_path, owner).damaged) for owner in list_owners(tmp_path)] == [1, 1, 1]


def test_a_pipe_in_place_of_a_specification_is_named_and_not_waited_for(layout: ExperimentLayout) -> None:
    layout.spec("any").parent.mkdir(exist_ok=True)
    pipe = layout.spec("diagnose-0123456789ab")
    os.mkfifo(pipe)
    signal.alarm(20)
    try:
        found = check(layout.results, "toy")
    finally:
        signal.alarm(0)
    assert any(f"{pipe}: cannot be read" in each for each in found.damaged)
