"""Judges a number: ours beside the published one, and a verdict that follows from the two and the kind of claim."""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.reproduction.claims.claims_file import Claim, Claims, MeasureSettings, NumberSettings
from bayesmesh.reproduction.claims.reading import NotRun, Reading, Value, combine, read_file
from bayesmesh.reproduction.claims.witnesses import ask_witness

__all__ = ["FAILED", "HOLDS", "MEASURED", "NOT_RUN", "Finding", "judge_all", "matches_digits"]

HOLDS, FAILED, NOT_RUN, MEASURED = "holds", "failed", "not run", "measured"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One number of a claim, judged.

    Attributes:
        ours: None where there is none.
        mcse: Monte Carlo standard error of ours, where it is known.
        witness: ours as it was computed a second time.
        reason: why the verdict is not that it holds.
        file: below the results; empty where there is none.
    """

    claim: Claim
    name: str
    number: NumberSettings
    verdict: str
    ours: Value | None = None
    mcse: float | None = None
    witness: Value | None = None
    machine: str = ""
    reason: str = ""
    file: str = ""
    written_at: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the published, where both are numbers."""
        published = as_number(self.number.published)
        if (
            published is None
            or not isinstance(self.ours, (int, float))
            or not math.isfinite(published)
            or not published
        ):
            return None
        return self.ours / published


def judge_all(results: Path, claims: Claims) -> list[Finding]:
    """Judge every number of every claim, in order; what is damaged or edited fails, and stops nothing else."""
    return [judge(results, claim, name) for claim in claims for name in claim.numbers]


def judge(results: Path, claim: Claim, name: str) -> Finding:
    """Judge one number of a claim by what is stored below `results`."""
    number = claim.numbers[name]
    finding = Finding(claim, name, number, NOT_RUN)
    ours: Reading | None = None
    try:
        ours = _read(results, number.measure)
        finding = dataclasses.replace(
            finding, ours=ours.value, machine=ours.machine, file=ours.files[0], written_at=ours.written_at
        )
        witness = _read(results, number.witness) if number.witness is not None else None
        if witness is not None:
            finding = dataclasses.replace(finding, witness=witness.value)
            _check_witness(number, ours, witness)
        mcse = _read(results, number.mcse).number if number.mcse is not None else None
    except NotRun as missing:
        if ours is None:
            return dataclasses.replace(finding, reason=str(missing))
        # A number without what it was computed from could have been typed in.
        return dataclasses.replace(finding, verdict=FAILED, reason=f"nothing to compute it from again: {missing}")
    except StoreError as error:
        return dataclasses.replace(finding, verdict=FAILED, reason=_relative(error.message, results))
    problem = _problem(claim.kind_of(name), number, ours, mcse)
    verdict = FAILED if problem else MEASURED if claim.kind_of(name) == "hardware" else HOLDS
    return dataclasses.replace(finding, verdict=verdict, mcse=mcse, reason=problem)


def _read(results: Path, measure: MeasureSettings) -> Reading:
    if measure.witness is not None:
        return ask_witness(results, measure)
    if measure.file is not None:
        return read_file(results, measure)
    return combine(measure, lambda part: _read(results, part))


def _relative(message: str, results: Path) -> str:
    return message.replace(f"{results}/", "")


def _check_witness(number: NumberSettings, ours: Reading, witness: Reading) -> None:
    """Refuse a number that what is stored does not give."""
    if isinstance(ours.value, str) or isinstance(witness.value, str):
        agree = _text(ours.value) == _text(witness.value)
    else:
        agree = math.isclose(ours.value, witness.value, rel_tol=number.agreement, abs_tol=number.agreement)
    if not agree:
        raise StoreError(
            f"{ours.files[0]}: says {ours.value}, and what {witness.files[0]} holds gives {witness.value}",
            "run the stage that writes it again",
        )


def _problem(kind: str, number: NumberSettings, ours: Reading, mcse: float | None) -> str:
    """Return why a number does not hold; nothing when it does."""
    if kind == "exact":
        same = matches_digits(ours.value, number.published, number.resolution)
        return "" if same else f"{ours.value} is not {number.published}"
    value = ours.number
    if not math.isfinite(value):
        return "not a finite number"
    if number.at_least is not None and value < number.at_least:
        return f"{value:.6g} is below {number.at_least:g}"
    if number.at_most is not None and value > number.at_most:
        return f"{value:.6g} is above {number.at_most:g}"
    if kind == "statistical" and (number.tolerance is not None or mcse is not None):
        published = as_number(number.published)
        if published is None:
            return f"the published {number.published!r} is not a number"
        allowed = (number.tolerance or 0.0) + number.sigmas * (mcse or 0.0)
        if not abs(value - published) <= allowed:
            return f"{value:.6g} differs from {number.published} by more than {allowed:.3g}"
    return ""


def matches_digits(ours: Value, published: str, resolution: float = 0.0) -> bool:
    """Whether a value has all digits that are printed; text is compared as it stands, but for spaces.

    Args:
        ours: the value.
        published: what is printed, such as ``-3.93533794`` or ``8, 1000, 2, 2``.
        resolution: what the printed digits are uncertain by, beside half of the last one.

    >>> matches_digits(-3.935337941, "-3.93533794"), matches_digits(-3.9353380, "-3.93533794")
    (True, False)
    >>> matches_digits(0.19661193, "0.19661197"), matches_digits(0.19661193, "0.19661197", 6e-8)
    (False, True)
    """
    printed = _decimal(published)
    if isinstance(ours, str) or printed is None:
        return _text(ours) == _text(published)
    if not math.isfinite(ours):
        return False
    exponent = printed.as_tuple().exponent
    assert isinstance(exponent, int)
    last = Decimal(1).scaleb(exponent)
    if Decimal(repr(float(ours))).quantize(last, ROUND_HALF_EVEN) == printed:
        return True
    return resolution > 0 and abs(ours - float(printed)) <= resolution


def as_number(published: str) -> float | None:
    """Return a published number; None where it is text."""
    found = _decimal(published)
    return None if found is None else float(found)


def _decimal(text: str) -> Decimal | None:
    # 1,000,209 is a number, and 6040, 3706 is a shape.
    plain = text.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text) else text
    try:
        found = Decimal(plain)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _text(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        value = str(int(value))
    return "".join(str(value).split())
