"""verify names all damage, the next stage that reads it refuses it, and gc removes what no configuration names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.operations.verify_files import check, list_owners
from workspace import hashes

SHARD = "chains/*/group-000/draws.zarr/posterior/film_biases/c/0/0/0"
CHECKPOINT = "chains/*/group-000/checkpoints/sample-*8.npz"
MARKER = "chains/*/group-000/commits/sample-000000000-*.json"
POSTERIOR = "posterior.zarr/posterior/film_biases/c/0/0/0"
ROWS = "../data/films-*/held-out-*/shards.zarr/rows/*/c/0/0"


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str, tuple[str, ...]]] = {
    "a flipped bit in a shard": (SHARD, _flip, "is damaged: its sha256", ("sample",)),
    "a truncated marker": (MARKER, _truncate, "is damaged", ("sample",)),
    "a lost record": ("chains/*/group-000/store.json", Path.unlink, "is missing", ("sample",)),
    "a flipped bit in the posterior": (POSTERIOR, _flip, "has been altered", ("diagnose",)),
    "a flipped bit in the data": (ROWS, _flip, "has been altered", ("compile",)),
}


GROUP = "chains/*/group-001"


def _change(**values: Any) -> Callable[[Path], None]:
    """Return a function that changes values of a record and leaves its digest."""

    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def _remove_group(folder: Path) -> None:
    shutil.rmtree(folder)
    (folder.parent.parent / "group-001.json").unlink()


def _set_aside(record: Path) -> None:
    """Leave what a run leaves that is killed before it has replaced lost results."""
    record.replace(record.with_name(f"{record.name}.aside"))
    shutil.rmtree(record.parents[2] / "films" / "recommendations")


def _lose_draws(folder: Path) -> None:
    """Remove the draws with their markers, and nothing else."""
    for path in (folder / "commits").glob("sample*"):
        path.unlink()
    for name in ("posterior", "sample_stats"):
        shutil.rmtree(folder / "draws.zarr" / name)


NOT_WRITTEN = "its content is not what was written"
DAMAGE |= {
    "lost draws": ("chains/*/group-000", _lose_draws, "a marker was lost", ("sample",)),
    "a removed group": (GROUP, _remove_group, "is missing", ("assemble",)),
    "a removed table": ("diagnostics/summary.csv", Path.unlink, "is missing", ()),
    "a removed record": ("../seals/films/diagnose.json", Path.unlink, "no record of the job that wrote it", ()),
    "a changed record of a group": ("chains/*/group-000/store.json", _change(environment={}), NOT_WRITTEN, ("sample",)),
    "a record set aside": ("../seals/films/recommend.json", _set_aside, "was set aside by a run that ended before", ()),
    "an altered specification": ("specs/diagnose-*.json", _flip, "has been altered", ()),
    "a removed ledger of a job": ("ledger/compile.json", Path.unlink, "is missing, though compile has run", ()),
    "removed settings of a job": ("specs/diagnose-*.json", Path.unlink, "is missing, though diagnose has run", ()),
    "an altered record": ("../seals/films/compile.json", _change(code=""), NOT_WRITTEN, ()),
    "a folder that is gone": ("../films", shutil.rmtree, "films: is missing", ()),
}


def _all_damage(results: Path) -> list[str]:
    return [line for owner in list_owners(results) for line in check(results, owner).damaged]


def _stage(copy: Any, stage: str) -> Any:
    """Run a stage as the workflow did: another number of cores would be another mesh."""
    (spec,) = (copy.results / "films" / "specs").glob(f"{stage}-*.json")
    cores = ["--cores", "1"] if stage in ("sample", "assemble") else []
    return copy.run("bayesmesh.cli", stage, "--spec", str(spec.relative_to(copy.root)), *cores)


@pytest.fixture
def damaged(workspace: Any, tmp_path: Path) -> Callable[[str, Callable[[Path], None]], Any]:
    """Return a function that gives a copy of the workspace with one file damaged."""

    def damaged(pattern: str, damage: Callable[[Path], None]) -> Any:
        copy = workspace.copy(tmp_path / "copy")
        found = sorted((copy.results / "films").glob(pattern))
        assert found, pattern
        damage(found[0])
        return copy

    return damaged


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_by_verify_and_by_the_next_stage(damaged: Any, case: str) -> None:
    pattern, damage, message, stages = DAMAGE[case]
    copy = damaged(pattern, damage)
    lines = _all_damage(copy.results)
    assert any(message in line for line in lines), lines
    name = Path(pattern).name if "*" not in Path(pattern).name else ""
    assert all(line.startswith(str(copy.results)) and name in line for line in lines[:1])
    before = {p: p.read_bytes() for p in (copy.results / "films" / "chains").rglob("*") if p.is_file()}
    for stage in stages:
        done = _stage(copy, stage)
        assert done.returncode == 5, (stage, done.stderr)
        assert "began elsewhere" not in done.stderr
        assert "error: " in done.stderr
        assert "remedy: " in done.stderr
        assert "Traceback" not in done.stderr
    assert {p: p.read_bytes() for p in before} == before, "what is there is left alone"


def test_verify_says_all_of_it_with_exit_code_5(damaged: Any) -> None:
    copy = damaged(SHARD, _flip)
    next(copy.results.glob("films/" + CHECKPOINT)).unlink()
    done = copy.run("bayesmesh.cli", "verify", "films")
    assert done.returncode == 5
    assert "film_biases/c/0/0/0: is damaged" in done.stdout
    assert ".npz: is missing" in done.stdout
    assert "results/films: 2 damaged" in done.stdout


@pytest.mark.nightly
def test_what_is_damaged_is_made_again_with_the_same_values(workspace: Any, tmp_path: Path) -> None:
    copy = workspace.copy(tmp_path / "copy")
    films, records = copy.results / "films", copy.results / "seals" / "films"
    (shard,) = films.glob(SHARD)
    damaged = [shard.parent.parent / "3" / "0", *films.glob("chains/*/group-001/checkpoints/sample-*8.npz")]
    damaged += [
        films / "diagnostics" / "verdict.json",
        films / "ledger" / "sample-group-001.json",
        films / "report.html",
    ]
    damaged += [*films.glob("specs/diagnose-*.json"), records / "recommend.json", sorted(films.glob(ROWS))[0]]
    for path in damaged:
        _flip(path)
    (films / "recommendations" / "top.csv").unlink()
    (films / "recommendations" / "top.csv").mkdir()
    before = {path: path.read_bytes() for path in damaged}
    done = copy.run("bayesmesh.cli", "verify", "films", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("everything is whole\n")
    for folder in ("posterior.zarr", "diagnostics", "recommendations"):
        now, then = hashes(films / folder), hashes(workspace.results / "films" / folder)
        assert now == then
    aside = [path.read_bytes() for path in (copy.results / ".damaged").rglob("*") if path.is_file()]
    draws = [content for path, content in before.items() if "/chains/" in str(path)]
    assert all(content in aside for content in draws), "draws are never deleted"
    assert copy.run("bayesmesh.cli", "verify").returncode == 0
    # The index was written apart from the workflow, which may take it for older than the page.
    assert copy.planned() in ([], ["Write the index of all experiments"])


def test_gc_keeps_what_the_configuration_names_and_removes_the_rest_after_asking(
    workspace: Any, tmp_path: Path
) -> None:
    copy = workspace.copy(tmp_path / "copy")
    chains = copy.results / "films" / "chains"
    (current,) = (p for p in chains.iterdir() if p.is_dir())
    done = copy.run("bayesmesh.cli", "gc")
    assert (done.returncode, done.stdout) == (0, "every chain is named by the configuration\n")
    old = chains / "0123456789abcdef"
    shutil.copytree(current, old)
    # An experiment whose file is gone.
    copy.experiment("digits").unlink()
    (copy.root / "config" / "config.yaml").write_text("experiments: [films]\n")
    done = copy.run("bayesmesh.cli", "gc")
    assert done.returncode == 0, done.stderr
    assert str(old.relative_to(copy.root)) in done.stdout
    assert "results/digits/chains/" in done.stdout
    assert current.name not in done.stdout
    assert "nothing removed: answer on a terminal, or give --yes" in done.stdout
    assert old.is_dir()
    done = copy.run("bayesmesh.cli", "gc", "--yes")
    assert done.returncode == 0, done.stderr
    assert not old.exists()
    assert not [p for p in (copy.results / "digits" / "chains").iterdir() if p.is_dir()]
    assert current.is_dir()
    assert (copy.results / "digits" / "posterior.zarr").is_dir(), "a posterior shares the draws and needs no chains"
    assert not [p for p in chains.iterdir() if p.name.startswith(".")]


def test_gc_leaves_alone_what_it_cannot_judge_and_what_is_being_written(workspace: Any, tmp_path: Path) -> None:
    copy = workspace.copy(tmp_path / "copy")
    chains = copy.results / "films" / "chains"
    (current,) = (p for p in chains.iterdir() if p.is_dir())
    (data,) = copy.results.glob("data/films-*")
    data.rename(tmp_path / "data")
    done = copy.run("bayesmesh.cli", "gc", "--yes")
    assert "films: kept, because its identity is unknown" in done.stdout
    assert current.is_dir()
    (tmp_path / "data").rename(data)
    old = chains / "0123456789abcdef"
    shutil.copytree(current, old)
    lock = {"pid": 1, "token": "x", "host": "elsewhere", "user": "somebody", "heartbeat_seconds": 0.2}
    (old / "group-000" / "writer.json").write_text(json.dumps(lock))
    done = copy.run("bayesmesh.cli", "gc", "--yes")
    assert done.returncode == 0, "its owner gives no sign of life"
    assert not old.exists()
