"""Answer `rules.smk`, the rules for benchmarks, claims and studies.

Parsing the Snakefile imports this module, so nothing here imports JAX or pandas.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.files import hash_file
from bayesmesh.store.records.jobs import FOLDER as RECORDS
from bayesmesh.workflow.gpus import has_accelerator
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import Current
from bayesmesh_reproduction.benchmarks.command import list_benchmarks
from bayesmesh_reproduction.claims.inputs import BENCHMARKS, FOLDERS
from bayesmesh_reproduction.layout import BenchmarkLayout
from bayesmesh_reproduction.settings import ReproductionSettings, load_settings

_FOLDER = Path(__file__).resolve().parent


def code(*patterns: str) -> str:
    """Return a digest of files of this package: its code, data and templates."""
    return _digest(_FOLDER, patterns)


def _digest(folder: Path, patterns: Iterable[str]) -> str:
    """Return a digest of the names and contents of the files that match."""
    files = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    lines = [f"{path.relative_to(folder)} {hash_file(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def code_of_benchmark(name: str) -> str:
    """Return a digest of a benchmark's own code, of the samplers that benchmarks share, and of the harness."""
    harness = (f"benchmarks/{part}.py" for part in ("harness", "process", "worker"))
    return code("hmc.py", "streaming/*.py", *harness, f"benchmarks/{name}.py", f"benchmarks/{name}/*")


def read_settings(plan: Plan) -> ReproductionSettings:
    """Return the settings of the configuration.

    Raises:
        ConfigError: see `load_settings`; or an experiment does not exist.
    """
    settings = load_settings(plan.config)
    for name in (*settings.experiments, *settings.accelerated):
        if name not in plan.targets:
            problem = f"{plan.config / 'reproduction.yaml'}: no experiment '{name}'"
            raise ConfigError(problem, f"{suggest(name, plan.targets)}; or remove the name from the list")
    return settings


def benchmark_tables(plan: Plan) -> list[Path]:
    """Return the tables that the page of benchmarks waits for: of all for the target `benchmarks`, else those that claims read.

    The page shows every table that exists.
    """
    names = list_benchmarks() if _is_requested(plan, "benchmarks") else BENCHMARKS
    return [BenchmarkLayout(Path(plan.results)).table(name) for name in names]


def reproduced(plan: Plan, settings: ReproductionSettings) -> list[Path]:
    """Return the results of the target `reproduce` before the claims: pages of experiments, and of benchmarks."""
    names = [*settings.experiments, *(settings.accelerated if _is_accelerated(plan) else [])]
    return [*plan.goals(*names), *benchmark_tables(plan), BenchmarkLayout(Path(plan.results)).page]


def requested_jobs(plan: Plan, settings: ReproductionSettings) -> list[Current]:
    """Return the jobs of the experiments of the target `reproduce` if it is on Snakemake's command line."""
    return plan.jobs(*settings.experiments) if "reproduce" in sys.argv else []


def claims_inputs(plan: Plan, settings: ReproductionSettings) -> list[Path]:
    """Return the results to make before claims are checked: all of the target `reproduce` if it is requested.

    The target `claims` alone checks existing results and runs nothing else: declared inputs that earlier code made would
    be made again first. `claims_digest` changes with the results instead.
    """
    return reproduced(plan, settings) if _is_requested(plan, "reproduce") else []


def _is_requested(plan: Plan, target: str) -> bool:
    return target in plan.workflow.dag_settings.targets


def _is_accelerated(plan: Plan) -> bool:
    """Return whether chains will run on a GPU or a TPU: their jobs request one, or this machine has one."""
    requested = plan.workflow.resource_settings.overwrite_resources.get("sample", {})
    return "gpu" in requested or (plan.workflow.local_exec and has_accelerator(os.environ))


def claims_digest(plan: Plan) -> str:
    """Return a digest of the results that claims may read, for `params`: tables, records of jobs, and the hashes of draws."""
    endings = (".csv", ".json", ".sha256")
    patterns = (f"{name}/{depth}*{ending}" for name in FOLDERS for depth in ("", "*/") for ending in endings)
    records = (f"{RECORDS}/{name}/[!.]*.json" for name in FOLDERS)
    return _digest(Path(plan.results), (*patterns, *records))
