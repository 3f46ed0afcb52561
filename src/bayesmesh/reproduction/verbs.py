"""The verbs benchmark, claims and study: the only module of the reproduction that the command line imports."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from bayesmesh.reproduction.benchmarks.command import PAGE, add_benchmark, list_benchmarks, run_benchmark
from bayesmesh.running.arguments import JOB, add_options

_log = logging.getLogger("bayesmesh")


def add_verbs(verbs: Any) -> None:
    """Add the verbs to the command line; each sets ``run``, which takes the arguments and returns the exit code."""
    job = argparse.ArgumentParser(add_help=False)
    add_options(job, JOB)
    claims = verbs.add_parser("claims", parents=[job], help="compare every published figure with stored results")
    claims.add_argument("--gate", action="store_true", help="write nothing; exit code 1 when a claim failed")
    claims.set_defaults(run=_run_claims)
    study = verbs.add_parser("study", parents=[job], help="measure the cost of a method on known posteriors")
    study.add_argument("name", choices=("stopping",), help="stopping: the cost of ending a run by a rule")
    study.set_defaults(run=_run_study)
    add_benchmark(verbs, [job]).set_defaults(run=_run_benchmark)


def _run_benchmark(arguments: argparse.Namespace) -> int:
    if arguments.name != PAGE:
        return run_benchmark(arguments)
    from bayesmesh.reproduction.pages.benchmark_page import write_benchmark_page

    _log.info("benchmark %s: %s", PAGE, write_benchmark_page(Path("results"), list_benchmarks().items()))
    return 0


def _run_claims(arguments: argparse.Namespace) -> int:
    from bayesmesh.reproduction.pages.claim_page import run_claims

    said, num_failed = run_claims(Path("results"), is_gate=arguments.gate)
    _log.info("claims: %s", said)
    return 1 if arguments.gate and num_failed else 0


def _run_study(arguments: argparse.Namespace) -> int:
    from bayesmesh.reproduction.studies.study_files import run_stopping

    _log.info("study %s: %s", arguments.name, run_stopping(Path("results")))
    return 0
