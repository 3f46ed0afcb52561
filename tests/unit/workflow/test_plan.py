"""What the Snakefile asks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.resources import Resources

from bayesmesh.errors import ConfigError
from bayesmesh.workflow import overviews
from bayesmesh.workflow import plan as plan_module
from bayesmesh.workflow.flow import LATER, STAGES
from bayesmesh.workflow.jobs import parse_spec
from bayesmesh.workflow.plan import Plan

GOOD = "title: A test\ndata: {{source: gaussian, held_out_fraction: {share}}}\nmodel: {{name: gaussian}}\nkernel: {{name: hmc}}\n"


CPU = SimpleNamespace(cores=2, overwrite_resources={})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Two experiments on one dataset, with different splits."""
    folder = tmp_path / "config"
    (folder / "experiments").mkdir(parents=True)
    (folder / "config.yaml").write_text("experiments: [a]\n")
    (folder / "experiments" / "a.yaml").write_text(GOOD.format(share=0))
    (folder / "experiments" / "b.yaml").write_text(
        GOOD.format(share=0.5) + "sampling: {mode: independent, chains: 6, chain_groups: 3}\n"
    )
    return folder


def _plan(config: Path, **workflow: Any) -> Plan:
    about = (
        SimpleNamespace(
            **{
                "dryrun": False,
                "is_main_process": False,
                "local_exec": True,
                "remote_exec": False,
                "cores": 2,
                "resource_settings": CPU,
                "dag_settings": SimpleNamespace(targets=set()),
                **workflow,
            }
        )
        if workflow
        else None
    )
    return Plan(str(config), str(config.parent / "results"), workflow=about)


def test_experiments_share_a_dataset_but_not_a_split(config: Path) -> None:
    plan = _plan(config)
    assert plan.dataset("a") == plan.dataset("b")
    assert (plan.split("a"), plan.split("b")[:9]) == ("all", "held-out-")


def test_groups_share_the_cores(config: Path) -> None:
    plan = _plan(config)
    assert plan.groups("b") == ["group-000", "group-001", "group-002"]
    assert [p.name for p in plan.manifests("b")] == ["group-000.json", "group-001.json", "group-002.json"]
    assert (plan.threads("a", 8), plan.threads("b", 8), plan.threads("b", 2), plan.threads("b", None)) == (8, 2, 1, 1)


def test_members_of_a_sweep_share_the_cores_unless_one_is_named(config: Path) -> None:
    (config / "experiments" / "c.yaml").write_text(
        GOOD.format(share=0) + "sweep: {grid: {sampling.seed: [1, 2, 3], compute.mesh.data: [1, 3]}}\n"
    )
    names = [f"c-seed-{seed}-data-{data}" for seed in (1, 2, 3) for data in (1, 3)]

    def shares(*targets: str) -> list[tuple[int, int]]:
        plan = _plan(config, dag_settings=SimpleNamespace(targets=set(targets)))
        return [(plan.threads(name, 12), plan.share(name, 12)) for name in names[:2]]

    # A mesh that is given has its devices.
    assert shares() == shares("c") == shares("c", names[0]) == [(2, 2), (3, 3)]
    assert shares(names[0]) == [(12, 12), (12, 12)]
    assert shares(names[0], names[1]) == [(6, 6), (6, 6)]
    assert _plan(config, remote_exec=True).share(names[0], 12) == 12
    assert _plan(config).share(names[0], 12) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_a_spec_is_named_after_its_content_and_written_once(config: Path, stage: str) -> None:
    wildcards = (
        {"dataset": _plan(config).dataset("a"), "split": "all"} if stage in ("fetch", "shard") else {"experiment": "a"}
    )
    path = Path(_plan(config, dryrun=False).spec(stage)(wildcards))
    spec = parse_spec(str(path), stage)
    assert spec.experiment == ("data" if stage in ("fetch", "shard") else "a")
    before = path.stat()
    assert Path(_plan(config, dryrun=False).spec(stage)(wildcards)) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_and_a_look_write_no_spec(config: Path) -> None:
    for plan in (_plan(config, dryrun=True), _plan(config)):
        assert plan.spec("report")({"experiment": "a"}).endswith(".json")
    assert not (config.parent / "results").exists()


def test_what_compiling_checks_for_are_the_specs_of_later_stages(config: Path) -> None:
    text = "title: A\ndata: {source: films}\nmodel: {name: matrix_factorization}\nkernel: {name: hmc}\n"
    (config / "experiments" / "c.yaml").write_text(text + "recommendation: {users: [7]}\n")
    plan = _plan(config, dryrun=False)
    path, derived = plan.later("c").split(",")
    spec = parse_spec(path, *LATER)
    assert parse_spec(derived, "assemble").settings("posterior").probe_rows == 32
    assert (spec.stage, spec.experiment) == ("recommend", "c")
    assert spec.settings("recommendation").users == (7,)


def test_a_rule_for_stopping_is_checked_by_compiling_and_its_code_is_that_of_the_sample_stage(config: Path) -> None:
    stopped = GOOD.format(share=0) + "sampling: {stop: {min_ess_bulk: 9, summaries: [mean]}}\n"
    (config / "experiments" / "c.yaml").write_text(stopped)
    plan = _plan(config, dryrun=False)
    spec = parse_spec(plan.later("c").split(",")[0], "sample")
    assert spec.settings("sampling").stop.summaries == ("mean",)
    without, with_rule = {"experiment": "a"}, {"experiment": "c"}
    compiled = [parse_spec(plan.spec("compile")(w), "compile").config for w in (without, with_rule)]
    assert compiled[0] == compiled[1]


def test_code_is_the_code_of_the_experiments_own_components(config: Path) -> None:
    plan = _plan(config)
    (config / "experiments" / "c.yaml").write_text(GOOD.format(share=0).replace("hmc", "chees"))
    other = _plan(config)
    one, two = {"experiment": "a"}, {"experiment": "c"}
    assert plan.code("sample")(one) == other.code("sample")(one) != other.code("sample")(two)
    assert other.code("assemble")(one) == other.code("assemble")(two)
    assert other.code("report")(one).startswith(f"{other.code_of('report')}-")


def test_an_experiment_that_is_not_there_is_named_with_the_nearest(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"no experiment 'aa' in .*: did you mean 'a'"):
        _ = _plan(config).experiments["aa"]


def test_pages_that_are_there_stay_in_the_index(config: Path) -> None:
    plan = _plan(config)
    assert overviews.indexed_pages(plan) == [plan.layout("a").page]
    plan.layout("b").page.parent.mkdir(parents=True)
    plan.layout("b").page.touch()
    assert overviews.indexed_pages(plan) == [plan.layout("a").page, plan.layout("b").page]
    assert set(json.loads(overviews.index_settings(plan))) == {"a", "b"}


def _asking(**resources: Any) -> dict[str, Any]:
    """A run whose profile submits jobs and asks so much for each of sampling."""
    overwritten = {"sample": Resources.parse([f"{k}={v}" for k, v in resources.items()], allow_expressions=True)}
    return {"local_exec": False, "resource_settings": SimpleNamespace(cores=None, overwrite_resources=overwritten)}


@pytest.mark.parametrize("stage", ["compile", "sample"])
@pytest.mark.parametrize(
    ("wanted", "given", "said", "remedy"),
    [
        (
            1,
            "2x4",
            "is 1, but each job of this profile has 8 (2 x 4, by profiles/site.yaml",
            "use profiles/slurm-gpu, or",
        ),
        (4, "2x4", "keys 'gpu.nodes' and 'gpu.gpus_per_node'", "change those keys of profiles/site.yaml, or set"),
        (8, "1x1", "is 8, but each job of this profile has 1\n", "use profiles/slurm-gpu-multinode, or set"),
    ],
)
def test_processes_that_a_profile_does_not_start_end_the_planning(
    config: Path, stage: str, wanted: int, given: str, said: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config / "experiments" / "a.yaml"
    path.write_text(GOOD.format(share=0) + f"compute: {{processes: {wanted}}}\n")
    with pytest.raises(SystemExit) as caught:
        _plan(config, **_asking(processes=given)).trigger(stage)({"experiment": "a"})
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {path}: key 'compute.processes': ")
    assert said in message
    assert remedy in message
    assert not (config.parent / "results").exists()


def test_processes_that_a_profile_starts_and_what_is_there_already_are_taken(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config / "experiments" / "a.yaml"
    path.write_text(GOOD.format(share=0) + "compute: {processes: 8}\n")
    _plan(config, **_asking(processes="2x4")).spec("sample")({"experiment": "a"})
    _plan(config, **_asking(gpu=1)).spec("sample")({"experiment": "a"})
    other = _plan(config, **_asking(processes="1x1"))
    monkeypatch.setattr(plan_module, "is_made_with", lambda job, code: True)
    for stage in ("compile", "sample", "report"):
        other.trigger(stage)({"experiment": "a"})


def test_limits_are_those_of_the_profiles_nodes_whatever_was_found_there(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = config.parent / "site.yaml"
    site.write_text("cpu: {max_memory_mb: 1000, max_minutes: 20}\ngpu: {max_memory_mb: 2000, max_minutes: 30}\n")
    monkeypatch.setenv("BAYESMESH_SITE", str(site))
    audit = _plan(config).layout("a").audit
    audit.parent.mkdir(parents=True)
    found = {
        "devices": {"platform": "cpu", "mesh": {"chain": 1, "data": 4}},
        "gradient": {"seconds": 0.1, "per_draw": 10.0},
        "programs": {"sample": {"memory": {"peak": 1e9}}},
    }
    audit.write_text(json.dumps(found))
    wildcards = SimpleNamespace(experiment="a")
    asked = {
        name: (plan.sample_memory_mb(wildcards, 9), plan.sample_minutes(wildcards, 9))
        for name, plan in {
            "cpu": _plan(config, **_asking(processes="1x1")),
            "gpu": _plan(config, **_asking(gpu=1)),
        }.items()
    }
    assert asked == {"cpu": (1000, 20), "gpu": (2000, 30)}
    site.write_text("gpu: {max_memory_mb: 20000}\n")
    several = _plan(config, **_asking(gpu=4, processes="2x2")).sample_memory_mb(wildcards, 1)
    assert several == 2000 + 1.5 * 2000, "memory of one of two nodes"


@pytest.mark.parametrize("stage", ["compile", "sample"])
def test_an_impossible_mesh_ends_the_planning_before_anything_is_written(
    config: Path, stage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    path = config / "experiments" / "a.yaml"
    path.write_text(path.read_text() + "compute: {platform: cpu, mesh: {data: 3}}\n")
    with pytest.raises(SystemExit) as caught:
        _plan(config, cores=2, local_exec=True).trigger(stage)({"experiment": "a"})
    assert caught.value.code == 2
    assert f"error: {path}: key 'compute.mesh'" in capsys.readouterr().err
    assert not (config.parent / "results").exists()
    # Three chain groups share six cores: a job of them has two.
    path.write_text(GOOD.format(share=0) + "compute: {platform: cpu, mesh: {data: 3}}\n"
                    "sampling: {mode: independent, chains: 6, chain_groups: 3}\n")  # fmt: skip
    with pytest.raises(SystemExit):
        _plan(config, cores=6, local_exec=True).trigger(stage)({"experiment": "a"})
    assert "there are 2 for platform 'cpu' for each of the 3 chain groups" in capsys.readouterr().err
    _plan(config, cores=9, local_exec=True).trigger(stage)({"experiment": "a"})
    # Jobs on a cluster have other devices than the machine that plans them.
    _plan(config, cores=2, local_exec=False).trigger(stage)({"experiment": "a"})


def test_finished_chains_need_no_devices(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may come from another machine; without the exception, the index of one with their page could not be planned."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    path = config / "experiments" / "a.yaml"
    path.write_text(path.read_text() + "compute: {platform: cpu, mesh: {data: 3}}\n")
    plan = _plan(config, cores=2, local_exec=True)
    for stage in ("assemble", "diagnose", "report"):
        plan.trigger(stage)({"experiment": "a"})
    with pytest.raises(SystemExit):
        plan.trigger("sample")({"experiment": "a"})
    monkeypatch.setattr(plan_module, "is_made_with", lambda job, code: True)
    _plan(config, cores=2, local_exec=True).trigger("sample")({"experiment": "a"})
