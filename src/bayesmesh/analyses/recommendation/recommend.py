"""Rank films for a few users with their uncertainty, and score all users on held-out films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import jax
import numpy as np
import pandas as pd

from bayesmesh.analyses.recommendation import tables
from bayesmesh.analyses.recommendation.held_out import ACCUMULATOR_BYTES, score_held_out
from bayesmesh.analyses.recommendation.logits import check_inputs, check_users
from bayesmesh.analyses.recommendation.ranking import WORK_BYTES, rank_films
from bayesmesh.analyses.recommendation.settings import Options
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.files import write_text
from bayesmesh.models.base import Model
from bayesmesh.store.posterior_reader import BLOCK_BYTES, Posterior


def count_watched(shards: Shards, block_rows: int = 8192) -> tuple[np.ndarray, np.ndarray]:
    """Return how many films each user watched, (users,) int64, and the users of each film, (films,) int64.

    A user's count includes held-out films, which were watched. A film's count covers only the training matrix.
    """
    per_user, per_film = [], np.zeros(shards.fields["watched"].shape[0], np.int64)
    for start in range(0, shards.num_rows, block_rows):
        watched = shards.read_rows(start, min(shards.num_rows, start + block_rows))["watched"] > 0
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
    check_users(chosen, len(num_watched))
    extremes = [(int(num_watched.argmax()), "most"), (int(num_watched.argmin()), "least")]
    activity: dict[int, str] = {}
    for row, kind in [*extremes, *((user, "chosen") for user in chosen)]:
        activity.setdefault(row, kind)
    return [
        tables.RankedUser(row, user_ids[row] if user_ids else row, kind, place)
        for place, (row, kind) in enumerate(activity.items())
    ]


def recommend(
    model: Model,
    spec: DataSpec,
    posterior: Posterior,
    shards: Shards,
    settings: Options,
    files: Mapping[str, Path],
    *,
    work_bytes: int = WORK_BYTES,
    accumulator_bytes: int = ACCUMULATOR_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> int:
    """Rank the unwatched films of a few users in every draw, score held-out films of all users, write four tables.

    Every draw of every chain counts once. Films held out from a user count as unwatched. Without a held-out split,
    ``scores.csv`` has only its header.

    Args:
        model: has latents per user and predicts one Bernoulli per user and film.
        spec: specification of the training data; its dtype is used for logits and probabilities.
        posterior: the draws.
        shards: training matrix, held-out films, titles and genres.
        settings: users, and depths of lists.
        files: paths of the four tables.
        work_bytes, accumulator_bytes, block_bytes: memory limits, see `rank_films` and `score_held_out`.

    Returns:
        The number of draws.

    Raises:
        ConfigError: data or model do not support ranking films, or a chosen user is not in the data.
        StoreError: the posterior has another number of users than the data.
    """
    jax.config.update("jax_enable_x64", True)
    check_inputs(model, spec, posterior, shards)
    num_watched, popularity = count_watched(shards)
    columns, dtype = shards.columns, spec.dtype
    users = choose_users(num_watched, settings.users, list(columns.get("user_id", [])))
    rows, bounds = np.array([user.row for user in users]), {"block_bytes": block_bytes}
    ranking = rank_films(model, posterior, shards, rows, dtype, settings.top, work_bytes=work_bytes, **bounds)
    bounds["accumulator_bytes"] = accumulator_bytes
    scores = score_held_out(model, posterior, shards, popularity, dtype, settings.cutoff, **bounds)
    # By the contract of a source, the column genres has a list for each film.
    genres = cast(list[list[str]], columns.get("genres", []))
    of_genres = [tables.genre_table(user, ranking.p_best[user.place], genres) for user in users if genres]
    of_users = [tables.user_row(user, ranking, posterior.num_chains, int(num_watched[user.row])) for user in users]
    written = {
        "top.csv": pd.concat([tables.top_table(user, ranking, columns, genres, settings.num_films) for user in users]),
        "genres.csv": pd.concat(of_genres) if genres else pd.DataFrame(columns=tables.GENRE_COLUMNS),
        "users.csv": pd.DataFrame(of_users),
        "scores.csv": tables.score_table(scores, settings.cutoff),
    }
    for name, table in written.items():
        write_text(files[name], table.to_csv(index=False))
    return posterior.num_chains * posterior.num_draws
