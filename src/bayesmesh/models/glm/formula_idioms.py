"""Idioms of other formula languages, such as those of R and brms, and what to write instead: `idioms.yaml` and a few shapes."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml

_MODULES = ("np", "numpy", "jnp", "math", "special", "base", "stats", "splines", "mgcv")

_SHAPES = (
    (r"^[^~]*(?:==|\[)", "the outcome is compared with a level", "name the column; with `family: bernoulli`, the second of two `levels` in the data counts as 1"),
    (r"\|\s*[^|()\s][^|()]*\|([^|()~]*)\)", "two bars with a name between them connect the formulas of brms", "a model has one formula, so groups need no name: write (1 |{0})"),
    (r"%[\w*/]+%", "operators between percent signs are those of R", "write a:b for the effects of a within the levels of b"),
    (r"^[^~]*\|", "additions to the outcome, behind a bar, are keys of the model", "for example\n    model:\n      weights: w"),
    (r"^[^~=]*=[^~=]*$", "a formula has a tilde", "write ~ in place of =, such as y ~ x"),
    (r"~[^~]*[,;][^~]*~", "there are two formulas", "write the one of the mean; other parameters have no formula"),
)  # fmt: skip
"""Regular expression, problem, and what to write, in which ``{0}`` is the first group."""


@functools.cache
def _sentences() -> Mapping[str, str]:
    """Return the name of a function, or a regular expression of the beginning of a call -> what to write."""
    found = yaml.safe_load(Path(__file__).with_name("idioms.yaml").read_text(encoding="utf-8"))
    return {name: text for key, text in found.items() for name in ([key] if "\\" in key else key.split())}


def instead_of(text: str, columns: Collection[str]) -> tuple[str, str] | None:
    """Return what a formula has of another language, and what to write instead; None if it has nothing of the kind.

    >>> instead_of("y ~ s(x, k = 3) + log(z)", ["y", "x", "z"])[0]
    "'s(...)' is a function of other formula languages"
    >>> instead_of("y ~ np.log(x)", ["y", "x"])
    ("'np.log(...)' names a module", 'write log(x)')
    """
    # Of equal length, so that places in one are those in the other.
    plain = re.sub(r"`[^`]*`", lambda found: f"`{'_' * (len(found[0]) - 2)}`", text)
    for call in re.finditer(r"(?<![\w.])([A-Za-z_][\w.]*)\([^)]*", plain):
        if any(column.startswith(f"{call[1]}(") for column in columns):
            continue
        names = re.finditer(r"`_*`|(?<=['\"])[^'\"]+(?=['\"])|(?<![\w.])[A-Za-z_][\w.]*(?![\w.]*\()", call[0])
        found = [text[call.start() + each.start() : call.start() + each.end()] for each in names]
        of = dict(zip(("x", "second"), [*found, *("x", "n")[len(found) :]], strict=False))
        module, _, function = call[1].rpartition(".")
        own = (call[1], function) if module in _MODULES else (call[1],)
        for key, sentence in _sentences().items():
            if key in own or ("\\" in key and re.match(key, call[0])):
                return f"'{call[1]}(...)' is a function of other formula languages", sentence.format(**of)
        if module in _MODULES:
            return f"'{call[1]}(...)' names a module", f"write {function}({of['x']})"
    for pattern, problem, remedy in _SHAPES:
        if shape := re.search(pattern, plain):
            return problem, remedy.format(*(text[slice(*shape.span(i + 1))] for i in range(len(shape.groups()))))
    return None
