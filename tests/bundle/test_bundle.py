"""A bundle is built with an index, and installed and used with none: in a name space that has no network.

Not part of `make test`: some 300 MB are downloaded, and two environments are made.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = f"manylinux_2_28_{platform.machine()}"

TINY = {
    "title": "Tiny",
    "data": {"source": "gaussian", "num_rows": 20},
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 3, "initial_step_size": 0.1},
    "sampling": {"mode": "independent", "chains": 4, "chain_groups": 1, "warmup": 20, "draws": 40},
}

Offline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def base_python() -> str:
    """Return the Python that this environment was made from."""
    return str(Path(sys.base_prefix) / "bin" / f"python{PYTHON}")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bundle.py"), f"--python={PYTHON}", f"--platform={PLATFORM}", f"--dist={dist}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return dist / f"bundle-cpu-py{PYTHON}-{PLATFORM}"


@pytest.fixture(scope="session")
def offline() -> Offline:
    """Return a function that runs a command where no network can be reached, and nothing says where an index is."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON", "BAYESMESH_", "VIRTUAL_"))
    }

    def run(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        assert os.geteuid() == 0, "a name space without network needs root: run as root"
        return subprocess.run(
            ["unshare", "--net", *command], cwd=folder, env={**kept, "PATH": "/usr/bin:/bin"}, capture_output=True,
            text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


def works(offline: Offline, folder: Path) -> None:
    """Hold an installation to what a user does first."""
    doctor = offline(".venv/bin/bayesmesh", "doctor", folder=folder)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    (folder / "config" / "experiments" / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    done = offline(".venv/bin/snakemake", "--cores", "2", "tiny", folder=folder)
    assert done.returncode == 0, done.stderr[-6000:]
    assert (folder / "results" / "tiny" / "report.html").exists()
    # To make the environment is complete: it looks for no index.
    made = offline("make", "env", folder=folder)
    assert (made.returncode, made.stderr) == (0, "")


def test_there_is_no_network_in_the_tests(offline: Offline, base_python: str) -> None:
    tried = offline(base_python, "-c", "import socket; socket.create_connection(('1.1.1.1', 443), 2)")
    assert "unreachable" in tried.stderr


def test_all_is_installed_and_runs_without_network(
    offline: Offline, bundle: Path, base_python: str, tmp_path: Path
) -> None:
    done = offline(str(bundle / "install.sh"), "--python", base_python, str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr[-6000:]
    works(offline, tmp_path / "site")
    names = {path.name.partition("-")[0] for path in (bundle / "wheels").iterdir()}
    assert {"jax", "jaxlib", "tfp_nightly", "tensorflow_datasets", "snakemake", "setuptools"} <= names
    assert {path.suffix for path in (bundle / "wheels").iterdir()} == {".whl"}


def test_a_jax_that_is_there_already_is_used(offline: Offline, bundle: Path, base_python: str, tmp_path: Path) -> None:
    """In an environment of its own, as a site's module or a user's conda may be."""
    subprocess.run([base_python, "-m", "venv", "--without-pip", str(tmp_path / "present")], check=True)
    python, (pip,) = str(tmp_path / "present" / "bin" / "python"), bundle.glob("pip-*.whl")
    refused = offline(str(bundle / "install.sh"), "--use-present-jax", "--python", python, str(tmp_path / "site"))
    assert refused.returncode == 1
    assert "has no JAX" in refused.stderr
    shutil.rmtree(tmp_path / "site")

    offline(python, f"{pip}/pip", "install", "--no-index", f"--find-links={bundle / 'wheels'}", "jax", "jaxlib")
    done = offline(str(bundle / "install.sh"), "--use-present-jax", "--python", python, str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"of {tmp_path / 'present'}" in done.stderr
    assert not list((tmp_path / "site" / ".venv").glob("lib/python*/site-packages/jax/__init__.py"))
    works(offline, tmp_path / "site")


def test_a_damaged_bundle_is_refused(offline: Offline, bundle: Path, base_python: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy, copy_function=os.link)
    (copy / "requirements.txt").unlink()
    (copy / "requirements.txt").write_text("jax==0.1\n")
    done = offline(str(copy / "install.sh"), "--python", base_python, str(tmp_path / "site"))
    assert done.returncode == 1
    assert "damaged or missing" in done.stderr
    assert not (tmp_path / "site").exists()
