"""Rank the hidden films of users whom the chains have not seen, given the rest of their films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.users import NUM_RUNS, fold_in_run, over_draws
from bayesmesh.analyses.fold_in.watches import sigmoid
from bayesmesh.analyses.recommendation.baselines import Baseline
from bayesmesh.analyses.recommendation.ranked_lists import (
    Ranked,
    join_users,
    list_first,
    rank_draws,
    rank_once,
    rank_randomly,
)
from bayesmesh.analyses.recommendation.scores import self_information
from bayesmesh.data.split import Interactions, UnseenUsers

SUM_BYTES = 256 * 2**20
"""Limit on the summed probabilities of concurrent runs, users x films float32; more users take another pass."""

NUM_SINGLE_DRAWS = 20


class UnseenScores(NamedTuple):
    """Rankings for users whom the chains have not seen.

    Attributes:
        rankings: name -> lists and scores, of users with hidden films; empty if there are none.
        acceptance: (users,), share of accepted proposals over all draws, for these users.
    """

    rankings: dict[str, Ranked]
    acceptance: np.ndarray


def score_unseen(
    draws: FactorDraws,
    unseen: UnseenUsers,
    prior_scale: float,
    popularity: np.ndarray,
    num_users: int,
    cutoff: int,
    baselines: Mapping[str, Baseline] = MappingProxyType({}),
    *,
    sum_bytes: int = SUM_BYTES,
) -> UnseenScores:
    """Fold in all new users, and rank the films that they are not known to have watched.

    Args:
        draws: of the films; all are averaged.
        unseen: the users.
        prior_scale: standard deviation of the prior of a user's latents.
        popularity: (films,), training watch counts.
        num_users: training users.
        cutoff: films listed per user.
        baselines: further rankings.
        sum_bytes: see `SUM_BYTES`.
    """
    scored = np.flatnonzero(np.diff(unseen.hidden.indptr))
    if not len(scored):
        return UnseenScores({}, np.empty(0))
    information = self_information(popularity, num_users)
    cutoff = min(cutoff, len(popularity))
    tile = max(1, sum_bytes // (4 * len(popularity) * NUM_RUNS))
    single = set(
        np.linspace(0, draws.num_draws - 1, min(NUM_SINGLE_DRAWS, draws.num_draws)).round().astype(int).tolist()
    )
    pieces, accepted = [], []
    for some in np.split(scored, range(tile, len(scored), tile)):
        given, is_hidden = unseen.given[some] > 0, hidden_matrix(unseen.hidden, some, len(popularity))

        def score(values: np.ndarray, given: np.ndarray = given, is_hidden: np.ndarray = is_hidden) -> Ranked:
            return rank_once(list_first(values, given, cutoff), is_hidden, information)

        def work(run: range, given: np.ndarray = given) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
            total, acceptance, lists = np.zeros(given.shape, np.float32), np.zeros(len(given)), []
            for folded in fold_in_run(draws, run, given, prior_scale):
                chance = sigmoid(folded.logits())
                total += chance
                acceptance += folded.acceptance
                if folded.place in single:
                    lists.append(list_first(chance, given, cutoff))
            return total, acceptance, lists

        totals, acceptances, lists = zip(*over_draws(draws.num_draws, work), strict=True)
        of_draws = [rank_once(films, is_hidden, information) for part in lists for films in part]
        pieces.append({
            "posterior_average": score(np.sum(totals, axis=0)),
            "single_draw": rank_draws(of_draws),
            "popularity": score(np.broadcast_to(popularity, given.shape)),
            "random": rank_randomly(given, is_hidden, information, cutoff),
            **{name: score(each.score(given)) for name, each in baselines.items()},
        })  # fmt: skip
        accepted.append(np.sum(acceptances, axis=0) / draws.num_draws)
    return UnseenScores(join_users(pieces), np.concatenate(accepted))


def hidden_matrix(hidden: Interactions, users: Sequence[int] | np.ndarray, num_films: int) -> np.ndarray:
    """Return the hidden films of some users, (users, films) bool."""
    matrix = np.zeros((len(users), num_films), bool)
    for place, user in enumerate(users):
        matrix[place, hidden.indices[hidden.indptr[user] : hidden.indptr[user + 1]]] = True
    return matrix
