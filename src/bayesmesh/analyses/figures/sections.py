"""Build sections of a page: HTML from a template or a table, and the numbers below the verdict.

Every value is escaped.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.fit_check import FitCheck

if TYPE_CHECKING:
    import pandas as pd

    from bayesmesh.analyses.figures.canvas import Panel

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


def html_table(table: pd.DataFrame, label: str) -> Markup:
    """Return a table as HTML: numbers right-aligned with four significant digits, missing values empty.

    Args:
        table: the first column names the rows.
        label: description for readers who cannot see the table.

    >>> import pandas as pd
    >>> '<td class="num">0.5000</td>' in html_table(pd.DataFrame({"name": ["a<b"], "mean": [0.5]}), "Means")
    True
    """
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
