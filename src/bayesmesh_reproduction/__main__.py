"""The command `python -m bayesmesh_reproduction`, with the verbs benchmark, claims and study."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from bayesmesh.cli import run_verb
from bayesmesh.store.records.jobs import record_outputs
from bayesmesh.workflow.arguments import JOB, add_options
from bayesmesh_reproduction.benchmarks.command import PAGE, add_benchmark, list_benchmarks, run_benchmark
from bayesmesh_reproduction.layout import ReproductionLayout, study_file

_log = logging.getLogger("bayesmesh")

_RESULTS = Path("results")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verbs; each sets ``run``, which takes the arguments and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bayesmesh_reproduction", description="Reproduce published results."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    job = argparse.ArgumentParser(add_help=False)
    add_options(job, JOB)
    claims = verbs.add_parser("claims", parents=[job], help="compare every published figure with stored results")
    claims.add_argument("--gate", action="store_true", help="write nothing; exit code 1 when a claim failed")
    claims.set_defaults(run=_run_claims)
    study = verbs.add_parser("study", parents=[job], help="measure the cost of a method on known posteriors")
    study.add_argument("name", choices=("stopping",), help="stopping: the cost of ending a run by a rule")
    study.set_defaults(run=_run_study)
    add_benchmark(verbs, [job]).set_defaults(run=_run_benchmark)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code: 0, or that of the `UserError`."""
    return run_verb(make_parser, sys.argv[1:] if words is None else words)


def _run_benchmark(arguments: argparse.Namespace) -> int:
    if arguments.name != PAGE:
        return run_benchmark(arguments)
    from bayesmesh_reproduction.pages.benchmarks import write_benchmark_page

    page = write_benchmark_page(_RESULTS, list_benchmarks().items())
    record_outputs(_RESULTS, "benchmarks", PAGE, [page], arguments.code or "")
    _log.info("benchmark %s: %s", PAGE, page)
    return 0


def _run_claims(arguments: argparse.Namespace) -> int:
    from bayesmesh_reproduction.pages.claims import run_claims

    said, num_failed = run_claims(_RESULTS, is_gate=arguments.gate)
    if not arguments.gate:
        layout = ReproductionLayout(_RESULTS)
        record_outputs(_RESULTS, "reproduction", "claims", [layout.table, layout.page], arguments.code or "")
    _log.info("claims: %s", said)
    return 1 if arguments.gate and num_failed else 0


def _run_study(arguments: argparse.Namespace) -> int:
    from bayesmesh_reproduction.studies.files import run_stopping

    said, name = run_stopping(_RESULTS), arguments.name
    outputs = [study_file(_RESULTS, name, ending) for ending in ("csv", "svg")]
    record_outputs(_RESULTS, "studies", name, outputs, arguments.code or "")
    _log.info("study %s: %s", name, said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
