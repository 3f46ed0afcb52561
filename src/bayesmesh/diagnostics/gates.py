"""Evaluate gates: from the convergence table of the identified summaries to pass, warn or fail.

Every gate requires a finite value within its limit, so NaN never passes.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from bayesmesh.config.blocks import Gate, GateSettings
from bayesmesh.diagnostics.looks import worst_position
from bayesmesh.diagnostics.verdict import GateResult

Direction = Literal["at most", "at least"]


class _Wording(NamedTuple):
    """Name of a gate's statistic, the side of its limit, and what to do about a missed gate."""

    title: str
    direction: Direction
    hint: str


_GATES = {
    "r_hat": _Wording(
        "R-hat", "at most",
        "chains disagree: run a longer warmup or more draws, or look for modes and parameters that are not identified",
    ),
    "ess_bulk": _Wording("bulk effective sample size", "at least", "run more draws, or longer trajectories"),
    "ess_tail": _Wording(
        "tail effective sample size", "at least",
        "run more draws; tails are explored too slowly for the 5% and 95% quantiles",
    ),
    "mcse_mean": _Wording(
        "Monte Carlo standard error of the mean, in posterior standard deviations", "at most", "run more draws"
    ),
    "divergences": _Wording(
        "share of divergent draws", "at most", "raise the target acceptance rate, or reparametrise the model"
    ),
    "bfmi": _Wording(
        "Bayesian fraction of missing information", "at least",
        "energies are explored slowly: heavy tails; reparametrise the model, or run a longer warmup",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Measured:
    """All values of one gate.

    Attributes:
        values: shape (n,), float64.
        places: position of each value, shape (n,).
        reasons: possible reason for each value not to be finite, in words, shape (n,).
    """

    values: np.ndarray
    places: list[str]
    reasons: list[str]


def evaluate_gates(
    table: pd.DataFrame, divergence_share: float | None, bfmi: np.ndarray | None, gates: GateSettings
) -> list[GateResult]:
    """Compare a convergence table with the gates.

    Args:
        table: one row per coordinate, columns variable, index (text, empty for scalars), sd, mcse_mean, r_hat, ess_bulk,
            ess_tail.
        divergence_share: share of divergent draws, between 0 and 1; NaN if not recorded, None for a kernel that records
            none, which has no such gate.
        bfmi: Bayesian fraction of missing information of each chain, shape (chain,); NaN if unknown, None for a kernel
            without energies.
        gates: limits and severities.

    Returns:
        One result per gate; the verdict of a missed gate is its severity.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4 for R-hat below 1.01 and 400 effective draws;
        Betancourt 2016, arXiv:1604.00695, for the fraction of missing information.

    >>> row = {"variable": "level", "index": "", "sd": 1.0, "mcse_mean": 0.01, "r_hat": 1.2, "ess_bulk": 900.0}
    >>> gates = evaluate_gates(pd.DataFrame([row | {"ess_tail": 800.0}]), 0.0, np.array([0.9]), GateSettings())
    >>> gates[0].verdict, gates[0].where, gates[0].value
    ('fail', 'level', 1.2)
    """
    scale = table["sd"].to_numpy(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative_error = table["mcse_mean"].to_numpy(np.float64) / scale
    measured = {
        **{name: _of_table(table, table[name].to_numpy(np.float64)) for name in ("r_hat", "ess_bulk", "ess_tail")},
        "mcse_mean": _of_table(table, relative_error),
    }
    if divergence_share is not None:
        share = np.array([divergence_share], dtype=np.float64)
        measured["divergences"] = _Measured(share, [""], ["divergences were not recorded"])
    if bfmi is not None:
        chains = [f"chain {chain}" for chain in range(len(bfmi))]
        energies = "energies of the chain are constant, not finite or not recorded"
        measured["bfmi"] = _Measured(np.asarray(bfmi, dtype=np.float64), chains, [energies] * len(chains))
    return [_evaluate(name, getattr(gates, name), found) for name, found in measured.items()]


def _of_table(table: pd.DataFrame, values: np.ndarray) -> _Measured:
    names = zip(table["variable"].astype(str), table["index"].astype(str), strict=True)
    places = [f"{variable}[{index}]" if index else variable for variable, index in names]
    return _Measured(values, places, [_reason(sd) for sd in table["sd"].to_numpy(np.float64)])


def _reason(sd: float) -> str:
    if sd == 0:
        return "the coordinate is constant"
    if not np.isfinite(sd):
        return "a draw is not finite, or there is one draw only"
    return "too few draws or chains: at least four draws of two chains are needed"


def _evaluate(name: str, gate: Gate, measured: _Measured) -> GateResult:
    """Return the result of one gate: its worst value and the outcome."""
    values, direction = measured.values, _GATES[name].direction
    within = values <= gate.limit if direction == "at most" else values >= gate.limit
    # Infinity satisfies any "at least" limit, but is not evidence of convergence.
    holds = np.isfinite(values) & within
    worst = worst_position(values, is_upper=direction == "at most")
    value = float(values[worst]) if worst is not None else float("nan")
    is_met = worst is not None and bool(holds.all())
    return GateResult(
        name=name,
        limit=gate.limit,
        direction=direction,
        value=value if np.isfinite(value) else float("nan"),
        where=measured.places[worst] if worst is not None else "",
        severity=gate.severity,
        verdict="pass" if is_met else gate.severity,
        message=_message(name, gate.limit, measured, worst, int((~holds).sum())),
    )


def _message(name: str, limit: float, measured: _Measured, worst: int | None, num_missed: int) -> str:
    title, direction, hint = _GATES[name]
    if worst is None:
        return f"{title}: no value; a gate without a value is missed"
    value = float(measured.values[worst])
    place = f" of {measured.places[worst]}" if measured.places[worst] else ""
    share = f"; {num_missed} of {measured.values.size} values miss it" if measured.values.size > 1 else ""
    if np.isnan(value):
        return f"{title}{place} is not a number: {measured.reasons[worst]}{share}"
    if np.isinf(value):
        reason = "no chain moves, and their values differ" if name == "r_hat" else "draws overflow"
        return f"{title}{place} is infinite: {reason}{share}"
    said = f"{title}{place} is {value:.6g}, limit {direction} {limit:.6g}"
    return f"{said}{share}; {hint}" if num_missed else said
