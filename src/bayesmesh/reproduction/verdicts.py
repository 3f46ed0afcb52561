"""claims: the published figures beside ours, with a verdict for each."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.reproduction.claims.claim_list import CLAIMS
from bayesmesh.reproduction.claims.claim_table import write_findings
from bayesmesh.reproduction.claims.judge import FAILED, judge_all, tally
from bayesmesh.reproduction.pages.claim_page import write_claims_page
from bayesmesh.store.layout import ReproductionLayout

__all__ = ["run_claims"]


def run_claims(results: Path, *, is_gate: bool = False) -> tuple[str, int]:
    """Judge all claims by what is stored, and write table and page unless only the gate is asked for.

    Returns:
        Lines for the log, and how many numbers failed.
    """
    findings = judge_all(results, CLAIMS)
    layout = ReproductionLayout(results)
    if not is_gate:
        write_findings(layout.table, findings)
        write_claims_page(layout.page, findings)
    said = ", ".join(f"{number} {verdict}" for verdict, number in tally(findings).items())
    failed = [f"{f.number.claim.name} {f.number.name}: {f.reason}" for f in findings if f.verdict == FAILED]
    return "\n  ".join([f"{said}: {layout.page}", *failed]), len(failed)
