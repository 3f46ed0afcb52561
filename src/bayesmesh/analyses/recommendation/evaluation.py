"""Rank films for a few users with their uncertainty, and score all users on held-out films."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

import jax
import numpy as np
import pandas as pd

from bayesmesh.analyses.base import BoundModel, check_chosen
from bayesmesh.analyses.fold_in.draws import FILM_LATENTS, USER_LATENTS, read_factors
from bayesmesh.analyses.options import RecommendationOptions as Options
from bayesmesh.analyses.recommendation import tables
from bayesmesh.analyses.recommendation.baselines import Baseline, fit_baselines, posterior_mode, read_matrix
from bayesmesh.analyses.recommendation.calibration import Calibration, calibrate
from bayesmesh.analyses.recommendation.held_out import hidden_matrix, score_held_out, score_unseen
from bayesmesh.analyses.recommendation.ranking import KEY, check_inputs, rank_films
from bayesmesh.analyses.recommendation.scores import Ranked
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.files import write_text
from bayesmesh.models.base import Model
from bayesmesh.store.posterior.reader import Posterior

UNSEEN_READ_BYTES = 2**30
"""Limit on the chunks that are decoded for unseen users, in bytes."""

MAX_MODE_CELLS = 2**28
"""Largest training matrix, in cells, for which a mode of the posterior is sought; it is then held twice, at a byte per
cell."""

_log = logging.getLogger("bayesmesh")

SEED = 0
"""Seed of folds, simulated counts and bootstrap samples."""


def count_watched(shards: Shards) -> tuple[np.ndarray, np.ndarray]:
    """Return how many films each user watched, (users,) int64, and the users of each film, (films,) int64.

    A user's count includes held-out films, which were watched. A film's count covers only the training matrix.
    """
    per_user, per_film = [], np.zeros(shards.fields["watched"].shape[0], np.int64)
    for block in shards.blocks():
        watched = block["watched"] > 0
        per_user.append(watched.sum(axis=1, dtype=np.int64))
        per_film += watched.sum(axis=0, dtype=np.int64)
    held_out = shards.held_out()
    hidden = np.diff(held_out.indptr) if isinstance(held_out, Interactions) else 0
    return np.concatenate(per_user) + hidden, per_film


def choose_users(
    num_watched: np.ndarray, chosen: tuple[int, ...], user_ids: Sequence[object]
) -> list[tables.RankedUser]:
    """Return the most active, the least active and the chosen users, each user once.

    Args:
        num_watched: (users,), films watched, held-out ones included; ties go to the lowest row.
        chosen: rows from the settings.
        user_ids: names of the users in the dataset; row numbers if empty.

    Raises:
        ConfigError: a chosen row is not in the data.

    >>> users = choose_users(np.array([2, 5, 1, 5]), (3, 1), [])
    >>> [(user.row, user.activity) for user in users]
    [(1, 'most'), (2, 'least'), (3, 'chosen')]
    """
    check_chosen(f"{KEY}.users", "user", chosen, len(num_watched))
    extremes = [(int(num_watched.argmax()), "most"), (int(num_watched.argmin()), "least")]
    activity: dict[int, str] = {}
    for row, kind in [*extremes, *((user, "chosen") for user in chosen)]:
        activity.setdefault(row, kind)
    return [
        tables.RankedUser(row, user_ids[row] if user_ids else row, kind, place)
        for place, (row, kind) in enumerate(activity.items())
    ]


class Scored(NamedTuple):
    """Held-out scores of all users.

    Attributes:
        rankings: name -> scores; empty when nothing was held out.
        num_known: (users,), number of films of each scored user that are known to the rankings.
        calibration: of the watch probabilities of unseen users, or None.
        acceptance: (users,), of the sampler of unseen users; empty without them.
        num_draws: number of draws of the films, for unseen users.
    """

    rankings: Mapping[str, Ranked] = MappingProxyType({})
    num_known: np.ndarray = np.empty(0, np.int64)
    calibration: Calibration | None = None
    acceptance: np.ndarray = np.empty(0)
    num_draws: int = 0


def score_users(
    bound: BoundModel, posterior: Posterior, num_watched: np.ndarray, popularity: np.ndarray, settings: Options
) -> Scored:
    """Score rankings of held-out films, for users in the chains or for users whom they have not seen."""
    model, spec, shards = bound
    unseen, held_out = shards.unseen(), shards.held_out()
    if unseen is None:
        if not isinstance(held_out, Interactions):
            return Scored()
        baselines = fit_rankings(model, posterior, shards, settings)
        rankings = score_held_out(model, posterior, shards, popularity, spec.dtype, settings.cutoff, baselines)
        num_hidden = np.diff(held_out.indptr)
        return Scored(rankings, (num_watched - num_hidden)[num_hidden > 0]) if rankings else Scored()
    baselines = fit_rankings(model, posterior, shards, settings)
    draws = read_factors(posterior, None, settings.draws, read_bytes=UNSEEN_READ_BYTES)
    scale = _prior_scale(model)
    found = score_unseen(draws, unseen, scale, popularity, shards.num_rows, settings.cutoff, baselines)
    hidden = hidden_matrix(unseen.hidden, np.arange(len(unseen.rows)), len(popularity))
    calibration = calibrate(draws, (unseen.given > 0) | hidden, scale, SEED, true_logits(shards))
    num_given = unseen.given[hidden.any(axis=1)].sum(axis=1, dtype=np.int64)
    return Scored(found.rankings, num_given, calibration, found.acceptance, draws.num_draws)


def fit_rankings(model: Model, posterior: Posterior, shards: Shards, settings: Options) -> dict[str, Baseline]:
    """Fit the baseline rankings, with a posterior mode if the model folds in users and the matrix is small enough."""
    if not settings.baselines:
        return {}
    watched = read_matrix(shards)
    baselines = fit_baselines(watched, settings.cutoff, SEED)
    if model.folds_in and math.prod(watched.shape) <= MAX_MODE_CELLS:
        draws = read_factors(posterior, None, 1)
        baselines["posterior_mode"] = posterior_mode(draws, watched.astype(bool).toarray(), _prior_scale(model))
    elif model.folds_in:
        _log.warning("the posterior mode is left out: %d cells, at most %d", math.prod(watched.shape), MAX_MODE_CELLS)
    for name, each in baselines.items():
        _log.info("%s: %s", name, each.settings)
    return baselines


def _prior_scale(model: Model) -> float:
    return float(model.options.prior_scale)  # type: ignore[attr-defined]  # of a model that folds in


def true_logits(shards: Shards) -> np.ndarray | None:
    """Return the logits of unseen users that generated simulated data, (users, films); None for real data."""
    users, films = shards.unseen_truth(), shards.truth()
    if not users.keys() >= set(USER_LATENTS) or not films.keys() >= set(FILM_LATENTS):
        return None
    product: np.ndarray = users["user_embeddings"] @ films["film_embeddings"].T
    return product + users["user_biases"][:, None] + films["film_biases"]


def recommend(bound: BoundModel, posterior: Posterior, settings: Options, files: Mapping[str, Path]) -> int:
    """Rank the unwatched films of a few users in every draw, score held-out films of all users, and write the tables.

    Every draw of every chain counts once. Films held out from a user count as unwatched. Without a held-out split,
    ``scores.csv`` has only its header.

    Args:
        bound: model and data, whose dtype is used for logits and probabilities.
        posterior: the draws.
        settings: users, and depths of lists.
        files: paths of the tables.

    Returns:
        The number of draws.

    Raises:
        ConfigError: data or model do not support ranking films, or a chosen user is not in the data.
        StoreError: the posterior and the data differ in the number of users.
    """
    jax.config.update("jax_enable_x64", True)
    check_inputs(*bound, posterior)
    model, spec, shards = bound
    num_watched, popularity = count_watched(shards)
    columns = shards.columns
    users = choose_users(num_watched, settings.users, list(columns.get("user_id", [])))
    ranking = rank_films(model, posterior, shards, np.array([user.row for user in users]), spec.dtype, settings.top)
    scored = score_users(bound, posterior, num_watched, popularity, settings)
    # By the contract of a source, the column genres has a list for each film.
    genres = cast("list[list[str]]", columns.get("genres", []))
    of_genres = [tables.genre_table(user, ranking.p_best[user.place], genres) for user in users if genres]
    written = {
        "top.csv": pd.concat([tables.top_table(user, ranking, columns, genres, settings.num_films) for user in users]),
        "genres.csv": pd.concat(of_genres) if genres else pd.DataFrame(columns=tables.GENRE_COLUMNS),
        "users.csv": pd.DataFrame(
            [tables.user_row(user, ranking, posterior.num_chains, int(num_watched[user.row])) for user in users]
        ),
        "scores.csv": tables.score_table(scored.rankings, settings.cutoff),
        "differences.csv": tables.difference_table(scored.rankings, SEED),
        "activity.csv": tables.activity_table(scored.rankings, scored.num_known),
        "calibration.csv": tables.calibration_table(scored.calibration),
        "new_users.csv": tables.new_user_table(scored.calibration, scored.acceptance, scored.num_draws),
    }
    for name, table in written.items():
        write_text(files[name], table.to_csv(index=False))
    return posterior.num_chains * posterior.num_draws
