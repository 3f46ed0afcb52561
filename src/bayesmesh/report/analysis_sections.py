"""Collect the sections of analyses for a page, and their cells for the index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from bayesmesh.config.declarations import declared, list_analyses
from bayesmesh.config.registry import load_component, read_options
from bayesmesh.figures.sections import Section
from bayesmesh.store.layout import ExperimentLayout

__all__ = ["ShownAnalysis", "build_analyses", "describe_analyses"]


class _Shown(Protocol):
    """The part of an analysis that page and index call; its contract imports the model's, which is written in JAX."""

    def section(self, files: Mapping[str, Path]) -> Section | None: ...
    def cell(self, files: Mapping[str, Path]) -> str: ...


class ShownAnalysis(NamedTuple):
    """The section of an analysis, with the name and the heading of the analysis."""

    name: str
    heading: str
    section: Section


def build_analyses(layout: ExperimentLayout, config: Mapping[str, object]) -> list[ShownAnalysis]:
    """Build the sections of the analyses of an experiment, leaving out empty ones.

    Args:
        layout: files of the experiment.
        config: whole configuration of the experiment, plain values.

    Raises:
        StoreError: a file of an analysis is damaged.
    """
    shown = []
    for analysis in list_analyses():
        if config.get(analysis.name) is not None:
            made = _make(analysis.name, config[analysis.name])
            section = made.section(analysis.files(layout.folder))
            shown += [ShownAnalysis(analysis.name, analysis.pretty_name, section)] if section else []
    return shown


def describe_analyses(layout: ExperimentLayout, config: Mapping[str, object]) -> str:
    """Return the cells of analyses in the index; arguments and errors as in `build_analyses`."""
    asked = [declared(name) for name in sorted(config)]
    cells = [_make(each.name, config[each.name]).cell(each.files(layout.folder)) for each in asked]
    return ", ".join(cell for cell in cells if cell)


def _make(name: str, settings: object) -> _Shown:
    return load_component("analysis", name)(read_options(declared(name).path).model_validate(settings))
