"""Declare published claims, and for each number a check that reads ours.

A check is a function of the stored results. The method of the claim that registers it determines how ours is compared
with the published number, and requires the arguments of its kind, so that every number can fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from bayesmesh.reproduction.claims.results import Reading, Results

Kind = Literal["exact", "statistical", "hardware", "shape"]
Measure = Callable[..., Reading]
"""A function of the results and of the arguments after a number's name and published value."""
Register = Callable[[Measure], Measure]

COMPUTED = None
"""In place of a second computation: the check itself computes the number from stored arrays."""


class Source(NamedTuple):
    """A published piece: author, title, year, location."""

    title: str
    url: str = ""


@dataclasses.dataclass(frozen=True)
class Number:
    """One number of a claim.

    Attributes:
        claim: the claim.
        name: name of the number.
        published: the number as printed; its digits count.
        kind: kind of comparison.
        measure: reads ours.
        arguments: arguments of `measure`, `again` and `mcse` after the results.
        unit: unit of both numbers.
        hardware: hardware of the published measurement.
        again: computes the same number a second time from stored arrays; ours must agree.
        agreement: allowed difference from the second computation, relative and absolute.
        mcse: reads the Monte Carlo standard error of ours.
        tolerance: allowed difference from the published number, in addition to four standard errors.
        at_least: ours must not be below.
        at_most: ours must not be above.
        resolution: uncertainty of the printed digits, if more were printed than the dtype holds.
    """

    claim: Claim
    name: str
    published: str
    kind: Kind
    measure: Measure
    arguments: tuple[Any, ...] = ()
    unit: str = ""
    hardware: str = ""
    again: Measure | None = None
    agreement: float = 1e-5
    mcse: Measure | None = None
    tolerance: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    resolution: float = 0.0

    def read(self, measure: Measure, results: Results) -> Reading:
        """Return the result of one of the number's functions."""
        return measure(results, *self.arguments)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim: the facts shared by its numbers.

    The methods return decorators, and take for each number its name, its published value and arguments of the check.
    Decorators may be stacked on one check; numbers are listed as they are read, from the top down.

    Attributes:
        name: name such as ``A1``.
        source: the publication.
        statement: the claim in words.
        source_errors: errors in the source, one sentence each.
        numbers: numbers in the order of the table.
    """

    name: str
    source: Source
    statement: str
    source_errors: tuple[str, ...] = ()
    numbers: list[Number] = dataclasses.field(default_factory=list, compare=False, repr=False)

    def exact(self, *numbers: tuple[Any, ...], again: Measure | None, **options: Any) -> Register:
        """Register numbers that ours must match in all printed digits."""
        return self._register("exact", numbers, again=again, **options)

    def statistical(self, *numbers: tuple[Any, ...], again: Measure | None, **options: Any) -> Register:
        """Register numbers to which ours must be close: within a tolerance, standard errors (`mcse`) or limits."""
        if not options.keys() & {"tolerance", "mcse", "at_least", "at_most"}:
            raise TypeError(f"claim {self.name}: a statistical number needs tolerance, mcse, at_least or at_most")
        return self._register("statistical", numbers, again=again, **options)

    def shape(self, *numbers: tuple[Any, ...], unit: str = "", **limits: float) -> Register:
        """Register trends that must be within limits, `at_least` or `at_most` or both."""
        if not limits or not limits.keys() <= {"at_least", "at_most"}:
            raise TypeError(f"claim {self.name}: a shape needs at_least or at_most, and takes nothing else")
        return self._register("shape", numbers, unit=unit, **limits)

    def hardware(self, *numbers: tuple[Any, ...], on: str, unit: str = "") -> Register:
        """Register times and rates, which are shown beside ours; `on` is the published hardware."""
        return self._register("hardware", numbers, hardware=on, unit=unit)

    def _register(self, kind: Kind, numbers: tuple[tuple[Any, ...], ...], **options: Any) -> Register:
        def register(measure: Measure) -> Measure:
            new = [Number(self, name, said, kind, measure, tuple(more), **options) for name, said, *more in numbers]
            names = [number.name for number in (*self.numbers, *new)]
            if len(set(names)) < len(names):
                raise TypeError(f"claim {self.name}: two numbers have one name")
            # Python applies stacked decorators from the bottom up; a reader reads them from the top down.
            measures = [*(number.measure for number in self.numbers), measure]
            place = measures.index(measure)
            self.numbers[place:place] = new
            return measure

        return register
