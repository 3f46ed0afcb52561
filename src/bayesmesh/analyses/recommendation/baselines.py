"""Fit baseline rankings to the training matrix: EASE and implicit ALS, each tuned on some films of training users.

Both represent a user by the user's known films, so they rank users of the matrix and new users alike.

References:
    Steck 2019, "Embarrassingly shallow autoencoders for sparse data", doi:10.1145/3308558.3313710 (EASE).
    Hu, Koren and Volinsky 2008, "Collaborative filtering for implicit feedback datasets", doi:10.1109/ICDM.2008.22 (ALS).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import Films, films_of, find_modes
from bayesmesh.analyses.recommendation.scores import list_first, score_lists
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import hold_out_interactions

_log = logging.getLogger("bayesmesh")

Score = Callable[[np.ndarray], np.ndarray]
"""From watched films, (users, films), to scores of all films, (users, films)."""

EASE_PENALTIES = (100.0, 250.0, 500.0, 1000.0)

ALS_SETTINGS = ((1.0, 10.0), (1.0, 30.0), (4.0, 30.0), (4.0, 60.0))
"""Additional weight of a watched cell, and penalty on the factors."""

ALS_FACTORS = 48
ALS_SWEEPS = 8

_SYSTEMS = 1024
"""Number of linear systems solved per call: about 20 MB with 48 factors, including the solver's copy."""

MAX_EASE_FILMS = 20_000
"""Largest number of films for EASE, which holds three films x films matrices in float64: 330 MB for 3,706 films, 9.6 GB
for this many."""

VALIDATION_USERS = 1000
VALIDATION_FRACTION = 0.2


class Baseline(NamedTuple):
    """A fitted ranking.

    Attributes:
        score: see `Score`.
        settings: the settings that best ranked hidden films of training users.
    """

    score: Score
    settings: str


def read_matrix(shards: Shards) -> scipy.sparse.csr_matrix:
    """Return the training matrix, (users, films) float32, as a sparse matrix."""
    return scipy.sparse.vstack(
        [scipy.sparse.csr_matrix(block["watched"] > 0, dtype=np.float32) for block in shards.blocks()], format="csr"
    )


def fit_baselines(watched: scipy.sparse.csr_matrix, cutoff: int, seed: int) -> dict[str, Baseline]:
    """Tune and fit all baselines.

    The chosen settings have the largest NDCG on a fifth of the films of up to 1,000 training users; these films are
    hidden for tuning and restored for the final fit.

    Args:
        watched: (users, films), training matrix.
        cutoff: of the NDCG.
        seed: of the hidden films and of the first factors of ALS.
    """
    generator = np.random.default_rng([seed, watched.shape[0]])
    users = np.sort(generator.permutation(watched.shape[0])[:VALIDATION_USERS])
    seen_by = watched[users].astype(bool).toarray()
    given, hidden = hold_out_interactions(seen_by, VALIDATION_FRACTION, seed)
    scored = np.flatnonzero(np.diff(hidden.indptr))
    fitted: dict[str, Baseline] = {}
    if not len(scored):
        return fitted
    is_hidden = (seen_by > given)[scored]
    stays = np.ones(watched.shape[0], bool)
    stays[users] = False
    known = scipy.sparse.vstack([watched[stays], scipy.sparse.csr_matrix(given)], format="csr")

    def ndcg(score: Score) -> float:
        seen = given[scored]
        films = list_first(score(seen), seen > 0, min(cutoff, seen.shape[1]))
        return float(score_lists(films, is_hidden, np.zeros(seen.shape[1])).ndcg.mean())

    if watched.shape[1] <= MAX_EASE_FILMS:
        gram = gram_matrix(known)
        best = max(EASE_PENALTIES, key=lambda penalty: ndcg(ease(gram, penalty)))
        fitted["ease"] = Baseline(ease(gram_matrix(watched), best), f"penalty {best:g}")
    else:
        _log.warning("EASE is left out: %d films, at most %d", watched.shape[1], MAX_EASE_FILMS)
    weight, penalty = max(ALS_SETTINGS, key=lambda setting: ndcg(als(known, setting[0], setting[1], seed)))
    said = f"weight {weight:g}, penalty {penalty:g}, {ALS_FACTORS} factors"
    fitted["als"] = Baseline(als(watched, weight, penalty, seed), said)
    return fitted


def gram_matrix(watched: scipy.sparse.csr_matrix, block_rows: int = 4096) -> np.ndarray:
    """Return how many users watched both of two films, (films, films) float64."""
    total = np.zeros((watched.shape[1],) * 2)
    for start in range(0, watched.shape[0], block_rows):
        block = watched[start : start + block_rows].toarray()
        total += block.T @ block
    return total


def ease(gram: np.ndarray, penalty: float) -> Score:
    """Return EASE: a linear regression of each film on all others, with one penalty.

    Args:
        gram: see `gram_matrix`.
        penalty: added to its diagonal.
    """
    regular = gram.copy()
    regular[np.diag_indices_from(regular)] += penalty
    factor = scipy.linalg.cholesky(regular, lower=True, overwrite_a=True, check_finite=False)
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    weights = (np.tril(inverse) + np.tril(inverse, -1).T).astype(np.float32)
    weights /= -np.diag(weights).copy()
    np.fill_diagonal(weights, 0)

    def score(watched: np.ndarray) -> np.ndarray:
        scores: np.ndarray = watched.astype(np.float32) @ weights
        return scores

    return score


def als(watched: scipy.sparse.csr_matrix, weight: float, penalty: float, seed: int) -> Score:
    """Return implicit ALS: weighted least squares of factors, with weight 1 for cells that are not watched.

    Args:
        watched: (users, films).
        weight: of a watched cell, beyond 1.
        penalty: on the squared factors.
        seed: of the first factors.
    """
    by_film = watched.T.tocsr()
    films = np.random.default_rng(seed).normal(0, 0.1, (watched.shape[1], ALS_FACTORS)).astype(np.float32)
    for _ in range(ALS_SWEEPS):
        users = solve_factors(watched, films, weight, penalty)
        films = solve_factors(by_film, users, weight, penalty)

    def score(seen: np.ndarray) -> np.ndarray:
        scores: np.ndarray = solve_factors(scipy.sparse.csr_matrix(seen), films, weight, penalty) @ films.T
        return scores

    return score


def solve_factors(watched: scipy.sparse.csr_matrix, others: np.ndarray, weight: float, penalty: float) -> np.ndarray:
    """Return the factors of every row given those of the columns, (rows, factors) float32: one linear system each."""
    (_, size), num_rows = others.shape, watched.shape[0]
    shared = others.T @ others + penalty * np.eye(size, dtype=np.float32)
    found = np.empty((num_rows, size), np.float32)
    for first in range(0, num_rows, _SYSTEMS):
        last = min(first + _SYSTEMS, num_rows)
        systems, sums = np.empty((last - first, size, size), np.float32), np.empty((last - first, size, 1), np.float32)
        for place, (start, stop) in enumerate(itertools.pairwise(watched.indptr[first : last + 1].tolist())):
            mine = others[watched.indices[start:stop]]
            np.matmul(mine.T, mine, out=systems[place])
            np.sum(mine, axis=0, out=sums[place, :, 0])
        systems *= weight
        systems += shared
        found[first:last] = np.linalg.solve(systems, (1 + weight) * sums)[..., 0]
    return found


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
