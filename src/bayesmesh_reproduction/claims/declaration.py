"""Published claims: their numbers, the checks that read ours, and the comparison of both, as `published.yaml` declares them.

A check is a Python function of the stored results. Every kind of comparison requires the keys without which no result could
turn its numbers red.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, model_validator

from bayesmesh.config.errors import validate
from bayesmesh.config.settings import Settings, does_not_fit
from bayesmesh.config.yaml_reader import read_yaml
from bayesmesh.errors import suggest
from bayesmesh_reproduction.claims import cells, log_densities, recomputation, tables
from bayesmesh_reproduction.claims.results import Reading, Results

Kind = Literal["exact", "statistical", "hardware", "shape"]

CHECKS = {
    name: found
    for module in (cells, log_densities, recomputation, tables)
    for name, found in vars(module).items()
    if isinstance(found, FunctionType) and found.__module__ == module.__name__ and not name.startswith("_")
}
"""The functions that `published.yaml` can name."""

_LIMITS = {"at_least", "at_most"}

_NEEDED: dict[Kind, str] = {
    "exact": "again",
    "statistical": "again, and one of tolerance, mcse, at_least and at_most",
    "shape": "at_least or at_most, and takes neither again nor tolerance nor mcse",
    "hardware": "hardware",
}
"""Kind -> keys without which nothing could fail, for the error."""


def _find_check(name: object) -> object:
    if not isinstance(name, str):
        return name
    if name not in CHECKS:
        raise does_not_fit(name, "unknown check", suggest(name, CHECKS))
    return CHECKS[name]


Check = Annotated[Callable[..., Reading], BeforeValidator(_find_check)]
"""A function of the results and, by name, of further arguments."""


class Printed(Settings, extra="allow"):
    """A published number, and further arguments of its check."""

    published: str
    """The number as printed; its digits count."""


class Rule(Settings):
    """How numbers of a claim are read and compared."""

    kind: Kind
    """Kind of comparison."""
    check: Check
    """Reads ours."""
    numbers: dict[str, Printed]
    """Name -> number."""
    at: Mapping[str, Any] = {}
    """Arguments of the check, of `again` and of `mcse` that all numbers share."""
    unit: str = ""
    """Unit of both numbers."""
    hardware: str = ""
    """Hardware of the published measurement."""
    again: Check | None = None
    """Computes ours a second time from stored arrays; null if the check itself does."""
    agreement: float = 1e-5
    """Allowed difference from the second computation, relative and absolute."""
    mcse: Check | None = None
    """Reads the Monte Carlo standard error of ours."""
    tolerance: float | None = None
    """Allowed difference from the published number, in addition to four standard errors."""
    at_least: float | None = None
    """Ours must not be below."""
    at_most: float | None = None
    """Ours must not be above."""
    resolution: float = 0.0
    """Uncertainty of the printed digits, if more were printed than the dtype holds."""

    @model_validator(mode="after")
    def _check_that_it_can_fail(self) -> Self:
        given = self.model_fields_set
        can_fail = {
            "exact": "again" in given,
            "statistical": "again" in given and bool(given & {"tolerance", "mcse", *_LIMITS}),
            "shape": bool(given & _LIMITS) and not given & {"again", "tolerance", "mcse"},
            "hardware": bool(self.hardware),
        }
        if not can_fail[self.kind]:
            raise does_not_fit("kind", f"'{self.kind}' needs {_NEEDED[self.kind]}", "add the key")
        return self


class Entry(Settings):
    """A claim as `published.yaml` has it."""

    statement: str
    """The claim in words."""
    rules: tuple[Rule, ...]
    """Its numbers."""
    source_errors: tuple[str, ...] = ()
    """Errors in the source, one sentence each."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = Counter(name for rule in self.rules for name in rule.numbers)
        if twice := [name for name, count in names.items() if count > 1]:
            raise does_not_fit("rules", f"two numbers have the name '{twice[0]}'", "give each its own name")
        return self


class Piece(Settings):
    """A published piece."""

    title: str
    """Author, title, year."""
    claims: dict[str, Entry]
    """Name, such as `A1` -> claim."""
    url: str = ""
    """Its address."""


class Pieces(Settings):
    """The content of `published.yaml`."""

    pieces: tuple[Piece, ...]
    """Published pieces in the order of the table."""


class Number(NamedTuple):
    """One number of a claim; `arguments` are those of its checks."""

    name: str
    published: str
    rule: Rule
    arguments: dict[str, Any]

    def read(self, check: Check, results: Results) -> Reading:
        """Return the result of one of the number's checks."""
        return check(results, **self.arguments)


@dataclasses.dataclass(frozen=True, eq=False)
class Claim:
    """A claim of a published piece."""

    name: str
    piece: Piece
    entry: Entry

    @property
    def numbers(self) -> list[Number]:
        """Its numbers in the order of the table."""
        return [
            Number(name, printed.published, rule, {**rule.at, **(printed.model_extra or {})})
            for rule in self.entry.rules
            for name, printed in rule.numbers.items()
        ]


def read_claims(path: Path) -> list[Claim]:
    """Return the claims of a file.

    Raises:
        ConfigError: see `read_yaml`; or an unknown key or check, or a number that no result could turn red.
    """
    pieces = validate(path, Pieces, read_yaml(path)).pieces
    return [Claim(name, piece, entry) for piece in pieces for name, entry in piece.claims.items()]


CLAIMS = read_claims(Path(__file__).with_name("published.yaml"))
"""All published claims, in the order of the table."""
