"""Assess the chains of a kernel whose chain groups are populations, such as tempered sequential Monte Carlo.

Chains of a population share ancestors and may stay in different modes; their shares then estimate the masses of the modes.
Chains that disagree are therefore no fault. What must agree are independent populations, the chain groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Real

from bayesmesh.diagnostics.convergence import part_table, within
from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.verdict import GateResult

FEWEST = 4
"""Number of populations to ask for: with fewer, the variance between them is hardly known."""

OF_ALL_CHAINS = ("r_hat", "ess_bulk", "ess_tail", "mcse_mean")
"""Gates that are missed if chains of any length disagree, whatever the cause."""


def as_populations[Draws: np.ndarray](draws: Draws, num_populations: int) -> Draws:
    """Return draws (chain, draw, ...) as one long series for each population, chain after chain.

    Chains with a common ancestor are neighbours, because resampling keeps the order of chains. The autocorrelation of the
    series therefore reflects ancestors as well as slow chains.
    """
    return draws.reshape(num_populations, len(draws) // num_populations * draws.shape[1], *draws.shape[2:])  # type: ignore[return-value]  # the same type


def compare_populations(
    table: dict[str, Float[np.ndarray, " n"]],
    draws: Real[np.ndarray, "chain draw n"],
    num_populations: int,
    limit: float,
) -> None:
    """Replace the statistics of coordinates on which chains disagree by those between populations, in place.

    Args:
        table: of `convergence_table`.
        draws: of the coordinates.
        num_populations: number of independent populations of equally many chains. With one, R-hat is NaN.
        limit: R-hat above which chains disagree.
    """
    apart = np.flatnonzero(~within(table["r_hat"], limit, is_upper=True) & (table["sd"] > 0))
    if apart.size:
        for name, values in part_table(as_populations(draws[:, :, apart], num_populations)).items():
            table[name][apart] = values


def judge_populations(
    results: Sequence[GateResult], table: pd.DataFrame, num_populations: int, num_chains: int
) -> tuple[GateResult | None, list[GateResult]]:
    """Return a gate on the populations if they disagree or there is only one, and the results of the other gates.

    If populations agree, few effective draws only warn: the masses of modes are known roughly. Between the chains of a single
    population, R-hat does not exist, and its gate is left out.

    Args:
        results: of the gates that every run has.
        table: convergence of the summaries, after `compare_populations`.
        num_populations: number of independent populations.
        num_chains: number of all chains.
    """
    of_chains = [each for each in results if each.name in OF_ALL_CHAINS and each.verdict != "pass"]
    r_hat = next(each for each in results if each.name == "r_hat")
    # Fixed entries have no effective sample size.
    is_stuck = (table["sd"] == 0) & table["ess_bulk"].notna() & (table["variable"] != "log_likelihood")
    if not of_chains or is_stuck.any():
        return None, [*results]
    if num_populations > 1 and r_hat.verdict == "fail":
        found = f"{num_populations} independent populations disagree: {r_hat.found}"
        of_populations = missed_gate(
            "populations", "fail", r_hat.value, r_hat.limit, r_hat.where, found, beyond_draws=True
        )
        return of_populations, [*results]
    milder = [each.model_copy(update={"verdict": "warn"}) if each in of_chains else each for each in results]
    if num_populations > 1:
        return None, milder
    if np.isfinite(r_hat.value):
        return None, [*results]
    found = (
        f"the {num_chains} chains are one population and stay in different places, as in different modes ({r_hat.where}); one"
        " population cannot show how far its shares of modes are from those of the posterior"
    )
    groups = f"chain_groups: {FEWEST}, chains: {FEWEST * num_chains}"
    hint = f"compare independent populations: `sampling: {{mode: independent, {groups}}}`"
    of_populations = missed_gate(
        "populations", "warn", r_hat.value, r_hat.limit, r_hat.where, found, hint=hint, beyond_draws=True
    )
    return of_populations, [each for each in milder if each.name != r_hat.name]
