"""Turn a matplotlib figure into a panel: inline SVG with real text and the colours of the page.

Matplotlib gets marker colours, which CSS variables replace in the SVG, so that one drawing serves light and dark pages.
No pyplot and no global state: settings apply within a context.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter

INK, MUTED, GRID, BAND, FAIL = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", BAND: "--band", FAIL: "--fail"}

NUM_SERIES = 8

_STEPS = [1, 2, 5, 10]
"""Round steps between ticks: a quarter would need one digit more than a half beside it."""


def series(position: int) -> str:
    """Return the marker colour of a series; eight colours repeat.

    >>> series(0), series(9)
    ('#010000', '#010001')
    """
    return f"#0100{position % NUM_SERIES:02d}"


_VARIABLES |= {series(position): f"--series-{position}" for position in range(NUM_SERIES)}

_STYLE = Path(__file__).parent / "templates" / "panel.mplstyle"


@functools.cache
def _settings() -> matplotlib.RcParams:
    return matplotlib.rc_params_from_file(_STYLE, use_default_template=False)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A finished drawing.

    Attributes:
        svg: the drawing, safe to put into a page.
        width: natural width in px; the page scales it.
        title: heading above the panel.
        note: how the data were processed, and how to read the panel.
    """

    svg: Markup
    width: int
    title: str = ""
    note: str = ""


def draw(
    name: str, plot: Callable[[Axes], None], *, size: tuple[int, int], label: str, title: str = "", note: str = ""
) -> Panel:
    """Draw a panel with one pair of axes.

    Args:
        name: unique in the page; makes the ids in the SVG unique and reproducible.
        plot: draws on the axes it is given.
        size: width and height, in px.
        label: description for readers who cannot see the drawing.
        title: heading above the panel.
        note: text under the panel.
    """
    with matplotlib.rc_context({**_settings(), "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS))
        plot(axes)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Panel(Markup(_for_the_page(out.getvalue(), label)), size[0], title, note)  # noqa: S704 - text escaped by matplotlib


def tip(text: str) -> str:
    """Return the ``gid`` of an artist whose values a reader sees when pointing at it."""
    return f"{_TIP}{text}"


def chain_id(chain: int) -> str:
    """Return the ``gid`` of a chain's line, which a reader can switch off and which shows the chain's number."""
    return f"{_CHAIN}{chain}"


_TIP, _CHAIN = "tip:", "chain:"

_REWRITES = (
    (rf'<g id="{_CHAIN}(\d+)"([^>]*)>', r'<g\2 data-chain="\1"><title>chain \1</title>'),
    (rf'<g id="{_TIP}([^"]*)"([^>]*)>', r"<g\2><title>\1</title>"),
    (r'<metadata>.*?</metadata>|<!--.*?-->|<style type="text/css">.*?</style>', ""),
    (r"<defs>\s*</defs>", ""),
    (r'<g id="[^"]*"', "<g"),
    ("xlink:href=", "href="),
    (r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px"),
    (r"font-family: [^;\"]*;?", ""),
    (r' transform="rotate\(-0 [^"]*\)"', ""),
)
"""Pattern -> its replacement in matplotlib's SVG."""


def _for_the_page(document: str, label: str) -> str:
    """Turn an SVG document into inline SVG: no prolog, no global style, colours and font of the page."""
    body = document[document.index("<svg") :]
    for pattern, replacement in _REWRITES:
        body = re.sub(pattern, replacement, body, flags=re.DOTALL)
    # Round coordinates only, not the numbers that a reader sees.
    body = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: re.sub(r"(\.\d{2})\d+", r"\1", found[0]), body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    view = re.search(r'viewBox="([^"]*)"', body)
    opened = f'<svg class="plot" role="img" aria-label="{escape(label)}" viewBox="{view[1] if view else ""}">'
    return re.sub(r"\n+", "\n", re.sub(r"<svg[^>]*>", lambda _: opened, body, count=1))


def _plain(value: float) -> str:
    """Return a number without trailing zeros."""
    return f"{value:,.10g}"


def log_axis(axis: Axis, format_fn: Callable[[float], str] = _plain) -> None:
    """Give a logarithmic axis a few ticks with plain numbers; call after plotting.

    Ticks are at decades, on a short axis also at 2 and 5 times these, and at even steps if the axis holds fewer than two of those.
    """
    low, high = sorted(axis.get_view_interval())
    is_short = high / max(low, 1e-300) < 50
    exponents = range(math.floor(math.log10(max(low, 1e-300))), math.floor(math.log10(high)) + 1)
    num_round = sum(low <= step * 10.0**exponent <= high for exponent in exponents for step in (1, 2, 5))
    locator: Locator = LogLocator(base=10, subs=(1.0, 2.0, 5.0) if is_short else (1.0,), numticks=7)
    if num_round < 2:
        locator = MaxNLocator(4, steps=_STEPS)
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_fn(value)))
    axis.set_minor_formatter(NullFormatter())
