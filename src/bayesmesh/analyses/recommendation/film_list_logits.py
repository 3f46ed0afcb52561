"""Compute the logits of one user: from stored draws, or for a new user, from draws given the films watched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import Films, carried, films_of, fold_in

NUM_PROPOSALS = 32
"""Proposals for each draw of the films; for one user they cost little."""


class NewUser(NamedTuple):
    """Draws of a new user.

    Attributes:
        logits: (draws, films) float32.
        acceptance: share of accepted proposals.
    """

    logits: np.ndarray
    acceptance: float


def known_user(draws: FactorDraws) -> np.ndarray:
    """Return the logits of the user that was read with the films, (draws, films)."""
    product = np.einsum("dfw,dw->df", draws.film_embeddings, draws.user_embeddings)
    return product + draws.film_biases + draws.user_biases[:, None]


def new_user(draws: FactorDraws, is_watched: np.ndarray, prior_scale: float, generator: np.random.Generator) -> NewUser:
    """Return the logits of a new user, one draw of the user's latents for each draw of the films.

    Args:
        draws: of the films.
        is_watched: (films,) bool; all others count as not watched.
        prior_scale: standard deviation of the prior of a user's latents.
        generator: random numbers.
    """
    logits, accepted = np.empty(draws.film_biases.shape, np.float32), []
    old: tuple[Films, np.ndarray] | None = None
    for place, (embeddings, biases) in enumerate(zip(draws.film_embeddings, draws.film_biases, strict=True)):
        films = films_of(embeddings, biases)
        start = None if old is None else carried(old[0], films, old[1])
        found = fold_in(films, is_watched[None], prior_scale, generator, start=start, num_proposals=NUM_PROPOSALS)
        old = films, found.mode
        logits[place] = films.design @ found.latents[0] + films.offset
        accepted.append(found.acceptance[0])
    return NewUser(logits, float(np.mean(accepted)))
