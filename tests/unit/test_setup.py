"""The set-up: tools/bootstrap.sh with fake programs on a PATH of its own, and the locks in envs/."""

import dataclasses
import functools
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ("build", "cpu", "cuda", "tpu", "dev", "peers", "site")
TOOLS = ("sh", "dirname", "cat", "cksum", "grep", "mkdir", "mv", "rm", "cp", "chmod")

# Answers the probe of bootstrap.sh, and makes an environment whose Python is this script again.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
-c*) echo "{version} {complete} {path}" ;;
"-m venv .venv"*) echo "venv $0" >>"$LOG"; mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
"-m pip --version") ;;
"-m pip install"*) echo "$*" >>"$LOG"; case "$*" in *"${{FAILING:-nothing}}"*) exit 1 ;; esac ;;
"-m compileall"*) echo compileall >>"$LOG" ;;
*) exit 2 ;;
esac
"""


@dataclass
class Checkout:
    """A copy of what bootstrap.sh reads, with a PATH that holds only what a test puts there."""

    root: Path
    bin: Path
    log: Path

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, name: str, version: int, *, complete: bool = True, path: str | None = None) -> Path:
        path = path or str(self.bin / name)
        return self.program(name, FAKE_PYTHON.format(version=version, complete=int(complete), path=path))

    def bootstrap(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "tools" / "bootstrap.sh", *arguments],
            env={"PATH": str(self.bin), "LOG": str(self.log), **variables},
            cwd=self.root.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def install(self, lock: str, **variables: str) -> list[str]:
        """Runs bootstrap.sh for a lock and returns what the fake installers were asked for."""
        self.log.write_text("")
        done = self.bootstrap(lock, **variables)
        assert (done.returncode == 0) is ("FAILING" not in variables), done.stderr
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a checkout"
    (root / "tools").mkdir(parents=True)
    (root / "envs").mkdir()
    shutil.copy(ROOT / "tools" / "bootstrap.sh", root / "tools")
    (root / "pyproject.toml").write_text("")
    for lock in LOCKS:
        (root / "envs" / f"{lock}.txt").write_text(f"{lock}==1\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is not installed"))
    return Checkout(root, programs, tmp_path / "log")


@pytest.mark.parametrize("name", ["$(touch pwned)", "`touch pwned`", 'a "b"', "{x}", "a:b", "a\\b", "a\nb"])
def test_a_folder_that_a_shell_would_interpret_is_refused_and_not_interpreted(checkout: Checkout, name: str) -> None:
    moved = dataclasses.replace(checkout, root=checkout.root.rename(checkout.root.with_name(name)))
    done = moved.bootstrap("cpu")
    assert done.returncode == 1
    assert "rename the folder" in done.stderr
    assert not list(moved.root.parent.rglob("pwned"))


def test_a_folder_with_spaces_quotes_and_letters_is_accepted(checkout: Checkout) -> None:
    checkout.python("python3", 312)
    moved = dataclasses.replace(checkout, root=checkout.root.rename(checkout.root.with_name("a 'b' ü;& %s")))
    assert moved.bootstrap("--python").stdout.strip()


def test_everything_from_the_lock_has_its_hash_checked(checkout: Checkout) -> None:
    checkout.python("python3", 312)
    venv, *pip, compiled = checkout.install("cpu")
    assert venv.startswith("venv")
    assert compiled == "compileall"
    assert all("--no-build-isolation" in call for call in pip)
    build, lock, package = pip
    assert build.endswith("--require-hashes -r envs/build.txt")
    assert lock.endswith("--require-hashes -r envs/cpu.txt")
    assert package.endswith("--no-deps -e .")


def logical_lines(lock: str) -> Iterator[str]:
    text = (ROOT / "envs" / f"{lock}.txt").read_text()
    return (re.sub(r"\s+", " ", line).strip() for line in text.replace("\\\n", " ").splitlines())


@functools.cache
def pins(lock: str) -> dict[str, str]:
    requirements = (Requirement(line.partition(" --hash")[0]) for line in logical_lines(lock))
    return {canonicalize_name(requirement.name): str(requirement.specifier) for requirement in requirements}


def test_locks_hold_nothing_but_pins_with_hashes() -> None:
    # Which leaves no room for an index, an address, a host or a local path.
    pin = re.compile(
        r"[a-z0-9][a-z0-9._-]*==[0-9][0-9a-z.+]*( ; [a-z0-9_<>=!'. ()]+)?( --hash=sha256:[0-9a-f]{64})+", re.I
    )
    lines = {lock: list(logical_lines(lock)) for lock in LOCKS}
    assert all(lines.values())
    wrong = [f"envs/{lock}.txt: {line}" for lock in LOCKS for line in lines[lock] if not pin.fullmatch(line)]
    assert not wrong, "\n".join(wrong)


def test_all_locks_give_a_package_one_version() -> None:
    seen: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in pins(lock).items():
            seen.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in seen.items() if len(versions) > 1} == {}


def test_tensorflow_probability_is_one_dated_build() -> None:
    assert re.fullmatch(r"==\d+\.\d+\.0\.dev\d{8}", pins("cpu")["tfp-nightly"])


def test_locks_fit_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = {
        "build": project["build-system"]["requires"],
        "cpu": project["project"]["dependencies"],
        **{extra: project["project"]["dependencies"] + extras[extra] for extra in ("cuda", "tpu", "dev")},
    }
    stale = [
        f"{lock}: {requirement}"
        for lock, requirements in wanted.items()
        for requirement in map(Requirement, requirements)
        if not requirement.specifier.contains(pins(lock).get(canonicalize_name(requirement.name), "==0")[2:], True)
    ]
    assert stale == [], "run `make lock`"
    # Their next versions are tried before users get them.
    bounded = {"jax", "snakemake"}
    bounds = {r.name: str(r.specifier) for r in map(Requirement, wanted["cpu"]) if r.name in bounded}
    assert bounds.keys() == bounded
    assert all("<" in bound for bound in bounds.values()), bounds


def test_the_conda_environment_follows_the_locks() -> None:
    locks = b"".join((ROOT / "envs" / f"{lock}.txt").read_bytes() for lock in ("build", "cpu"))
    cksum = subprocess.run(["cksum"], input=locks, capture_output=True, check=True).stdout.split()[0].decode()
    assert f"# locks: {cksum}\n" in (ROOT / "envs" / "bayesmesh.post-deploy.sh").read_text(), "run `make lock`"


def test_scripts_can_be_run() -> None:
    wrong = []
    scripts = [*ROOT.glob("tools/*.sh"), ROOT / ".ci" / "run"]
    assert len(scripts) > 4
    for script in scripts:
        shell = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
        done = subprocess.run([shell, "-n", script], capture_output=True, text=True)
        if done.returncode or not os.access(script, os.X_OK):
            wrong.append(f"{script.relative_to(ROOT)}: cannot be executed, or is no valid script: {done.stderr}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_tests_is_run_by_make() -> None:
    """`make test` runs the listed folders, two other targets those that need a cluster or an index; CI runs the cluster's."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    folders = {f"tests/{path.parent.relative_to(ROOT / 'tests').parts[0]}" for path in ROOT.glob("tests/**/test_*.py")}
    assert folders == {*listed, "tests/slurm", "tests/bundle"} - {"src"}
    assert "tests/slurm" in (ROOT / "tools" / "slurm-test.sh").read_text()
    assert "tests/bundle" in (ROOT / "Makefile").read_text()
    timed = [line.split()[3:5] for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("timed ")]
    assert sorted(timed) == [["make", "slurm-test"], ["make", "test"]]
