"""The command line: one verb per stage and operation.

Stages are imported when their verb is called, so that `bayesmesh status` starts without JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmesh.errors import ConfigError, UserError, explain_os_error
from bayesmesh.running.arguments import positive
from bayesmesh.running.early_stop import exiting_on_signal
from bayesmesh.store.layout import group_name

if TYPE_CHECKING:
    from bayesmesh.planning.plan import Plan
    from bayesmesh.running.process_rank import Place

__all__ = ["main"]

_log = logging.getLogger("bayesmesh")

WITH_CORES = ("compile", "sample", "assemble", "average", "recommend")
"""Stages that compute on devices."""

WITH_PROCESSES = ("compile", "sample")
"""Of these, those whose programs may span several processes."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bayesmesh", description="Stages of a Bayesian experiment, one verb each.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_stages(verbs)
    _add_others(verbs)
    return parser


def _add_stages(verbs: Any) -> None:
    from bayesmesh.planning.specs import STAGES

    for stage in STAGES:
        module_doc = _first_line(stage)
        verb = verbs.add_parser(stage, help=module_doc, description=module_doc)
        which = verb.add_mutually_exclusive_group(required=True)
        which.add_argument("--spec", metavar="FILE", help="stage specification: a JSON file, or the JSON itself")
        which.add_argument(
            "--experiment", metavar="NAME", help="take the specification from config/experiments/NAME.yaml"
        )
        verb.add_argument("--log", type=Path, help="also write the log there")
        verb.add_argument("--code", default="", help="fingerprint of the code that the workflow planned with")
        if stage in WITH_CORES:
            verb.add_argument("--cores", type=positive, help="cores to use; all by default")
            verb.add_argument(
                "--gpus", type=int, default=0, help="GPUs of this machine to hold for oneself; shared ones by default"
            )
        if stage in WITH_PROCESSES:
            verb.add_argument(
                "--processes",
                default="1x1",
                metavar="NxP",
                help="N nodes of a Slurm job, P processes on each; 1xP outside of one: P processes here",
            )
        if stage == "compile":
            verb.add_argument(
                "--later", metavar="FILE,...", help="specifications of later stages, to be checked before sampling"
            )
        if stage == "sample":
            verb.add_argument("--group", default="group-000", help="chain group, such as group-000")


def _add_others(verbs: Any) -> None:
    """The verbs that look, write files for a user, or tidy up."""
    from bayesmesh.reproduction.verbs import add_verbs

    index = verbs.add_parser("index", help="write results/index.html over the pages that exist")
    index.add_argument("--log", type=Path, help="also write the log there")
    index.add_argument("--code", default="", help="fingerprint of the code that the workflow planned with")
    schema = verbs.add_parser("schema", help="write config/schema.json and config/README.md")
    schema.add_argument("--check", action="store_true", help="only say whether they are up to date")
    new = verbs.add_parser("new", help="write a new model, source or kernel with its test, or an experiment")
    new.add_argument("kind", choices=("model", "source", "kernel", "experiment"))
    new.add_argument("name", metavar="NAME", help="name of the component or the experiment, and of its file")
    status = verbs.add_parser("status", help="how far every experiment is, its verdict, and the path of the report")
    status.add_argument("--watch", action="store_true", help="show it again every few seconds, on a terminal")
    verify = verbs.add_parser("verify", help="hash all that experiments stored, and name what is damaged")
    verify.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="name of an experiment, or its folder; all that were run"
    )
    gc = verbs.add_parser("gc", help="show chains that no configuration names any more, and remove them after asking")
    gc.add_argument("--yes", action="store_true", help="remove them without asking")
    add_verbs(verbs)
    verbs.add_parser("doctor", help="what this machine offers, what stands in the way of a run, and what helps")


def _first_line(stage: str) -> str:
    """The stage module's first line, read without importing it."""
    text = (Path(__file__).parent / "stages" / f"{stage}.py").read_text(encoding="utf-8")
    return text.split('"""')[1].splitlines()[0].partition(": ")[2]


def _set_up_logging(path: Path | None, process: int = 0) -> None:
    """Log to the terminal and to a file; of several processes all but the first only show what is amiss."""
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


def _place(arguments: argparse.Namespace) -> Place:
    """Which of how many processes this is; most verbs are one."""
    from bayesmesh.running.process_rank import Place, find_place

    return find_place(os.environ) if arguments.verb in WITH_PROCESSES else Place()


def _start_processes(arguments: argparse.Namespace) -> int | None:
    """Start the processes that are asked for, and return their exit code; None when this is to do the work itself."""
    from bayesmesh.running.launch import launch

    if arguments.verb not in WITH_PROCESSES:
        return None
    return launch(arguments.words, arguments.processes, arguments.gpus, cores=arguments.cores)


def _run_stage(arguments: argparse.Namespace, place: Place) -> None:
    from bayesmesh.planning.plan import Plan
    from bayesmesh.planning.specs import LATER, StageSpec, later_stages, make_spec, parse_spec
    from bayesmesh.running.gpus import hold_gpus
    from bayesmesh.running.ledger import Ledger
    from bayesmesh.running.overhead import add_start
    from bayesmesh.stages.experiment_files import ledger_file

    stage = arguments.verb
    later: list[StageSpec] = []
    if arguments.spec is not None:
        spec: StageSpec = parse_spec(arguments.spec, stage)
    else:
        plan, name = Plan(), arguments.experiment
        experiment = plan.experiment(name)
        spec = make_spec(stage, name, experiment, plan.results)
        later = [make_spec(after, name, experiment, plan.results) for after in later_stages(experiment)]
    options: dict[str, object] = {}
    if stage == "sample":
        options["group"] = _group_number(arguments.group, spec.sampling.chain_groups)
    job = f"{stage}-{arguments.group}" if stage == "sample" else stage
    part = ledger_file(spec, job)
    _log.info("%s %s%s", stage, spec.experiment, f", code {arguments.code}" if arguments.code else "")
    ledger = Ledger(part, job, append=stage == "sample")
    if stage in WITH_CORES:
        options["cores"] = arguments.cores
    if stage == "compile":
        given = [file for file in (arguments.later or "").split(",") if file]
        options["later"] = [parse_spec(file, "sample", *LATER, option="--later") for file in given] or later
    if stage in WITH_PROCESSES:
        options["place"] = place
    try:
        with hold_gpus(getattr(arguments, "gpus", 0)):
            run = importlib.import_module(f"bayesmesh.stages.{stage}").run
            add_start(ledger, os.environ)
            if stage == "sample" and place.index == 0:
                # What an attempt that is killed has cost is known too.
                ledger.save()
            said = run(spec, ledger, **options)
    finally:
        if place.index == 0:
            ledger.save()
    _log.info("%s %s: %s", stage, spec.experiment, said)


def _group_number(name: str, num_groups: int) -> int:
    names = [group_name(group) for group in range(num_groups)]
    if name not in names:
        valid = names[0] if num_groups == 1 else f"{names[0]} to {names[-1]}"
        raise ConfigError(f"--group {name}: is no chain group of the experiment", f"valid: {valid}")
    return names.index(name)


def _look(arguments: argparse.Namespace) -> int:
    """The verbs that are no stage; returns the exit code."""
    if arguments.verb == "schema":
        return _schema(is_check=arguments.check)
    if arguments.verb == "new":
        from bayesmesh.operations.scaffold.new import next_steps, write_new

        for path in write_new(arguments.kind, arguments.name, Path()):
            print(f"{path}: written")
        print(next_steps(arguments.kind, arguments.name))
        return 0
    if "run" in arguments:
        code: int = arguments.run(arguments)
        return code
    if arguments.verb == "doctor":
        from bayesmesh.operations.doctor import run as run_doctor

        said, code = run_doctor(Path("results"), os.environ)
        print(said)
        return code
    if arguments.verb == "verify":
        return _verify(arguments.experiment)
    from bayesmesh.planning.plan import Plan

    plan = Plan()
    if arguments.verb == "gc":
        return _collect(plan, is_certain=arguments.yes)
    if arguments.verb == "status":
        from bayesmesh.operations.status import status_table, watch

        if arguments.watch:
            watch(lambda: status_table(plan))
        else:
            print(status_table(plan))
        return 0
    from bayesmesh.stages.report import run_index

    named = [
        {"experiment": name, "title": e.title, "category": e.report.category}
        for name, e in plan.experiments.items()
        if plan.layout(name).page.exists()
    ]
    _log.info("index: %s", run_index(Path(plan.results), named))
    return 0


def _schema(*, is_check: bool) -> int:
    from bayesmesh.config.schema import drifted, write_documents

    if not is_check:
        write_documents(Path("config"))
        return 0
    behind = drifted(Path("config"))
    for path in behind:
        print(f"{path}: is not what the settings classes say; run: make schema", file=sys.stderr)
    return 1 if behind else 0


def _verify(name: str | None) -> int:
    """Check one experiment, or all of the configuration that have anything stored."""
    from bayesmesh.errors import StoreError
    from bayesmesh.operations.verify import damage_of, find_experiment, is_stored
    from bayesmesh.planning.plan import Plan

    if name is None:
        plan = Plan()
        layouts = [layout for each in plan.experiments if is_stored(layout := plan.layout(each))]
    else:
        layouts = [find_experiment(name, "results")]
    num_damaged = 0
    for layout in layouts:
        lines = list(damage_of(layout))
        for line in lines:
            print(line)
        print(f"{layout.folder}: {f'{len(lines)} damaged' if lines else 'everything is as it was written'}")
        num_damaged += len(lines)
    if not layouts:
        print("nothing to check: no experiment has chains or a posterior yet")
    return StoreError.exit_code if num_damaged else 0


def _collect(plan: Plan, *, is_certain: bool) -> int:
    from bayesmesh.operations.gc import find_unnamed, remove, table

    found, notes = find_unnamed(plan)
    for note in notes:
        print(note)
    if not found:
        print(
            "every other chain is named by the configuration" if notes else "every chain is named by the configuration"
        )
        return 0
    print(table(found))
    if not is_certain and not sys.stdin.isatty():
        print("nothing removed: answer on a terminal, or give --yes")
        return 0
    if is_certain or input("remove them? [y/N] ").strip().lower() in ("y", "yes"):
        for one in found:
            remove(one)
            print(f"{one.folder}: removed")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0, or that of the `UserError`."""
    words = sys.argv[1:] if argv is None else list(argv)
    # First of all: a scheduler may ask a job to stop at any time.
    with exiting_on_signal() if words[:1] == ["sample"] else contextlib.nullcontext():
        return _main(words)


def _main(words: list[str]) -> int:
    # XLA's own log lines about the machine drown what the user should read.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from bayesmesh.planning.specs import STAGES

    arguments = _parser().parse_args(words)
    arguments.words = words
    _set_up_logging(None)
    try:
        code = _start_processes(arguments)
        if code is not None:
            return code
        place = _place(arguments)
        _set_up_logging(getattr(arguments, "log", None), place.index)
        if arguments.verb in STAGES:
            _run_stage(arguments, place)
            return 0
        return _look(arguments)
    except (UserError, OSError) as caught:
        error = caught if isinstance(caught, UserError) else explain_os_error(caught)
        if error is None:
            raise
        _log.error("error: %s", error)
        if error.is_abrupt:
            # Devices and other processes would be waited for at the interpreter's end, and the time for that is over.
            logging.shutdown()
            os._exit(error.exit_code)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
