"""Write the page of published claims: every figure and ours, with the verdict and a link to the stored result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bayesmesh.files import write_text
from bayesmesh.report.page import render
from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.judge import FAILED, HOLDS, MEASURED, NOT_RUN, Finding, tally
from bayesmesh.reproduction.pages import TEMPLATES

__all__ = ["write_claims_page"]

_BADGES = {HOLDS: "pass", FAILED: "fail", NOT_RUN: "none", MEASURED: "none"}
"""Verdict -> its colour on the page."""


def write_claims_page(path: Path, findings: Sequence[Finding]) -> None:
    """Write the page atomically, with claims grouped by source in the order of the table."""
    groups: dict[Source, dict[Claim, list[Finding]]] = {}
    for finding in findings:
        claim = finding.number.claim
        groups.setdefault(claim.source, {}).setdefault(claim, []).append(finding)
    page = render(
        "claims.html", TEMPLATES, title="Published claims", groups=groups, badges=_BADGES, tally=tally(findings),
        num_rows=len(findings),
    )  # fmt: skip
    write_text(path, page)
