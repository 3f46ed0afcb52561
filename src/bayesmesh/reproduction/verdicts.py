"""claims: the published figures beside ours, with a verdict for each."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.reproduction.claims.claim_table import write_findings
from bayesmesh.reproduction.claims.claims_file import load_claims
from bayesmesh.reproduction.claims.judge import FAILED, HOLDS, MEASURED, NOT_RUN, judge_all
from bayesmesh.reproduction.pages.claim_page import write_claims_page
from bayesmesh.store.layout import ReproductionLayout

__all__ = ["run_claims"]


def run_claims(config: Path, results: Path, *, is_gate: bool = False) -> tuple[str, int]:
    """Judge all claims by what is stored, and write table and page unless that is all that is wanted.

    Returns:
        Lines for the log, and how many claims failed.

    Raises:
        ConfigError: the file of claims is wrong.
    """
    findings = judge_all(results, load_claims(config))
    layout = ReproductionLayout(results)
    if not is_gate:
        write_findings(layout.table, findings)
        write_claims_page(layout.page, findings)
    verdicts = [finding.verdict for finding in findings]
    said = ", ".join(f"{verdicts.count(name)} {name}" for name in (FAILED, HOLDS, MEASURED, NOT_RUN))
    broken = [f"{f.claim.name} {f.name}: {f.reason}" for f in findings if f.verdict == FAILED]
    return "\n  ".join([f"{said}: {layout.page}", *broken]), len(broken)
