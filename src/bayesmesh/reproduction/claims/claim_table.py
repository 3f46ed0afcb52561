"""Writes ``claims.csv``: one row per number, ours beside the published one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bayesmesh.files import write_text
from bayesmesh.reproduction.claims.judge import Finding

__all__ = ["COLUMNS", "link_of", "write_findings"]

COLUMNS = (
    "id", "number", "source", "statement", "kind", "published", "unit", "published_hardware", "ours", "mcse",
    "our_hardware", "ratio", "verdict", "reason", "stored_result", "measured_at", "source_errors",
)  # fmt: skip
"""``ratio`` is ours over the published; ``stored_result`` is relative to the file itself."""


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write the table, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(findings))
    write_text(path, text.getvalue())


def link_of(finding: Finding) -> str:
    """Return the file that a number was read from, as seen from a folder below the results; empty where there is none."""
    return f"../{finding.file}" if finding.file else ""


def _rows(findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    for finding in findings:
        claim, number = finding.claim, finding.number
        yield {
            "id": claim.name, "number": finding.name, "source": claim.source.title, "statement": claim.about.statement,
            "kind": claim.kind_of(finding.name), "published": number.published, "unit": number.unit,
            "published_hardware": number.hardware, "ours": finding.ours, "mcse": finding.mcse,
            "our_hardware": finding.machine, "ratio": finding.ratio, "verdict": finding.verdict,
            "reason": finding.reason, "stored_result": link_of(finding), "measured_at": finding.written_at,
            "source_errors": " ".join(claim.about.source_errors),
        }  # fmt: skip
