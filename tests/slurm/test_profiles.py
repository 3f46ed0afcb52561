"""The workflow on a real scheduler: what it asks for, what comes out, and what is refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr

from bayesmesh.report.times import AROUND, WAITING
from bayesmesh.workflow.site import site_for
from bayesmesh.workflow.slurm.commands import srun_command
from loopback import GPUS, MAX_MINUTES, Cluster
from submission import sbatch_command
from workspace import ROOT, Workspace

GPU, CPU, MULTINODE = "profiles/slurm-gpu", "profiles/slurm-cpu", "profiles/slurm-gpu-multinode"

JOBS = {"gaussian": 4, "digits": 3, "films": 3}
"""Experiment of the quickstart -> its jobs: a program, its chain groups, and what follows them."""

PROCESSES = 2

pytestmark = pytest.mark.parametrize("cluster", ["accounting"], indirect=True)


def submitted(cluster: Cluster, workspace: Workspace) -> list[dict[str, str]]:
    """Jobs of a workspace, in the order of their submission."""
    return [job for job in cluster.jobs() if job["folder"] == str(workspace.root)]


@pytest.fixture(scope="module")
def shorten(make: Callable[[Path], Workspace]) -> Callable[..., Workspace]:
    """Return a function that lays out the quickstart with few draws, and further settings of digits."""

    def lay(root: Path, **settings: Any) -> Workspace:
        workspace = make(root)
        shutil.rmtree(root / "config")
        shutil.copytree(ROOT / "config", root / "config")
        for name in JOBS:
            # One device for each program, here and on a node: the mesh is part of what decides the draws.
            few = {"sampling.warmup": 20, "sampling.draws": 40, "compute.mesh": {"chain": 1, "data": 1}}
            for key, value in {**few, **(settings if name == "digits" else {})}.items():
                workspace.set(name, key, value)
        return workspace

    return lay


@pytest.fixture(scope="module")
def runs(
    cluster: Cluster,
    shorten: Callable[..., Workspace],
    submit: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Workspace]:
    """Return workspaces in which the quickstart and digits have run: here, and on the cluster, all at the same time."""
    folder = tmp_path_factory.mktemp("runs")
    # Fewer iterations of warmup find no step size at which chains move.
    digits = {"sampling.warmup": 20, "sampling.draws": 32, "compute.dtype": "float64", "compute.mesh": {"data": 2}}
    workspaces = {
        "here": shorten(folder / "here"),
        "cluster": shorten(folder / "cluster"),
        "one process": shorten(folder / "one", **digits),
        "two processes": shorten(folder / "two", **digits, **{"compute.processes": PROCESSES}),
    }
    chains = [
        f"results/{name}/chains/group-00{group}.json" for name, count in JOBS.items() for group in range(count - 2)
    ]
    digits_alone = "results/digits/chains/group-000.json"
    arguments = {
        "cluster": ("--profile", GPU, "quickstart"),
        "two processes": ("--profile", MULTINODE, digits_alone),
        "one process": ("--cores", "2", digits_alone),
        "here": ("--cores", "2", *chains),
    }
    with ThreadPoolExecutor() as pool:
        # Those without a profile are forks of a process that has imported what they need.
        here = {n: pool.submit(workspaces[n].snakemake, *words) for n, words in arguments.items() if "--cores" in words}
        there = [submit(workspaces[n], folder / f"{n}.log", *words) for n, words in arguments.items() if n not in here]
        for run in there:
            run.finish()
    for name, run in here.items():
        done = run.result()
        assert done.returncode == 0, f"{name}: {done.stderr[-8000:]}"
    return workspaces


def test_the_quickstart_runs_with_one_gpu_a_job(cluster: Cluster, runs: dict[str, Workspace]) -> None:
    workspace = runs["cluster"]
    assert (workspace.results / "index.html").exists()
    jobs = submitted(cluster, workspace)
    for job in jobs:
        assert (job["state"], job["partition"], job["account"]) == ("COMPLETED", "gpu", "tests")
        assert "gres/gpu=1" in job["granted"].split(","), job
        assert "cpu=1" in job["granted"].split(","), job
    accounted = cluster.ask("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "JobID,AllocTRES").stdout
    assert all(re.search(rf"^{job['id']}\|.*gres/gpu=1", accounted, re.M) for job in jobs)
    # By the audit: a small program needs little more than Python, and minutes.
    sample = next(job for job in jobs if job["comment"].startswith("rule_sample_wildcards_gaussian"))
    assert int(re.sub(r"\D", "", sample["memory"])) < 3000
    assert sample["limit"] == "12:00", "and a minute in which it is to stop"


def test_the_quickstart_is_ten_jobs_at_most(cluster: Cluster, runs: dict[str, Workspace]) -> None:
    comments = [job["comment"] for job in submitted(cluster, runs["cluster"])]
    for name, count in JOBS.items():
        mine = sorted(comment for comment in comments if name in comment)
        assert len(mine) == count, mine
        assert mine[0] == f"rule_compile_wildcards_{name}"
        assert mine[1].startswith(f"rule_results-{name}_assemble_"), "what follows the chains is one job"
        assert all(comment.startswith(f"rule_sample_wildcards_{name}_group-") for comment in mine[2:])
    assert len(comments) == sum(JOBS.values()) <= 10


@pytest.mark.parametrize("name", JOBS)
def test_the_draws_are_those_of_a_run_without_a_scheduler(
    cluster: Cluster, runs: dict[str, Workspace], name: str
) -> None:
    here, there = (_draws(runs[where], name) for where in ("here", "cluster"))
    assert len(here) > 10
    assert there.keys() == here.keys()
    for path, values in here.items():
        assert (there[path].dtype, there[path].shape) == (values.dtype, values.shape)
        # How they are cut into files follows the speed that was measured.
        assert there[path].tobytes() == values.tobytes(), path


def _draws(workspace: Workspace, name: str) -> dict[str, np.ndarray]:
    """Return chain group, group and name -> values of all arrays that an experiment's chains have written."""
    found = {}
    # Without what further processes wrote: rows of their own, of which digits has no latents.
    for path in (workspace.results / name / "chains").glob("*/group-[0-9][0-9][0-9]/draws.zarr"):
        members = zarr.open_group(str(path), mode="r").members(max_depth=None)
        arrays = {key: node for key, node in members if isinstance(node, zarr.Array)}
        found |= {f"{path.parent.name}/{key}": np.asarray(node) for key, node in arrays.items()}
    return found


@pytest.mark.parametrize("name", JOBS)
def test_the_ledger_says_what_each_job_cost_beside_its_work(
    cluster: Cluster, runs: dict[str, Workspace], name: str
) -> None:
    with (runs["cluster"].results / name / "ledger.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    jobs = {row["job"] for row in rows}
    assert {"compile", "sample-group-000", "assemble", "diagnose"} <= jobs
    seconds = {(row["job"], row["phase"]): float(row["seconds"]) for row in rows}
    for job in jobs:
        # Python and JAX take their time, and so does Snakemake before the first stage of a job.
        assert seconds[job, "start"] > 0.01
        assert seconds[job, "launch"] > 0.05
    in_queue = {job for job, phase in seconds if phase == WAITING}
    assert in_queue == {job for job in jobs if job == "compile" or job.startswith(("sample-", "assemble"))}
    ended = {job for job, phase in seconds if phase == "teardown"}
    assert ended == in_queue - {"assemble"}, "the job that writes the page has not ended yet"
    # All there is of a job: what it did, and what was around it. Slurm counts whole seconds.
    elapsed = cluster.ask("sacct", "-n", "-X", "-P", "-S", "now-1hour", "-o", "JobID,ElapsedRaw").stdout.split()
    by_slurm = dict(line.split("|") for line in elapsed)
    (compile_job,) = {row["detail"].split()[-1] for row in rows if (row["job"], row["phase"]) == ("compile", "launch")}
    around = sum(seconds.get(("compile", phase), 0.0) for phase in AROUND)
    assert 0 < around < float(by_slurm[compile_job]) + 1


def test_two_processes_on_two_nodes_draw_as_one(cluster: Cluster, runs: dict[str, Workspace]) -> None:
    one, two = runs["one process"], runs["two processes"]
    jobs = {job["comment"]: job for job in submitted(cluster, two)}
    assert len(jobs) == JOBS["digits"] - 1, "what follows the chains was not asked for"
    for rule in ("compile_wildcards_digits", "sample_wildcards_digits_group-000"):
        job = jobs[f"rule_{rule}"]
        assert job["state"] == "COMPLETED"
        assert job["nodes"] == "n[1-2]"
        assert {"node=2", "gres/gpu=2", "cpu=2"} <= set(job["granted"].split(","))
    steps = cluster.ask("sacct", "-n", "-P", "-S", "now-1hour", "-o", "JobID,NTasks,NNodes").stdout.splitlines()
    sample = jobs["rule_sample_wildcards_digits_group-000"]
    assert any(re.fullmatch(rf"{sample['id']}\.\d+\|2\|2", step) for step in steps), (
        "one step of two tasks on two nodes"
    )
    manifest = json.loads((two.results / "digits/chains/group-000.json").read_text())
    assert manifest["num_processes"] == PROCESSES

    here, there = _draws(one, "digits"), _draws(two, "digits")
    assert len(here) > 10
    assert there.keys() == here.keys()
    for path, values in here.items():
        np.testing.assert_allclose(there[path], values, rtol=1e-10, atol=1e-10, err_msg=path)
    weights = here["group-000/posterior/weights"]
    assert weights.dtype == np.float64
    assert len(np.unique(weights[0, :, 0, 0])) > 10


def test_a_job_on_two_nodes_waits_for_its_share_of_each(
    cluster: Cluster, site: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site.yaml").write_text(_wrong(site, "gpu.gpus_per_node", 2))
    monkeypatch.setenv("BAYESMESH_SITE", str(tmp_path / "site.yaml"))
    where = ("--account=tests", "--partition=gpu", "--mem=100", f"--output={tmp_path / 'busy'}")
    # Of four GPUs that are left one is on the first node.
    busy = cluster.ask("sbatch", "--parsable", *where, "--nodelist=n1", "--gpus=h100:2", "--wrap=sleep 300")
    assert _state_after_waiting(cluster, busy.stdout.strip()).startswith("RUNNING")
    said, step = tmp_path / "said", srun_command([], 2, 2, 4)
    start = [*step[: step.index("-m") - 1], "sh", "-c", "'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"]
    # As in a job step of the executor, which drops Slurm's other variables.
    wrap = f"env -i PATH=$PATH SLURM_JOB_ID=$SLURM_JOB_ID {' '.join(start)}"
    job = cluster.ask(*sbatch_command("slurm-gpu-multinode", "sample", said), f"--wrap={wrap}")
    try:
        assert _state_after_waiting(cluster, job.stdout.strip()) == "PENDING Resources", job.stderr
    finally:
        cluster.ask("scancel", busy.stdout.strip())
    assert _state_after_waiting(cluster, job.stdout.strip(), "COMPLETED").startswith("COMPLETED"), said.read_text()
    assert sorted(said.read_text().splitlines()) == ["n1 0", "n1 1", "n2 0", "n2 1"]


def _state_after_waiting(cluster: Cluster, job: str, *ends: str) -> str:
    """State and reason of a job once the scheduler has looked at it, or once it is in one of the states."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        said = cluster.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T %r").stdout.strip()
        if said.startswith(ends or ("RUNNING", "COMPLETED", "PENDING Resources", "FAILED")):
            break
        time.sleep(0.2)
    return said


IMPOSSIBLE = [
    (MULTINODE, "gpu.gpus_per_node", GPUS + 1, "Requested node configuration is not available"),
    (MULTINODE, "gpu.nodes", 3, "Node count specification"),
    (GPU, "gpu.model", "a100", "Invalid generic resource|node configuration is not available"),
    (GPU, "gpu.max_minutes", MAX_MINUTES + 1, "time limit"),
    (CPU, "cpu.max_minutes", MAX_MINUTES + 1, "time limit"),
    (CPU, "cpu.partition", "nope", "[Ii]nvalid partition"),
    (CPU, "cpu.max_memory_mb", 10**6, "[Mm]emory|node configuration is not available"),
    (CPU, "cpu.cores", 64, "More processors requested"),
    (CPU, "account", "nobody", "[Ii]nvalid account"),
]


def _wrong(site: dict[str, Any], key: str, value: Any) -> str:
    block, _, last = key.rpartition(".")
    return yaml.safe_dump({**site, block: {**site[block], last: value}} if block else {**site, last: value})


def _names_reason_and_key(said: str, key: str, reason: str) -> None:
    message = said[said.index("error: ") :]
    assert re.search(reason, message), message
    # The key, or the block whose keys together are more than any node has.
    assert any(f"profiles/site.yaml: key '{k}'" in message for k in (key, key.rpartition(".")[0])), message
    assert "remedy: " in message
    assert "Traceback" not in said


@pytest.mark.parametrize(("profile", "key", "value", "reason"), IMPOSSIBLE)
def test_what_can_never_run_is_refused_with_the_reason_and_the_key(
    cluster: Cluster,
    site: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    profile: str,
    key: str,
    value: Any,
    reason: str,
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "site.yaml").write_text(_wrong(site, key, value))
    monkeypatch.chdir(tmp_path)
    # What the profile itself says when Snakemake reads it.
    (call,) = re.findall(r"site_for\((.*)\)", (ROOT / profile / "config.yaml").read_text())
    kind = re.match('"(cpu|gpu)"', call)
    assert kind is not None
    with pytest.raises(SystemExit) as ended:
        site_for(kind[1], nodes="nodes=True" in call)
    assert ended.value.code == 2
    _names_reason_and_key(capsys.readouterr().err, key, reason)


def test_a_refusal_ends_snakemake_before_anything_is_done(
    cluster: Cluster, make: Callable[[Path], Workspace], site: dict[str, Any], tmp_path: Path
) -> None:
    workspace = make(tmp_path / "copy")
    for profile, key, value, reason in IMPOSSIBLE[:1] + IMPOSSIBLE[5:6]:
        (workspace.root / "profiles" / "site.yaml").write_text(_wrong(site, key, value))
        done = workspace.snakemake("--profile", profile)
        assert done.returncode == 2
        _names_reason_and_key(done.stderr, key, reason)
    assert submitted(cluster, workspace) == []
    assert [path.name for path in workspace.results.iterdir()] == [".cache"], "compiled programs of other tests alone"
