"""Say whether this checkout can be released: versions, changelog, wheel, locks, links; exit code 1 if it cannot.

    tools/release_check.py

Nothing is written outside of a temporary folder, and no network is used.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("build", "cpu", "cuda", "tpu", "dev", "peers", "site")

VERSIONS = {
    "src/bayesmesh/__init__.py": r'^__version__ = "([^"]+)"',
    "workflow/Snakefile": r'check_use\("([^"]+)"',
    "CITATION.cff": r"^version: (\S+)$",
}
"""File -> pattern of the version in it."""


def check_versions(root: Path) -> str:
    """Return what is wrong with the versions, or nothing."""
    found = {name: re.findall(pattern, (root / name).read_text(), re.M) for name, pattern in VERSIONS.items()}
    (version, *_) = found["src/bayesmesh/__init__.py"] or ["none"]
    wrong = [f"{name} says {' and '.join(said) or 'none'}" for name, said in found.items() if said != [version]]
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        wrong.append(f"{version} is not a version such as 1.2.0 or 1.2.0rc1")
    return "; ".join(wrong)


def check_changelog(root: Path) -> str:
    """Return why the changelog is not that of a release, or nothing: its first section is that of the version."""
    version = re.findall(VERSIONS["CITATION.cff"], (root / "CITATION.cff").read_text(), re.M)[0]
    sections = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.M)
    first = sections[0] if sections else "none"
    return "" if first.split()[0] == version else f"the first section is '{first}': rename it to '{version}'"


def check_locks(root: Path) -> str:
    """Return the requirements of locks without one version or without a hash, or nothing."""
    wrong = []
    for lock in LOCKS:
        text = (root / "envs" / f"{lock}.txt").read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        wrong += [f"envs/{lock}.txt is empty"] if not lines else []
        pinned = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+(\s*;[^#]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
        wrong += [f"envs/{lock}.txt: {line.split()[0]}" for line in lines if not pinned.fullmatch(line)]
    return "; ".join(wrong)


def check_wheel(root: Path) -> str:
    """Build the wheel, and return what it lacks or has too much, or nothing."""
    sys.path.insert(0, str(root / "tests" / "support"))
    from wheels import build_wheel, differences

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        return "; ".join(sorted(differences(build_wheel(copy), copy)))


def check_documents(root: Path) -> str:
    """Return what is wrong with links and paths of the documentation and with locks, as the tests say it, or nothing."""
    tests = ["tests/unit/test_docs.py", "tests/unit/test_setup.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", "links or paths or locks or lock_", *tests]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-2000:]


CHECKS: dict[str, Callable[[Path], str]] = {
    "versions": check_versions,
    "changelog": check_changelog,
    "locks": check_locks,
    "wheel": check_wheel,
    "links": check_documents,
}


def main() -> int:
    """Print a line for each check."""
    failures = 0
    for name, check in CHECKS.items():
        wrong = check(ROOT)
        print(f"FAILS  {name}: {wrong}" if wrong else f"ok     {name}", flush=True)
        failures += bool(wrong)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
