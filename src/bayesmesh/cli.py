"""The command line: one table of verbs, from which the parser and its help are built.

The function of a verb is in the module that does the work and is imported only when the verb is called, so that
`bayesmesh status` starts without JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh import __version__
from bayesmesh.errors import NOT_AGAIN, UserError, explain_os_error
from bayesmesh.workflow.arguments import CORES, GPUS, JOB, PROCESSES, Option, add_options, option, output_file, positive
from bayesmesh.workflow.stop import exiting_on_signal

_log = logging.getLogger("bayesmesh")


class Verb(NamedTuple):
    """A verb: help text, ``module:function`` from parsed arguments to exit code, options."""

    help: str
    run: str
    options: tuple[Option, ...] = ()


_LATER = option("--later", metavar="FILE,...", help="specifications of later stages to check before sampling")
_GROUP = option("--group", default="group-000", help="chain group, such as group-000")
_ANALYSIS = option(
    "--analysis",
    metavar="NAME",
    help="with --experiment: which one, module:attribute or its verb; by default the only one",
)

_FOR_ONE_USER = (
    option("--user", metavar="ID", help="list films for this user of the data"),
    option("--watched", metavar="FILE", help="list films for a new user who watched those of a file: a title or an id on each line"),
    option("--rated", metavar="FILE", help="list films for a new user who gave these ratings: a CSV file with the columns film and rating"),
    option("--top", type=positive, default=10, metavar="N", help="films to list, 10 by default"),
    option("--depth", type=positive, default=10, metavar="N", help="how many first films p_top counts, 10 by default"),
    option("--order", choices=("mean", "best", "thompson"), default="mean", help="by mean watch probability or expected rating, by probability of being the best, or by one random draw"),
    option("--output", metavar="FILE", help="also write the list, as .csv or .json"),
)  # fmt: skip

_EFFECTS = (
    option("--predictions", action="store_true", help="list the expected outcome, or the probability of each level"),
    option("--comparisons", nargs="+", metavar="COLUMN[=STEP]", help="compare the outcome at two values of a column: x, x=10, x=sd, x=20,60, site=pairwise; all predictors by default"),
    option("--slopes", nargs="+", metavar="COLUMN", help="derivative of the outcome with respect to a number"),
    option("--at", nargs="+", metavar="COLUMN=VALUE,...", help="values of columns at which effects are evaluated"),
    option("--rows", choices=("typical", "observed"), help="values of the other columns: means and most frequent levels, the default with --at; or those of each row, averaged"),
    option("--each-row", action="store_true", help="list every row instead of averages"),
    option("--by", nargs="+", metavar="COLUMN", help="average within the levels of these categories"),
    option("--measure", choices=("difference", "ratio", "log_ratio", "odds_ratio", "log_odds_ratio"), help="what comparisons make of two averages, difference by default"),
    option("--scale", choices=("outcome", "predictor"), help="expected outcomes, the default, or linear predictors"),
    option("--group-effects", choices=("included", "zero"), help="effects of each row's group, the default, or none"),
    option("--interval", type=float, metavar="P", help="probability of the intervals, 0.9 by default"),
    option("--draws", type=positive, metavar="N", help="most draws to use, evenly spaced, 4000 by default"),
    option("--cells", type=Path, metavar="FILE", help="average over the rows of this table in place of the training rows: poststratification"),
    option("--weight", metavar="COLUMN", help="column of the cells with their sizes"),
    option("--settings", type=Path, metavar="FILE", help="YAML file with keys of `effects` of an experiment, in place of options"),
    option("--output", type=output_file, metavar="FILE", help="CSV file to write; the table is printed by default"),
    option("--results", type=Path, default=Path("results"), metavar="FOLDER", help="folder of results, results by default"),
)  # fmt: skip

OF_STAGES: dict[str, tuple[Option, ...]] = {
    **dict.fromkeys(("fetch", "shard", "report"), ()),
    "diagnose": (CORES,),
    "compile": (CORES, GPUS, PROCESSES, _LATER),
    "sample": (CORES, GPUS, PROCESSES, _GROUP),
    "recommend": (CORES, GPUS, *_FOR_ONE_USER),
    "effects": (CORES, GPUS, *_EFFECTS),
    "analyse": (CORES, GPUS, _ANALYSIS),
}
"""Stage -> options besides the common ones; other stages compute on the devices of one process."""

ASKED = {
    "recommend": "the same as --experiment EXPERIMENT",
    "effects": "experiment whose stored posterior to use, with the options below",
}
"""Stage that also answers a question about a stored posterior, by a module of its name -> help of its positional argument."""

VERBS = {
    # Before the parser, because options are Snakemake's: see `main`.
    "run": Verb(
        "run the workflow: the same as snakemake with these arguments", "operations.run:run",
        (option("words", nargs="*", metavar="ARGUMENT", help="target or option of snakemake, such as the name of an experiment"),),
    ),
    "index": Verb("write results/index.html from the existing pages", "workflow.stages.report:run_index", JOB),
    "sweep": Verb(
        "compare the members of a sweep on one page", "workflow.stages.sweep:run",
        (option("sweep", metavar="NAME", help="name of the sweep, which is that of its file"), *JOB),
    ),
    "schema": Verb(
        "write config/schema.json and config/README.md", "config.schema:run",
        (option("--check", action="store_true", help="only check whether they are up to date"),),
    ),
    "new": Verb(
        "write a new model, source, kernel, metric or analysis with its test, or an experiment", "operations.scaffold:run_new",
        (
            option("kind", choices=("model", "source", "kernel", "metric", "analysis", "experiment")),
            option("name", metavar="NAME", help="name of the component or the experiment, and of its file"),
            option("--table", type=Path, metavar="FILE", help="table of a new experiment, from which kinds of columns and family are guessed"),
            option("--formula", metavar="TEXT", help="formula of its glm, such as 'y ~ x + (1 | site)'"),
        ),
    ),
    "init": Verb(
        "write a project of your own: configuration, a model, a table, a Snakefile, tests and profiles", "operations.scaffold:run_init",
        (option("folder", type=Path, metavar="FOLDER", help="its folder, named after the project"),),
    ),
    "status": Verb(
        "show progress and verdict of every experiment, and the path of the report", "operations.status:run",
        (option("--watch", action="store_true", help="refresh the table every few seconds, on a terminal"),),
    ),
    "verify": Verb(
        "check everything stored, and list damage", "operations.verify:run",
        (
            option("experiment", nargs="?", help="name of an experiment, or its folder; all by default"),
            option("--repair", action="store_true", help="set damaged files aside and make them again"),
        ),
    ),
    "gc": Verb(
        "list chains that no configuration uses, and remove them after asking", "operations.gc:run",
        (option("--yes", action="store_true", help="remove without asking"),),
    ),
    "check": Verb(
        "check a model on data it reads, a source, a kernel or an analysis, and say in plain words what is wrong", "operations.check:run",
        (
            option("model", nargs="?", metavar="NAME", help="name of a model, a source, a kernel or an analysis, or module:attribute; the model of the experiment by default"),
            option("--experiment", metavar="NAME", help="whose data and options to use, for an analysis its results too; by default of the first that uses the component"),
            option("--kind", choices=("model", "source", "kernel", "analysis"), help="what it is, where a name is that of several"),
        ),
    ),
    "describe": Verb(
        "read the data of an experiment, and say in words what would be sampled: columns, groups, priors, outcomes of the prior",
        "workflow.stages.describe:run",
        (option("experiment", metavar="EXPERIMENT", help="name of an experiment; it need not have run"),),
    ),
    "compare": Verb(
        "compare experiments by their scores of single rows: differences with errors, weights, a page", "operations.compare:run",
        (
            option("names", nargs="+", metavar="NAME", help="experiments, or sweeps for all their members"),
            option("--name", help="name of the page and the table in results/comparisons/; made from the other names by default"),
            option("--by", metavar="COLUMN", help="column of the data with which the stacking weights vary"),
        ),
    ),
    "predict": Verb(
        "predict the outcome of the rows of a new table, with intervals, from the stored posterior", "workflow.stages.predict:run",
        (
            option("experiment", metavar="EXPERIMENT", help="name of an experiment whose source is a table"),
            option("--table", required=True, metavar="FILE", help="new rows, with the columns of the experiment's table"),
            option("--output", type=output_file, metavar="FILE", help="CSV file to write; NAME-predicted.csv beside the table by default"),
            option("--draws", type=output_file, metavar="FILE", help="also write the draws of expectations or probabilities, and of simulated outcomes: FILE.zarr or FILE.parquet"),
            option("--interval", type=float, default=0.9, metavar="P", help="probability of the intervals, 0.9 by default"),
            option("--results", type=Path, default=Path("results"), metavar="FOLDER", help="folder of results, results by default"),
            option("--new-levels", action="store_true", help="draw the effects of groups that the experiment did not have from their population"),
        ),
    ),
    "export": Verb(
        "write the posterior as NetCDF, or its draws as a table in Parquet or CSV", "operations.export:run",
        (
            option("experiment", metavar="EXPERIMENT", help="name of an experiment with a verdict"),
            option("--format", choices=("netcdf", "parquet", "csv"), default="netcdf", help="netcdf, the default, has all groups; parquet and csv have one row per draw of a chain"),
            option("--output", type=output_file, metavar="FILE", help="file to write; EXPERIMENT-posterior.nc, .parquet or .csv in the current folder by default"),
            option("--results", type=Path, default=Path("results"), metavar="FOLDER", help="folder of results, results by default"),
        ),
    ),
    "doctor": Verb("check this machine and the configuration, and say how to fix problems", "operations.doctor:run"),
}  # fmt: skip
"""The verbs besides stages."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    from bayesmesh.workflow.flow import STAGES

    parser = argparse.ArgumentParser(prog="bayesmesh", description="Stages of a Bayesian experiment, one verb each.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for stage in (*STAGES, "analyse"):
        options = (*JOB, *OF_STAGES.get(stage, (CORES, GPUS)))
        run = f"workflow.stages.{stage if stage in ASKED else 'command'}:run"
        verb = _add_verb(verbs, stage, Verb(help_of(stage), run, options))
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("--spec", metavar="FILE", help="stage specification: a JSON file, or the JSON itself")
        which.add_argument("--experiment", metavar="NAME", help="specification from config/experiments/NAME.yaml")
        if stage in ASKED:
            which.add_argument("name", nargs="?", metavar="EXPERIMENT", help=ASKED[stage])
    for name, about in VERBS.items():
        _add_verb(verbs, name, about)
    return parser


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: Verb
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about.help, description=about.help)
    add_options(verb, about.options)
    verb.set_defaults(run=about.run)
    return verb


def help_of(stage: str) -> str:
    """Return the first docstring line of the stage or analysis without importing it."""
    from bayesmesh.workflow.flow import analysis_of

    analysis = analysis_of(stage)
    path = analysis.path if analysis else Path(__file__).parent / "workflow" / "stages" / f"{stage}.py"
    text = path.read_text(encoding="utf-8")
    line = text.split('"""')[1].splitlines()[0]
    return line.partition(": ")[2] or line


def _set_up_logging(path: Path | None, process: int = 0) -> None:
    """Log to the terminal and to a file; processes other than the first show only warnings on the terminal."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if process:
        handlers[0].setLevel(logging.WARNING)
        path = path and path.with_stem(f"{path.stem}-process-{process:03d}")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    line = f"%(asctime)s process {process}: %(message)s" if process else "%(asctime)s %(message)s"
    for handler in handlers:
        handler.setFormatter(logging.Formatter(line, datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    _log.setLevel(logging.INFO)


def main(argv: Sequence[str] | None = None, *, started: float | None = None) -> int:
    """Run one verb and return the exit code: 0, or that of the `UserError`.

    Args:
        argv: arguments of ``bayesmesh``; those of this process by default.
        started: when the job began, in seconds since 1970, if not with this process.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["run"]:
        try:
            importlib.import_module("bayesmesh.operations.run").run(words[1:])
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    # First, because a scheduler may stop a job at any time.
    with exiting_on_signal(words[0]) if {*words[:1]} & {*OF_STAGES, "assemble"} else contextlib.nullcontext():
        try:
            code = run_verb(make_parser, words, started)
            sys.stdout.flush()
        except BrokenPipeError:
            if not _is_output_unread():
                raise
            # The rest of the output would fail again when the interpreter exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
    return code


def run_jobs() -> None:
    """Run the verb of each line of standard input, a JSON list of arguments, and answer with its exit code."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # Between two jobs a stop request ends the process; jobs have handlers of their own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for line in requests:
        print(main(json.loads(line), started=time.time()), file=replies, flush=True)


def _is_output_unread() -> bool:
    """Return whether the reader of our output, such as `head`, has exited."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def run_verb(parser: Callable[[], argparse.ArgumentParser], words: Sequence[str], started: float | None = None) -> int:
    """Run one verb of a command line and return the exit code; the errors of a user are logged.

    Args:
        parser: returns the parser of the command line.
        words: its arguments.
        started: see `main`.
    """
    # Hide XLA's log lines about the machine, which would drown the messages.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    _set_up_logging(None)
    try:
        # Analyses add verbs, and their files may be invalid.
        return _run(parser().parse_args(words, argparse.Namespace(started=started)), words)
    except (UserError, OSError, MemoryError) as caught:
        error = caught if isinstance(caught, UserError) else explain_os_error(caught)
        if error is None:
            raise
        _log.error("error: %s", error)
        if "--log" in words and not error.may_pass:
            _log.error(NOT_AGAIN)
        if error.is_abrupt:
            # Skip interpreter shutdown, which would wait for devices and other processes.
            logging.shutdown()
            os._exit(error.exit_code)
        return error.exit_code


def _run(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the verb here, or start its processes, and return the exit code."""
    process = 0
    if "processes" in arguments:
        from bayesmesh.sampling.density.ranks import find_rank
        from bayesmesh.workflow.launch import launch

        code = launch(words, arguments.processes, arguments.gpus, cores=arguments.cores)
        if code is not None:
            return code
        arguments.rank = find_rank(os.environ)
        process = arguments.rank.index
    _set_up_logging(getattr(arguments, "log", None), process)
    run = arguments.run
    if isinstance(run, str):
        module, _, name = run.partition(":")
        run = getattr(importlib.import_module(f"bayesmesh.{module}"), name)
    code = run(arguments)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
