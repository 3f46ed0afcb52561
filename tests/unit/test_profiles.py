"""Options of sbatch that the Slurm profiles set, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.workflow import site as site_module
from bayesmesh.workflow.flow import LATER
from bayesmesh.workflow.site import load_site
from submission import read_profile, sbatch_command

SITE = """\
account: bayes
cpu: {partition: standard, cores: 3, max_minutes: 50}
gpu: {partition: fast, qos: long, model: h100, cores: 2, nodes: 2, gpus_per_node: 4, max_minutes: 100}
stop_seconds: 90
"""


@pytest.fixture(autouse=True)
def _site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site without the test of the scheduler."""
    monkeypatch.setenv("BAYESMESH_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setattr(site_module, "check_with_scheduler", lambda *arguments: None)


@pytest.mark.parametrize("rule", ["compile", "sample"])
def test_a_job_over_several_nodes_asks_each_for_its_share_as_the_scheduler_was_asked_before(rule: str) -> None:
    words = sbatch_command("slurm-gpu-multinode", rule)
    of_gpus = {"--nodes=2", "--ntasks=8", "--gpus=h100:8", "--ntasks-per-node=4", "--gpus-per-node=h100:4"}
    assert of_gpus | {"--signal=TERM@90"} <= set(words)
    # Slurm takes tasks per GPU or per node, not both.
    assert not [word for word in words if word.startswith("--ntasks-per-gpu")]
    assert of_gpus <= set(site_module._options_of_largest(load_site()[1], "gpu", True))


@pytest.mark.parametrize("rule", ["compile", "sample"])
def test_a_job_on_one_gpu_asks_for_it_as_the_scheduler_was_asked_before(rule: str) -> None:
    assert "--gpus=h100:1" in sbatch_command("slurm-gpu", rule)
    assert "--gpus=h100:1" in site_module._options_of_largest(load_site()[1], "gpu", False)
    for profile in ("slurm-gpu", "slurm-cpu"):
        assert read_profile(profile)["set-resources"][rule]["processes"] == "1x1"


@pytest.mark.parametrize(
    ("profile", "qos", "most"), [("slurm-cpu", None, 50), ("slurm-gpu", "long", 100), ("slurm-gpu-multinode", "long", 100)]
)  # fmt: skip
def test_qos_and_time_are_the_sites(profile: str, qos: str | None, most: int) -> None:
    assert read_profile(profile).get("slurm-qos") == qos

    def minutes(rule: str) -> int:
        words = sbatch_command(profile, rule)
        return int(words[words.index("-t") + 1])

    # An hour, and 90 seconds in whole minutes, up to the limit; those that take turns ask for equal shares of that.
    assert minutes("compile") == min(62, most)
    turns = [minutes(rule) for rule in ("assemble", "diagnose", *LATER, "report")]
    assert turns == [min(21, most // len(turns))] * len(turns)
    assert set(read_profile(profile)["groups"]) == {"assemble", "diagnose", *LATER, "report"}
