"""Evaluate gates: from the convergence table of the identified summaries to pass, warn or fail.

Every gate requires a finite value within its limit, so NaN never passes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pandas as pd

from bayesmesh.config.blocks import Gate, GateSettings
from bayesmesh.diagnostics.convergence import LEVEL, within, worst_position
from bayesmesh.diagnostics.energy import Energies
from bayesmesh.diagnostics.gates.messages import WORDINGS, place_of
from bayesmesh.diagnostics.gates.populations import OF_ALL_CHAINS
from bayesmesh.diagnostics.verdict import GateResult

MOST_ISOLATED = 1e-3
"""Share of draws with a divergence up to which divergences count as isolated, so that the gate may warn instead of
fail. So few draws, whatever values they would have had, move no mean by a tenth of a standard deviation unless they lie
a hundred standard deviations away. They may still mark the edge of a region that chains do not enter; the warning says
so. Draws are counted even if each takes one trajectory for each of many units: a unit that always diverges has only a
small share of the trajectories, and is wrong."""

_IS_PRIOR = "log_likelihood is the same in all draws and is not assessed: the data say nothing about the latents, and the posterior is the prior"

MOST_DIVERGENT = 0.5
"""Share of divergent trajectories above which curvature is not the cause: warmup would have found smaller steps.
Funnels have up to 5%. If the density falls to 0 at an edge that the support of the latent does not have, nearly all
trajectories hit that edge."""

_HAS_EDGE = "most trajectories diverge: the density seems to end, or to become NaN, inside the support of a latent; give that latent a prior that ends there too, look for overflow and logarithms of negative numbers, or, if a predictor separates two outcomes, give its coefficient a narrower prior"

_ALLOWED = f"at most one draw in {1 / MOST_ISOLATED:,.0f}: too few to move a mean by themselves, but they may mark the edge of a region that chains do not enter"

_NOT_ALLOWED = "few, but in a funnel they mark the edge of a neck that chains do not enter"


def evaluate_gates(
    table: pd.DataFrame, energies: Energies, recorded: Collection[str], gates: GateSettings
) -> list[GateResult]:
    """Compare a convergence table with the gates.

    Args:
        table: one row per coordinate, columns variable, index (text, empty for scalars), label (the index written with
            names, or empty), sd, mcse_mean, r_hat, ess_bulk, ess_tail, and chance: for an R-hat above its limit, the
            probability of one at least as large if chains agree (`chance_of_r_hat`). Rows with a true `is_fixed` are left
            out.
        energies: energies and divergences.
        recorded: statistics that the kernel declares; there is no gate on divergences without ``diverging``, and none on
            energies without ``energy``.
        gates: limits and severities.

    Returns:
        One result per gate. The verdict of a missed gate is its severity, with two exceptions that only warn: R-hat if
        chance explains every value above the limit, and isolated divergences if the settings allow them; see also
        `withdraw_isolated`.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4 for R-hat below 1.01 and 400 effective draws;
        Betancourt 2016, arXiv:1604.00695, for the fraction of missing information.

    >>> row = {"variable": "level", "index": "", "label": "", "sd": 1.0, "mcse_mean": 0.01, "r_hat": 1.2, "ess_bulk": 900.0, "chance": 0.0}
    >>> gates = evaluate_gates(pd.DataFrame([row | {"ess_tail": 800.0}]), Energies(np.array([0.9]), 0.0, 0.0, 0), (), GateSettings())
    >>> gates[0].verdict, gates[0].where, gates[0].value
    ('fail', 'level', 1.2)
    """
    if "is_fixed" in table:
        table = table[~table["is_fixed"].to_numpy(bool)]
    assessed = _without_constant_likelihood(table)
    is_prior, table = len(assessed) < len(table), assessed
    sd = table["sd"].to_numpy(np.float64)
    reasons = [_reason(value) for value in sd]
    places = [*map(place_of, *(table[key].astype(str) for key in ("variable", "index", "label")))]
    statistics = {name: table[name].to_numpy(np.float64) for name in ("r_hat", "ess_bulk", "ess_tail", "mcse_mean")}
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics["mcse_mean"] = statistics["mcse_mean"] / sd
    measured = [(name, values, places, reasons) for name, values in statistics.items()]
    if "diverging" in recorded:
        measured.append(("divergences", np.array([energies.divergence_share]), [""], ["divergences were not recorded"]))
    if "energy" in recorded:
        chains = [f"chain {chain}" for chain in range(len(energies.bfmi))]
        problem = "energies of the chain are constant, not finite or not recorded"
        measured.append(("bfmi", energies.bfmi, chains, [problem] * len(chains)))
    results = [_evaluate(getattr(gates, found[0]), *found) for found in measured]
    if gates.divergences.isolated == "warn":
        results = [_allow_isolated(result, energies.share_of_draws) for result in results]
    results = [_noted(result, _HAS_EDGE, hint="") if has_edge(result) else result for result in results]
    is_explained = table["chance"].to_numpy(np.float64) >= LEVEL / max(1, len(table))
    r_hat = _allow_for_chance(results[0], statistics["r_hat"], is_explained, places)
    if is_prior:
        r_hat = _noted(r_hat, _IS_PRIOR)
    return [r_hat, *results[1:]]


def put_first(found: Iterable[GateResult | None], results: Iterable[GateResult]) -> list[GateResult]:
    """Return all results, starting with those of gates that exist only if missed.

    If chains stay in several modes, or drift, neither more draws nor a longer warmup makes R-hat smaller; the gates on
    all chains then refer to the gate that says so.
    """
    first = [gate for gate in found if gate is not None]
    cause = next((gate.name for gate in first if gate.beyond_draws), None)
    return first + [
        _defer(gate, cause, "this follows") if cause is not None and gate.name in OF_ALL_CHAINS else gate
        for gate in results
    ]


def _defer(result: GateResult, cause: str, words: str) -> GateResult:
    """Replace the remedy of a missed gate by the gate that found the cause."""
    note = f"{words} from the gate '{cause}', whose remedy comes first"
    changed = {"notes": (note,), "hint": "", "follows": cause}
    return result if result.verdict == "pass" else result.model_copy(update=changed)


def defer_to_rounding(results: Iterable[GateResult], cause: str) -> list[GateResult]:
    """Replace the remedies of missed gates by the gate `cause`, which found that chains sampled a rounded or another density.

    Such a density is rough: trajectories diverge, and chains stop at different points without there being any modes.
    """
    return [_defer(each, cause, "this may follow") for each in results]


def _noted(result: GateResult, note: str, **changed: object) -> GateResult:
    return result.model_copy(update={"notes": (*result.notes, note), **changed})


def _without_constant_likelihood(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the row of a constant log likelihood if the log density varies: the posterior is then the prior.

    The log likelihood is a sum that the sampler computes, not a coordinate that could be stuck; coordinates are
    assessed by their own rows.
    """
    constant = table["sd"] == 0
    said = constant & (table["variable"] == "log_likelihood") if constant.any() else constant
    moves = said.any() and (table["variable"] == "log_density") & ~constant
    return table[~said] if np.any(moves) else table


def _allow_isolated(result: GateResult, share_of_draws: float) -> GateResult:
    """Turn a missed gate on divergences into a warning if they are isolated; return other results unchanged."""
    is_missed = result.name == "divergences" and result.verdict != "pass"
    if not is_missed or not 0 <= share_of_draws <= MOST_ISOLATED:
        return result
    return _noted(result, _ALLOWED, verdict="warn")


def has_edge(result: GateResult) -> bool:
    """Return whether a result is the missed gate on divergences, with most trajectories divergent."""
    return result.name == "divergences" and result.value > MOST_DIVERGENT and result.verdict != "pass"


def withdraw_isolated(result: GateResult) -> GateResult:
    """Restore the severity of a gate on divergences that warns only because they are isolated; return others unchanged.

    In a funnel a few divergences are the only trace of a neck that chains do not enter.
    """
    if result.name != "divergences" or result.verdict != "warn" or result.severity == "warn":
        return result
    return result.model_copy(update={"verdict": result.severity, "notes": (_NOT_ALLOWED,)})


def withdraw_prior(result: GateResult) -> GateResult:
    """Drop the claim that the posterior is the prior: rounding, too, can make a log likelihood constant."""
    return result.model_copy(update={"notes": tuple(note for note in result.notes if note != _IS_PRIOR)})


def _allow_for_chance(
    result: GateResult, r_hat: np.ndarray, is_explained: np.ndarray, places: Sequence[str]
) -> GateResult:
    """Make the gate on R-hat a warning if chance explains all values above the limit; else add how many it does not."""
    is_missed = ~within(r_hat, result.limit, is_upper=True)
    beyond = np.flatnonzero(is_missed & ~is_explained)
    if not is_missed.any() or beyond.size == is_missed.sum():
        return result
    if beyond.size:
        worst = places[int(beyond[r_hat[beyond].argmax()])]
        return _noted(result, f"chance does not explain {beyond.size} of them; the worst is {worst}")
    times = (result.value - 1) / (result.limit - 1) if result.limit > 1 else math.inf
    rounded = f"{math.ceil(10 * times) / 10:.1f}" if times < 10 else f"{times:.0f}"
    more = f"about {rounded} times as many draws" if times < 100 else "many more draws"
    said = (
        f"chance explains it: with so few effective draws, chains that agree reach it too, and {more} would settle it"
    )
    return _noted(result, said, verdict="warn", hint="")


def _reason(sd: float) -> str:
    if sd == 0:
        return "the coordinate is constant"
    if not np.isfinite(sd):
        return "a draw is not finite, or there is only one draw"
    return "too few draws or chains: at least two chains of four draws are needed"


def _evaluate(gate: Gate, name: str, values: np.ndarray, places: Sequence[str], reasons: Sequence[str]) -> GateResult:
    """Return the result of one gate: its worst value and the outcome.

    Args:
        gate: its limit and severity.
        name: its name.
        values: shape (n,), float64.
        places: position of each value, n.
        reasons: the reason why each value may be non-finite, in words, n.
    """
    direction = WORDINGS[name].direction
    # Infinity satisfies any "at least" limit, but is not evidence of convergence.
    holds = within(values, gate.limit, is_upper=direction == "at most")
    worst = worst_position(values, is_upper=direction == "at most")
    value, place, hint = float("nan"), "", ""
    said = f"{WORDINGS[name].title}: no value; a gate without a value is missed"
    if worst is not None:
        value, place = float(values[worst]), places[worst]
        num = int((~holds).sum())
        missed = f"; {num} of {values.size} values miss{'es' * (num == 1)} it" if values.size > 1 and num else ""
        said = _statement(name, gate.limit, value, f" of {place}" if place else "", reasons[worst], missed)
        hint = WORDINGS[name].hint if np.isfinite(value) and not holds.all() else ""
    return GateResult(
        name=name,
        limit=gate.limit,
        direction=direction,
        value=value if np.isfinite(value) else float("nan"),
        where=place,
        severity=gate.severity,
        verdict="pass" if worst is not None and holds.all() else gate.severity,
        found=said,
        hint=hint,
    )


def _statement(name: str, limit: float, value: float, place: str, reason: str, missed: str) -> str:
    title, direction = WORDINGS[name].title, WORDINGS[name].direction
    if np.isnan(value):
        return f"{title}{place} is not a number: {reason}{missed}"
    if np.isinf(value):
        reason = "no chain moves, and their values differ" if name == "r_hat" else "draws overflow"
        return f"{title}{place} is infinite: {reason}{missed}"
    shown = "more than 100" if name == "r_hat" and value > 100 else f"{value:.6g}"
    return f"{title}{place} is {shown} (limit: {direction} {limit:.6g}){missed}"
