"""The verb `benchmark`: find a benchmark by its file, run it, write its tables and check its gates."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from bayesmesh.config.blocks import BenchmarkSettings
from bayesmesh.errors import ConfigError
from bayesmesh.reproduction.benchmarks.benchmark_list import list_benchmarks, parse_benchmarks
from bayesmesh.running.arguments import positive

__all__ = ["PAGE", "add_benchmark", "run_benchmark"]

_log = logging.getLogger("bayesmesh")
GATE_FAILED = 1
"""Exit code if a ratio is below its gate."""

WRITING = "writing"
"""The benchmark of an experiment's own chains, which needs the name of the experiment."""


PAGE = "page"
"""Not a benchmark: writes the page of all benchmarks."""


def add_benchmark(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], parents: Sequence[argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    """Add the verb to the command line, with the options of `parents`, and return it."""
    found = {
        **list_benchmarks(),
        WRITING: "throughput and memory, with and without a store",
        PAGE: "write results/benchmarks/index.html over the tables that exist",
    }
    verb = verbs.add_parser("benchmark", parents=parents, help="measure contenders in turns, in one run")
    verb.add_argument("name", choices=tuple(found), help="; ".join(f"{name}: {what}" for name, what in found.items()))
    verb.add_argument(
        "--quick", action="store_true", help="a trial with small sizes, under a minute; writes NAME-quick.csv"
    )
    verb.add_argument("--seconds-limit", type=_seconds, metavar="S", help="time limit of one run of a contender")
    verb.add_argument("--gate", action="store_true", help=f"exit code {GATE_FAILED} when a ratio is below its gate")
    verb.add_argument("--settings", metavar="JSON", help="key benchmarks of config/config.yaml, as the workflow has it")
    verb.add_argument("--cores", type=positive, help="cores that the contenders may use; all by default")
    writing = verb.add_argument_group(WRITING)
    writing.add_argument("--experiment", metavar="NAME", help="an experiment that was sampled")
    writing.add_argument("--draws", type=positive, default=200, help="draws of one turn")
    writing.add_argument("--rounds", type=positive, default=5, help="turns of each contender")
    return verb


def _seconds(text: str) -> float:
    """A time limit."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return number


def run_benchmark(arguments: argparse.Namespace) -> int:
    """Run the named benchmark and return the exit code."""
    if arguments.name == WRITING:
        return _run_writing(arguments)
    from bayesmesh.config.loading import load_run
    from bayesmesh.reproduction.benchmarks.benchmark_table import write_outcome
    from bayesmesh.reproduction.benchmarks.harness import Options, Outcome
    from bayesmesh.store.layout import BenchmarkLayout

    if arguments.settings is not None:
        settings: BenchmarkSettings = parse_benchmarks(arguments.settings)
    else:
        settings = load_run(Path("config/config.yaml")).benchmarks
    _use_cores(arguments.cores)
    limit = settings.seconds_limit if arguments.seconds_limit is None else arguments.seconds_limit
    layout = BenchmarkLayout(Path("results"), is_trial=arguments.quick)
    options = Options(arguments.quick or settings.quick, limit, layout)
    outcome: Outcome = importlib.import_module(f"bayesmesh.reproduction.benchmarks.{arguments.name}").run(options)
    write_outcome(layout, arguments.name, outcome, is_quick=options.is_quick)
    for ratio in outcome.ratios:
        gate = f", {ratio.verdict}: at least {ratio.least:g}" if ratio.least is not None else ""
        gate += f" ({ratio.reason})" if ratio.reason else ""
        spread = f"{ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
        print(f"{ratio.case}: {ratio.contender} {spread} x {ratio.against}{gate}")
    print(layout.table(arguments.name))
    is_below = any(ratio.verdict == "failed" for ratio in outcome.ratios)
    if is_below:
        _log.warning("benchmark %s: a ratio is below its gate", arguments.name)
    return GATE_FAILED if arguments.gate and is_below else 0


def _use_cores(cores: int | None) -> None:
    """Limit this process and its contenders to a number of cores, because not every library has an option for it."""
    if cores is None or not hasattr(os, "sched_setaffinity"):
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def _run_writing(arguments: argparse.Namespace) -> int:
    from bayesmesh.planning.plan import Plan
    from bayesmesh.reproduction.benchmarks.benchmark_table import add_row
    from bayesmesh.reproduction.benchmarks.storing import measure_writing
    from bayesmesh.store.layout import BenchmarkLayout

    if arguments.experiment is None:
        raise ConfigError("benchmark writing: which experiment?", "name one that was sampled: --experiment NAME")
    plan = Plan()
    found = measure_writing(
        plan, arguments.experiment, draws=arguments.draws, rounds=arguments.rounds, cores=arguments.cores
    )
    path = BenchmarkLayout(Path(plan.results)).table(WRITING)
    add_row(path, found._asdict())
    for name, value in found._asdict().items():
        print(f"{name:<24} {value:.4g}" if isinstance(value, float) else f"{name:<24} {value}")
    print(path)
    return 0
