"""Writes the page of published claims: every figure beside ours, with its verdict and a link to the stored result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from bayesmesh.figures import formats
from bayesmesh.files import write_text
from bayesmesh.report.page import render
from bayesmesh.reproduction.claims.claim_table import link_of
from bayesmesh.reproduction.claims.judge import FAILED, HOLDS, MEASURED, NOT_RUN, Finding

__all__ = ["ClaimRow", "claim_row", "write_claims_page"]

_BADGES = {HOLDS: "pass", FAILED: "fail", NOT_RUN: "none", MEASURED: "none"}


@dataclasses.dataclass(frozen=True)
class ClaimRow:
    """A line of the page, as text; `badge` is the colour of the verdict."""

    name: str
    number: str
    statement: str
    kind: str
    published: str
    published_hardware: str
    ours: str
    our_hardware: str
    ratio: str
    verdict: str
    badge: str
    reason: str
    link: str
    written_at: str
    source_errors: tuple[str, ...]


def write_claims_page(path: Path, findings: Sequence[Finding]) -> None:
    """Write the page, whole or not at all; claims stand under their source, in the order of the file."""
    groups: dict[tuple[str, str], dict[str, list[ClaimRow]]] = {}
    for finding in findings:
        claim = finding.claim
        of_source = groups.setdefault((claim.source.title, claim.source.url), {})
        of_source.setdefault(claim.name, []).append(claim_row(finding))
    write_text(
        path,
        render("claims.html", title="Published claims", groups=groups, tally=_tally(findings), num_rows=len(findings)),
    )


def _tally(findings: Iterable[Finding]) -> dict[str, int]:
    verdicts = [finding.verdict for finding in findings]
    return {name: verdicts.count(name) for name in (FAILED, HOLDS, MEASURED, NOT_RUN)}


def claim_row(finding: Finding) -> ClaimRow:
    """Return the line of one number."""
    claim, number, unit = finding.claim, finding.number, finding.number.unit
    ours = finding.ours if isinstance(finding.ours, str) else formats.real(finding.ours, 6)
    if finding.mcse is not None:
        ours += f" ± {formats.real(finding.mcse, 2)}"
    return ClaimRow(
        name=claim.name,
        number=finding.name,
        statement=claim.about.statement,
        kind=claim.kind_of(finding.name),
        published=f"{number.published} {unit}".strip(),
        published_hardware=number.hardware,
        ours="" if finding.ours is None else f"{ours} {unit}".strip(),
        our_hardware=finding.machine,
        ratio="" if finding.ratio is None else f"× {formats.real(finding.ratio, 3)}",
        verdict=finding.verdict,
        badge=_BADGES[finding.verdict],
        reason=finding.reason,
        link=link_of(finding),
        written_at=finding.written_at,
        source_errors=claim.about.source_errors,
    )
