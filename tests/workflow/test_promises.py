"""Nothing wrong passes in silence, and nothing good is lost: seeded cases, few here and all of them in `make nightly`."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hostile import CONFIGURATIONS, MODELS, Hostile
from workspace import hashes

DAMAGE = Path(__file__).parents[1] / "promises" / "damage.py"

IS_NIGHTLY = "BAYESMESH_NIGHTLY" in os.environ
# Without data among the folders, after which all jobs would run again.
SUBSETS = range(30) if IS_NIGHTLY else (3,)
PAIRS = range(40 if IS_NIGHTLY else 2)
MISTAKES = [*MODELS, *CONFIGURATIONS] if IS_NIGHTLY else MODELS[3:4]
NUM_DAMAGES = 600 if IS_NIGHTLY else 2

VALUES = ("posterior.zarr", "diagnostics", "averaging", "recommendations")
"""Results that hold values only, and neither times nor the names of machines."""

PAIRED = {
    "films": ("fetch", "shard", "compile", "sample", "assemble", "diagnose", "recommend", "report"),
    "digits": ("fetch", "shard", "compile", "sample", "assemble", "diagnose", "average", "report"),
}


def values_of(results: Path) -> dict[str, str]:
    """Return the hashes of all files that hold values."""
    found = hashes(results)
    return {
        name: digest
        for name, digest in found.items()
        if set(VALUES) & set(Path(name).parts)
        and "seals" not in Path(name).parts and not Path(name).name.startswith(".")
    }  # fmt: skip


@pytest.fixture
def copy(workspace: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a copy of a workspace with results, which is removed after the test, as there may be many."""
    copy = workspace.copy(tmp_path / "copy")
    yield copy
    shutil.rmtree(copy.root)


def test_damage_is_noticed(workspace: Any) -> None:
    done = subprocess.run(
        [sys.executable, str(DAMAGE), "--count", str(NUM_DAMAGES), "--seed", "1"],
        cwd=workspace.root, env=workspace.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case.name)
def test_a_mistake_is_refused_in_words_before_anything_is_sampled(fresh: Any, tmp_path: Path, case: Hostile) -> None:
    workspace = fresh(tmp_path / "project")
    case.write(workspace.root)
    done = workspace.snakemake("--cores", "2", CUDA_VISIBLE_DEVICES="")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    assert "remedy: " in said
    assert [part for part in case.said if part not in said] == []
    assert not (workspace.results / "mine" / "chains").exists()


@pytest.mark.parametrize("seed", SUBSETS)
def test_folders_that_were_deleted_come_back_with_the_same_values(copy: Any, seed: int) -> None:
    expected, chance = values_of(copy.results), random.Random(seed)  # noqa: S311
    owners = [p for p in copy.results.iterdir() if p.is_dir() and not p.name.startswith(".")]
    folders = sorted(p for owner in owners for p in (owner, *owner.iterdir()) if p.is_dir())
    deleted = chance.sample(folders, chance.randint(1, 6))
    for folder in deleted:
        shutil.rmtree(folder, ignore_errors=True)
    done = copy.snakemake("--cores", "2")
    names = [str(folder.relative_to(copy.results)) for folder in deleted]
    assert done.returncode == 0, f"{names}\n{done.stdout}{done.stderr}"
    found = values_of(copy.results)
    assert {n for n in {*expected, *found} if expected.get(n) != found.get(n)} == set(), names


@pytest.mark.parametrize("seed", PAIRS)
def test_two_jobs_at_once_leave_whole_results_or_refuse(copy: Any, seed: int) -> None:
    expected, chance = values_of(copy.results), random.Random(seed)  # noqa: S311
    name = chance.choice(sorted(PAIRED))
    # Every other pair is the same job twice.
    stages = [chance.choice(PAIRED[name])] * 2 if seed % 2 else chance.sample(PAIRED[name], 2)
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda stage: copy.run("bayesmesh.cli", stage, "--experiment", name), stages))
    for stage, done in zip(stages, ended, strict=True):
        assert "Traceback" not in done.stdout + done.stderr, (stages, done.stderr)
        assert done.returncode in (0, 5), (stage, done.stderr)
        assert done.returncode == 0 or "remedy: " in done.stderr
    done = copy.snakemake("--cores", "2")
    assert done.returncode == 0, (stages, done.stdout + done.stderr)
    assert values_of(copy.results) == expected, stages
    checked = copy.run("bayesmesh.cli", "verify")
    assert checked.returncode == 0, (stages, checked.stdout)
