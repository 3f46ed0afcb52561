"""status: verdicts of all experiments, as a table on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmesh.experiment.plan import Plan
from bayesmesh.store.files import read_json

__all__ = ["status_table"]


def status_table(plan: Plan) -> str:
    """Return one line per experiment that has begun or is listed, and the path of the report."""
    header = ("experiment", "verdict", "chains", "draws", "worst R-hat", "least bulk ESS", "divergences")
    rows: list[tuple[str, ...]] = [header]
    for name in plan.experiments:
        layout = plan.layout(name)
        if layout.verdict.exists():
            rows.append(_row(name, read_json(layout.verdict)))
        elif name in plan.run.experiments or layout.folder.exists():
            rows.append((name, "not finished", "", "", "", "", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    index = Path(plan.results) / "index.html"
    return "\n".join([*lines, "", f"report: {index.resolve()}" if index.exists() else "report: not written yet"])


def _row(name: str, verdict: dict[str, Any]) -> tuple[str, ...]:
    gates = {g["name"]: g["value"] for g in verdict["gates"]}

    def shown(gate: str, digits: str) -> str:
        value = gates.get(gate)
        return "-" if value is None else format(value, digits)

    return (
        name, verdict["verdict"], str(verdict["num_chains"]), str(verdict["num_draws"]),
        shown("r_hat", ".4f"), shown("ess_bulk", ".0f"), str(verdict["num_divergences"]),
    )  # fmt: skip
