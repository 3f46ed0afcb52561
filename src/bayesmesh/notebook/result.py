"""Show a stored experiment: the posterior as a tree of lazy arrays, and the verdict, as HTML and as text."""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from markupsafe import Markup

from bayesmesh.diagnostics.gates.messages import wording
from bayesmesh.diagnostics.verdict import GateResult, Verdict, read_verdict
from bayesmesh.errors import ConfigError, StoreError, suggest
from bayesmesh.report.opening import limit_text, read_aloud, value_text
from bayesmesh.store.hashes import check_metadata
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.jobs import check_made_from, check_output

_COLOURS = {"pass": "#1a7f37", "warn": "#9a6700", "fail": "#cf222e"}


class ShownVerdict(Verdict):
    """A verdict that is displayed as a table of its gates."""

    def __str__(self) -> str:
        rows = [_cells(gate) for gate in self.gates]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join([f"{self.experiment}: {self.verdict}", read_aloud(self), *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = Markup('<b>{}</b>: <b style="color: {}">{}</b>. {}').format(
            self.experiment, _COLOURS[self.verdict], self.verdict, read_aloud(self)
        )
        rows = Markup("").join(_row(gate) for gate in self.gates)
        titles = Markup("<tr><th>gate</th><th>worst value</th><th>limit</th><th>outcome</th></tr>")
        return f"<div><p>{head}</p><table>{titles}{rows}</table></div>"


def _cells(gate: GateResult) -> tuple[str, ...]:
    where = f" ({gate.where})" if gate.where else ""
    return wording(gate.name).label + where, value_text(gate), limit_text(gate), gate.verdict


def _row(gate: GateResult) -> Markup:
    *cells, outcome = _cells(gate)
    shown = Markup("").join(Markup("<td>{}</td>").format(cell) for cell in cells)
    return Markup('<tr>{}<td style="color: {}">{}</td></tr>').format(shown, _COLOURS[gate.verdict], outcome)


class Result(xr.DataTree):
    """The posterior of an experiment: a DataTree whose arrays are read when they are used.

    ``result["posterior"]`` holds the draws, ``result["sample_stats"]`` their statistics; docs/reference/results.md lists all
    groups. ArviZ accepts it directly.
    """

    __slots__ = ("_layout",)

    @property
    def folder(self) -> Path:
        """Folder of the experiment, which also holds ``report.html`` and ``diagnostics/``.

        Raises:
            ConfigError: this tree was derived from a result and is not stored.
        """
        layout: ExperimentLayout | None = getattr(self, "_layout", None)
        if layout is None:
            raise ConfigError("this tree is not the result itself", "pass the result, its name or its folder")
        return layout.folder

    def __repr__(self) -> str:  # type: ignore[override]  # that of xarray is untyped
        return "\n".join(filter(None, [str(self._verdict() or ""), super().__repr__()]))

    def _repr_html_(self) -> str:
        verdict = self._verdict()
        return ("" if verdict is None else verdict._repr_html_()) + super()._repr_html_()

    def _verdict(self) -> ShownVerdict | None:
        """Return the verdict, or None for a tree without one: displaying an object must not fail."""
        if getattr(self, "_layout", None) is None or not self._layout.verdict.exists():
            return None
        return verdict_of(self._layout)


def layout_of(result: object, results: Path) -> ExperimentLayout:
    """Return the files of a result, given as such or by name; see `find_layout`.

    Raises:
        ConfigError: the argument is neither.
    """
    if isinstance(result, str | Path):
        return find_layout(result, results)
    if not isinstance(result, Result):
        raise ConfigError(f"{type(result).__name__} is not a result", "pass a result, its name or its folder")
    return find_layout(result.folder, results)


def find_layout(name_or_path: str | Path, results: Path) -> ExperimentLayout:
    """Return the files of an experiment.

    Args:
        name_or_path: name of an experiment, its folder, or its ``posterior.zarr``.
        results: folder of results, for a name.

    Raises:
        ConfigError: nothing is stored there; the message names the nearest match.
    """
    path = Path(name_or_path)
    folder = path.parent if path.name == "posterior.zarr" else path
    is_path = isinstance(name_or_path, Path) or len(path.parts) > 1 or (path.is_dir() and not (results / path).is_dir())
    if not is_path:
        folder = results / path
    if not folder.is_dir():
        stored = [each.parent.name for each in folder.parent.glob("*/posterior.zarr")]
        raise ConfigError(
            f"{folder}: nothing is stored under this name", suggest(folder.name, stored) if stored else ""
        )
    # A folder given as `.` takes its real name.
    folder = folder if folder.name else folder.resolve()
    return ExperimentLayout(folder.parent, folder.name)


def open_result(layout: ExperimentLayout) -> Result:
    """Open the posterior of an experiment, after comparing it with the record of the job that wrote it.

    A posterior that was copied elsewhere has no such record; it is checked against its own hashes.

    Raises:
        StoreError: it is missing, damaged or altered.
    """
    if not layout.posterior.is_dir():
        raise StoreError(f"{layout.posterior}: no posterior yet", "sample first, or again to continue")
    if (layout.results / "seals").is_dir():
        check_output(layout.results, layout.posterior)
    check_metadata(layout.posterior)
    tree = xr.open_datatree(layout.posterior, engine="zarr")
    result = Result(dataset=tree.dataset, children=dict(tree.children))
    result._layout = layout
    return result


def verdict_of(layout: ExperimentLayout) -> ShownVerdict:
    """Return the verdict on an experiment's posterior, after comparing it with the record of the job that wrote it.

    Raises:
        StoreError: it is missing, damaged or altered, or belongs to an earlier posterior.
    """
    if (layout.results / "seals").is_dir():
        check_output(layout.results, layout.verdict)
        check_made_from(layout.results, layout.verdict)
    return ShownVerdict.model_validate(read_verdict(layout.verdict).model_dump())
