"""Check the published claims and write their table and their page, with a link from every number to the stored result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bayesmesh.files import write_text
from bayesmesh.report.rendering import render
from bayesmesh_reproduction.claims import judge
from bayesmesh_reproduction.claims.declaration import CLAIMS, Claim
from bayesmesh_reproduction.claims.judge import Finding, tally
from bayesmesh_reproduction.layout import ReproductionLayout
from bayesmesh_reproduction.pages import TEMPLATES

_BADGES = {judge.HOLDS: "pass", judge.FAILED: "fail", judge.NOT_RUN: "none", judge.MEASURED: "none"}
"""Verdict -> its colour on the page."""


def run_claims(results: Path, *, is_gate: bool = False) -> tuple[str, int]:
    """Check all claims against stored results; write the table and the page unless only the gate is requested.

    Returns:
        Lines for the log, and the number of claims that failed.
    """
    findings = judge.judge_all(results, CLAIMS)
    layout = ReproductionLayout(results)
    if not is_gate:
        judge.write_findings(layout.table, findings)
        write_claims_page(layout.page, findings)
    counts = ", ".join(f"{number} {verdict}" for verdict, number in tally(findings).items())
    failed = [f"{f.claim.name} {f.number.name}: {f.reason}" for f in findings if f.verdict == judge.FAILED]
    return "\n  ".join([f"{counts}: {layout.page}", *failed]), len(failed)


def write_claims_page(path: Path, findings: Sequence[Finding]) -> None:
    """Write the page atomically, with claims grouped by source in the order of the table."""
    groups: dict[str, dict[Claim, list[Finding]]] = {}
    for finding in findings:
        groups.setdefault(finding.claim.piece.title, {}).setdefault(finding.claim, []).append(finding)
    page = render(
        "claims.html", TEMPLATES, title="Published claims", groups=groups, badges=_BADGES, tally=tally(findings),
        num_rows=len(findings),
    )  # fmt: skip
    write_text(path, page)
