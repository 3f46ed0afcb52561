"""Write ``claims.csv``: one row per number, ours and the published one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bayesmesh.files import write_text
from bayesmesh.reproduction.claims.judge import Finding

__all__ = ["COLUMNS", "write_findings"]

COLUMNS = (
    "id", "number", "source", "statement", "kind", "published", "unit", "published_hardware", "ours", "mcse",
    "our_hardware", "ratio", "verdict", "reason", "stored_result", "measured_at", "source_errors",
)  # fmt: skip
"""``ratio`` is ours over the published; ``stored_result`` is relative to the file itself."""


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write the table atomically."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(findings))
    write_text(path, text.getvalue())


def _rows(findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    for finding in findings:
        number, ours = finding.number, finding.ours
        yield {
            "id": number.claim.name, "number": number.name, "source": number.claim.source.title,
            "statement": number.claim.statement, "kind": number.kind, "published": number.published,
            "unit": number.unit, "published_hardware": number.hardware, "mcse": finding.mcse,
            "ratio": finding.ratio, "verdict": finding.verdict, "reason": finding.reason,
            "stored_result": ours and f"../{ours.file}", "source_errors": " ".join(number.claim.source_errors),
            "ours": ours and ours.value, "our_hardware": ours and ours.machine, "measured_at": ours and ours.written_at,
        }  # fmt: skip
