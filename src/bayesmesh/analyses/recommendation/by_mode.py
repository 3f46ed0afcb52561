"""Find a mode of the posterior of a factorisation: users given films and films given users, in turn.

Given one side, the other is a set of independent logistic regressions (see `fold_in`). The posterior of both sides has many
modes; the one found is reached from a stored draw in at most 25 sweeps.
"""

from __future__ import annotations

import logging

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import Films, films_of, find_modes
from bayesmesh.analyses.recommendation.baselines import Baseline

_log = logging.getLogger("bayesmesh")

MAX_SWEEPS = 25
STEPS_OF_SWEEP = 2
"""Newton steps on one side before the other side is updated."""

TOLERANCE = 1e-3
"""Largest root mean square change of the film latents in the last sweep, relative to their root mean square."""


def posterior_mode(draws: FactorDraws, watched: np.ndarray, prior_scale: float) -> Baseline:
    """Return the ranking by watch probabilities at a mode of the posterior.

    Args:
        draws: the mode is sought from the last one.
        watched: (users, films) bool, training matrix.
        prior_scale: standard deviation of the prior of all latents.
    """
    films = films_of(draws.film_embeddings[-1], draws.film_biases[-1])
    users = np.zeros((len(watched), films.design.shape[1]))
    by_film = np.ascontiguousarray(watched.T)
    change, sweep = np.inf, 0
    while change > TOLERANCE and sweep < MAX_SWEEPS:
        users = find_modes(films, watched, prior_scale, users, STEPS_OF_SWEEP if sweep else 20)
        start = np.column_stack([films.design[:, :-1], films.offset]).astype(float)
        sides = Films(_design(users), users[:, -1].astype(np.float32))
        found = find_modes(sides, by_film, prior_scale, start, STEPS_OF_SWEEP)
        films = films_of(found[:, :-1], found[:, -1])
        change, sweep = float(np.sqrt(((found - start) ** 2).mean() / (found**2).mean())), sweep + 1
    _log.info("posterior mode: %d sweeps, last relative change %.1e", sweep, change)

    def score(seen: np.ndarray) -> np.ndarray:
        start = np.zeros((len(seen), films.design.shape[1]))
        latents = find_modes(films, seen > 0, prior_scale, start)
        scores: np.ndarray = latents.astype(np.float32) @ films.design.T + films.offset
        return scores

    return Baseline(score, f"{sweep} sweeps, last relative change {change:.1e}")


def _design(latents: np.ndarray) -> np.ndarray:
    """Return embeddings and a column of ones: the design of the other side, whose own bias is its last latent."""
    design = latents.astype(np.float32)
    design[:, -1] = 1
    return design
