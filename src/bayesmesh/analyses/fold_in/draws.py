"""Read some draws of a factorisation: whole chunks, spread evenly over the chains, within a limit in bytes.

Only the chunks that are read are decoded, and only their checksums are verified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import read_part
from bayesmesh.store.posterior.coordinates import choose_coordinates
from bayesmesh.store.posterior.reader import Posterior

READ_BYTES = 384 * 2**20
"""Limit on the chunks that are decoded, in bytes, beyond the first of each array."""

FILM_LATENTS = ("film_embeddings", "film_biases")
USER_LATENTS = ("user_embeddings", "user_biases")


class FactorDraws(NamedTuple):
    """Draws of the latents of a factorisation, chain by chain; consecutive draws of a chain follow each other.

    Attributes:
        film_embeddings: (draws, films, width).
        film_biases: (draws, films).
        user_embeddings: (draws, width), of one user; empty if none was requested.
        user_biases: (draws,).
        shared: further latents that all users share -> (draws, ...).
    """

    film_embeddings: np.ndarray
    film_biases: np.ndarray
    user_embeddings: np.ndarray
    user_biases: np.ndarray
    shared: Mapping[str, np.ndarray] = MappingProxyType({})

    @property
    def num_draws(self) -> int:
        """Number of draws, over all chains."""
        return len(self.film_biases)


def choose_runs(num_draws: int, run: int, num_runs: int) -> list[slice]:
    """Return runs of consecutive draws, spread evenly; each starts at a multiple of its length.

    >>> choose_runs(100, 8, 3)
    [slice(0, 8, None), slice(48, 56, None), slice(96, 100, None)]
    """
    count = math.ceil(num_draws / run)
    return [slice(i * run, min(num_draws, (i + 1) * run)) for i in choose_coordinates(count, num_runs).tolist()]


def read_factors(
    posterior: Posterior,
    user: int | None,
    max_draws: int,
    *,
    shared: Sequence[str] = (),
    read_bytes: int = READ_BYTES,
) -> FactorDraws:
    """Return draws of all films and of one user.

    Args:
        posterior: of a model whose logits are products of embeddings.
        user: row of the watch matrix, or None.
        max_draws: most draws, over all chains; fewer where `read_bytes` allows no more.
        shared: names of further latents to read.
        read_bytes: see `READ_BYTES`.

    Raises:
        StoreError: a latent is missing, or a chunk damaged.
    """
    names = (*FILM_LATENTS, *(USER_LATENTS if user is not None else ()), *shared)
    arrays = {name: posterior.array("posterior", name) for name in names}
    # Chunks hold whole draws of one chain unless a single draw is larger.
    run = max(1, min(array.chunks[1] for array in arrays.values()))
    run_bytes = posterior.num_chains * sum(
        max(run, array.chunks[1]) * math.prod(array.shape[2:]) * array.dtype.itemsize for array in arrays.values()
    )
    runs = choose_runs(posterior.num_draws, run, max(1, read_bytes // run_bytes))
    total = posterior.num_chains * sum(each.stop - each.start for each in runs)
    kept = choose_coordinates(total, max_draws)
    found = {}
    for name, array in arrays.items():
        of_user = (slice(user, user + 1),) if user is not None and name in USER_LATENTS else ()
        parts = [read_part(array, slice(None), each, *of_user) for each in runs]
        values = np.concatenate(parts, axis=1)
        values = values.reshape(-1, *values.shape[2:])[kept]
        if not np.isfinite(values).all():
            raise StoreError(f"{posterior.path}: '{name}' has draws that are not finite", "sample again")
        found[name] = values[:, 0] if of_user else values
    empty = np.zeros(0, np.float32)
    factors = {name: found.get(name, empty) for name in (*FILM_LATENTS, *USER_LATENTS)}
    return FactorDraws(**factors, shared={name: found[name] for name in shared})
