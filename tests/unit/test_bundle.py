"""What goes into a bundle, without building one: `make bundle-test` does that."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    """Return tools/bundle.py, which is no package."""
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "tools" / "bundle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up.
    sys.modules["bundle"] = module
    spec.loader.exec_module(module)
    return module


def test_wheels_are_taken_for_the_glibc_that_is_named_and_older_ones(bundle: ModuleType) -> None:
    platforms = bundle.read_target("3.12", "manylinux_2_28_x86_64").platforms
    assert platforms[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"} <= set(platforms)
    assert "manylinux_2_31_x86_64" not in platforms
    assert "manylinux2014_aarch64" not in bundle.read_target("3.12", "manylinux_2_12_aarch64").platforms


@pytest.mark.parametrize(
    ("python", "platform", "said"),
    [
        ("3.11", "manylinux_2_28_x86_64", "PYTHON=3.11"),
        ("3.12", "linux_x86_64", "PLATFORM=linux_x86_64"),
        ("3.12", "win_amd64", "PLATFORM=win_amd64"),
    ],
)
def test_a_target_that_is_none_is_refused(bundle: ModuleType, python: str, platform: str, said: str) -> None:
    with pytest.raises(bundle.BundleError, match=said):
        bundle.read_target(python, platform)


def test_markers_of_the_lock_are_those_of_the_target(bundle: ModuleType) -> None:
    target = bundle.read_target("3.13", "manylinux_2_28_aarch64")
    cpu, cuda = (bundle.read_lock(ROOT / "envs" / f"{name}.txt", target) for name in ("cpu", "cuda"))
    assert cpu.items() <= cuda.items(), "a lock of an accelerator has all pins of cpu.txt"
    assert {"jax", "jaxlib", "tfp-nightly", "tensorflow-datasets", "snakemake"} <= cpu.keys()
    assert "colorama" not in cpu, "for Windows"
    assert any(name.startswith("nvidia-") for name in cuda)
    assert all("--hash=sha256:" in line and ";" not in line for line in cuda.values())


def test_a_lock_that_is_not_understood_is_named(bundle: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("jax>=0.11\n")
    with pytest.raises(bundle.BundleError, match=r"odd\.txt: not understood: jax>=0\.11"):
        bundle.read_lock(tmp_path / "odd.txt", bundle.read_target("3.12", "manylinux_2_28_x86_64"))


def test_machine_code_for_another_machine_is_refused(bundle: ModuleType) -> None:
    target = bundle.read_target("3.12", "manylinux_2_28_aarch64")
    bundle.check_built(Path("promise-2.3-py3-none-any.whl"), target)
    with pytest.raises(bundle.BundleError, match="immutables"):
        bundle.check_built(Path("immutables-0.21-cp312-cp312-linux_x86_64.whl"), target)
