"""Collect the sections of analyses for a page, and their cells for the index.

If the code of a section or of a cell raises, a note of the failure takes its place, and the failure is logged. The job
does not fail: Snakemake deletes the outputs of a failed job, so a mistake in one analysis would delete the page of a
finished experiment. The failure remains visible beside the verdict, in the section and in the index until the analysis
is corrected. Because the files of an analysis count for the report too, the page is then written again.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from bayesmesh.analyses.base import Analysis
from bayesmesh.analyses.figures.sections import KeyNumber, Section
from bayesmesh.config.declarations import AnalysisDeclaration
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.store.layout import ExperimentLayout

_log = logging.getLogger("bayesmesh")


RequestedAnalysis = tuple[AnalysisDeclaration, Callable[[], Analysis]]
"""An analysis that an experiment requests, and what constructs it: a mistake in a user's package concerns its section alone."""


class ShownAnalysis(NamedTuple):
    """The section of an analysis, with its heading and its anchor within the page."""

    anchor: str
    heading: str
    section: Section


def build_analyses(layout: ExperimentLayout, analyses: Iterable[RequestedAnalysis]) -> list[ShownAnalysis]:
    """Build the sections of the analyses of an experiment, leaving out empty ones.

    Raises:
        UserError: a file of an analysis is damaged, or an analysis of Bayesmesh itself violates the contract.
    """
    shown = []
    for each, make in analyses:
        section = _show("section", (each, make), layout, Section, _failed_section)
        if section:
            shown.append(ShownAnalysis(each.verb if each.is_own else each.name, each.pretty_name, section))
    return shown


def describe_analyses(layout: ExperimentLayout, analyses: Iterable[RequestedAnalysis]) -> str:
    """Return the text of an experiment's analyses for the index.

    Raises:
        UserError: see `build_analyses`.
    """
    cells = [
        _show("cell", each, layout, str, lambda analysis, problem: f"{analysis.pretty_name}: failed ({problem})")
        for each in analyses
    ]
    return ", ".join(cell for cell in cells if cell)


def _show[T](
    method: str,
    analysis: RequestedAnalysis,
    layout: ExperimentLayout,
    kind: type[T],
    replace: Callable[[AnalysisDeclaration, str], T],
) -> T | None:
    """Return the result of an analysis's method, or a note of the failure in its place; None before the analysis has run.

    Args:
        method: ``section`` or ``cell``.
        analysis: the analysis.
        layout: files of the experiment.
        kind: type that the method must return, unless it returns None.
        replace: function that returns the note, given the analysis and a description of the problem.

    Raises:
        UserError: see `build_analyses`.
    """
    declaration, make = analysis
    files = declaration.files(layout.folder)
    if not any(path.exists() for path in files.values()):
        return None
    try:
        shown = getattr(make(), method)(files)
        if shown is not None and not isinstance(shown, kind):
            raise TypeError(f"`{method}` returned {type(shown).__name__}, not {kind.__name__}")
    except Exception as error:
        if isinstance(error, UserError) and not (declaration.is_own and isinstance(error, ConfigError)):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error.message if isinstance(error, UserError) else error} ({Path(place.filename).name}, line {place.lineno})"
        remedy = f"correct {declaration.section_file}; a change of it writes the page again"
        message = "error: the %s of analysis '%s' of %s failed: %s\n  remedy: %s"
        _log.error(message, method, declaration.name, layout.experiment, problem, remedy)
        return replace(declaration, problem)
    return shown


def _failed_section(analysis: AnalysisDeclaration, problem: str) -> Section:
    text = Markup(
        '<div class="verdict fail"><p>This section could not be built: <span class="mono wrap-anywhere">{}</span>.</p>'
        "<p>Its outputs are complete. Correct <span class='mono wrap-anywhere'>{}</span> and write the page again.</p></div>"
    )
    number = KeyNumber(f"Section {analysis.pretty_name}", "failed", problem, "fail")
    return Section(text.format(problem, analysis.section_file.name), [number])
