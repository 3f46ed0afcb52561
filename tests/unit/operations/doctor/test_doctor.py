"""doctor: the table, its exit code, and every problem with its fix."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.operations import doctor
from bayesmesh.operations.doctor import cluster, hardware
from bayesmesh.operations.doctor import storage as doctor_storage
from bayesmesh.operations.doctor.finding import BLOCKS, OK, WARNS, Finding

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture
def commands(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function of (name, script) pairs that gives an environment with these commands alone."""

    def make(**scripts: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return {"PATH": str(folder)}

    return make


def findings(rows: Iterable[tuple[str, ...]]) -> list[Finding]:
    return [Finding("a group", *row) for row in rows]


def one(findings: list[Finding], name: str) -> Finding:
    (found,) = [f for f in findings if f.name == name]
    return found


# -- the table ---------------------------------------------------------------------------------------------------------


def test_problems_stand_below_the_table_each_with_its_fix() -> None:
    text = doctor.render(
        [Finding("a", "b", "c"), Finding("d", "e", "f", WARNS, "g"), Finding("h", "i", "j", BLOCKS, "k")]
    )
    assert text.index("BLOCKS: h, i: j\n  fix: k") < text.index("warns: d, e: f\n  fix: g"), "the worst comes first"
    assert text.endswith("not usable: 1 problem to fix")


def test_a_finding_has_a_remedy_if_and_only_if_it_is_a_problem() -> None:
    with pytest.raises(ValueError, match="remedy"):
        Finding("a", "b", "c", WARNS)
    with pytest.raises(ValueError, match="remedy"):
        Finding("a", "b", "c", OK, "d")


@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"JAX_PLATFORMS": "nonsense"}, 1)])
def test_the_exit_code_says_whether_jobs_could_run(tmp_path: Path, variables: dict[str, str], code: int) -> None:
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [one]\n")
    (tmp_path / "config" / "experiments" / "one.yaml").write_text(GOOD)
    before = sorted(tmp_path.rglob("*"))
    start = time.perf_counter()
    text, found = doctor.describe(tmp_path / "results", {**os.environ, **variables}, tmp_path / "config")
    assert found == code, text
    assert time.perf_counter() - start < 30
    assert ("nonsense" in text) == bool(code)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind"


# -- machine -----------------------------------------------------------------------------------------------------------


STEP_OF_600_MB = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "600"}


@pytest.mark.parametrize(
    ("environ", "said", "state"),
    [
        ({}, "8.0 GiB available", OK),
        (STEP_OF_600_MB, "0.6 GiB available, all of this job", WARNS),
        ({"SLURM_MEM_PER_NODE": "600"}, "8.0 GiB available", OK),
        ({"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "0"}, "8.0 GiB available", OK),
        ({"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "4"}, "4.0 GiB available", OK),
        ({"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "much"}, "SLURM_MEM_PER_NODE=much: not an integer", WARNS),
    ],
)
def test_memory_is_what_the_least_of_machine_and_job_leaves(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], said: str, state: str
) -> None:
    monkeypatch.setattr(hardware, "available_memory", lambda: 2**33)
    found = Finding("machine", *hardware.describe_memory(environ))
    assert found.seen.startswith(said)
    assert found.state == state


# -- storage -----------------------------------------------------------------------------------------


def test_a_place_where_nothing_can_be_written_blocks(tmp_path: Path) -> None:
    # Not by permissions, which a superuser does not feel.
    found = findings(doctor_storage.check_disk(Path("/proc/self/results"), {}, tmp_path))
    assert [f.state for f in found] == [BLOCKS]
    assert found[0].remedy.startswith("make ")


def test_a_full_disk_is_not_mended_by_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(doctor_storage, "_exercise", fail)
    (found,) = findings(doctor_storage.check_disk(tmp_path, {}, tmp_path))
    assert found.seen.endswith("No space left on device")
    assert found.remedy.startswith("free some space")


def test_a_wrong_configuration_blocks(tmp_path: Path) -> None:
    (found,) = findings(doctor_storage.check_configuration(tmp_path, {}, tmp_path / "config"))
    assert found.state == BLOCKS
    assert "cannot be read" in found.seen


def test_a_wrong_site_blocks(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("cpu:\n  max_minuts: 60\n")
    environ = {"BAYESMESH_SITE": str(tmp_path / "site.yaml"), "PATH": str(tmp_path)}
    (found,) = findings(cluster.check_site(tmp_path, environ, tmp_path))
    assert found.state == BLOCKS
    assert "max_minuts" in found.seen
    (tmp_path / "site.yaml").write_text("cpu:\n  max_minutes: 60\n")
    assert [f.state for f in findings(cluster.check_site(tmp_path, environ, tmp_path))] == [OK], "no scheduler to ask"


def test_the_scheduler_is_asked_as_the_profiles_do(
    commands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site.yaml").write_text("gpu: {nodes: 3}\n")
    environ = {**commands(sbatch=""), "BAYESMESH_SITE": str(tmp_path / "site.yaml")}

    def refuse(path: Path, found: Any, kind: str, nodes: bool) -> None:
        assert path == tmp_path / "site.yaml"
        if nodes:
            raise ConfigError(f"key 'gpu.nodes': {found.gpu.nodes} are too many", "take no more")

    monkeypatch.setattr(cluster, "check_with_scheduler", refuse)
    found = findings(cluster.check_site(tmp_path, environ, tmp_path))
    assert one(found, "profiles").seen == "the scheduler accepts jobs of slurm-cpu, slurm-gpu"
    refused = one(found, "slurm-gpu-multinode")
    assert (refused.state, refused.seen) == (WARNS, "key 'gpu.nodes': 3 are too many")

    def hang(path: Path, found: Any, kind: str, nodes: bool) -> None:
        raise ConfigError("sbatch did not answer in 15 s", f"see whether the scheduler is up ({kind}, {nodes})")

    monkeypatch.setattr(cluster, "check_with_scheduler", hang)
    assert [f.state for f in findings(cluster.check_site(tmp_path, environ, tmp_path))] == [OK, WARNS], (
        "it is said once"
    )
