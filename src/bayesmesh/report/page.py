"""Write the page of an experiment: one self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.sections import KeyNumber
from bayesmesh.config.blocks import ReportSettings
from bayesmesh.diagnostics.gates.messages import wording
from bayesmesh.diagnostics.verdict import Verdict, read_verdict
from bayesmesh.files import write_text
from bayesmesh.report import opening
from bayesmesh.report.analysis_sections import RequestedAnalysis, build_analyses
from bayesmesh.report.background import build_timing, dump_settings, list_facts, tabulate_facts
from bayesmesh.report.convergence import NUM_WORST, build_convergence
from bayesmesh.report.diagnostics_tables import Coordinates, read_least_efficient, read_summary, read_verdicts
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.fit_badge import FitBadge
from bayesmesh.report.fit_mark import mark_fit
from bayesmesh.report.learned.choice import choose_outcomes
from bayesmesh.report.learned.section import build_learned
from bayesmesh.report.opening import describe_setup, part, say_scope, say_search
from bayesmesh.report.provenance import Project, build_repeat
from bayesmesh.report.rendering import render
from bayesmesh.report.stopping import build_stopping
from bayesmesh.report.times import DRAWING, Phase, TimeSpent, read_time, sampling_seconds, write_ledger
from bayesmesh.store.layout import CHECKS, ExperimentLayout
from bayesmesh.store.records.checked import read_checked

_ORIGIN = ("experiment", "identity", "model", "kernel", "device", "mesh", "versions", "changed_environment")
"""Attributes of the posterior that record the origin of its draws; the page shows others elsewhere, or not at all."""


def write_page(
    layout: ExperimentLayout,
    config: Mapping[str, object],
    title: str,
    caption: str,
    data_manifest: Path | None,
    settings: ReportSettings,
    project: Project = Project(),  # noqa: B008 - immutable
    analyses: Sequence[RequestedAnalysis] = (),
    image_shape: tuple[int, int] | None = None,
) -> Path:
    """Write ``ledger.csv`` and then ``report.html`` of an experiment.

    Args:
        layout: files of the stages; all except posterior, verdict and summary may be absent.
        config: whole configuration of the experiment, plain values.
        title: heading of the page.
        caption: paragraph below the heading.
        data_manifest: manifest of the shard stage, or None.
        settings: limits of the page.
        project: project in which the page is written.
        analyses: the requested analyses.
        image_shape: rows and columns of the image whose pixels are the features of the source; None if they are not pixels.

    Returns:
        The path of the page, which is replaced atomically.

    Raises:
        StoreError: posterior, verdict or summary is missing, or any file is damaged; the message names it.
        UserError: see `build_analyses`.
    """
    manifest = read_checked(data_manifest) if data_manifest is not None and data_manifest.exists() else {}
    reader = DrawReader(layout.posterior)
    attributes, description = reader.attributes, reader.description
    verdict = _named_gates(read_verdict(layout.verdict), description.names)
    coordinates = read_summary(layout.summary, verdict.num_coordinates.summaries, description.names)
    declarations = [declaration for declaration, _ in analyses]
    time = read_time(layout, [each.verb for each in declarations], attributes)
    if time.phases:
        write_ledger(layout, time.phases)
    shown = build_analyses(layout, analyses)
    numbers = [number for each in shown for number in each.section.numbers]
    checks = [check for each in shown for check in each.section.fit]
    possible = attributes.get(CHECKS)
    fit = mark_fit(checks, declarations, description, possible if isinstance(possible, list) else None)
    doubts = tuple(doubt for each in shown for doubt in each.section.doubts)
    document = render(
        "page.html",
        title=title,
        caption=caption,
        experiment=layout.experiment,
        verdict=verdict,
        setup=describe_setup(config, {**part(manifest, "source"), **part(manifest, "counts")}),
        facts_of_model=[*description.facts.items()],
        sentence=opening.read_aloud(verdict),
        scope=f"{say_scope(verdict, coordinates)} {say_search(verdict, config)}",
        fit=fit,
        doubts=doubts,
        kernel=attributes.get("kernel", ""),
        stored_fit=FitBadge(fit.state, fit.badge, doubts).stored(),
        key_numbers=_key_numbers(verdict, coordinates, time, numbers),
        learned=build_learned(coordinates, verdict, reader, image_shape, fit.widening),
        outcomes=choose_outcomes([each.section for each in shown], config),
        convergence=build_convergence(coordinates, verdict, reader, settings.num_traces, description.meanings),
        least_efficient=read_least_efficient(layout.efficiency, NUM_WORST),
        datasets=read_verdicts(layout.verdicts) if verdict.datasets else [],
        stopping=build_stopping(layout, config),
        analyses=shown,
        timing=build_timing(time),
        data=list_facts(manifest),
        config=dump_settings(config),
        **build_repeat(layout, config, manifest, attributes, project, declarations),
        origin=list_facts({name: attributes[name] for name in _ORIGIN if attributes.get(name)}),
        identity=str(attributes.get("identity", "")),
        **_describe_programs(layout),
    )
    write_text(layout.page, document)
    return layout.page


def _named_gates(verdict: Verdict, names: Mapping[str, str]) -> Verdict:
    """Return a verdict whose gates name coordinates as the page does."""
    gates = []
    for gate in verdict.gates:
        name, bracket, entry = gate.where.partition("[")
        gates.append(gate.model_copy(update={"where": names.get(name, name) + bracket + entry}))
    return verdict.model_copy(update={"gates": tuple(gates)})


def _describe_programs(layout: ExperimentLayout) -> dict[str, object]:
    """Return the facts and warnings of the compile stage."""
    audit = read_checked(layout.audit) if layout.audit.exists() else {}
    programs = tabulate_facts(audit.get("programs"))
    return {
        "audit": list_facts(
            {
                name: value
                for name, value in audit.items()
                if name != "warnings" and (name != "programs" or not programs["rows"])
            }
        ),
        "programs": programs,
        "compile_warnings": [str(each) for each in audit.get("warnings", ())],
    }


def _key_numbers(
    verdict: Verdict, coordinates: Coordinates, time: TimeSpent, of_analyses: list[KeyNumber]
) -> list[KeyNumber]:
    """Return the numbers below the verdict."""
    chains, draws = formats.count(verdict.num_chains), formats.count(verdict.num_draws)
    numbers = [KeyNumber("Draws", formats.count(verdict.num_chains * verdict.num_draws), f"{chains} chains × {draws}")]
    gates = [gate for name in ("r_hat", "ess_bulk", "ess_tail") if (gate := verdict.gate(name))]
    numbers += [KeyNumber(wording(g.name).label, opening.value_text(g), g.where, g.verdict) for g in gates]
    if verdict.num_divergences is not None:
        gate = verdict.gate("divergences")
        state = gate.verdict if gate else ""
        numbers.append(KeyNumber("Divergent draws", formats.count(verdict.num_divergences), "", state))
    if verdict.acceptance_rate is not None:
        numbers.append(KeyNumber("Mean acceptance", formats.fixed(verdict.acceptance_rate, 3)))
    numbers += of_analyses
    seconds = sampling_seconds(time)
    if math.isfinite(seconds):
        numbers.append(
            KeyNumber("Warmup and sampling", formats.duration(seconds), _efficiency(coordinates, time.phases))
        )
    return numbers


def _efficiency(coordinates: Coordinates, phases: list[Phase]) -> str:
    """Return the note on sampling time, with the smallest bulk ESS per second, by which samplers are compared."""
    running = sum(phase.seconds or 0.0 for phase in phases if phase.phase in DRAWING)
    sizes = coordinates.numbers["ess_bulk"][coordinates.is_summary]
    if not sizes.size or not running or not np.isfinite(sizes).all():
        return "summed over jobs"
    return f"summed over jobs; smallest bulk ESS per second of sampling: {formats.real(sizes.min() / running, 3)}"
