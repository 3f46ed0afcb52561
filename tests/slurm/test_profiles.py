"""The workflow on a real scheduler: what it asks for, what comes out, and what is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopback import GPUS, MAX_MINUTES, Cluster
from workspace import ROOT, Workspace, hashes

GPU, CPU, MULTINODE = "profiles/slurm-gpu", "profiles/slurm-cpu", "profiles/slurm-gpu-multinode"

with_accounting = pytest.mark.parametrize("cluster", ["accounting"], indirect=True)
without_accounting = pytest.mark.parametrize("cluster", ["queue"], indirect=True)


def submitted(cluster: Cluster, workspace: Workspace) -> list[dict[str, str]]:
    """Jobs of a workspace, in the order of their submission."""
    return [job for job in cluster.jobs() if job["folder"] == str(workspace.root)]


@pytest.fixture(scope="module")
def local(make: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same experiment without a scheduler."""
    workspace = make(tmp_path_factory.mktemp("local") / "copy")
    done = workspace.snakemake("--cores", "2", "results/films/posterior.zarr")
    assert done.returncode == 0, done.stderr[-4000:]
    return workspace


@with_accounting
def test_one_gpu_a_job_from_end_to_end(
    cluster: Cluster, make: Callable[[Path], Workspace], quick: tuple[str, ...], local: Workspace, tmp_path: Path
) -> None:
    workspace = make(tmp_path / "copy")
    done = workspace.snakemake("--profile", GPU, *quick)
    assert done.returncode == 0, done.stderr[-6000:]
    assert (workspace.results / "index.html").exists()

    jobs = submitted(cluster, workspace)
    rules = [re.sub("_wildcards_films", "", job["comment"]) for job in jobs]
    assert rules[0] == "rule_compile"
    assert set(rules[1:3]) == {"rule_sample_group-000", "rule_sample_group-001"}
    assert rules[3:] == ["rule_results_assemble_diagnose_recommend_report"], "what follows the chains is one job"
    for job in jobs:
        assert (job["state"], job["partition"], job["account"]) == ("COMPLETED", "gpu", "tests")
        assert "gres/gpu=1" in job["granted"].split(","), job
        assert "cpu=1" in job["granted"].split(","), job
    # By the audit: a tiny program needs little more than Python, and minutes.
    sample = jobs[1]
    assert int(re.sub(r"\D", "", sample["memory"])) < 3000
    assert sample["limit"] == "11:00"
    accounted = cluster.ask("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "JobID,AllocTRES").stdout
    assert all(re.search(rf"^{job['id']}\|.*gres/gpu=1", accounted, re.M) for job in jobs)

    assert hashes(workspace.results / "films/posterior.zarr") == hashes(local.results / "films/posterior.zarr")


@without_accounting
def test_cores_of_a_cluster_without_accounting(
    cluster: Cluster, make: Callable[[Path], Workspace], quick: tuple[str, ...], local: Workspace, tmp_path: Path
) -> None:
    workspace = make(tmp_path / "copy")
    # No account, no partition: the scheduler's own defaults.
    site = {"cpu": {"cores": 1, "max_memory_mb": 4000, "max_minutes": MAX_MINUTES}}
    (workspace.root / "profiles" / "site.yaml").write_text(yaml.safe_dump(site))
    done = workspace.snakemake("--profile", CPU, *quick, "--", "results/films/chains/group-000.json")
    assert done.returncode == 0, done.stderr[-6000:]
    jobs = submitted(cluster, workspace)
    assert [(job["state"], job["partition"], "gpu" in job["granted"]) for job in jobs] == [
        ("COMPLETED", "cpu", False)
    ] * 2
    (chains,) = (workspace.results / "films/chains").glob("*/group-000/draws.zarr")
    assert hashes(chains) == hashes(local.results / chains.relative_to(workspace.results))


@with_accounting
@pytest.mark.parametrize(
    ("profile", "key", "value", "said"),
    [
        (MULTINODE, "gpu.gpus_per_node", GPUS + 1, "Requested node configuration is not available"),
        (MULTINODE, "gpu.nodes", 3, "Node count specification"),
        (GPU, "gpu.model", "a100", "Invalid generic resource|node configuration is not available"),
        (GPU, "gpu.max_minutes", MAX_MINUTES + 1, "time limit"),
        (CPU, "cpu.max_minutes", MAX_MINUTES + 1, "time limit"),
        (CPU, "cpu.partition", "nope", "[Ii]nvalid partition"),
        (CPU, "cpu.max_memory_mb", 10**6, "[Mm]emory|node configuration is not available"),
        (CPU, "cpu.cores", 64, "More processors requested"),
        (CPU, "account", "nobody", "[Ii]nvalid account"),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused_with_the_reason_and_the_key(
    cluster: Cluster,
    make: Callable[[Path], Workspace],
    site: dict[str, Any],
    tmp_path: Path,
    profile: str,
    key: str,
    value: Any,
    said: str,
) -> None:
    workspace = make(tmp_path / "copy")
    block, _, last = key.rpartition(".")
    wrong = {**site, block: {**site[block], last: value}} if block else {**site, last: value}
    (workspace.root / "profiles" / "site.yaml").write_text(yaml.safe_dump(wrong))
    done = workspace.snakemake("--profile", profile)
    assert done.returncode == 2
    message = done.stderr[done.stderr.index("error: ") :]
    assert re.search(said, message), message
    # The key, or the block whose keys together are more than any node has.
    assert f"profiles/site.yaml: key '{key}'" in message or f"profiles/site.yaml: key '{block}'" in message, message
    assert "remedy: " in message
    assert "Traceback" not in done.stderr
    assert submitted(cluster, workspace) == []
    assert not workspace.results.exists()


@with_accounting
def test_the_quickstart_is_ten_jobs_at_most(
    cluster: Cluster, make: Callable[[Path], Workspace], tmp_path: Path
) -> None:
    workspace = make(tmp_path / "copy")
    shutil.rmtree(workspace.root / "config")
    shutil.copytree(ROOT / "config", workspace.root / "config")
    done = workspace.snakemake("--profile", GPU, "--dry-run", "quickstart")
    assert done.returncode == 0, done.stderr[-4000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.M))
    grouped = len(re.findall(r"Group job results", done.stdout + done.stderr))
    assert grouped == int(counts["report"]) == 3
    assert int(counts["compile"]) + int(counts["sample"]) + grouped <= 10
    assert set(counts) - {"total"} <= {
        "compile", "sample", "assemble", "diagnose", "average", "recommend", "report", "fetch", "shard", "index", "quickstart"
    }, "a new rule is a job of its own unless a profile groups it"  # fmt: skip
