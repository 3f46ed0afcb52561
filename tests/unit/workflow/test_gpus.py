"""No two jobs share a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayesmesh.workflow import gpus
from bayesmesh.workflow.gpus import has_accelerator, hold_gpus, visible_gpus


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like /dev with three GPUs."""
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_gpus_are_numbered_as_cuda_numbers_them(devices: Path) -> None:
    assert [(name, path.name) for name, path in visible_gpus({}, devices)] == [
        ("0", "nvidia0"), ("1", "nvidia2"), ("2", "nvidia10")
    ]  # fmt: skip
    assert [name for name, _ in visible_gpus({"CUDA_VISIBLE_DEVICES": "2,0"}, devices)] == ["0", "2"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, devices) == []
    # A GPU that cannot be opened, as in a job's cgroup; file permissions alone do not stop root.
    (devices / "nvidia0").unlink()
    (devices / "nvidia0").symlink_to("closed")
    assert [(name, path.name) for name, path in visible_gpus({}, devices)] == [("0", "nvidia2"), ("1", "nvidia10")]


def test_an_accelerator_is_one_that_jax_can_use(devices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU does not count if JAX supports only the CPU or is told to use it."""
    installed: set[str] = set()
    monkeypatch.setattr(gpus.importlib.util, "find_spec", installed.__contains__)
    assert not has_accelerator({}, devices)
    installed.add("jax_plugins")
    assert has_accelerator({}, devices)
    assert has_accelerator({"JAX_PLATFORMS": "cuda,cpu"}, devices)
    assert not has_accelerator({"JAX_PLATFORMS": "cpu"}, devices)
    assert not has_accelerator({"CUDA_VISIBLE_DEVICES": ""}, devices)
    host = tmp_path / "host"
    (host / "vfio").mkdir(parents=True)
    (host / "vfio" / "0").touch()
    assert not has_accelerator({}, host), "a chip without libtpu"
    installed.add("libtpu")
    assert has_accelerator({}, host)


def test_each_job_sees_its_own_gpus(devices: Path) -> None:
    with hold_gpus(1, devices):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        del os.environ["CUDA_VISIBLE_DEVICES"]  # as another process begins
        with hold_gpus(2, devices):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2"
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


HOLD = """
import sys, time, pathlib
from bayesmesh.workflow.gpus import hold_gpus
with hold_gpus(int(sys.argv[1]), pathlib.Path(sys.argv[2])):
    import os
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(60)
"""


def test_a_job_waits_for_gpus_and_gets_them_when_another_is_killed(devices: Path) -> None:
    def start(count: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLD, str(count), str(devices)], stdout=subprocess.PIPE, text=True
        )

    first = start(2)
    second = None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "0,1\n"
        second = start(2)
        time.sleep(1.5)
        # One GPU is free; the waiting job must not keep it.
        with hold_gpus(1, devices):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        first.kill()
        assert second.stdout is not None
        assert second.stdout.readline() == "0,1\n"
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()


TASK = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "3"}


@pytest.mark.parametrize(
    ("count", "variables"),
    [(0, {}), (4, {"SLURM_JOB_ID": "7"}), (1, {"SLURM_JOB_ID": "7", **TASK})],
    ids=["unasked", "of all nodes", "of several tasks"],
)
def test_locks_nothing_without_a_request_or_after_a_scheduler_chose(
    devices: Path, monkeypatch: pytest.MonkeyPatch, count: int, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with hold_gpus(count, devices):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_jobs_side_by_side_in_an_allocation_are_kept_apart(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    with hold_gpus(1, devices):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = "1,2"  # as another process begins
        with hold_gpus(1, devices):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
