"""Answer `rules.smk`, the rules for benchmarks, claims and studies.

Parsing the Snakefile imports this module, so nothing here imports JAX or pandas.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bayesmesh.config.config_source_code import fingerprint
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.files import hash_file
from bayesmesh.planning.plan import Plan
from bayesmesh.running.gpus import has_accelerator
from bayesmesh_reproduction.benchmarks.command import list_benchmarks
from bayesmesh_reproduction.claims.inputs import BENCHMARKS, FOLDERS
from bayesmesh_reproduction.layout import BenchmarkLayout
from bayesmesh_reproduction.settings import ReproductionSettings, load_settings

_FOLDER = Path(__file__).resolve().parent


def _code(*patterns: str) -> str:
    """Return the fingerprint of files of this package: its code, data and templates."""
    return fingerprint(path for pattern in patterns for path in _FOLDER.glob(pattern) if path.is_file())


def benchmark_names() -> list[str]:
    """Return the names of the benchmarks that need no experiment."""
    return list(list_benchmarks())


def benchmark_layout(plan: Plan) -> BenchmarkLayout:
    """Return the files of the benchmarks."""
    return BenchmarkLayout(Path(plan.results))


def code_of_benchmark(name: str) -> str:
    """Return the fingerprint of a benchmark's own code, of the samplers that benchmarks share, and of the harness."""
    harness = (f"benchmarks/{part}.py" for part in ("harness", "process", "worker"))
    return _code("hmc.py", "streaming/*.py", *harness, f"benchmarks/{name}.py", f"benchmarks/{name}/*")


def code_of_benchmark_page() -> str:
    """Return the fingerprint of the code and of the template that write the page of benchmarks."""
    return _code("pages/benchmarks.py", "pages/templates/benchmarks.html")


def code_of_study() -> str:
    """Return the fingerprint of the studies' code."""
    return _code("studies/*.py")


def code_of_claims() -> str:
    """Return the fingerprint of the claims, and of the code and the template that check them and write their page."""
    return _code("claims/*", "pages/claims.py", "pages/templates/claims.html")


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
    names = benchmark_names() if _is_requested(plan, "benchmarks") else BENCHMARKS
    return [benchmark_layout(plan).table(name) for name in names]


def reproduced(plan: Plan, settings: ReproductionSettings) -> list[Path]:
    """Return the results of the target `reproduce` before the claims: pages of experiments, and of benchmarks."""
    names = [*settings.experiments, *(settings.accelerated if _is_accelerated(plan) else [])]
    return [*map(plan.page, names), *benchmark_tables(plan), benchmark_layout(plan).page]


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
    """Return a digest of the results that claims may read, for `params`: tables, receipts, and the hashes of draws."""
    patterns = [f"{depth}*{ending}" for depth in ("", "*/") for ending in (".csv", ".json", ".sha256")]
    folders = [Path(plan.results) / name for name in FOLDERS]
    files = sorted(path for folder in folders for pattern in patterns for path in folder.glob(pattern))
    lines = [f"{path} {hash_file(path)}\n" for path in files if path.is_file()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
