"""A folder as a user has it: workflow, configuration, source and results."""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bayesmesh.files import atomic_path
from zygote import zygote

ROOT = Path(__file__).resolve().parents[2]

DIGITS = {
    "title": "Digits & <b>tags</b>",
    "data": {"source": "digits", "test_fraction": 0.8},
    "model": {"name": "softmax_regression"},
    "kernel": {"name": "chees", "max_leapfrog_steps": 8},
    # The same numbers on every processor, which golden tables compare. Chains that come from far away take steps so unstable that
    # a difference of 1e-14 is one of 0.1 after three of them; near the mode it stays below 1e-9.
    "sampling": {"chains": 4, "warmup": 20, "draws": 20, "seed": 1, "initial": {"method": "laplace"}},
    "compute": {"dtype": "float64"},
    # No draws can pass it: a gate that fails must not fail the run.
    "gates": {"r_hat": 1.0001},
    "averaging": {},
}

FILMS = {
    "title": "Films",
    "data": {"source": "films", "num_users": 12, "num_films": 10, "width": 1, "held_out_fraction": 0.2},
    "model": {"name": "matrix_factorization", "width": 1},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 2, "initial_step_size": 0.1},
    # The shortest segments, of one draw: a run of many draws is slow enough to be killed in the middle.
    "sampling": {
        "mode": "independent",
        "chains": 4,
        "chain_groups": 2,
        "warmup": 8,
        "draws": 8,
        "segment_seconds": 1e-6,
    },
    "recommendation": {"num_films": 3, "top": 2, "cutoff": 3},
    "compute": {"dtype": "float64"},
}


EXPERIMENTS: Mapping[str, Mapping[str, Any]] = {"digits": DIGITS, "films": FILMS}
"""Two tiny experiments that have every stage between them."""


@dataclasses.dataclass(frozen=True)
class Workspace:
    """A folder as a user has it: workflow, configuration, source and results."""

    root: Path
    environment: Mapping[str, str]

    @property
    def results(self) -> Path:
        return self.root / "results"

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the folder: in a fork, unless variables are told that imports read."""
        if not any(name.startswith(("JAX_", "PYTHON")) for name in variables):
            return zygote().run(command, self.root, {**self.environment, **variables})
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.root, env={**self.environment, **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def snakemake(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake."""
        done = self.run("snakemake", *arguments, **variables)
        keep_programs(self.results)
        return done

    def planned(self, *arguments: str) -> list[str]:
        """Return the messages of the jobs that a dry run lists, sorted, without digests in names of data."""
        done = self.snakemake("-n", "--cores", "2", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs = re.findall(r"^Job \d+: (.*)$", done.stdout + done.stderr, re.M)
        return sorted(re.sub(r"-[0-9a-f]{8}\b", "", job) for job in jobs)

    def experiment(self, name: str) -> Path:
        return self.root / "config" / "experiments" / f"{name}.yaml"

    def set(self, name: str, key: str, value: Any) -> None:
        """Set one dotted key of an experiment."""
        whole = yaml.safe_load(self.experiment(name).read_text())
        *blocks, last = key.split(".")
        block = whole
        for part in blocks:
            block = block.setdefault(part, {})
        block[last] = value
        self.experiment(name).write_text(yaml.safe_dump(whole))

    @contextlib.contextmanager
    def changed(self, path: Path, text: str) -> Iterator[None]:
        """Let a file be another for a while."""
        before = path.read_text() if path.exists() else None
        path.write_text(text)
        try:
            yield
        finally:
            path.unlink() if before is None else path.write_text(before)

    def copy(self, root: Path) -> Workspace:
        """Return a copy with the same times of files."""
        shutil.copytree(self.root, root, symlinks=True)
        return Workspace(root, {**self.environment, "PYTHONPATH": str(root / "src")})


def for_user(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a user without mirror, whose commands are those of this Python."""
    kept = {k: v for k, v in environment.items() if not k.startswith(("BAYESMESH_", "PYTHON", "PYTEST_"))}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        # The time that a posterior states; the posteriors of two runs are compared as bytes.
        "SOURCE_DATE_EPOCH": "1790000000",
    }


def programs_of_stages() -> Path:
    """Return the folder for programs that stages have compiled in tests, of any checkout."""
    return Path(os.environ["BAYESMESH_TEST_CACHE"], "of-stages")


def bring_programs(results: Path) -> None:
    """Copy the programs that stages have compiled in earlier tests to results, where stages look for them.

    For runs that are about other things than compiling: a program is the same whoever has compiled it, and one of other code has
    another key. Copied, because tests damage folders of results.
    """
    _copy_programs(programs_of_stages(), results / ".cache" / "xla")


def keep_programs(results: Path) -> None:
    """Keep what stages have compiled for later tests."""
    _copy_programs(results / ".cache" / "xla", programs_of_stages())


def _copy_programs(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in target.glob("*-cache")}
    for path in source.glob("*-cache"):
        # The end of another session may remove it.
        with contextlib.suppress(FileNotFoundError):
            if path.name not in there:
                with atomic_path(target / path.name) as written:
                    shutil.copy(path, written)


def lay_out(root: Path, environment: Mapping[str, str], experiments: Mapping[str, Mapping[str, Any]]) -> Workspace:
    """Make a workspace with these experiments, all of them listed, in which nothing has run yet.

    Programs that earlier runs of tests have compiled are there, see `bring_programs`.
    """
    for part in ("workflow", "profiles", "envs"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copy(ROOT / "Snakefile", root)
    # Compiled once and copied with it: every command of a new workspace would compile each module that it imports.
    for package in ("bayesmesh", "bayesmesh_reproduction"):
        compileall.compile_dir(ROOT / "src" / package, quiet=1)
        shutil.copytree(ROOT / "src" / package, root / "src" / package)
    (root / "config" / "experiments").mkdir(parents=True)
    (root / "config" / "config.yaml").write_text(f"experiments: [{', '.join(experiments)}]\n")
    for name, experiment in experiments.items():
        (root / "config" / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
    bring_programs(root / "results")
    return Workspace(root, {**environment, "PYTHONPATH": str(root / "src")})


def hashes(folder: Path) -> dict[str, str]:
    """Return file -> sha256 of all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def find_job(workspace: Workspace, verb: str) -> int | None:
    """Return the process of a stage that works in the workspace."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if verb in words and "python" in words[0] and (folder / "cwd").resolve() == workspace.root.resolve():
                return int(folder.name)
        except OSError:
            continue
    return None
