"""Files that a source declares are inputs: a changed cell makes their data again, a touch or a copy does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from bayesmesh.data.shards import Shards
from bayesmesh.workflow.plan import Plan
from workspace import DIGITS, Workspace

ROWS = "".join(f"{i / 7:.3f},{'abc'[i % 3]}\n" for i in range(50))
AGAIN = ["Fetch dataset table", "Shard dataset table, split all"]


@pytest.fixture(scope="module")
def tables(fresh: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return a workspace in which the rows of two files have been sharded."""
    workspace = fresh(tmp_path_factory.mktemp("tables") / "project")
    (workspace.root / "data").mkdir()
    for name in ("one", "two"):
        (workspace.root / "data" / f"{name}.csv").write_text("x,town\n" + ROWS)
    data = {"source": "table", "files": "data/*.csv"}
    experiment = {"title": "A table", "data": data, **{key: DIGITS[key] for key in ("model", "kernel")}}
    workspace.experiment("towns").write_text(yaml.safe_dump(experiment))
    done = workspace.snakemake("--cores", "1", target(workspace))
    assert done.returncode == 0, done.stderr
    return workspace


def target(workspace: Workspace) -> str:
    plan = Plan(str(workspace.root / "config"), "results")
    return str(plan.data_layout("towns").sharded)


@pytest.fixture
def one(tables: Workspace) -> Iterator[Path]:
    """Return one of the files, which has its content and time again afterwards."""
    path, kept = tables.root / "data" / "one.csv", tables.root / "kept.csv"
    shutil.copy2(path, kept)
    yield path
    shutil.copy2(kept, path)


def planned(workspace: Workspace) -> list[str]:
    return workspace.planned(target(workspace))


def test_nothing_to_do_for_files_as_they_were(tables: Workspace) -> None:
    assert planned(tables) == []


@pytest.mark.parametrize("how", ["touched", "copied", "copied with an older time"])
def test_the_same_content_runs_nothing(tables: Workspace, one: Path, how: str) -> None:
    if how == "touched":
        one.touch()
    else:
        content = one.read_bytes()
        one.unlink()
        one.write_bytes(content)
        if "older" in how:
            os.utime(one, (1e9, 1e9))
    assert planned(tables) == []


def test_a_changed_cell_runs_again_whatever_the_time_says(tables: Workspace, one: Path) -> None:
    about = one.stat()
    text = one.read_text()
    one.write_text(text.replace("0.143", "0.144"))
    os.utime(one, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert one.stat().st_size == about.st_size
    assert planned(tables) == AGAIN
    found = tables.run("bayesmesh.cli", "verify")
    assert found.returncode == 5
    assert "fetch was made from another data/one.csv than the present one" in found.stdout


def test_another_file_that_the_pattern_names_runs_again(tables: Workspace) -> None:
    with tables.changed(tables.root / "data" / "three.csv", "x,town\n1,a\n"):
        assert planned(tables) == AGAIN
    assert planned(tables) == []


def test_a_missing_file_is_named_with_its_key(tables: Workspace) -> None:
    path = tables.experiment("towns")
    with tables.changed(path, path.read_text().replace("data/*.csv", "data/on.csv")):
        done = tables.snakemake("-n", target(tables))
    assert done.returncode == 3
    assert ".yaml: key 'data.files': data/on.csv: no such file" in done.stderr
    assert "one.csv" in done.stderr
    assert "Traceback" not in done.stderr
    assert tables.run("bayesmesh.cli", "verify").returncode == 0


def test_a_change_is_read(tables: Workspace, one: Path) -> None:
    one.write_text(one.read_text() + "7.5,d\n")
    done = tables.snakemake("--cores", "1", target(tables))
    assert done.returncode == 0, done.stderr
    assert "data/one.csv" in done.stderr
    shards = Shards(tables.root / target(tables).replace("sharded.json", "shards.zarr"))
    assert shards.num_rows == 101
    assert shards.variables["town"].levels == ("a", "b", "c", "d")


def test_a_run_that_ended_between_two_stages_of_the_data_leaves_no_former_rows(tables: Workspace, one: Path) -> None:
    """The file is fetched, and known as fetched; what was made of its former content is made again all the same."""
    one.write_text(one.read_text().replace("0.143", "0.144"))
    fetched = Path(target(tables)).parents[1] / "fetched.json"
    before = (tables.root / fetched).read_bytes()
    done = tables.snakemake("--cores", "1", str(fetched))
    assert done.returncode == 0, done.stderr
    assert (tables.root / fetched).read_bytes() != before
    done = tables.run("bayesmesh.cli", "verify")
    assert "shard was made from another" in done.stdout, done.stdout
    assert planned(tables) == AGAIN[1:]
    done = tables.snakemake("--cores", "1", target(tables))
    assert done.returncode == 0, done.stderr
    rows = Shards((tables.root / target(tables)).with_name("shards.zarr")).read_rows(0, 4)
    assert abs(rows["x"] - 0.144).min() < 1e-6
