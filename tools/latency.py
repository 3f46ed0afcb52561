"""Measure where the seconds between the command and the verdict go, for small experiments in empty folders.

`python tools/latency.py [--checkout DIR]... [--rounds N] [EXPERIMENT]...` runs each experiment with an empty cache and again
with the programs of that run, checkouts in turns, and prints a table of medians: wall seconds, and processor seconds of all
processes, up to the verdict and to the end, by job and by phase. Not a test: how long something takes is not asserted.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''
"""Rows of a regression."""

from pathlib import Path

import numpy as np

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset, Source


class Options(Settings):
    """No options."""


class Regression(Source):
    """Fields ``x`` (8,) and ``y`` ()."""

    pretty_name = "Regression"
    offers = ()
    options: Options

    def read(self, folder: Path) -> Dataset:
        random = np.random.default_rng(0)
        x = random.standard_normal((10_000, 8))
        y = x @ random.standard_normal(8) + random.standard_normal(10_000)
        return Dataset(rows={"x": x, "y": y}, declared_counts={"rows": 10_000})
'''

MODEL = '''
"""A linear regression with unknown noise."""

import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model

tfd = tfp.distributions


class Options(Settings):
    """No options."""


class Regression(Model):
    """y ~ N(intercept + x @ slopes, noise)."""

    pretty_name = "Regression"
    offers = ()
    options: Options

    def prior(self, data_spec):
        zero = jnp.zeros((), data_spec.dtype)
        wide = tfd.Normal(zero, zero + 2.5)
        slopes = tfd.Sample(wide, data_spec.fields["x"].shape)
        return tfd.JointDistributionNamed({"intercept": wide, "slopes": slopes, "noise": tfd.HalfNormal(zero + 2.5)})

    def log_likelihood(self, latents, rows):
        return self.predict(latents, rows).log_prob(self.outcome(rows).astype(latents["noise"].dtype))

    def predict(self, latents, inputs):
        x = inputs["x"].astype(latents["slopes"].dtype)
        return tfd.Normal(latents["intercept"] + x @ latents["slopes"], latents["noise"])

    def outcome(self, rows):
        return rows["y"]

    def summaries(self, latents, rows):
        return dict(latents)
'''

EXPERIMENTS: dict[str, dict[str, Any]] = {
    "gaussian": yaml.safe_load((ROOT / "config" / "experiments" / "gaussian.yaml").read_text()),
    "regression": {
        "title": "Regression", "data": {"source": "study.sources.rows:Regression"},
        "model": {"name": "study.models.regression:Regression"}, "kernel": {"name": "nuts"},
    },
}  # fmt: skip


def lay_out(folder: Path, checkout: Path, name: str) -> None:
    """Write a folder as a user has it, with one experiment."""
    copy_package(folder, checkout)
    write_component(folder / "study/sources/rows.py", SOURCE)
    write_component(folder / "study/models/regression.py", MODEL)
    configure(folder, name, EXPERIMENTS[name])


def write_component(file: Path, text: str) -> None:
    """Write a component of the user's own package, as ``bayesmesh init`` lays one out."""
    file.parent.mkdir(parents=True)
    file.write_text(text)


def copy_package(folder: Path, checkout: Path) -> None:
    """Copy the workflow and the package of a checkout."""
    for part in ("workflow", "profiles", "envs", "src"):
        shutil.copytree(checkout / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(checkout / "Snakefile", folder)


def configure(folder: Path, name: str, experiment: Mapping[str, Any]) -> None:
    """Write the configuration of one experiment, and leave the package as the first dry run of an installed one does."""
    (folder / "config" / "experiments").mkdir(parents=True)
    (folder / "config" / "config.yaml").write_text(f"experiments: [{name}]\n")
    (folder / "config" / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
    subprocess.run([sys.executable, "-m", "compileall", "-qq", "-j", "0", folder / "src"], check=True)
    dry_run = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet"]
    subprocess.run(dry_run, cwd=folder, env=environment_of(folder), capture_output=True, check=True)


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of a user, whose Python may write compiled modules."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPATH": str(folder / "src")}


def command_of(folder: Path) -> list[str]:
    """Return the command that runs the workflow; of checkouts without `bayesmesh run`, that of Snakemake."""
    has_verb = (folder / "src/bayesmesh/operations/run.py").exists()
    return [sys.executable, "-m", *(["bayesmesh.cli", "run"] if has_verb else ["snakemake"])]


def processes(root: int) -> Iterator[tuple[int, float]]:
    """Yield number and processor seconds of the processes that descend from one."""
    try:
        threads = os.listdir(f"/proc/{root}/task")
    except OSError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{root}/task/{thread}/children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            yield child, seconds
            yield from processes(child)


def measure(folder: Path, name: str) -> dict[str, tuple[float, float]]:
    """Run the workflow and return part -> wall and processor seconds; the latter are known of processes only."""
    begun, verdict = time.time(), folder / f"results/{name}/diagnostics/verdict.json"
    used, at_verdict = dict[int, float](), 0.0
    with (folder / "log").open("w") as log:
        run = subprocess.Popen(command_of(folder), cwd=folder, env=environment_of(folder), stdout=log, stderr=log)
        while run.poll() is None:
            used.update(processes(os.getpid()))
            if not at_verdict and verdict.exists():
                at_verdict = sum(used.values())
            time.sleep(0.05)
    ended = time.time()
    if run.returncode:
        raise SystemExit((folder / "log").read_text())
    jobs = sorted(job_rows(folder / "results"), key=lambda rows: rows[0]["at"])
    starts, ends = [rows[0]["at"] - rows[0]["seconds"] for rows in jobs], [rows[-1]["at"] for rows in jobs]
    idle = sum(max(0.0, start - max(ends[:i])) for i, start in enumerate(starts) if i)
    found = {
        "to the verdict": (verdict.stat().st_mtime - begun, at_verdict),
        "to the end": (ended - begun, sum(used.values())),
        "Snakemake to the first job; all": (starts[0] - begun, used[run.pid]),
        "between jobs": (idle, 0.0),
    }
    for rows, start in zip(jobs, starts, strict=True):
        found[rows[0]["job"]] = rows[-1]["at"] - start, 0.0
        found |= {
            f"  {row['phase']} {row['detail'].partition(',')[0]} ({row['job']})": (row["seconds"], 0.0)
            for row in rows[:-1]
        }
    return found


def keep_programs(folder: Path) -> None:
    """Remove all results but the compiled programs."""
    (folder / "results" / ".cache").rename(folder / "cache")
    for made in ("results", ".snakemake"):
        shutil.rmtree(folder / made)
    (folder / "results").mkdir()
    (folder / "cache").rename(folder / "results" / ".cache")


def job_rows(results: Path) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows of each job's ledger, from its start to its end."""
    for path in results.rglob("ledger/*.json"):
        yield json.loads(path.read_text())["rows"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiments", nargs="*", default=list(EXPERIMENTS))
    parser.add_argument("--checkout", type=Path, action="append")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    checkouts = [path.resolve() for path in arguments.checkout or [ROOT]]
    for name in arguments.experiments:
        table: dict[str, dict[str, list[tuple[float, float]]]] = collections.defaultdict(
            lambda: collections.defaultdict(list)
        )
        for _ in range(arguments.rounds):
            for number, checkout in enumerate(checkouts):
                with tempfile.TemporaryDirectory() as temporary:
                    folder = Path(temporary, "run")
                    lay_out(folder, checkout, name)
                    for cache in ("cold", "warm"):
                        for part, seconds in measure(folder, name).items():
                            table[part][f"{cache} {number}"].append(seconds)
                        keep_programs(folder)
        columns = [f"{cache} {number}" for cache in ("cold", "warm") for number in range(len(checkouts))]
        print(f"\n{name}, wall/processor seconds".ljust(60), *(c.rjust(12) for c in columns))
        for part, cells in table.items():
            medians = [
                "/".join(f"{statistics.median(values):.2f}" for values in zip(*cells[c], strict=True))
                if c in cells
                else ""
                for c in columns
            ]
            print(part.ljust(59), *(m.rjust(12) for m in medians))


if __name__ == "__main__":
    main()
