"""The site: one file for all that a cluster has of its own, and refusals that name its keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.workflow.site import GpuNodes, Nodes, Site, check_with_scheduler, load_site, site_for

ROOT = Path(__file__).resolve().parents[3]
PATH = Path("profiles/site.yaml")


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that makes an sbatch which says something and ends with a code, and keeps its arguments."""

    def make(said: str = "", code: int = 0) -> Path:
        script = tmp_path / "sbatch"
        script.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/arguments\ncat >&2 <<'EOT'\n{said}\nEOT\nexit {code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "arguments"

    return make


def test_the_file_of_this_repository_says_nothing_but_the_defaults() -> None:
    assert load_site({"BAYESMESH_SITE": str(ROOT / PATH)})[1] == Site()


def test_its_example_can_be_read(tmp_path: Path) -> None:
    lines = (ROOT / PATH).read_text().splitlines()
    start = lines.index("#   account: bayes")
    example = [line.removeprefix("#   ") for line in lines[start : lines.index("", start)]]
    (tmp_path / "site.yaml").write_text("\n".join(example))
    site = load_site({"BAYESMESH_SITE": str(tmp_path / "site.yaml")})[1]
    assert (site.account, site.gpu.model, site.gpu.gpus_per_node, site.cpu.cores) == ("bayes", "h100", 8, 16)


def test_no_file_means_defaults_but_a_named_one_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_site({})[1] == Site()
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read"):
        load_site({"BAYESMESH_SITE": "gone.yaml"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acount: x\n", "did you mean 'account'"),
        ("gpu: {partition: 'gpu; rm -rf /'}\n", "gpu.partition"),
        ("account: --wrap\n", "account"),
        ("cpu: {model: h100}\n", "cpu.model"),
        ("gpu: {max_minutes: 4}\n", "gpu.max_minutes"),
        ("cpu: {qos: 'x y'}\n", "cpu.qos"),
        (
            "gpu: {max_minutes: 5}\nstop_seconds: 151\n",
            "key 'stop_seconds': 151 s is more than half of gpu.max_minutes: 5",
        ),
        ("gpu: {nodes: two}\n", "gpu.nodes"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_site({"BAYESMESH_SITE": str(path)})
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("said", "kind", "key"),
    [
        ("sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name specified", "gpu", "gpu.partition"),
        ("allocation failure: Invalid account or account/partition combination specified", "cpu", "account"),
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", "cpu", "cpu.max_minutes"),
        ("allocation failure: Invalid qos specification", "gpu", "gpu.qos"),
        ("allocation failure: Node count specification invalid", "gpu", "gpu.nodes"),
        ("allocation failure: More processors requested than permitted", "cpu", "cpu.cores"),
        ("sbatch: error: Memory specification can not be satisfied", "gpu", "gpu.max_memory_mb"),
        ("allocation failure: Invalid generic resource (gres) specification", "gpu", "gpu.model"),
        ("allocation failure: Requested node configuration is not available", "gpu", "gpu"),
        ("allocation failure: Requested node configuration is not available", "cpu", "cpu"),
    ],
)  # fmt: skip
def test_a_refusal_gives_the_schedulers_reason_and_the_key(
    sbatch: Callable[..., Path], said: str, kind: str, key: str
) -> None:
    sbatch(said, 1)
    with pytest.raises(ConfigError) as caught:
        check_with_scheduler(PATH, Site(), kind)
    reason = said.splitlines()[0].split(": ", 1)[1].removeprefix("error: ")
    assert caught.value.message == f"{PATH}: key '{key}': the scheduler would refuse the jobs: {reason}"
    assert "sinfo" in caught.value.remedy or "sacctmgr" in caught.value.remedy


def test_what_is_asked_is_the_largest_job_of_the_site(sbatch: Callable[..., Path]) -> None:
    arguments = sbatch()
    site = Site(
        account="a",
        cpu=Nodes(partition="c", qos="q", cores=3),
        gpu=GpuNodes(partition="g", model="h100", nodes=2, gpus_per_node=8),
    )
    asked = {}
    for name, kind, nodes in (("cpu", "cpu", False), ("gpu", "gpu", False), ("multinode", "gpu", True)):
        check_with_scheduler(PATH, site, kind, nodes)
        asked[name] = arguments.read_text().split()
    assert asked["cpu"][0] == "--test-only"
    assert {"--partition=c", "--account=a", "--qos=q", "--cpus-per-task=3", "--time=240", "--mem=32000"} <= set(
        asked["cpu"]
    )
    assert {"--partition=g", "--gpus=h100:1"} <= set(asked["gpu"])
    assert not any(word.startswith("--qos") for word in asked["gpu"])
    of_all = {"--nodes=2", "--ntasks=16", "--gpus=h100:16"}
    assert of_all | {"--gpus-per-node=h100:8", "--ntasks-per-node=8"} <= set(asked["multinode"])


def test_a_machine_without_scheduler_or_one_that_is_down_is_told_apart(
    sbatch: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch("Contact the help desk.\nsbatch: error: Unable to contact slurm controller (connect failure)\nBye.", 1)
    with pytest.raises(ConfigError, match=r"the scheduler cannot be reached: .*connect failure"):
        check_with_scheduler(PATH, Site(), "cpu")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="no sbatch here"):
        check_with_scheduler(PATH, Site(), "cpu")


BANNER = "Unknown host keys, memory errors? Contact the help desk, with your account."


def test_what_a_site_says_to_everybody_is_not_the_schedulers_word(sbatch: Callable[..., Path]) -> None:
    sbatch(BANNER)
    check_with_scheduler(PATH, Site(), "cpu")
    sbatch(f"{BANNER}\nallocation failure: Invalid partition name specified\n{BANNER}", 1)
    with pytest.raises(
        ConfigError, match=r"key 'cpu.partition': .* refuse the jobs: Invalid partition name specified\n"
    ):
        check_with_scheduler(PATH, Site(), "cpu")


def test_a_job_asks_for_the_time_in_which_it_is_to_stop_besides() -> None:
    site = Site(cpu=Nodes(max_minutes=60), stop_seconds=130)
    asked = {attempt: eval(site.runtime("cpu", 20), {"attempt": attempt, "min": min}) for attempt in (1, 2, 9)}  # noqa: S307
    assert asked == {1: 23, 2: 43, 9: 60}
    # Of five that take turns each asks for a share of that, and of the limit.
    shares = [eval(site.runtime("cpu", 5, shares=5), {"attempt": n, "min": min}) for n in (1, 9)]  # noqa: S307
    assert shares == [6, 12]


def test_a_profile_ends_with_the_message_and_no_traceback(
    sbatch: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sbatch("allocation failure: Invalid partition name specified", 1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        site_for("cpu")
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: profiles/site.yaml: key 'cpu.partition'")
