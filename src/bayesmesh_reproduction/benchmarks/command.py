"""The verb `benchmark`: find a benchmark by its file, run it, write its tables and check its gates."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from bayesmesh.config.errors import explain
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.workflow.arguments import positive
from bayesmesh_reproduction.benchmarks.harness import Options, Outcome
from bayesmesh_reproduction.benchmarks.history import add_row, write_outcome
from bayesmesh_reproduction.benchmarks.journal import Journal
from bayesmesh_reproduction.layout import BenchmarkLayout
from bayesmesh_reproduction.settings import BenchmarkSettings, load_settings

_log = logging.getLogger("bayesmesh")
_FOLDER = Path(__file__).resolve().parent

GATE_FAILED = 1
"""Exit code if a ratio is below its gate."""

WRITING = "writing"
"""The benchmark of an experiment's own chains, which needs the name of the experiment."""

PAGE = "page"
"""Not a benchmark: writes the page of benchmarks."""


def parse_benchmarks(text: str | None) -> BenchmarkSettings:
    """Return the settings that the workflow passes to a job as JSON, else those of the configuration.

    Raises:
        ConfigError: the JSON has another form.
    """
    if text is None:
        return load_settings(Path("config")).benchmarks
    try:
        return BenchmarkSettings.model_validate_json(text)
    except ValidationError as error:
        raise explain(Path("--settings"), error, BenchmarkSettings) from error


@functools.cache
def list_benchmarks() -> Mapping[str, str]:
    """Return name -> description of all benchmarks; files are read, not imported.

    A benchmark is a file or a package in its folder that defines a function ``run``.
    """
    found: dict[str, str] = {}
    for path in sorted([*_FOLDER.glob("*.py"), *_FOLDER.glob("*/__init__.py")]):
        tree = ast.parse(path.read_bytes(), filename=str(path))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            name = path.parent.name if path.name == "__init__.py" else path.stem
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0].removeprefix(f"{name}: ")
    return found


def add_benchmark(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], parents: Sequence[argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    """Add the verb to the command line, with the options of `parents`, and return it."""
    found = {
        **list_benchmarks(),
        WRITING: "throughput and memory, with and without a store",
        PAGE: "write results/benchmarks/index.html from the existing tables",
    }
    verb = verbs.add_parser("benchmark", parents=parents, help="measure contenders in turns, in one run")
    add = verb.add_argument
    add("name", choices=tuple(found), help="; ".join(f"{name}: {about}" for name, about in found.items()))
    add("--quick", action="store_true", help="a trial with small sizes, under a minute; writes NAME-quick.csv")
    add("--seconds-limit", type=_seconds, metavar="S", help="time limit of one run of a contender")
    add("--gate", action="store_true", help=f"exit code {GATE_FAILED} when a ratio is below its gate")
    add("--settings", metavar="JSON", help="key benchmarks of config/reproduction.yaml, as the workflow has it")
    add("--cores", type=positive, help="cores that the contenders may use; all by default")
    add("--only", action="append", metavar="CASE", default=[], help="measure only this case; writes NAME-only.csv")
    add = verb.add_argument_group(WRITING).add_argument
    add("--experiment", metavar="NAME", help="an experiment that was sampled")
    add("--draws", type=positive, default=200, help="draws of one turn")
    add("--rounds", type=positive, default=5, help="turns of each contender")
    return verb


def _seconds(text: str) -> float:
    """Parse a time limit, in seconds."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds above 0")
    return number


def run_benchmark(arguments: argparse.Namespace) -> int:
    """Run the named benchmark and return the exit code."""
    if arguments.name == WRITING:
        return _run_writing(arguments)
    settings = parse_benchmarks(arguments.settings)
    if arguments.cores is not None and hasattr(os, "sched_setaffinity"):
        # Contenders inherit the limit; not every library has an option for it.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    layout = BenchmarkLayout(Path("results"), is_trial=arguments.quick)
    limit = arguments.seconds_limit or settings.seconds_limit
    name = f"{arguments.name}-only" if arguments.only else arguments.name
    journal = Journal(layout.journal(name))
    options = Options(arguments.quick or settings.quick, limit, layout, tuple(arguments.only), journal)
    benchmark = importlib.import_module(f"{__package__}.{arguments.name}")
    _check_cases(benchmark, arguments.name, options.only)
    outcome: Outcome = benchmark.run(options)
    write_outcome(layout, name, outcome, is_quick=options.is_quick, code=arguments.code)
    journal.forget()
    for ratio in outcome.ratios:
        gate = f", {ratio.verdict}: at least {ratio.least:g}" if ratio.least is not None else ""
        gate += f" ({ratio.reason})" if ratio.reason else ""
        spread = f"{ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
        print(f"{ratio.case}: {ratio.contender} {spread} x {ratio.against}{gate}")
    print(layout.table(name))
    is_below = any(ratio.verdict == "failed" for ratio in outcome.ratios)
    if is_below:
        _log.warning("benchmark %s: a ratio is below its gate", arguments.name)
    return GATE_FAILED if arguments.gate and is_below else 0


def _check_cases(benchmark: ModuleType, name: str, only: Sequence[str]) -> None:
    """Refuse cases that a benchmark does not have.

    Raises:
        ConfigError: one is unknown, or the benchmark names none.
    """
    known = benchmark.list_cases() if hasattr(benchmark, "list_cases") else []
    for case in only:
        if case not in known:
            words = suggest(case, known) if known else "it measures all of its cases; leave out --only"
            raise ConfigError(f"benchmark {name}: no case '{case}'", words)


def _run_writing(arguments: argparse.Namespace) -> int:
    from bayesmesh.workflow.plan import Plan
    from bayesmesh_reproduction.benchmarks.writing import measure_writing

    if (name := arguments.experiment) is None:
        raise ConfigError("benchmark writing: which experiment?", "name one that was sampled: --experiment NAME")
    plan = Plan(asked=[name])
    row = measure_writing(plan, name, draws=arguments.draws, rounds=arguments.rounds, cores=arguments.cores)
    path = BenchmarkLayout(Path(plan.results)).table(WRITING)
    add_row(path, row)
    for name, value in row.items():
        print(f"{name:<24} {value:.4g}" if isinstance(value, float) else f"{name:<24} {value}")
    print(path)
    return 0
