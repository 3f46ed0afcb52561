"""Collect the sections of analyses for a page, and their cells for the index.

If the code of a section or of a cell raises, a note of the failure takes its place, and the failure is logged. The job
does not fail: Snakemake deletes the outputs of a failed job, so a mistake in one analysis would delete the page of a
finished experiment. The failure remains visible beside the verdict, in the section and in the index until the analysis
is corrected. Because the files of an analysis count for the report too, the page is then written again.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from bayesmesh.analyses.figures.sections import KeyNumber, Section
from bayesmesh.config.declarations import AnalysisDeclaration, declared
from bayesmesh.config.experiment import requested
from bayesmesh.config.registry import load_component, options_class
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.store.layout import ExperimentLayout

_log = logging.getLogger("bayesmesh")


class ShownAnalysis(NamedTuple):
    """The section of an analysis, with its heading and its anchor within the page."""

    anchor: str
    heading: str
    section: Section


def build_analyses(layout: ExperimentLayout, config: Mapping[str, object]) -> list[ShownAnalysis]:
    """Build the sections of the analyses of an experiment, leaving out empty ones.

    Args:
        layout: files of the experiment.
        config: whole configuration of the experiment, plain values.

    Raises:
        UserError: a file of an analysis is damaged, or an analysis of Bayesmesh itself violates the contract.
    """
    shown = []
    asked = requested(config)
    for analysis in map(declared, asked):
        section = _show("section", analysis, layout, asked, Section, _failed_section)
        shown += (
            [ShownAnalysis(analysis.verb if analysis.is_own else analysis.name, analysis.pretty_name, section)]
            if section
            else []
        )
    return shown


def describe_analyses(layout: ExperimentLayout, asked: Mapping[str, object]) -> str:
    """Return the text of an experiment's analyses for the index.

    Args:
        layout: files of the experiment.
        asked: name of each requested analysis -> its settings.

    Raises:
        UserError: see `build_analyses`.
    """
    cells = [_show("cell", declared(name), layout, asked, str, _failed_cell) for name in asked]
    return ", ".join(cell for cell in cells if cell)


def _show[T](
    method: str,
    analysis: AnalysisDeclaration,
    layout: ExperimentLayout,
    asked: Mapping[str, object],
    kind: type[T],
    replace: Callable[[AnalysisDeclaration, str], T],
) -> T | None:
    """Return the result of an analysis's method, or a note of the failure in its place.

    Args:
        method: ``section`` or ``cell``.
        analysis: declarations of the analysis.
        layout: files of the experiment.
        asked: name of each requested analysis -> its settings.
        kind: type that the method must return, unless it returns None.
        replace: function that returns the note, given the analysis and a description of the problem.

    Raises:
        UserError: see `build_analyses`.
    """
    try:
        settings = options_class("analysis", analysis.name).model_validate(asked[analysis.name])
        shown = getattr(_load(analysis)(settings), method)(analysis.files(layout.folder))
        if shown is not None and not isinstance(shown, kind):
            raise TypeError(f"`{method}` returned {type(shown).__name__}, not {kind.__name__}")
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the other sections do not depend on it
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        remedy = f"correct {analysis.section_file}; a change of it writes the page again"
        message = "error: the %s of analysis '%s' of %s failed: %s\n  remedy: %s"
        _log.error(message, method, analysis.name, layout.experiment, problem, remedy)
        return replace(analysis, problem)
    return shown


def _load(analysis: AnalysisDeclaration) -> type[Any]:
    """Return the class of an analysis.

    Raises:
        ImportError: a module of a user's package cannot be imported; only its own section fails.
        ConfigError: an analysis of Bayesmesh itself cannot be loaded.
    """
    try:
        return load_component("analysis", analysis.name)
    except ConfigError as error:
        if analysis.is_own:
            raise ImportError(error.message) from error
        raise


def _failed_section(analysis: AnalysisDeclaration, problem: str) -> Section:
    text = Markup(
        '<div class="verdict fail"><p>This section could not be built: <span class="mono wrap-anywhere">{}</span>.</p>'
        "<p>Its outputs are complete. Correct <span class='mono wrap-anywhere'>{}</span> and write the page again.</p></div>"
    )
    number = KeyNumber(f"Section {analysis.pretty_name}", "failed", problem, "fail")
    return Section(text.format(problem, analysis.section_file.name), [number])


def _failed_cell(analysis: AnalysisDeclaration, problem: str) -> str:
    return f"{analysis.pretty_name}: failed ({problem})"
