"""Name the latent that is the likely cause of other missed gates: one that nothing bounds, or one behind a funnel.

Flat priors on terms that offset each other, or on a coefficient that separates the outcomes, leave a density without a
finite integral: chains drift far along a latent at the same log density, and no number of draws helps (Gelman et al.
2013, "Bayesian Data Analysis", section 4.3).

In a nearly normal posterior, no single latent predicts the log density. In a funnel one does: where a scale is small,
the density of everything that it scales is high (Betancourt and Girolami 2015, "Hamiltonian Monte Carlo for
hierarchical models").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Real, Shaped

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.gates.evaluation import has_edge, put_first, withdraw_isolated
from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.ranks import average_ranks
from bayesmesh.diagnostics.verdict import GateResult, Outcome, overall

LEAST_SPREAD = 1e3
"""Standard deviation above which a latent is examined: chains start within 2 of 0, or where prior and data suggest."""

MOST_EFFECTIVE = 3.0
"""Bulk effective sample size per chain below which chains do not return to where they were; random walks have 1.1 to
1.7."""

LEAST_FALL = 0.5
"""Smallest fall of the mean log density, in nats, from the third of draws nearest the median to the farthest third, for
a latent to count as bounded. It is 1.2 for a normal distribution, whatever the number of other latents, and more with
heavier tails."""


def fall_of_density(lp: Float[np.ndarray, "chain draw"], draws: Real[np.ndarray, "chain draw"]) -> float:
    """Return the mean log density of the third of draws nearest the median minus that of the farthest third, in nats.

    >>> fall_of_density(-0.5 * np.array([[0.0, 1.0, 4.0, 9.0, 4.0, 9.0]]), np.array([[0.0, 1.0, 2.0, 3.0, -2.0, -3.0]]))
    3.0
    """
    distance = np.abs(draws - np.median(draws)).ravel()
    order, third = np.argsort(distance, kind="stable"), max(1, distance.size // 3)
    sorted_lp = lp.astype(np.float64).ravel()[order]
    return float(sorted_lp[:third].mean() - sorted_lp[-third:].mean())


def drift_gate(
    lp: Float[np.ndarray, "chain draw"],
    blocks: Iterable[tuple[list[str], Real[np.ndarray, "chain draw _"]]],
    outcome: Outcome,
) -> GateResult | None:
    """Return a missed gate that names the latent along which chains drift farthest; None if there is none.

    Args:
        lp: log density of every draw, nats.
        blocks: names and draws of latents.
        outcome: of the other gates.
    """
    found: dict[str, float] = {}
    for names, draws in blocks:
        values = draws.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = values.std(axis=(0, 1))
        far = np.flatnonzero((spread > LEAST_SPREAD) & np.isfinite(spread))
        effective = convergence_table(values[:, :, far])["ess_bulk"] / len(lp)
        for at, size in zip(far, effective, strict=True):
            if size < MOST_EFFECTIVE and fall_of_density(lp, values[:, :, at]) < LEAST_FALL:
                found[names[at]] = float(spread[at])
    if not found:
        return None
    worst = max(found, key=lambda name: found[name])
    others = f"; also along {len(found) - 1} more" if len(found) > 1 else ""
    said = (
        f"nothing bounds {worst}: chains drift along it (standard deviation {found[worst]:.3g}{others}), and the log density"
        " stays the same. The posterior may be improper, and more draws do not help"
    )
    return missed_gate("drift", outcome, found[worst], LEAST_SPREAD, worst, said, beyond_draws=True)


LEAST_CORRELATION = 0.6
"""Smallest rank correlation within chains for a latent to count: it is 0.9 in funnels, and below 0.4 in posteriors that
are easy to sample."""

MOST_LATENTS = 200
"""Largest number of coordinates of a latent to examine, evenly spaced; scales on which others depend are seldom
many."""

FEWEST_COORDINATES = 3
"""Fewest coordinates to examine; with fewer, the log density depends on each of them anyway."""


def rank_correlations(
    lp: Float[np.ndarray, "chain draw"], draws: Shaped[np.ndarray, "chain draw coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """Return rank correlations with the log density, the median over chains that move; NaN for a constant coordinate.

    Args:
        lp: log density of every draw, nats.
        draws: of any real dtype.

    >>> rank_correlations(np.array([[1.0, 2.0, 3.0]]), np.array([[[9.0], [4.0], [1.0]]])).tolist()
    [-1.0]
    """
    moves = lp.min(axis=1) < lp.max(axis=1)
    if not moves.any():
        return np.full(draws.shape[2], np.nan)
    ranks, of_draws = (np.apply_along_axis(average_ranks, 1, each) for each in (lp[moves], draws[moves]))
    ranks = ranks - ranks.mean(axis=1, keepdims=True)
    of_draws = of_draws - of_draws.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt((ranks**2).sum(axis=1)[:, None] * (of_draws**2).sum(axis=1))
        return np.median(np.einsum("cd,cdk->ck", ranks, of_draws) / scale, axis=0)


def funnel_gate(
    lp: Float[np.ndarray, "chain draw"],
    blocks: Iterable[tuple[list[str], Shaped[np.ndarray, "chain draw _"]]],
    outcome: Outcome,
) -> GateResult | None:
    """Return a missed gate that names the latent most correlated with the log density; None without a strong one.

    Args:
        lp: log density of every draw, nats.
        blocks: names and draws of latents.
        outcome: of the other gates.
    """
    names, found = [], []
    for names_here, draws in blocks:
        names += names_here
        found.append(rank_correlations(lp, draws))
    correlations = np.nan_to_num(np.concatenate([*found, np.zeros(0)]))
    if len(names) < FEWEST_COORDINATES or np.abs(correlations).max() < LEAST_CORRELATION:
        return None
    at = int(np.abs(correlations).argmax())
    falls = "falls" if correlations[at] < 0 else "rises"
    said = (
        f"a funnel: the log density {falls} with {names[at]} (rank correlation {correlations[at]:.2f} within chains),"
        " on which the scale of other latents seems to depend"
    )
    return missed_gate("funnel", outcome, float(abs(correlations[at])), LEAST_CORRELATION, names[at], said)


def judge_funnel(
    results: list[GateResult],
    lp: Float[np.ndarray, "chain draw"],
    blocks: Iterable[tuple[list[str], Shaped[np.ndarray, "chain draw _"]]],
) -> list[GateResult]:
    """Return the results of all gates, preceded by one that names a funnel if a gate is missed and a funnel is found.

    Isolated divergences do not excuse the draws of a funnel. If most trajectories diverge, the cause is not a funnel,
    and none is sought.

    Args:
        results: of the other gates.
        lp, blocks: see `funnel_gate`.
    """
    if overall(results) == "pass" or any(map(has_edge, results)):
        return results
    strict = [withdraw_isolated(result) for result in results]
    gate = funnel_gate(lp, blocks, overall(strict))
    return results if gate is None else [gate, *strict]


def complete_gates(
    results: list[GateResult],
    found: Sequence[GateResult | None],
    ancestors: GateResult | None,
    lp: Float[np.ndarray, "chain draw"] | None,
    read_blocks: Callable[[], Iterable[tuple[list[str], Shaped[np.ndarray, "chain draw _"]]]],
) -> list[GateResult]:
    """Return the results of all gates, including those that exist only if missed.

    Args:
        results: of the gates that every run has.
        found: gates on non-finite draws, on chains that do not move, and on modes. If the first or the last is missed,
            correlations with the log density do not reflect the geometry, and the search for a funnel is skipped. The
            search for drifting chains is skipped if draws are non-finite or chains stay in several modes.
        ancestors: a gate that says nothing about the geometry, and therefore does not trigger these searches.
        lp: log density of every draw, nats.
        read_blocks: returns an iterator over names and draws of latents.
    """
    drift = None
    if (
        lp is not None
        and found[0] is None
        and overall(results) != "pass"
        and not any(g and g.beyond_draws for g in found)
    ):
        drift = drift_gate(lp, read_blocks(), overall(results))
    results = put_first((drift, *found), results)
    if lp is not None and drift is None and found[0] is None and found[-1] is None:
        results = judge_funnel(results, lp, read_blocks())
    return results if ancestors is None else [*results, ancestors]
