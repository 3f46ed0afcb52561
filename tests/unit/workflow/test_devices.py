"""Devices are counted without JAX, and an impossible mesh is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.store import machine as machine_module
from bayesmesh.store.machine import count_devices
from bayesmesh.workflow.devices import check_devices


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without accelerator, and its folder of devices."""
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine_module, "Path", lambda path: tmp_path if path == "/dev" else Path(path))
    return tmp_path


def _add(machine: Path, *names: str) -> None:
    for name in names:
        path = machine / name
        path.parent.mkdir(exist_ok=True)
        path.touch()


def test_a_core_is_a_device() -> None:
    assert (count_devices("cpu", 3), count_devices("auto", 3), count_devices("gpu", 3), count_devices("tpu", 3)) == (
        3,
        3,
        0,
        0,
    )


def test_gpus_are_counted_and_taken_first(machine: Path) -> None:
    _add(machine, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
    assert (count_devices("gpu", 8), count_devices("auto", 8), count_devices("cpu", 8)) == (2, 2, 8)


@pytest.mark.parametrize(
    ("visible", "number"), [("0", 1), ("0,1", 2), ("0,1,2", 2), ("", 0), ("-1", 0), ("GPU-a,GPU-b", 2)]
)
def test_hidden_gpus_do_not_count(machine: Path, monkeypatch: pytest.MonkeyPatch, visible: str, number: int) -> None:
    _add(machine, "nvidia0", "nvidia1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_devices("gpu", 8) == number
    assert count_devices("auto", 8) == (number or 8)


def test_tpus_are_counted_and_taken_before_gpus(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(machine, "accel0", "accel1", "vfio/0", "vfio/vfio", "nvidia0")
    assert (count_devices("tpu", 8), count_devices("auto", 8)) == (3, 3)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    assert count_devices("auto", 8) == 1
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert count_devices("auto", 8) == 8


def test_a_forced_number_of_virtual_devices_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_x=1 --xla_force_host_platform_device_count=6")
    assert count_devices("auto", 2) == 6


def _experiment(mesh: Any, **sampling: Any) -> Any:
    return experiment_class().model_validate(
        {
            "title": "A test", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
            "compute": {"mesh": mesh}, "sampling": sampling,
        }
    )  # fmt: skip


def test_a_mesh_that_fits_is_accepted() -> None:
    path = Path("config/experiments/x.yaml")
    check_devices(path, _experiment("auto"), 1)
    check_devices(path, _experiment({"chain": 2, "data": 2}), 4)


def test_a_mesh_that_does_not_fit_is_refused_with_the_yaml_to_paste() -> None:
    with pytest.raises(ConfigError) as caught:
        check_devices(Path("config/experiments/x.yaml"), _experiment({"chain": 2, "data": 3}), 4)
    assert str(caught.value).startswith(
        "config/experiments/x.yaml: key 'compute.mesh': chain 2 x data 3 needs 6 devices"
    )
    assert "there are 4" in caught.value.message
    assert "compute:\n      mesh: auto" in caught.value.remedy
    assert "chain groups" not in str(caught.value)


def test_a_job_of_several_chain_groups_is_told_of_its_share() -> None:
    groups = _experiment({"chain": 2}, mode="independent", chains=8, chain_groups=2)
    check_devices(Path("x.yaml"), groups, 2)
    with pytest.raises(ConfigError, match="there are 1 for platform 'auto' for each of the 2 chain groups") as caught:
        check_devices(Path("x.yaml"), groups, 1)
    assert "sampling.chain_groups" in caught.value.remedy
