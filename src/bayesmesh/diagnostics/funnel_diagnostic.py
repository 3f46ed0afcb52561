"""Name a funnel where a posterior misses its gates: a latent on which the scale of others depends.

Of a posterior that is not far from normal no single latent says how high the log density is. In a funnel one does: where
a scale is small, the density of all that it scales is high (Betancourt and Girolami 2015, "Hamiltonian Monte Carlo for
hierarchical models").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Shaped

from bayesmesh.diagnostics.drift_gate import drift_gate
from bayesmesh.diagnostics.gate_messages import WORDINGS
from bayesmesh.diagnostics.gates import has_edge, put_first, withdraw_isolated
from bayesmesh.diagnostics.verdict import GateResult, Outcome, overall

LEAST = 0.6
"""Rank correlation within chains from which a latent counts: it is 0.9 in funnels, and below 0.4 in posteriors that
are sampled with ease."""

MOST_LATENTS = 200
"""Coordinates of a latent that are looked at, evenly spaced; scales on which others depend are seldom many."""

FEWEST_COORDINATES = 3
"""With fewer, the log density depends on each of them anyway."""


def rank_correlations(
    lp: Float[np.ndarray, "chain draw"], draws: Shaped[np.ndarray, "chain draw coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """Return the median, over chains that move, of the rank correlation with the log density; NaN for a constant coordinate.

    Args:
        lp: log density of every draw, nats.
        draws: of any real dtype.

    >>> rank_correlations(np.array([[1.0, 2.0, 3.0]]), np.array([[[9.0], [4.0], [1.0]]])).tolist()
    [-1.0]
    """
    from scipy.stats import rankdata  # a seventh of all imports, for posteriors that miss a gate

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
    """Return a missed gate that names the latent which the log density follows most; None if it follows none.

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
    """Return the results of all gates, with a first one that names a funnel if one is missed and there is a funnel.

    Divergences that are isolated do not excuse the draws of a funnel. Where most trajectories diverge, they have another cause.

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
    """Return the results of all gates, with those that exist only where something is wrong.

    Args:
        results: of the gates that every run has.
        found: gates on draws that are not finite, on chains that do not move, and on modes. Where the first or the last is
            missed, correlations with the log density do not reflect the geometry, and the search for a funnel is skipped.
            Chains that drift are looked for unless draws are not finite, or chains stay in several modes.
        ancestors: a gate that says nothing about the geometry, and so does not start these searches.
        lp: log density of every draw, nats.
        read_blocks: starts to read the names and draws of latents.
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
