"""Compare our number with the published one, derive a verdict from both and the kind of claim, and write ``claims.csv``."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path

from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.analyses.figures.formats import Comparison
from bayesmesh.errors import StoreError
from bayesmesh.files import write_text
from bayesmesh_reproduction.claims.declaration import Claim, Number, Rule
from bayesmesh_reproduction.claims.results import REMEDY, NotRun, Reading, Results, Value

HOLDS, FAILED, NOT_RUN, MEASURED = "holds", "failed", "not run", "measured"

SIGMAS = 4.0
"""Number of standard errors by which ours may differ from the published number, in addition to the tolerance."""


@dataclasses.dataclass
class Finding:
    """The verdict on one number of a claim.

    Attributes:
        claim: the claim.
        number: number of the claim.
        verdict: one of the four.
        ours: our number, or None.
        again: our number from the second computation.
        mcse: Monte Carlo standard error of ours, if known.
        reason: why the number does not hold; empty if it does.
    """

    claim: Claim
    number: Number
    verdict: str = NOT_RUN
    ours: Reading | None = None
    again: Value | None = None
    mcse: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours divided by the published number, if both are numbers."""
        published = _decimal(self.number.published)
        if not published or self.ours is None or isinstance(self.ours.value, str):
            return None
        return self.ours.value / float(published)

    def row(self) -> dict[str, object]:
        """Return the row of the table; `ratio` is ours over the published, `stored_result` relative to the file itself."""
        rule, entry, ours = self.number.rule, self.claim.entry, self.ours
        return {
            "id": self.claim.name, "number": self.number.name, "source": self.claim.piece.title,
            "statement": entry.statement, "kind": rule.kind, "published": self.number.published, "unit": rule.unit,
            "published_hardware": rule.hardware, "ours": ours and ours.value, "mcse": self.mcse,
            "our_hardware": ours and ours.machine, "ratio": self.ratio, "verdict": self.verdict, "reason": self.reason,
            "stored_result": ours and f"../{ours.file}", "measured_at": ours and ours.written_at,
            "source_errors": " ".join(entry.source_errors),
        }  # fmt: skip


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write the table, one row per number, atomically."""
    rows = [finding.row() for finding in findings]
    write_text(path, render_csv(list(rows[0]), [list(row.values()) for row in rows]))


def tally(findings: Sequence[Finding]) -> dict[str, int]:
    """Count the numbers of all claims by verdict."""
    verdicts = [finding.verdict for finding in findings]
    return {name: verdicts.count(name) for name in (FAILED, HOLDS, MEASURED, NOT_RUN)}


def judge_all(folder: Path, claims: Iterable[Claim]) -> list[Finding]:
    """Check every number of every claim, in order; damaged or edited results fail without stopping the others."""
    results = Results(folder)
    return [judge(results, Finding(claim, number)) for claim in claims for number in claim.numbers]


def judge(results: Results, finding: Finding) -> Finding:
    """Check the number of a finding against stored results, complete the finding and return it."""
    number, rule = finding.number, finding.number.rule
    try:
        finding.ours = number.read(rule.check, results)
        if rule.again is not None:
            again = number.read(rule.again, results)
            finding.again = again.value
            _check_agreement(finding.ours, again, rule.agreement)
        if rule.mcse is not None:
            finding.mcse = number.read(rule.mcse, results).number
        finding.reason = _problem(number.published, rule, finding.ours, finding.mcse)
        finding.verdict = FAILED if finding.reason else MEASURED if rule.kind == "hardware" else HOLDS
    except NotRun as missing:
        finding.reason = str(missing)
        if finding.ours is not None:
            # A number without its inputs could have been typed in.
            finding.verdict, finding.reason = FAILED, f"nothing to compute it from again: {missing}"
    except StoreError as error:
        finding.verdict, finding.reason = FAILED, error.message.replace(f"{results.folder}/", "")
    return finding


def _check_agreement(ours: Reading, again: Reading, agreement: float) -> None:
    """Raise a StoreError if the second computation gives another number."""
    if isinstance(ours.value, str) or isinstance(again.value, str):
        agree = _text(ours.value) == _text(again.value)
    else:
        agree = math.isclose(ours.value, again.value, rel_tol=agreement, abs_tol=agreement)
    if not agree:
        raise StoreError(f"{ours.file}: says {ours.value}, and what {again.file} holds gives {again.value}", REMEDY)


def _problem(published: str, rule: Rule, ours: Reading, mcse: float | None) -> str:
    """Return why a number does not hold; empty if it does."""
    if rule.kind == "exact":
        same = matches_digits(ours.value, published, rule.resolution)
        return "" if same else f"{ours.value} is not {published}"
    value = ours.number
    if not math.isfinite(value):
        return "not a finite number"
    # With an error, a limit is kept only beyond the error.
    for limit, side, direction in ((rule.at_least, "below", 1), (rule.at_most, "above", -1)):
        if limit is not None and mcse is not None and Comparison(value - limit, mcse).sign != direction:
            return f"{value:.6g} ± {mcse:.2g} is not clearly on the right side of {limit:g}"
        if limit is not None and direction * (value - limit) < 0:
            return f"{value:.6g} is {side} {limit:g}"
    if rule.tolerance is not None or (mcse is not None and rule.at_least is None and rule.at_most is None):
        expected = _decimal(published)
        if expected is None:
            return f"the published {published!r} is not a number"
        allowed = (rule.tolerance or 0.0) + SIGMAS * (mcse or 0.0)
        if not abs(value - float(expected)) <= allowed:
            return f"{value:.6g} differs from {published} by more than {allowed:.3g}"
    return ""


def matches_digits(ours: Value, published: str, resolution: float = 0.0) -> bool:
    """Return whether a value matches all printed digits; text is compared exactly except for spaces.

    Args:
        ours: the value.
        published: the printed text, such as ``-3.93533794`` or ``8, 1000, 2, 2``.
        resolution: uncertainty of the printed digits, in addition to half of the last one.

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
    is_same = Decimal(repr(float(ours))).quantize(printed, ROUND_HALF_EVEN) == printed
    return is_same or (resolution > 0 and abs(ours - float(printed)) <= resolution)


def _decimal(text: str) -> Decimal | None:
    """Return a published number; None for text."""
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
