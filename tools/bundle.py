"""Build a directory that installs Bayesmesh without network.

    tools/bundle.py --accelerator cpu|cuda|tpu --python 3.12 --platform manylinux_2_28_x86_64

It contains every wheel of the lock for that Python and platform, a wheel of pip, the files of this checkout, and
install.sh. Packages that are published only as source are built here; the target platform may differ from this one if
they are pure Python.
"""

from __future__ import annotations

import argparse
import dataclasses
import ensurepip
import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import Marker
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
OLDEST_GLIBC = 5
"""Minor version of glibc 2.5, the oldest of any manylinux wheel."""


class BundleError(Exception):
    """The bundle cannot be built; the message says why and how to fix it."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Target of the bundle.

    Attributes:
        python: version such as ``3.12``.
        glibc: minor version of the oldest glibc.
        machine: architecture such as ``x86_64``.
    """

    python: str
    glibc: int
    machine: str

    @property
    def platforms(self) -> list[str]:
        """Platform tags of compatible wheels, best first."""
        names = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc, OLDEST_GLIBC - 1, -1)]
        legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
        return [*names, *(f"{name}_{self.machine}" for minor, name in legacy.items() if minor <= self.glibc)]

    @property
    def environment(self) -> dict[str, str]:
        """Values of the environment markers in a lock."""
        return {
            "python_version": self.python, "python_full_version": f"{self.python}.0",
            "implementation_version": f"{self.python}.0", "implementation_name": "cpython",
            "platform_python_implementation": "CPython", "platform_machine": self.machine, "platform_release": "",
            "platform_version": "", "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix",
            "extra": "",
        }  # fmt: skip


def read_target(python: str, platform_name: str) -> Target:
    """Return the target that the options describe.

    Raises:
        BundleError: an option is invalid.
    """
    match = re.fullmatch(r"manylinux_2_(\d+)_(x86_64|aarch64)", platform_name)
    if match is None:
        raise BundleError(f"PLATFORM={platform_name}: write for example manylinux_2_28_x86_64 (glibc 2.28 or newer)")
    if not re.fullmatch(r"3\.1[2-9]", python):
        raise BundleError(f"PYTHON={python}: write a version such as 3.12, the oldest that Bayesmesh supports")
    return Target(python, int(match[1]), match[2])


def read_lock(path: Path, target: Target) -> dict[str, str]:
    """Return package -> requirement line with hashes, for the packages that the target needs."""
    found = {}
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==(\S+)\s*(?:;\s*(.*?))?\s+(--hash=.*)", line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                raise BundleError(f"{path}: cannot parse: {line[:80]}")
            continue
        name, version, marker, hashes = match.groups()
        if not marker or Marker(marker).evaluate(target.environment):
            found[canonicalize_name(name)] = f"{name}=={version} {hashes}"
    return found


def bundled_pip() -> Path:
    """Return the wheel of pip that comes with this Python.

    Raises:
        BundleError: this Python has none.
    """
    folders = [Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "none")]
    found = sorted(path for folder in folders for path in folder.glob("pip-*.whl"))
    if not found:
        raise BundleError(
            f"{sys.executable} has no wheel of pip: rebuild .venv with a complete Python (make clean-env env)"
        )
    return found[-1]


def run_pip(pip: Path, *arguments: str) -> None:
    """Run pip from its wheel.

    Raises:
        BundleError: pip failed; its message is above.
    """
    command = [sys.executable, f"{pip}/pip", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, check=False).returncode:
        raise BundleError("pip failed; see the messages above")


def download(lines: dict[str, str], target: Target, wheels: Path, pip: Path) -> None:
    """Download every package, and build wheels of source packages."""
    requirements = wheels / "requirements.in"
    requirements.write_text("\n".join(lines.values()) + "\n", encoding="utf-8")
    platforms = [word for name in target.platforms for word in ("--platform", name)]
    run_pip(
        pip, "download", "--quiet", "--progress-bar=off", "--no-deps", "--require-hashes", "--no-build-isolation",
        f"--python-version={target.python}", "--implementation=cp", *platforms, f"--dest={wheels}",
        f"--requirement={requirements}",
    )  # fmt: skip
    requirements.unlink()
    for source in sorted(path for path in wheels.iterdir() if path.suffix != ".whl"):
        print(f"building {source.name}")
        before = set(wheels.glob("*.whl"))
        run_pip(
            pip, "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={wheels}", str(source)
        )  # fmt: skip
        source.unlink()
        (built,) = set(wheels.glob("*.whl")) - before
        check_built(built, target)


def check_built(wheel: Path, target: Target) -> None:
    """Check that a wheel built here fits the target.

    Raises:
        BundleError: the wheel contains machine code for another Python or machine.
    """
    *_, tags = parse_wheel_filename(wheel.name)
    if all(tag.platform == "any" for tag in tags):
        return
    is_here = f"{sys.version_info.major}.{sys.version_info.minor}" == target.python
    if not (is_here and platform.machine() == target.machine and tags & set(sys_tags())):
        raise BundleError(
            f"{wheel.name}: was built from source for this machine: build the bundle with Python {target.python} on"
            f" a {target.machine} machine that is as old as the target"
        )
    print(f"note: {wheel.name} contains machine code built here; it runs only on systems at least as new as this one")


def requirements_of(lines: dict[str, str], wheels: Path) -> Iterator[str]:
    """Yield a requirement line for each wheel, with its hash.

    Raises:
        BundleError: a package has no wheel.
    """
    there = {parse_wheel_filename(path.name)[0]: path for path in wheels.glob("*.whl")}
    for name in lines:
        if name not in there:
            raise BundleError(f"{name}: there is no wheel for this Python and platform")
        path = there[name]
        yield f"{name}=={parse_wheel_filename(path.name)[1]} --hash=sha256:{digest(path)}"


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack_checkout(output: Path) -> None:
    """Archive the files of this checkout in their current state, including new files but not ignored ones."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=False)
    if listed.returncode:
        raise BundleError("this is not a git checkout: clone the repository and build the bundle there")
    with tarfile.open(output, "w:gz") as archive:
        for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
            path = ROOT / name
            if path.is_file() and not path.is_symlink():
                entry = tarfile.TarInfo(f"bayesmesh/{name}")
                content = path.read_bytes()
                entry.size, entry.mode = len(content), 0o755 if path.stat().st_mode & 0o100 else 0o644
                entry.mtime = int(path.stat().st_mtime)
                archive.addfile(entry, io.BytesIO(content))


def build(accelerator: str, target: Target, platform_name: str, dist: Path) -> Path:
    """Build the bundle and return its folder; replace an existing one on success.

    Raises:
        BundleError: the bundle cannot be built.
    """
    name = f"bundle-{accelerator}-py{target.python}-{platform_name}"
    part, whole = dist / f".{name}.part", dist / name
    shutil.rmtree(part, ignore_errors=True)
    wheels = part / "wheels"
    try:
        wheels.mkdir(parents=True)
    except OSError as error:
        raise BundleError(f"{dist}: is not writable: {error.strerror}; choose another folder with --dist") from error
    locks = ["cpu", accelerator] if accelerator != "cpu" else ["cpu"]
    lines = read_lock(ROOT / "envs" / "build.txt", target)
    # The lock of an accelerator contains all pins of cpu.txt.
    lines |= read_lock(ROOT / "envs" / f"{locks[-1]}.txt", target)
    pip = bundled_pip()
    print(f"{len(lines)} packages for Python {target.python} on {platform_name}")
    download(lines, target, wheels, pip)
    (part / "requirements.txt").write_text("\n".join(requirements_of(lines, wheels)) + "\n", encoding="utf-8")
    shutil.copy(pip, part)
    pack_checkout(part / "bayesmesh.tar.gz")
    script = (ROOT / "tools" / "bundle-install.sh").read_text(encoding="utf-8")
    for key, value in {"PYTHON": target.python, "MACHINE": target.machine, "LOCKS": " ".join(locks)}.items():
        script = script.replace(f"@{key}@", value)
    (part / "install.sh").write_text(script, encoding="utf-8")
    (part / "install.sh").chmod(0o755)
    files = sorted(path for path in part.rglob("*") if path.is_file())
    sums = "".join(f"{digest(path)}  {path.relative_to(part)}\n" for path in files)
    (part / "SHA256SUMS").write_text(sums, encoding="utf-8")
    shutil.rmtree(whole, ignore_errors=True)
    part.rename(whole)
    return whole


def main() -> int:
    """Parse the options and build the bundle."""
    parser = argparse.ArgumentParser(description="Build a bundle for sites without network.")
    parser.add_argument("--accelerator", choices=("cpu", "cuda", "tpu"), default="cpu")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--platform", default=f"manylinux_2_28_{platform.machine()}")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder for the bundle")
    options = parser.parse_args()
    try:
        target = read_target(options.python, options.platform)
        folder = build(options.accelerator, target, options.platform, options.dist)
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.rglob("*"))
    print(f"{folder}: {size / 2**20:.0f} MiB; copy it to the target and run {folder.name}/install.sh FOLDER there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
