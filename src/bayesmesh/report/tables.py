"""Reads the tables of diagnostics and averaging into small records."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.figures.documents import read_csv, read_json

__all__ = [
    "AveragingScore",
    "Coordinate",
    "Gate",
    "Verdict",
    "mark_summaries",
    "read_averaging",
    "read_summary",
    "read_verdict",
    "worst_first",
]

VERDICTS = ("pass", "warn", "fail")


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """A line of ``summary.csv``: one coordinate of one variable.

    `index` is the position after chain and draw, empty for a scalar; `is_summary` says that gates look at it.
    """

    variable: str
    index: tuple[int, ...]
    mean: float
    sd: float
    mcse_mean: float
    r_hat: float
    ess_bulk: float
    ess_tail: float
    is_summary: bool = True

    @property
    def label(self) -> str:
        """Name as in the code of the model, ``logits[3,4]``."""
        return self.variable + (f"[{','.join(map(str, self.index))}]" if self.index else "")


@dataclasses.dataclass(frozen=True)
class Gate:
    """One gate of ``verdict.json``; `value` is NaN where it is not a number, which never passes."""

    name: str
    limit: float
    value: float
    direction: str
    where: str
    severity: str
    verdict: str
    message: str

    @property
    def is_upper(self) -> bool:
        """Whether the limit bounds the value from above."""
        return self.direction.lower().replace("_", " ") in {
            "max",
            "maximum",
            "upper",
            "at most",
            "<=",
            "≤",
            "below",
            "less",
        }


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``verdict.json``; what is not in the file is None or empty."""

    verdict: str
    gates: tuple[Gate, ...]
    num_chains: int | None
    num_draws: int | None
    num_summaries: int | None
    num_divergences: int | None
    acceptance: float | None
    bfmi: tuple[float, ...]

    @property
    def missed(self) -> tuple[Gate, ...]:
        """Gates that do not hold, the failing before the warning ones."""
        return tuple(sorted((g for g in self.gates if g.verdict != "pass"), key=lambda g: g.verdict != "fail"))

    def gate(self, name: str) -> Gate | None:
        """Return a gate by name."""
        return next((g for g in self.gates if g.name == name), None)


@dataclasses.dataclass(frozen=True)
class AveragingScore:
    """A line of ``averaging/scores.csv``: scores of single draws and of the average of the first `num_draws`."""

    num_draws: int
    single: dict[str, float]
    average: dict[str, float]
    single_accuracy_sd: float


def read_summary(path: Path) -> list[Coordinate]:
    """Return the coordinates of ``summary.csv`` in their order.

    Raises:
        StoreError: the file is missing or damaged.
    """
    rows = read_csv(path, ("variable", "index", "mean", "sd", "mcse_mean", "r_hat", "ess_bulk", "ess_tail"))
    return [
        Coordinate(
            variable=row.text("variable"),
            index=_index(row.text("index")),
            mean=row.number("mean"),
            sd=row.number("sd"),
            mcse_mean=row.number("mcse_mean"),
            r_hat=row.number("r_hat"),
            ess_bulk=row.number("ess_bulk"),
            ess_tail=row.number("ess_tail"),
        )
        for row in rows
    ]


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def mark_summaries(
    coordinates: Sequence[Coordinate], num_summaries: int | None, names: Collection[str]
) -> list[Coordinate]:
    """Tell identified summaries, which come first, from latents.

    Args:
        coordinates: of ``summary.csv``, in its order.
        num_summaries: how many lines are summaries, where the verdict says so.
        names: names of summaries, for where it does not: a summary and a latent may share a name (`biases`), and
            the first line of a coordinate is the summary's. Without names every line counts as a summary.
    """
    if num_summaries is not None:
        return [dataclasses.replace(item, is_summary=n < num_summaries) for n, item in enumerate(coordinates)]
    seen: set[str] = set()
    marked = []
    for item in coordinates:
        is_summary = not names or (item.variable in names and item.label not in seen)
        marked.append(dataclasses.replace(item, is_summary=is_summary))
        seen.add(item.label)
    return marked


def worst_first(coordinates: Sequence[Coordinate]) -> list[Coordinate]:
    """Sort by R-hat from the largest, what is not a number first; ties by bulk ESS from the smallest."""

    def key(item: Coordinate) -> tuple[bool, float, float]:
        is_number = not math.isnan(item.r_hat)
        return is_number, -item.r_hat if is_number else 0.0, math.inf if math.isnan(item.ess_bulk) else item.ess_bulk

    return sorted(coordinates, key=key)


def read_verdict(path: Path) -> Verdict:
    """Return ``verdict.json``.

    Raises:
        StoreError: the file is missing, or not a verdict.
    """
    found = read_json(path)
    gates = found.get("gates")
    if found.get("verdict") not in VERDICTS or not isinstance(gates, list):
        raise StoreError(f"{path}: no verdict (pass, warn or fail) with gates", "run the diagnose stage again")
    bfmi, listed = found.get("bfmi"), found.get("num_coordinates")
    return Verdict(
        verdict=found["verdict"],
        gates=tuple(_gate(path, gate) for gate in gates),
        num_chains=found.get("num_chains"),
        num_draws=found.get("num_draws"),
        num_summaries=listed.get("summaries") if isinstance(listed, dict) else None,
        num_divergences=found.get("num_divergences", found.get("divergences")),
        acceptance=found.get("acceptance_rate", found.get("acceptance")),
        bfmi=tuple(_float(value) for value in bfmi) if isinstance(bfmi, list) else (),
    )


def _gate(path: Path, gate: Any) -> Gate:
    if not isinstance(gate, dict) or gate.get("verdict") not in VERDICTS or "name" not in gate:
        raise StoreError(f"{path}: a gate without name or verdict (pass, warn or fail)", "run the diagnose stage again")
    return Gate(
        name=str(gate["name"]),
        limit=_float(gate.get("limit")),
        value=_float(gate.get("value")),
        direction=str(gate.get("direction", "")),
        where=_where(gate.get("where")),
        severity=str(gate.get("severity", "fail")),
        verdict=gate["verdict"],
        message=str(gate.get("message") or ""),
    )


def _float(value: Any) -> float:
    """Return a JSON number; null and words are not numbers, and count as such."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def _where(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def read_averaging(path: Path) -> list[AveragingScore]:
    """Return the lines of ``averaging/scores.csv`` by number of draws.

    Raises:
        StoreError: the file is damaged.
    """
    names = ("accuracy", "log_score", "brier", "ece")
    rows = read_csv(path, ("num_draws", "single_accuracy", "average_accuracy"))
    scores = [
        AveragingScore(
            num_draws=row.count("num_draws"),
            single={name: row.number(f"single_{name}") for name in names},
            average={name: row.number(f"average_{name}") for name in names},
            single_accuracy_sd=row.number("single_accuracy_sd"),
        )
        for row in rows
    ]
    return sorted(scores, key=lambda score: score.num_draws)
