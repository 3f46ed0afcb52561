"""Name the latent behind a funnel, on which the scale of others depends, if a posterior misses its gates.

In a nearly normal posterior, no single latent predicts the log density. In a funnel one does: where a scale is small,
the density of everything that it scales is high (Betancourt and Girolami 2015, "Hamiltonian Monte Carlo for
hierarchical models").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Shaped

from bayesmesh.diagnostics.gates.drift import drift_gate
from bayesmesh.diagnostics.gates.evaluation import has_edge, put_first, withdraw_isolated
from bayesmesh.diagnostics.gates.messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult, Outcome, overall

LEAST = 0.6
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
    from scipy.stats import rankdata  # a seventh of the import time, only for posteriors that miss a gate

    moves = lp.min(axis=1) < lp.max(axis=1)
    if not moves.any():
        return np.full(draws.shape[2], np.nan)
    ranks, of_draws = rankdata(lp[moves], axis=1), rankdata(draws[moves], axis=1)
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
    if len(names) < FEWEST_COORDINATES or np.abs(correlations).max() < LEAST:
        return None
    at = int(np.abs(correlations).argmax())
    falls = "falls" if correlations[at] < 0 else "rises"
    return GateResult(
        name="funnel", limit=LEAST, direction="at most", value=float(abs(correlations[at])), where=names[at],
        severity="fail" if outcome == "fail" else "warn", verdict=outcome,
        found=(
            f"a funnel: the log density {falls} with {names[at]} (rank correlation {correlations[at]:.2f} within chains),"
            " on which the scale of other latents seems to depend"
        ),
        hint=WORDINGS["funnel"].hint,
    )  # fmt: skip


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
