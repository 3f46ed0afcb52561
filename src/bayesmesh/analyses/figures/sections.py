"""Build sections of a page: HTML from a template or a table, and the numbers below the verdict.

Every value is escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import jinja2
import numpy as np
from markupsafe import Markup

from bayesmesh.analyses.figures import formats

if TYPE_CHECKING:
    import pandas as pd

    from bayesmesh.analyses.figures.canvas import Panel

Aspect = Literal["binary", "counts", "skewed", "bias", "narrow", "wide", "uneven", "tails", "zeros", "shape"]
"""How predictions are wrong: counts that are all 0 or 1; positive outcomes whose skewness or spread logs would remove;
their centre; too narrow or too wide; a spread that changes with the rows; tails that are too light; too few zeros; any
other feature of the distribution."""

State = Literal["pass", "warn", "fail"]


@dataclasses.dataclass(frozen=True)
class FitCheck:
    """The result of one check of the fit.

    Attributes:
        name: name of the check.
        state: ``fail`` where the data refute the model, ``warn`` where a check casts doubt on it or on itself, ``pass`` if neither.
        text: a sentence with the numbers that decided; empty if it passed.
        refuted: how predictions are wrong -> by how much, in standard deviations of what chance does.
        cleared: aspects of the outcome that the check found to be right.
        spread: scatter of outcomes around their predictions, relative to what the model says; NaN if it was not measured.
        terms: terms that the model's formula lacks -> how plainly, likewise.
    """

    name: str
    state: State
    text: str = ""
    refuted: Mapping[Aspect, float] = MappingProxyType({})
    cleared: frozenset[Aspect] = frozenset()
    spread: float = math.nan
    terms: Mapping[str, float] = MappingProxyType({})


_MACROS = Path(__file__).parent / "templates"


@dataclasses.dataclass(frozen=True)
class KeyNumber:
    """A number below the verdict; `state` sets its colour: pass, warn, fail or empty."""

    name: str
    value: str
    detail: str = ""
    state: str = ""


@dataclasses.dataclass(frozen=True)
class FiguresByColumn:
    """Figures that the page draws for the columns that it chooses.

    Attributes:
        draw: column -> figure, from the name of the outcome.
        note: how to read all of them.
    """

    draw: Mapping[str, Callable[[str], Panel]]
    note: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a page; the page adds the heading.

    Attributes:
        body: HTML.
        numbers: numbers to show below the verdict.
        fit: what it says about the fit of the model, for the mark beside the verdict.
        doubts: sentences for the page to show next to the verdict on the sampling, because they call the draws into question.
        by_column: figures of the outcome by columns of the data.
    """

    body: Markup
    numbers: Sequence[KeyNumber] = ()
    fit: Sequence[FitCheck] = ()
    by_column: FiguresByColumn | None = None
    doubts: Sequence[str] = ()


@functools.cache
def _environment(*folders: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _MACROS]),
        autoescape=True,  # titles, captions and names come from configuration and data
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code
    environment.globals.update(formats=formats, isfinite=math.isfinite)
    return environment


def code(text: str) -> Markup:
    """Return a text as HTML, with text between backticks as code.

    >>> str(code("add `loo: {}` & run"))
    'add <code>loo: {}</code> &amp; run'
    """
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def render(template: Path, *shared: Path, **context: Any) -> Markup:
    """Render a template, which may include files beside it or in `shared` folders, and import ``macros.html``."""
    return Markup(_environment(template.parent, *shared).get_template(template.name).render(**context))  # noqa: S704 - escaped


def html_table(table: pd.DataFrame | Mapping[str, object] | Sequence[object], label: str) -> Markup:
    """Return a table as HTML: numbers right-aligned with four significant digits, missing values empty.

    Args:
        table: a table, columns by name, or records; the first column names the rows.
        label: description for readers who cannot see the table.

    >>> '<td class="num">0.5000</td>' in html_table({"name": ["a<b"], "mean": [0.5]}, "Means")
    True
    """
    import pandas as pd  # half a second that a page without tables need not wait for

    table = pd.DataFrame(table)
    is_number = [dtype.kind in "iuf" for dtype in table.dtypes]
    is_whole = [
        number and all(float(value).is_integer() for value in table.iloc[:, n].dropna())
        for n, number in enumerate(is_number)
    ]
    rows = [[_cell(*each) for each in zip(row, is_whole, strict=True)] for row in table.itertuples(index=False)]
    columns = list(zip(table.columns, is_number, strict=True))
    return render(_MACROS / "table.html", label=label, columns=columns, rows=rows)


def html_panels(*panels: Panel) -> Markup:
    """Return panels as HTML, beside each other where there is room; no template is needed."""
    return render(_MACROS / "panels.html", panels=panels)


def _cell(value: Any, is_whole: bool) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    number = float(value)
    if math.isnan(number):
        return ""
    return formats.count(number) if is_whole else formats.real(number)


def png_address(pixels: np.ndarray) -> str:
    """Return an image as a data URL that holds a PNG.

    Args:
        pixels: uint8, shape (row, column) for grey, or (row, column, 4) for red, green, blue and opacity.

    >>> png_address(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    from PIL import Image  # a tenth of a second that pages without images need not wait for

    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
