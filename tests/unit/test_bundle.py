"""Contents of a bundle, without building one; `make bundle-test` builds one."""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tool_modules import load_tool

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle() -> ModuleType:
    """Import tools/bundle.py, which is not in a package."""
    return load_tool("bundle")


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


CODE = {
    "pyproject.toml": '[project]\nname = "bayesmesh"\n', "Snakefile": "", "envs/cpu.txt": "jax==1\n",
    "src/bayesmesh/a.py": "A = 1\n", "workflow/rules/a.smk": "", ".gitignore": "",
}  # fmt: skip


@pytest.fixture
def installer(bundle: ModuleType, tmp_path: Path) -> Path:
    """Return the install.sh of a bundle without pip, so that it cannot create an environment."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    with tarfile.open(folder / "bayesmesh.tar.gz", "w:gz") as archive:
        for name, text in CODE.items():
            entry = tarfile.TarInfo(f"bayesmesh/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    (folder / "requirements.txt").write_text("jax==1\n")
    script = (ROOT / "tools" / "bundle-install.sh").read_text()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for key, value in {"PYTHON": python, "MACHINE": platform.machine(), "LOCKS": "cpu"}.items():
        script = script.replace(f"@{key}@", value)
    (folder / "install.sh").write_text(script)
    (folder / "install.sh").chmod(0o755)
    files = [path for path in folder.iterdir() if path.is_file()]
    (folder / "SHA256SUMS").write_text("".join(f"{bundle.digest(path)}  {path.name}\n" for path in files))
    return folder / "install.sh"


def _install(installer: Path, folder: Path) -> str:
    """Return the messages of a failing installation."""
    done = subprocess.run(
        [str(installer), "--python", sys.executable, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr


def test_an_environment_that_is_there_stays_until_the_new_one_works(installer: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert "pip failed" in _install(installer, site)
    assert not (site / ".venv").exists()
    (site / ".venv").mkdir()
    (site / ".venv" / "old").touch()
    said = _install(installer, site)
    assert "rebuilding only its .venv" in said
    assert "pip failed" in said
    assert (site / ".venv" / "old").exists()
    assert [path.name for path in site.glob(".venv*")] == [".venv"]
