"""The wheel, and an environment with nothing of ours but what it installs."""

from __future__ import annotations

import ensurepip
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a copy of what it is built from, because a build leaves files behind, which later builds take."""
    for name in ("src/bayesmesh", "src/bayesmesh_reproduction", "workflow", "profiles", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    code = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """Install a wheel in a new environment, which sees the packages of this one but no editable one; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    # Its paths are not searched for further files that end in .pth.
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    folders = [Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "none")]
    pip = max(path for folder in folders for path in folder.glob("pip-*.whl"))
    command = [sys.executable, f"{pip}/pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--disable-pip-version-check", "--ignore-installed", str(wheel)], check=True)
    return python


def differences(wheel: Path, folder: Path) -> set[str]:
    """Return the files that either the wheel or the folder that it was built in has, and the other has not."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    own = {
        str(path.relative_to(folder / "src")) for path in (folder / "src" / "bayesmesh").rglob("*") if path.is_file()
    }
    workflow = {path for part in ("workflow", "profiles") for path in (folder / part).rglob("*") if path.is_file()}
    shipped = {*workflow, folder / "envs" / "bayesmesh.yaml", folder / "envs" / "bayesmesh.post-deploy.sh"}
    return names ^ (own | {f"bayesmesh/repository/{path.relative_to(folder)}" for path in shipped})
