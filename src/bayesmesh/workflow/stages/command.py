"""Run one job of a stage from its verb and options on the command line."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from bayesmesh.config.declarations import OWN_VERB, declared
from bayesmesh.config.experiment import ExperimentBase, requested
from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError
from bayesmesh.sampling.density.ranks import check_num_processes
from bayesmesh.store.layout import group_name
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.code import check_code
from bayesmesh.workflow.components import component_of, make_analysis, make_checks, program_settings, requested_analyses
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.gpus import hold_gpus
from bayesmesh.workflow.jobs import Job, component_sources, later_stages, parse_spec
from bayesmesh.workflow.overhead import add_start
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import refuse_changed_files
from bayesmesh.workflow.stages.recording import recorded

_log = logging.getLogger("bayesmesh")


def run(arguments: argparse.Namespace) -> int:
    """Run the stage of the verb with the options that it accepts, and return the exit code.

    Raises:
        UserError: raised by the stage, or an invalid specification or chain group.
    """
    job, later = _jobs(arguments)
    stage = job.stage
    code = check_code(job, arguments.code)
    # Of several processes only the first writes the ledger and the record.
    is_first = "rank" not in arguments or arguments.rank.index == 0
    group = arguments.group if stage == "sample" else ""
    number = {"group": _group_number(group, job.sampling.chain_groups)} if group else {}
    job = job.of_group(group)
    sources = [file for each in (job, *later) for file in component_sources(each)]
    _log.info("%s %s, code %s", job.word, job.experiment, code)
    ledger = _ledger(job)
    record = recorded(job, code) if is_first else contextlib.nullcontext()
    try:
        with hold_gpus(getattr(arguments, "gpus", 0)), explaining(sources, log=arguments.log or "the output"):
            run_stage = importlib.import_module(
                f"bayesmesh.workflow.stages.{'analyse' if analysis_of(stage) else stage}"
            ).run
            add_start(ledger, os.environ, arguments.started)
            if is_first:
                # Saved before the work, so that a killed attempt leaves its overhead.
                ledger.save()
            with record, _started(job, later, arguments) as options:
                message = run_stage(job, ledger, **options, **number)
            ledger.finish()
    finally:
        if is_first:
            ledger.save()
    _log.info("%s %s: %s", job.word, job.experiment, message)
    return 0


@contextlib.contextmanager
def _started(job: Job, later: Sequence[Job], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Configure JAX, join the processes of one program, and give the arguments of the stage: its components, constructed once.

    In this order, because the modules of components may create arrays when they are imported.
    """
    options: dict[str, Any] = {"cores": arguments.cores} if job.stage == "diagnose" else {}
    with contextlib.ExitStack() as held:
        together: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if "rank" in arguments:
            check_num_processes(arguments.rank, job.compute.processes, job.experiment)
        if "cores" in arguments and not options:
            from bayesmesh.sampling.density.mesh import configure_jax

            configure_jax(job.compute, arguments.cores)
        if "rank" in arguments:
            from bayesmesh.sampling.density.processes import joined

            options["peers"] = peers = held.enter_context(joined(arguments.rank))
            together = peers.together()
        with together:
            options |= _construct(job, later)
        yield options


def _construct(job: Job, later: Sequence[Job]) -> dict[str, Any]:
    """Return the components of a stage, as its arguments."""
    match job.stage:
        case "fetch" | "shard":
            return {"source": component_of(job, "source")}
        case "compile":
            analyses = [make_analysis(each) for each in later if analysis_of(each.stage) is not None]
            others = [each for each in later if analysis_of(each.stage) is None]
            return {"settings": program_settings(job), "later": others, "analyses": analyses}
        case "sample":
            return {"settings": program_settings(job)}
        case "assemble":
            return {"model": component_of(job, "model"), "checks": make_checks()}
        case "diagnose":
            return {}
        case "report":
            return {"analyses": requested_analyses(requested(job.config), job.file)}
    jobs = [job, *map(job.of, job.others)]
    models = [component_of(each, "model") if "model" in each.config else None for each in jobs]
    return {"analysis": make_analysis(job), "models": models}


def _ledger(job: Job) -> Ledger:
    """Return the ledger of a job; that of shared data lies beside the data."""
    is_shared = job.stage in ("fetch", "shard")
    return Ledger(
        job.data_layout.folder / "ledger" / f"{job.name}.json" if is_shared else job.layout.ledger_part(job.name),
        job.name,
    )


def _jobs(arguments: argparse.Namespace) -> tuple[Job, list[Job]]:
    """Return the specification, and for `compile` those of the later stages to check."""
    stage, name = arguments.verb, arguments.experiment
    files = [file for file in (getattr(arguments, "later", None) or "").split(",") if file]
    later = [parse_spec(file, "sample", "assemble", OWN_VERB, option="--later") for file in files]
    if arguments.spec is not None:
        return parse_spec(arguments.spec, stage), later
    plan = Plan(asked=[name])
    experiment = plan.experiments[name]
    if stage == OWN_VERB:
        stage = _own_stage(name, experiment, arguments.analysis)
    wanted = [stage, *([] if later else later_stages(experiment))]
    job, *found = [plan.job(each, name) for each in wanted]
    # In a run, planning has asked; the next run notices an edit during hours of sampling.
    for each in () if stage == "fetch" else (name, *job.others):
        refuse_changed_files(plan.job("fetch", each))
    return job, later or found


def _own_stage(name: str, experiment: ExperimentBase, analysis: str | None) -> str:
    """Return the stage of an analysis of the experiment's own, by its name or its verb; of the only one without."""
    own = [declared(each) for each in experiment.analyses]
    found = [each.stage for each in own if analysis in (None, each.name, each.verb)]
    if len(found) == 1:
        return found[0]
    asked = f"experiment '{name}' asks for no analysis of a package of yours" if not own else ""
    if own:
        which = f"--analysis {analysis}: " if analysis else ""
        asked = f"{which}experiment '{name}' asks for {', '.join(each.name for each in own)}"
    remedy = (
        "name one of them: --analysis NAME"
        if own
        else "add it to the experiment\n    analyses:\n      my_study.tails:Tails: {}"
    )
    raise ConfigError(asked, remedy)


def _group_number(name: str, num_groups: int) -> int:
    names = [group_name(group) for group in range(num_groups)]
    if name not in names:
        valid = names[0] if num_groups == 1 else f"{names[0]} to {names[-1]}"
        raise ConfigError(f"--group {name}: not a chain group of the experiment", f"valid: {valid}")
    return names.index(name)
