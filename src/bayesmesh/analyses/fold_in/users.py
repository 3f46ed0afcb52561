"""Fold in users whom the chains have not seen, for each draw of the films, on all cores.

Draws are divided into runs of consecutive ones. The number of runs does not depend on the number of cores, so results
do not either.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import Films, carried, films_of, fold_in

NUM_RUNS = 4
"""Number of runs of consecutive draws; each run starts the search for its first mode at zero."""

SEED = 1


class FoldedDraw(NamedTuple):
    """The new users in one draw of the films.

    Attributes:
        place: position of the draw.
        films: all films.
        latents: (users, size) float64.
        acceptance: (users,).
    """

    place: int
    films: Films
    latents: np.ndarray
    acceptance: np.ndarray

    def logits(self) -> np.ndarray:
        """Return the logits of all films, (users, films) float32."""
        logits: np.ndarray = self.latents.astype(np.float32) @ self.films.design.T
        logits += self.films.offset
        return logits


def over_draws[T](num_draws: int, work: Callable[[range], T]) -> list[T]:
    """Apply a function to each run of draws, in as many threads as there are cores, and return the results.

    NumPy's products and functions release the GIL.
    """
    bounds = np.linspace(0, num_draws, min(NUM_RUNS, num_draws) + 1).round().astype(int)
    runs = [range(int(start), int(stop)) for start, stop in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, runs))


def fold_in_run(
    draws: FactorDraws,
    run: range,
    watched: np.ndarray,
    prior_scale: float,
    observed: np.ndarray | None = None,
) -> Iterator[FoldedDraw]:
    """Yield new users in each draw of a run.

    Args:
        draws: of the films.
        run: positions of consecutive draws.
        watched: (users, films) bool; only of `observed` films, if given.
        prior_scale: standard deviation of the prior of a user's latents.
        observed: films of which it is known whether a user watched them; all if None.
    """
    old: tuple[Films, np.ndarray] | None = None
    for place in run:
        films = films_of(draws.film_embeddings[place], draws.film_biases[place])
        seen = films if observed is None else Films(films.design[observed], films.offset[observed])
        start = None if old is None else carried(old[0], seen, old[1])
        found = fold_in(seen, watched, prior_scale, np.random.default_rng([SEED, place]), start=start)
        old = seen, found.mode
        yield FoldedDraw(place, films, found.latents, found.acceptance)
